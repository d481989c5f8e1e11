"""Effort as a table, and time as people write it."""

import pytest

from vllm_advisor.errors import UsageError
from vllm_tuner.effort import EFFORTS, effort, seconds


def test_more_effort_is_more_of_everything():
    """Each row tries more, repeats more and demands a tighter interval than the one before."""
    quick, normal, thorough = EFFORTS.values()

    for field in ("trials", "plans", "most", "rounds", "waves", "budget_s"):
        assert getattr(quick, field) < getattr(normal, field) < getattr(thorough, field)
    assert quick.tight > normal.tight > thorough.tight


def test_every_effort_compares_long_enough_to_be_sure():
    """Seven wins in a row is the least that decides at 95 %."""
    assert all(row.rounds >= 7 for row in EFFORTS.values())


def test_an_unknown_effort_names_those_that_are_there():
    """One line with the three names."""
    with pytest.raises(UsageError) as caught:
        effort("heroic")
    assert "quick, normal, thorough" in caught.value.hint


@pytest.mark.parametrize(("text", "value"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), (" 2H ", 7200)])
def test_time_is_read_as_written(text, value):
    """Seconds, minutes and hours."""
    assert value == seconds(text)


@pytest.mark.parametrize("text", ["", "0", "0m", "-5m", "10 minutes", "1d", "1m30s"])
def test_what_is_no_time_is_refused(text):
    """Nothing is guessed."""
    with pytest.raises(UsageError):
        seconds(text)
