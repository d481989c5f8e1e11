"""What `--requests` names becomes the load to plan for, and typed figures stand."""

import json
from pathlib import Path

import pytest

from vllm_advisor.errors import AdvisorError
from vllm_advisor.launch import Server
from vllm_advisor.plan import LaunchCommand
from vllm_advisor.question import Load, workload
from vllm_tuner.cli.requests import given
from vllm_tuner.testing import install


def lines(tmp_path, rows):
    file = tmp_path / "trace.jsonl"
    file.write_text(
        "".join(json.dumps(dict(zip(("at", "input_tokens", "output_tokens"), row, strict=True))) + "\n" for row in rows)
    )
    return str(file)


def test_nothing_named_is_the_load_as_typed():
    """Synthetic requests leave the workload alone."""
    asked = Load("rag", concurrency=3)
    assert workload(asked) == given(None).planned(workload(asked), asked)


def test_recorded_lengths_are_planned_for(tmp_path):
    """Means of a trace take the preset's place; what was typed does not give way."""
    found = given(lines(tmp_path, [(0.0, 100, 10), (1.0, 300, 30), (2.0, 200, 20)]))

    planned = found.planned(workload(Load()), Load())
    assert (200, 20, 1.0) == (planned.input_tokens, planned.output_tokens, planned.request_rate)

    typed = Load(output_tokens="64")
    assert (200, 64) == (
        found.planned(workload(typed), typed).input_tokens,
        found.planned(workload(typed), typed).output_tokens,
    )


def test_conversations_are_texts(tmp_path):
    """Their lengths are counted by the server, so that nothing is planned from them; drafts may be tried on them."""
    file = tmp_path / "chat.json"
    file.write_text(json.dumps([{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}]))
    found = given(str(file))
    assert (True, None) == (found.texts, found.load)


def test_a_running_server_is_read(tmp_path, monkeypatch):
    """The stand-in served nothing yet: that is one expected error, and its address is no file's name."""
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'bin')}:/usr/bin:/bin")
    with Server(LaunchCommand(("vllm", "serve", "m")), run_folder=tmp_path / "run") as server:
        server.wait_until_ready()
        with pytest.raises(AdvisorError) as caught:
            given(server.url)
    assert "\n" not in caught.value.message


def test_a_missing_file_is_one_line():
    """With a hint."""
    with pytest.raises(AdvisorError) as caught:
        given(str(Path("nowhere") / "trace.jsonl"))
    assert caught.value.hint
