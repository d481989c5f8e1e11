"""A log that is still written: the same finding as of the whole, whatever the pieces; and how far a start has come."""

import io
from pathlib import Path

import pytest

from vllm_advisor.doctor import diagnosis
from vllm_advisor.doctor.phases import phases
from vllm_advisor.vllm.logs_lines import LONGEST, Cutter, batches


LOGS = Path(__file__).parents[1] / "data/logs"
NAMES = sorted(file.name for file in LOGS.glob("*.log"))


@pytest.mark.parametrize("name", NAMES)
def test_pieces_come_to_the_same_as_the_whole(name):
    """Every recorded log, cut at odd places: the same verdict, the same failures in the same order."""
    raw = (LOGS / name).read_bytes()
    raw += b"" if raw.endswith(b"\n") else b"\n"
    watch = diagnosis.Watch()
    for at in range(0, len(raw), 97):
        watch.feed(raw[at : at + 97])
    whole, grown = diagnosis.read(io.BytesIO(raw)), watch.finding()
    assert (whole.verdict, whole.failures, whole.errors) == (grown.verdict, grown.failures, grown.errors)
    assert whole.log[1:] == grown.log[1:]


def test_a_log_is_judged_again_and_again():
    """Unfinished, then failed: asking in between changes nothing."""
    raw = (LOGS / "kv-too-small.log").read_bytes()
    watch = diagnosis.Watch()
    watch.feed(raw[: len(raw) // 4])
    before = watch.finding().verdict
    watch.feed(raw[len(raw) // 4 :])
    found = watch.finding()
    assert (diagnosis.UNFINISHED, diagnosis.FAILED, "DOC-01") == (before, found.verdict, found.cause.failure.id)


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_lines_are_cut_as_from_a_file(size):
    """Without a newline at the end, with an empty line, and with one that is far too long."""
    raw = b"one\n\n" + b"x" * (2 * LONGEST) + b"yz\nlast"
    cutter, lines = Cutter(), []
    for at in range(0, len(raw), size):
        lines += cutter.lines(raw[at : at + size])
    lines += cutter.rest()
    assert ([b"one", b""], b"last") == (lines[:2], lines[-1])
    assert lines[2].startswith(b"x" * LONGEST)
    if size == 1 << 20:
        assert [line for batch in batches(io.BytesIO(raw)) for line in batch] == lines


def of(name, most=None, answers=False):
    watch = diagnosis.Watch()
    watch.feed(b"\n".join((LOGS / name).read_bytes().splitlines()[:most]) + b"\n")
    return phases(watch.finding().start.facts, answers=answers)


@pytest.mark.parametrize(("lines", "done"), [(0, 0), (4, 1), (15, 2), (26, 3), (31, 4), (40, 5)])
def test_phases_follow_the_log(lines, done):
    """Settings, weights, cache, warm-up, serving: one after the other."""
    assert [True] * done + [False] * (5 - done) == [phase.done for phase in of("healthy-0.33.log", lines)]


def test_phases_say_what_was_printed():
    """With the log's own figures."""
    says = {phase.name: phase.says for phase in of("healthy-0.33.log")}
    assert "vLLM 0.33.0" == says["settings"]
    assert "7.64 GiB a rank in 8.90 s" == says["weights"]
    assert "1,753,632 tokens, 42.8 × the longest request" == says["KV cache"]
    assert "compiled in 48.9 s, 89.7 s from profiling on" == says["warm-up"]


def test_a_server_that_answers_is_past_all_phases():
    """Whatever its log has not printed."""
    assert all(phase.done for phase in of("healthy-0.33.log", 4, answers=True))
