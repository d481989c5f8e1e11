"""`advisor doctor LOG` on the command line: streams, exit codes, text and JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


LOGS = Path(__file__).resolve().parents[1] / "data" / "logs"


def doctor(*args: str, code: int = 0, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "vllm_advisor", "doctor", *args]
    done = subprocess.run(argv, capture_output=True, input=stdin, check=False)
    out, err = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in err
    assert code == done.returncode, err
    return subprocess.CompletedProcess(argv, done.returncode, out, err)


def path(name: str) -> str:
    return str(LOGS / f"{name}.log")


def test_a_healthy_log_exits_0_and_shows_what_vllm_found():
    """Figures, kernels, advice; no failure."""
    out = doctor(path("healthy-0.33")).stdout

    assert "It started." in out
    assert "Worker_TP0: 7.64 GiB of weights, loaded in 9 s, 60.27 GiB for the KV cache" in out
    assert "EngineCore (GPU): 1,753,632 tokens, 42.81 requests of 40,960 tokens" in out
    assert "scales of 1.0" in out


def test_a_failure_exits_1_with_its_cause_and_the_users_own_command_mended():
    """The cause in one sentence, the line, the command."""
    out = doctor(path("kv-too-small"), code=1).stdout

    assert "It did not start: the KV cache is too small for one request (DOC-01)." in out
    assert "vllm serve Qwen/Qwen3-8B --max-model-len 38912" in out


def test_a_machine_adds_the_prediction():
    """Printed, predicted and the difference, said to be a prediction."""
    out = doctor(path("healthy-0.33"), "--gpu", "2xH100").stdout

    assert "Against our prediction" in out
    assert "weights per rank         7.64 GiB          7.64 GiB" in out


@pytest.mark.parametrize("args", [(), ("-",)])
def test_a_pipe_is_read(args):
    """With a dash or without."""
    out = doctor(*args, code=1, stdin=(LOGS / "heads.log").read_bytes()).stdout

    assert "14 attention heads do not split 4 ways" in out


def test_json_has_the_same_facts():
    """One document: verdict, cause with its figures, fixes, what was found, no prediction and why."""
    found = json.loads(doctor(path("mamba-blocks"), "--json", code=1).stdout)

    assert ("failed", "DOC-11", "EngineCore") == (found["verdict"], found["cause"]["id"], found["cause"]["process"])
    assert {"--max-num-seqs": "524"} == found["fixes"][0]["flags"]
    assert 544 == found["found"]["attention_block_size"]
    assert "--gpu or --node says what machine it ran on" == found["prediction"]["why_not"]


def test_an_unknown_failure_exits_1_with_the_last_words():
    """Nothing is invented."""
    out = doctor(path("unknown-failure"), code=1).stdout

    assert "none of the failures that we know is in this log" in out
    assert "KeyError: 'model.layers.0.mlp.gate_up_proj.weird_scale'" in out


@pytest.mark.parametrize(
    ("args", "stdin", "message"),
    [
        (("-",), b"", "it is empty"),
        (("-",), b"hello\nworld\n", "no line in it is vLLM's"),
        (("-",), bytes(range(256)) * 40, "no line in it is vLLM's"),
        (("-",), b"# How to\n\n    vllm serve Qwen/Qwen3-8B\n", "no line in it is vLLM's"),
        (("no-such.log",), b"", "cannot be read"),
        ((str(LOGS),), b"", "cannot be read"),
        (("-", "--url", "http://127.0.0.1:1"), b"", "two patients"),
        (("-", "--api-key-env", "X"), b"", "goes with --url"),
        ((path("heads"), "--vllm", "nonsense"), b"", "nonsense"),
        ((path("heads"), "--gpu", "no-such-gpu"), b"", "no-such-gpu"),
        (("-",), b"\x1f\x8b\x08\x00rest", "packed with gzip"),
    ],
)
def test_what_is_no_log_or_no_command_line_exits_2(args, stdin, message):
    """One line of error, and a hint."""
    err = doctor(*args, code=2, stdin=stdin).stderr

    assert message in err
    assert "hint: " in err


def test_no_secret_and_no_home_leaves_the_tool():
    """In text and in JSON: a token in an argument, a key in a line, a user's folder."""
    log = (
        b"(APIServer pid=1) INFO 11-29 08:00:01 [s.py:1] non-default args: {'model': '/home/alice/m', "
        b"'hf_token': 'hf_AAAAAAAAAAAA', "
        b"'api_key': ['sk-AAAAAAAAAAAA']}\n"
        b"(APIServer pid=1) OSError: You are trying to access a gated repo with hf_AAAAAAAAAAAA\n"
    )
    outs = [doctor("-", *args, code=1, stdin=log).stdout for args in ((), ("--json",))]

    assert [] == [word for word in ("alice", "AAAA") for out in outs if word in out]
