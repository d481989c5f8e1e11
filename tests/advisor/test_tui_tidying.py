"""Garbage is collected while nobody types."""

import gc
import weakref

import pytest


pytest.importorskip("textual")

from vllm_advisor.tui import testing
from vllm_advisor.tui.app import Wizard
from vllm_advisor.tui.state import State
from vllm_advisor.tui.tidying import PAUSE_S, Tidying


class Knot:
    """Garbage that only a collection finds."""

    def __init__(self):
        self.own = self


@pytest.fixture
def tidying():
    """With a clock that the test moves, and thresholds that come back."""
    usual, now = gc.get_threshold(), [100.0]
    tidying = Tidying(lambda: now[0])
    tidying.now = now
    tidying.begin()
    yield tidying
    tidying.end()
    gc.unfreeze()
    assert usual == gc.get_threshold()


def old_knot():
    """A reference to garbage in the oldest generation, so much of it heaped up that Python would collect."""
    knot = Knot()
    gc.collect()
    left = weakref.ref(knot)
    del knot
    for _ in range(30):
        gc.collect(1)
    assert left()
    return left


def test_nothing_is_collected_while_somebody_types_and_all_in_a_pause(tidying):
    """The oldest generation waits, however much Python allocates; three seconds without a key are a pause."""
    left = old_knot()
    tidying.typed()
    kept = [[number] for number in range(300_000)]
    tidying.tidy()
    assert left()
    tidying.now[0] += PAUSE_S
    tidying.tidy()
    assert left() is None
    assert len(kept) == 300_000


def test_little_is_left_alone(tidying):
    """A pause alone is no reason."""
    gc.collect()
    tidying.now[0] += 60
    frozen = gc.get_freeze_count()
    tidying.tidy()
    assert frozen == gc.get_freeze_count()


def test_it_does_not_wait_for_ever(tidying):
    """Somebody types for minutes."""
    left = old_knot()
    for _ in range(1000):
        gc.collect(1)
    tidying.typed()
    tidying.tidy()
    assert left() is None


def test_what_is_there_at_the_first_pause_is_not_looked_at_again(tidying):
    """Frozen once: what comes later is collected, and more is not frozen."""
    counts = []
    for _ in range(2):
        left = old_knot()
        tidying.now[0] += PAUSE_S
        tidying.tidy()
        assert left() is None
        counts.append(gc.get_freeze_count())
    assert counts[0] > 10_000
    assert counts[1] <= counts[0]


def test_the_wizard_tidies_between_its_begin_and_its_end(tmp_path):
    """Its keys are typing, and Python's thresholds are its own again."""
    usual = gc.get_threshold()
    app = Wizard(State(), file=tmp_path / "s.json")

    async def steps(pilot):
        during, before = gc.get_threshold(), pilot.app._tidying._typed
        await pilot.press("f1")
        return during, pilot.app._tidying._typed - before

    during, later = testing.drive(app, steps)
    assert (*usual[:2], 1 << 30) == during
    assert later > 0
    assert usual == gc.get_threshold()
