"""The interval of a mean, against values computed by hand."""

import math

import pytest

from vllm_tuner import intervals


def test_the_interval_of_three_repeats_is_students():
    """1, 2, 3: mean 2, deviation 1, so ± 4.303 / √3."""
    assert (pytest.approx(4.303 / math.sqrt(3)), True) == (intervals.half_width([1, 2, 3]), True)


def test_an_interval_is_cut_at_zero():
    """A speed is never negative."""
    assert 0.0 == intervals.mean([1.0, 30.0]).low
    assert 15.5 == intervals.mean([1.0, 30.0]).mid


def test_one_value_has_no_known_spread():
    """It is never tight, and its interval is itself."""
    assert math.inf == intervals.half_width([5.0])
    assert (5.0, 5.0, 5.0) == intervals.mean([5.0])
    assert not intervals.is_tight([5.0], 0.5)


def test_equal_repeats_are_tight():
    """No spread at all."""
    assert intervals.is_tight([5.0, 5.0], 0.01)
    assert not intervals.is_tight([5.0, 6.0], 0.01)


def test_many_repeats_use_the_normal_quantile_s_neighbour():
    """Beyond the table the quantile stays that of 30 degrees of freedom, a little too wide."""
    values = [0.0, 1.0] * 30

    assert pytest.approx(2.042 * 0.50422 / math.sqrt(60), rel=1e-4) == intervals.half_width(values)
