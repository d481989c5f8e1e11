"""What a command opens, and that no secret is ever repeated."""

from __future__ import annotations

import shlex

import pytest

from vllm_advisor.check import judge, report
from vllm_advisor.check.invocation import Invocation
from vllm_advisor.check.parse import parse
from vllm_advisor.vllm.surface import load


def found(line, version="0.33.0", **changes):
    """Findings about security, by id."""
    surface = load(version)
    words, env = shlex.split(line), []
    while "=" in words[0]:
        env.append(tuple(words.pop(0).split("=", 1)))
    reading = parse(Invocation(tuple(words), tuple(env), **changes), surface)
    return {f.id: f for f in judge.findings(reading, surface, None, None) if f.id.startswith("SEC-")}


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("vllm serve m", "note"),
        ("vllm serve m --host 0.0.0.0", "warning"),
        ("vllm serve m --host ::", "warning"),
        ("vllm serve m --host 127.0.0.1", None),
        ("vllm serve m --host localhost", None),
        ("vllm serve m --uds /run/vllm.sock", None),
        ("vllm serve m --api-key k", None),
        ("VLLM_API_KEY=k vllm serve m --host 0.0.0.0", None),
        ("VLLM_API_KEY= vllm serve m --host 0.0.0.0", "warning"),
        ("VLLM_API_KEY=k vllm serve m --host 0.0.0.0 --api-key ''", "warning"),
    ],
)
def test_a_server_without_a_key_is_open_to_whoever_reaches_it(line, level):
    """No --host is all interfaces (launcher.py:378), and an empty key guards nothing (register.py:33)."""
    said = found(line).get("SEC-01")

    assert level == (said.level if said else None)


@pytest.mark.parametrize(("version", "open_by_default"), [("0.24.0", True), ("0.33.0", False)])
def test_whether_any_page_may_call_by_default_is_the_version_s(version, open_by_default):
    """0.24.0 cli_args.py:259 allows every origin, 0.33.0 common/cli_args.py:329 none."""
    assert open_by_default == ("SEC-05" in found("vllm serve m", version))
    assert "SEC-05" in found("""vllm serve m --allowed-origins '["*"]'""", version)


def test_a_key_guards_some_paths_only():
    """Development and profiling endpoints stand outside of /v1."""
    said = found("VLLM_SERVER_DEV_MODE=1 vllm serve m --api-key k --profiler-config '{}'")

    assert "/v1" in said["SEC-03"].text
    assert "/start_profile" in said["SEC-06"].text


@pytest.mark.parametrize("value", ["0", "", "false"])
def test_a_switch_that_is_off_opens_nothing(value):
    """The variables count by value, not by being there."""
    line = f"VLLM_SERVER_DEV_MODE={value} VLLM_ALLOW_INSECURE_SERIALIZATION={value} vllm serve m"

    assert not {"SEC-03", "SEC-08"} & found(line).keys()


def test_no_secret_is_repeated_in_any_finding_of_the_whole_check():
    """Keys and tokens on the command line, in the environment, and beside faults of their own."""
    secrets = ("sk-onesecret", "sk-twosecret", "hf_threesecret")
    words = ("vllm", "serve", "m", "--api-key", secrets[0], "--api-key", secrets[1], "--no-such-flag")
    command = Invocation(words, (("HF_TOKEN", secrets[2]), ("VLLM_API_KEY", secrets[0])), "serve.sh:1")

    told = [(f.text, f.hint, f.source, f.subject) for f in report.judge(command, load("0.33.0")).findings]

    assert told
    assert not [s for s in secrets if s in repr(told)]


def test_repository_code_is_pinned_where_it_is_needed_and_left_out_where_not():
    """Kimi-K2's tokenizer is code; Qwen3 needs none."""
    from vllm_advisor.catalog import models

    surface = load("0.33.0")
    for name, says in (("moonshotai/Kimi-K2-Instruct", "the tokenizer"), ("Qwen/Qwen3-0.6B", "we know of nothing")):
        reading = parse(Invocation(("vllm", "serve", name, "--trust-remote-code")), surface)
        (said,) = [f for f in judge.findings(reading, surface, None, models.find(name)) if f.id == "SEC-02"]
        assert says in said.text
