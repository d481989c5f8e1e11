"""`advisor estimate` on the command line: streams, exit codes, text and JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest


if TYPE_CHECKING:
    from pathlib import Path


def estimate(*args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "vllm_advisor", "estimate", *args]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert code == done.returncode, done.stderr
    return done


def test_a_configuration_that_starts_exits_0_and_shows_its_memory():
    """Bars, what the log will say, and what was assumed."""
    out = estimate("Qwen/Qwen3-8B", "--gpu", "H100").stdout

    assert "It starts." in out
    assert [mark in out for mark in ("weights", "KV cache", "What its log will say")] == [True] * 3
    assert "gpu_memory_utilization 0.92: default of vLLM 0.33.0" in out


def test_a_configuration_that_does_not_start_exits_1_with_fixes():
    """The limit with its numbers, then the smallest changes."""
    out = estimate("Qwen/Qwen3-8B", "--gpu", "L4", code=1).stdout

    assert "It does not start." in out
    assert "one request of 40,960 tokens needs 5.6 GiB of KV cache" in out
    assert "It fits with one of these (the smallest first)" in out


def test_json_has_plan_memory_and_verdict():
    """One document, the same facts as the text."""
    found = json.loads(
        estimate("Qwen/Qwen3-8B", "--gpu", "2xL4", "--tp", "2", "--max-model-len", "16K", "--json").stdout
    )

    assert (True, "fits", 16384, 2) == (
        found["starts"], found["verdict"], found["plan"]["max_model_len"], found["plan"]["tensor_parallel_size"],
    )  # fmt: skip
    assert found["memory"]["weights_bytes"] > 7 << 30


def test_what_vllm_refuses_is_not_said_to_start():
    """Memory is enough, and 32 heads do not split three ways."""
    out = estimate("Qwen/Qwen3-8B", "--gpu", "8xH100", "--tp", "3", code=1).stdout

    assert "It does not start." in out
    assert "32 attention heads do not split 3 ways" in out


def test_old_versions_have_their_own_defaults():
    """0.9 and V1's batch in 0.11.0."""
    found = json.loads(estimate("Qwen/Qwen3-8B", "--gpu", "H100", "--vllm", "0.11.0", "--json").stdout)

    assert (0.9, "0.11.0") == (found["plan"]["gpu_memory_utilization"], found["vllm"])


def test_a_given_kv_cache_is_taken_as_it_is():
    """--given-kv-gib 4.5 is the cache, whatever else would be left."""
    found = json.loads(estimate("Qwen/Qwen3-8B", "--gpu", "H100", "--given-kv-gib", "4.5", "--json", code=1).stdout)

    assert pytest.approx(4.5 * 2**30, rel=1e-3) == found["memory"]["kv_cache_bytes"]["mid"]


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("Qwen/Qwen3-8B", "--batch", "rows.jsonl"),
        ("Qwen/Qwen3-8B", "--models", "."),
        ("--batch", "/no/such/file"),
        ("--batch", "rows.jsonl", "--tp", "2"),
        ("--batch", "rows.jsonl", "--json"),
        ("--batch", "rows.jsonl", "--vllm", "0.24.0"),
        ("Qwen/Qwen3-8B", "--gpu", "L4", "--tp", "2"),
        ("Qwen/Qwen3-8B", "--gpu", "L4", "--vllm", "banana"),
        ("Qwen/Qwen3-8B", "--gpu", "L4", "--max-model-len", "-3"),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error(args):
    """Exit 2, one line, nothing on stdout."""
    done = estimate(*args, code=2)

    assert "" == done.stdout
    assert "rror" in done.stderr


def test_a_batch_answers_each_row_on_stdout(tmp_path: Path):
    """Two rows, one of them unsupported: two lines of JSON and exit 0."""
    file = tmp_path / "rows.jsonl"
    file.write_text(
        '{"id": 1, "model": "Qwen/Qwen3-8B", "gpu": "L4", "tp": 1}\n\n{"id": 2, "model": "x", "gpu": null}\n'
    )
    rows = [json.loads(line) for line in estimate("--batch", str(file), "--models", str(tmp_path)).stdout.splitlines()]

    assert [1, 2] == [row["id"] for row in rows]
    assert "no GPU named" == rows[1]["unsupported"]


def test_a_batch_cut_by_its_reader_says_nothing(tmp_path: Path):
    """`| head -1` closes the pipe: no traceback."""
    file = tmp_path / "rows.jsonl"
    file.write_text('{"id": 1, "model": "Qwen/Qwen3-8B", "gpu": "L4", "tp": 1}\n' * 3000)
    command = f"{sys.executable} -m vllm_advisor estimate --batch {file} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert 1 == json.loads(done.stdout)["id"]
    assert "" == done.stderr


def test_an_estimate_loads_nothing_heavy():
    """Neither torch nor pydantic, yaml, httpx, tomllib or the renderers: a single estimate starts like `--help`."""
    code = (
        "import sys; from vllm_advisor.cli.app import app\n"
        "try: app(['estimate', 'Qwen/Qwen3-8B', '--gpu', 'H100', '--json'])\n"
        "except SystemExit: pass\n"
        "heavy = ('torch', 'pydantic', 'yaml', 'httpx', 'tomllib', 'huggingface_hub', 'sqlmodel', 'rich.table',\n"
        "         'vllm_advisor.render', 'vllm_advisor.probe', 'vllm_advisor.candidates')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]" == done.stderr.strip()
