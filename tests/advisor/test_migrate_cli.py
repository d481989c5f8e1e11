"""`advisor migrate` on the command line: streams, exit codes, text, JSON and files."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def migrate(*args: str, code: int = 0, cwd=None) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "vllm_advisor", "migrate", "--offline", *args]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd)
    assert "Traceback" not in done.stderr
    assert code == done.returncode, done.stderr + done.stdout
    return done


SERVE = ("--", "vllm", "serve", "Qwen/Qwen3-8B")


def test_a_complete_migration_exits_0():
    """The command, what changes, and that all is there."""
    out = migrate("--from", "0.24.0", "--to", "0.33.0", "--gpu", "8xMI300X", *SERVE, "-tp", "2").stdout
    assert out.startswith("command line: vLLM 0.24.0 → 0.33.0 on 8xAMD Instinct MI300X\n\nvllm serve Qwen/Qwen3-8B")
    assert "--max-num-batched-tokens: 8192 → 16384" in out
    assert "Memory of one rank (estimates)" in out
    assert out.rstrip().endswith("all is carried over")


def test_what_cannot_be_carried_over_exits_1():
    """Marked, with the reason and the source."""
    out = migrate("--from", "0.24.0", *SERVE, "--calculate-kv-scales", code=1).stdout
    assert "! - --calculate-kv-scales: KV scales come from the checkpoint" in out
    assert "0.27.1 config/cache.py:112; gone in 0.28.0" in out
    assert "1 thing could not be carried over" in out


def test_a_migration_as_json():
    """Both commands, the items, and the memory in bytes."""
    done = migrate("--from", "0.24.0", "--gpu", "1xMI300X", "--json", *SERVE, "--swap-space", "4")
    found = json.loads(done.stdout)["commands"][0]
    assert ("0.24.0", "0.33.0", True) == (found["from"], found["to"], found["complete"])
    assert ["vllm", "serve", "Qwen/Qwen3-8B"] == found["after"]["argv"]
    assert ["0.24.0", "0.33.0", "0.33.0, --max-num-batched-tokens 8192"] == [m["version"] for m in found["memory"]]
    assert "--swap-space" in [item["subject"] for item in found["items"]]


def test_a_file_brings_its_own_version(tmp_path):
    """The image's tag says what it runs on now; each server of the file is carried."""
    file = tmp_path / "compose.yaml"
    file.write_text(
        "services:\n  llm:\n    image: vllm/vllm-openai:v0.24.0\n"
        "    command: --model Qwen/Qwen3-8B --max-num-partial-prefills 1\n"
    )
    out = migrate(str(file)).stdout
    assert "vLLM 0.24.0 → 0.33.0" in out
    assert "--max-num-partial-prefills 1: 1 was the default" in out


def test_a_version_before_the_surfaces_takes_the_oldest_ones_names():
    """Old flags are still translated, and the memory is the old release's."""
    out = migrate("--from", "0.17.1", "--gpu", "1xH100", *SERVE, "--swap-space", "4").stdout
    assert "vLLM 0.17.1 → 0.33.0" in out
    assert "--swap-space 4" in out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--from", "0.24.0"), "nothing to migrate"),
        (SERVE, "no version to migrate from"),
        (("--from", "banana", *SERVE), "banana"),
        (("--from", "0.24.0", "--to", "0.1.0", *SERVE), "no surface of vLLM 0.1.0"),
        (("--from", "0.24.0", "--", "ls", "-l"), "cannot read the command"),
        (("--from", "0.24.0", "no-such-file"), "no-such-file"),
        (("--from", "0.24.0", "--gpu", "8xNOPE", *SERVE), "NOPE"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(args, said, tmp_path):
    """Never a traceback, always the next step."""
    done = migrate(*args, code=2, cwd=tmp_path)
    assert said in done.stderr
    assert "" == done.stdout


def test_a_model_that_is_not_known_is_said():
    """What depends on it is left out, the rest is told."""
    out = migrate("--from", "0.24.0", "--gpu", "1xH100", "--", "vllm", "serve", "no/such-model").stdout
    assert "what depends on the model is not compared" in out
