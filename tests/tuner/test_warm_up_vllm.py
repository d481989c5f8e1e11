"""What a warm-up is worth on the real vLLM: first requests of a server that had none, and of one that had it."""

import json
import os
import subprocess
import sys

import pytest


START = "from vllm_tuner.cli.app import main; main()"
LIMITS = ("--max-model-len", "512", "--max-num-seqs", "4", "--max-num-batched-tokens", "256", "--enforce-eager")


@pytest.mark.vllm
def test_first_users_do_not_pay_for_compilation(vllm_python, made_model, tmp_path):
    """Two starts with empty caches, one warmed up: the first logprobs wait for no compiler, and nobody waits longer.

    Lengths cost a first user little without compiled graphs; the compiler that the first logprobs start costs seconds.
    """
    ours = ("--gpu", "cpu", "--offline", "--json", "--vllm-python", vllm_python, "--folder", tmp_path / "runs")
    serve = ("VLLM_CPU_KVCACHE_SPACE=1", "vllm", "serve", made_model("smollm2"), *LIMITS)
    argv = [sys.executable, "-c", START, "calibrate", "warm-up", *ours, "--budget", "2m", "--", *serve]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*map(str, argv)], capture_output=True, text=True, env=environment, check=False, timeout=560, cwd=tmp_path
    )
    assert 0 == done.returncode, done.stderr[-2000:]
    found = json.loads(done.stdout)
    rows = {row["name"]: row for row in found["first_requests"]}

    assert ["12 tokens", "51 tokens", "204 tokens", "406 tokens"] == list(rows)[:4]
    assert {"sampled", "penalties", "logprobs", "structured", "chat"} == set(list(rows)[4:])
    assert ([], {""}) == (found["left_out"], {step["error"] for step in found["steps"]})
    assert rows["logprobs"]["without_s"] > 3 * rows["logprobs"]["with_s"]
    for row in rows.values():  # a machine that is shared: three times, and half a second, are noise
        assert row["with_s"] <= 3 * max(row["without_s"], row["with_later_s"]) + 0.5, row
    assert sum(row["without_s"] for row in rows.values()) > sum(row["with_s"] for row in rows.values())
