"""Every known failure is found in a log of it, with its fix; a healthy log has none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vllm_advisor.doctor import command, diagnosis, remedies
from vllm_advisor.doctor.failures import FAILURES
from vllm_advisor.vllm import logs


LOGS = Path(__file__).resolve().parents[1] / "data" / "logs"
EXPECTED = json.loads((LOGS / "expected.json").read_text())


def read(name: str) -> diagnosis.Finding:
    with (LOGS / f"{name}.log").open("rb") as stream:
        return diagnosis.read(stream)


def written(found: diagnosis.Finding) -> list[str]:
    facts = found.start.facts
    changes = [way.change for way in remedies.fixes(found.cause, facts, None)]
    return [(line.text if (line := command.rebuilt(facts, change)) else command.added(change)) for change in changes]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_cause_is_named(name):
    """The root, not what follows from it; its sentence has no figure left open."""
    found = read(name)

    assert EXPECTED[name]["id"] == found.cause.failure.id
    assert "<" not in found.cause.cause


@pytest.mark.parametrize("name", [name for name, row in EXPECTED.items() if row["fix"]])
def test_the_smallest_fix_is_a_command(name):
    """The user's own command with the change, or the change where the log names no command."""
    assert EXPECTED[name]["fix"] in written(read(name))[0]


@pytest.mark.parametrize("name", ["healthy-0.33", "healthy-0.24", "healthy-ray-dp", "restarted"])
def test_a_healthy_log_has_no_failure(name):
    """Warnings that quote errors, a slow compilation and a bad request are none."""
    found = read(name)

    assert ("healthy", ()) == (found.verdict, found.failures)


def test_every_row_has_a_log_and_ids_are_unique():
    """A row that no log shows is a guess."""
    ids = [failure.id for failure in FAILURES]

    assert sorted(set(ids)) == sorted(ids)
    assert set() == set(ids) - {row["id"] for row in EXPECTED.values()}
    assert len(ids) >= 36


def test_no_mark_holds_a_digit_and_each_has_a_word():
    """Lines that differ only in digits are judged once; a mark is found by its longest word."""
    marks = diagnosis.marks()

    assert [] == [mark for mark in marks if any(c.isdigit() for c in mark)]
    assert [] == [mark for mark in marks if len(logs.keyword(mark)) < 3]


def test_every_row_names_its_source_and_ends_no_sentence():
    """Texts are put into sentences by the report."""
    assert [] == [f.id for f in FAILURES if not f.source or f.cause.endswith(".") or f.fix.endswith(".")]


def test_figures_of_the_line_are_read():
    """Needed, available, asked and possible, as vLLM computed them."""
    assert {"length": "131072", "needed": "18.0", "available": "5.44", "most": "39616"} == dict(
        read("kv-too-small").cause.read
    )
    assert {"free": "31.44", "total": "47.38", "share": "0.92", "wanted": "43.59"} == dict(
        read("others-hold-memory").cause.read
    )


@pytest.mark.parametrize(
    ("name", "others"),
    [("old-driver", ["DOC-45"]), ("kfd", ["DOC-45"]), ("kv-too-small", []), ("watchdog", []), ("gated", [])],
)
def test_what_else_stands_comes_after_the_cause(name, others):
    """A second failure is listed; what only follows from the first is not."""
    assert others == [other.failure.id for other in read(name).failures[1:]]


def test_a_json_log_and_its_traceback_give_the_same_diagnosis():
    """The message of the exception is inside of a record's exc_info."""
    found = read("json-failed")

    assert ("DOC-11", "969") == (found.cause.failure.id, found.cause.value("blocks"))


def test_a_last_start_that_tells_nothing_yields_to_the_one_before():
    """A container in a restart loop, cut in the middle of a start."""
    found = read("restarted-short")

    assert ("DOC-01", True, 2) == (found.cause.failure.id, found.earlier, found.log.begun)


def test_an_unknown_failure_is_not_invented():
    """The last error is shown, and no cause."""
    found = read("unknown-failure")

    assert ("unknown failure", None) == (found.verdict, found.cause)
    assert ("KeyError: 'model.layers.0.mlp.gate_up_proj.weird_scale'",) == found.errors


def test_a_log_without_end_and_without_error_is_unfinished():
    """Still loading, or cut off."""
    assert "unfinished" == read("unfinished").verdict


@pytest.mark.parametrize("level", ["INFO", "WARNING"])
def test_an_error_that_is_only_warned_of_is_no_failure(level, tmp_path):
    """vLLM quotes errors in warnings and goes on."""
    text = f"(APIServer pid=1) {level} 11-29 08:00:02 [x.py:1] OSError: Too many open files; CUDA out of memory\n"
    log = tmp_path / "a.log"
    log.write_text(text)
    with log.open("rb") as stream:
        assert () == diagnosis.read(stream).failures
