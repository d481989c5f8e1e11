"""What was measured here corrects what is predicted: by how much, for what, and how sure it is then."""

from __future__ import annotations

import math

import pytest

from vllm_advisor.facts import Estimate
from vllm_advisor.throughput.measured import NOTHING, Measurement, corrected, correction
from vllm_advisor.units import Interval


HALF = Measurement("a", "eight", 500.0, 1000.0)
OUTPUT = Interval(500.0, 1000.0, 2000.0)


def test_without_measurements_nothing_changes():
    """The prior's mean is no correction."""
    assert correction((), "a", "eight") is NOTHING
    assert NOTHING.applied(OUTPUT) is OUTPUT


def test_the_measured_configuration_moves_most():
    """The same plan nearly to what was measured, its kernel path less, another path least."""
    same, path, other = (
        math.exp(correction([HALF], plan, kind).mean) for plan, kind in (("a", "eight"), ("b", "eight"), ("b", "plain"))
    )
    assert 0.5 < same < 0.53 < path < other < 1


def test_one_measurement_is_the_gaussian_posterior():
    """Machine 0.20, path 0.15, own 0.20, noise 0.07: the prior's share of what was seen, by hand."""
    prior, noise = 0.20**2 + 0.15**2 + 0.20**2, 0.07**2
    found = correction([HALF], "a", "eight")
    assert prior / (prior + noise) * math.log(0.5) == pytest.approx(found.mean)
    assert math.sqrt(prior - prior**2 / (prior + noise) + noise) == pytest.approx(found.deviation)


def test_more_measurements_make_it_surer():
    """Three plans of one path say more of a fourth than one does."""
    many = [Measurement(name, "eight", 700.0, 1000.0) for name in "abc"]
    one, three = correction(many[:1], "d", "eight"), correction(many, "d", "eight")
    assert three.deviation < one.deviation < NOTHING.deviation
    assert math.log(0.7) < three.mean < one.mean < 0


def test_measurements_that_disagree_cancel():
    """Twice as fast and twice as slow on two paths leave a third as it was."""
    pair = [HALF, Measurement("b", "plain", 2000.0, 1000.0)]
    assert 0 == pytest.approx(correction(pair, "c", "four").mean)


def test_the_interval_narrows_and_never_widens():
    """A measured plan has a narrower interval about its new middle; a narrow one stays as narrow."""
    found = correction([HALF], "a", "eight")
    moved = found.applied(OUTPUT)
    assert moved.high / moved.low < OUTPUT.high / OUTPUT.low
    narrow = found.applied(Interval(990.0, 1000.0, 1010.0))
    assert 1010 / 990 == pytest.approx(narrow.high / narrow.low)


def test_a_measurement_of_something_else_is_not_learnt_from():
    """A hundred times off is a wrong unit or another model."""
    assert correction([Measurement("a", "eight", 10.0, 1000.0)], "a", "eight") is NOTHING


def test_a_corrected_estimate_says_so():
    """Each figure by its own correction, and a note."""
    ms = Interval(10.0, 20.0, 40.0)
    before = Estimate(OUTPUT, OUTPUT, ms, ms, 8.0, "weights")
    slower = correction([Measurement("a", "eight", 40.0, 20.0)], "a", "eight")
    after = corrected(before, correction([HALF], "a", "eight"), NOTHING, slower)
    assert after.output_tok_s.mid < 550
    assert after.ttft_ms == ms
    assert after.tpot_ms.mid > 36
    assert ("corrected by 1 measurement on this machine",) == after.notes
    assert corrected(before, NOTHING, NOTHING, NOTHING) is before
