"""How much a day, how long after failures, and what clocks that are set cannot do to either."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_tuner.daemon.allowance import (
    Allowance,
    AllowanceLimits,
    Day,
    dumps,
    failed,
    left_s,
    loads,
    permit,
    spend,
    succeeded,
    wait_s,
)  # fmt: skip


NOON = 1_767_614_400.0  # 2026-01-05 12:00 UTC
LIMITS = AllowanceLimits(seconds_a_day=3600, watt_hours_a_day=1000, jitter=0.0)


def test_time_of_a_day():
    """An hour a day is an hour a day, and a new one begins at midnight."""
    spent = spend(Allowance(), NOON, 3000)

    assert (600, 3600) == (left_s(spent, LIMITS, NOON), left_s(spent, LIMITS, NOON + 86400))
    assert permit(spent, LIMITS, NOON).granted
    spent = spend(spent, NOON, 600)
    assert (False, "allowance", "1.0 h today, 1 allowed") == permit(spent, LIMITS, NOON)
    assert permit(spent, LIMITS, NOON + 12 * 3600).granted


def test_energy_of_a_day():
    """Watt-hours are counted beside the time."""
    spent = spend(Allowance(), NOON, 60, 1200)

    assert (False, "allowance", "1.20 kWh today, 1 allowed") == permit(spent, LIMITS, NOON)
    assert permit(spent, LIMITS._replace(watt_hours_a_day=math.inf), NOON).granted


def test_days_are_local():
    """Thirteen hours east of Greenwich noon is the next day."""
    spent = spend(Allowance(), NOON, 3600, offset_s=13 * 3600)

    assert not permit(spent, LIMITS, NOON, 13 * 3600).granted
    assert permit(spent, LIMITS, NOON).granted


def test_a_clock_set_back_brings_nothing():
    """A day that was spent stays spent when the clock goes on and comes back; four days are kept."""
    spent = spend(Allowance(), NOON, 3600)
    for days in range(1, 4):
        spent = spend(spent, NOON + days * 86400, 10)

    assert 4 == len(spent.days)
    assert not permit(spent, LIMITS, NOON).granted
    assert 4 == len(spend(spent, NOON + 5 * 86400, 10).days)


@pytest.mark.parametrize("amount", [-5.0, math.nan, math.inf])
def test_nonsense_is_nothing(amount):
    """An interval that is no time and a power that is none are not counted."""
    assert Day(20458, 0.0, 0.0) == spend(Allowance(), NOON, amount, amount).days[0]


def test_back_off_doubles_and_ends():
    """30 min, 1 h, 2 h … up to a day; a success clears it."""
    state, waits = Allowance(), []
    for _ in range(8):
        state = failed(state, LIMITS, NOON)
        waits.append(state.waits_until - NOON)

    assert [1800, 3600, 7200, 14400, 28800, 57600, 86400, 86400] == waits
    assert (False, "back-off", "8 failures in a row: the next attempt in 1440 min") == permit(state, LIMITS, NOON)
    assert permit(state, LIMITS, NOON + 86400).granted
    assert permit(succeeded(state), LIMITS, NOON).granted
    assert math.isfinite(wait_s(10**6, LIMITS))


def test_jitter_is_seeded():
    """Two nodes wait differently, one node the same each time, all within a quarter."""
    limits = AllowanceLimits(seed="a")
    waits = [wait_s(1, limits._replace(seed=name)) for name in "abcdefgh"]

    assert 8 == len(set(waits))
    assert waits[0] == wait_s(1, limits)
    assert all(1350 <= wait <= 2250 for wait in waits)


def test_a_wait_of_years_is_a_clock_that_was_set():
    """Set back by a month, the clock would make a wait of half an hour one of a month."""
    state = failed(Allowance(), LIMITS, NOON)

    assert permit(state, LIMITS, NOON - 30 * 86400).granted


@given(
    st.lists(st.tuples(st.floats(0, 4e9), st.floats(0, 1e6), st.floats(0, 1e6)), max_size=12),
    st.integers(0, 9),
)
def test_round_trip(spent, failures):
    """Whatever happened is the same after a restart, in some 300 bytes."""
    state = Allowance()
    for at, seconds, watt_hours in spent:
        state = spend(state, at, seconds, watt_hours)
    for _ in range(failures):
        state = failed(state, LIMITS, NOON)

    assert state == loads(dumps(state))
    assert len(dumps(state)) < 400


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", '{"version":9}', '{"version":1,"days":[[1]],"failures":0,"waits_until":0}',
     '{"version":1,"days":[],"failures":-1,"waits_until":0}',
     '{"version":1,"days":[[1,-5,0]],"failures":0,"waits_until":0}',
     '{"version":1,"days":3,"failures":0,"waits_until":0}'],
)  # fmt: skip
def test_garbage(text):
    """A text that is no state is a ValueError, never a crash."""
    with pytest.raises(ValueError):  # noqa: PT011 - json's own, or ours
        loads(text)
