"""The text of /metrics as values: names, labels, histograms, resets, and whatever else a server may write there."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_advisor.hardware import Unknown
from vllm_advisor.vllm.metrics import Histogram, grown, grown_by, parse


DATA = Path(__file__).parents[1] / "data/metrics"
TEN = Histogram(((1.0, 2.0), (2.0, 8.0), (math.inf, 10.0)), 17.0, 10.0)


def test_a_recorded_reading_is_read_whole():
    """Each line of a real server is a series of it."""
    text = (DATA / "cpu-0.32.0-second.txt").read_text()
    found = parse(text)
    assert (0, False) == (found.skipped, found.cut)
    assert len(text.splitlines()) == sum(map(len, found.series.values()))
    assert (("0",), ("smol",)) == (found.engines(), found.model_names())
    assert found.total("num_requests_running") == 4.0
    assert {"capacity": 2.0, "deferred": 0.0} == found.by("reason", "num_requests_waiting_by_reason")


def test_a_counter_is_found_with_and_without_total():
    """The client library adds `_total`, older versions wrote it themselves."""
    found = parse("vllm:a_total 3\nvllm:b 4\n")
    assert (3.0, 4.0) == (found.total("a"), found.total("b"))


def test_what_is_not_there_is_unknown_and_never_zero():
    """A sum, a histogram and a label of a series that this server lacks."""
    found = parse("vllm:a 0\n")
    assert found.total("a") == 0.0
    assert isinstance(found.total("b"), Unknown)
    assert isinstance(found.histogram("b"), Unknown)
    assert {} == found.by("reason", "b")


def test_labels_are_unescaped_and_cannot_steer_a_terminal():
    """Quotes, backslashes, braces and commas inside a label; control characters are dropped."""
    found = parse(r'vllm:a{x="q\"\\,}{",y="l' + "\x1b" + 'm"} 1' + "\n")
    assert {"x": 'q"\\,}{', "y": "lm"} == found.lines("a")[0].labels


def test_broken_lines_are_counted_and_passed_over():
    """NaN, words, no value, an endless line: none of them is a figure."""
    lines = ["vllm:a 1", "vllm:a NaN", "vllm:a x", "vllm:a", "vllm:a{x=", "vllm:a " + "9" * 70_000, "other 3"]
    found = parse("\n".join(lines))
    assert (5, 1.0) == (found.skipped, found.total("a"))


def test_a_timestamp_and_infinity_are_allowed():
    """Both are part of the format."""
    assert parse("vllm:a 2 1700000000000\n").total("a") == 2.0
    assert parse("vllm:a +Inf\n").total("a") == math.inf


def test_more_lines_than_any_server_writes_are_cut():
    """Seventy thousand lines: the first sixty thousand are kept, and it is said."""
    found = parse("vllm:a 1\n" * 70_000)
    assert (True, 60_000.0) == (found.cut, found.total("a"))


def test_histograms_of_engines_are_added():
    """Two data-parallel ranks are one distribution."""
    rows = [f'vllm:h_bucket{{engine="{e}",le="{b}"}} {n}' for e in "01" for b, n in (("1", 1), ("+Inf", 2))]
    sums = [f'vllm:h_{part}{{engine="{e}"}} {n}' for e in "01" for part, n in (("sum", 3), ("count", 2))]
    assert Histogram(((1.0, 2.0), (math.inf, 4.0)), 6.0, 4.0) == parse("\n".join(rows + sums)).histogram("h")


@pytest.mark.parametrize(("share", "value"), [(0.1, 0.5), (0.2, 1.0), (0.5, 1.5), (0.8, 2.0), (0.95, 2.0)])
def test_quantiles_lie_inside_their_bucket(share, value):
    """Even within a bucket; beyond the last bound, that bound."""
    assert value == pytest.approx(TEN.quantile(share))


def test_an_empty_histogram_has_no_mean():
    """Nothing observed is not zero seconds."""
    empty = Histogram((), 0.0, 0.0)
    assert isinstance(empty.mean, Unknown)
    assert isinstance(empty.quantile(0.5), Unknown)
    assert pytest.approx(1.7) == TEN.mean


def test_what_was_observed_since():
    """Differences bucket by bucket; all of it after a new start, or where buckets changed."""
    before = Histogram(((1.0, 1.0), (2.0, 2.0), (math.inf, 2.0)), 2.0, 2.0)
    assert Histogram(((1.0, 1.0), (2.0, 6.0), (math.inf, 8.0)), 15.0, 8.0) == TEN.since(before)
    assert before == before.since(TEN)
    assert TEN == TEN.since(Histogram(((5.0, 1.0),), 1.0, 1.0))


def test_counters_that_fell_back_began_anew():
    """A restart between the readings: what is there now is what happened since."""
    assert (3.0, 2.0) == (grown(4.0, 7.0), grown(9.0, 2.0))
    assert isinstance(grown(Unknown("x"), 2.0), Unknown)
    assert {"a": 1.0, "b": 5.0, "c": 2.0} == grown_by({"a": 1.0, "b": 9.0}, {"a": 2.0, "b": 5.0, "c": 2.0})


@given(st.text())
def test_no_text_raises(text):
    """Whatever a server writes is read, or counted."""
    parse(text)
    parse(f"vllm:a{{{text}}} 1\nvllm:{text} 2\n")
