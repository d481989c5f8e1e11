"""The wizard's test helpers: pictures, rows, and the watch over the event loop can fail."""

import asyncio
import time

import pytest


pytest.importorskip("textual")

from vllm_advisor.tui import testing
from vllm_advisor.tui.app import Wizard
from vllm_advisor.tui.state import State


def wizard(tmp_path, **fields):
    """A wizard on a machine of the catalog, whose state goes to a folder of the test."""
    return Wizard(State(gpu="2xL40S", **fields), file=tmp_path / "state.json")


def test_a_picture_is_the_text_of_the_screen_and_loads_nothing(tmp_path):
    """Rows of the SVG are the rows of the terminal; twice the same bytes; no address in it."""

    async def look():
        app = wizard(tmp_path)
        async with testing.opened(app):
            return testing.text(app), testing.picture(app), testing.picture(app)

    shown, first, second = asyncio.run(look())
    assert "Which machine will serve?" in shown
    assert first == second
    assert [line for line in shown.split("\n") if line] == [line for line in testing.rows(first) if line]
    assert "url(" not in first.replace("url(#", "")


def test_a_snapshot_shows_the_lines_that_differ(tmp_path, monkeypatch):
    """Written once, equal afterwards; another text is an error that names both."""
    monkeypatch.setattr(testing, "PICTURES", tmp_path / "kept")

    async def look(gpu):
        app = Wizard(State(gpu=gpu), file=tmp_path / "state.json")
        async with testing.opened(app):
            testing.snapshot(app, "hardware")

    monkeypatch.setenv(testing.WRITE, "write")
    asyncio.run(look("2xL40S"))
    monkeypatch.delenv(testing.WRITE)
    asyncio.run(look("2xL40S"))
    with pytest.raises(AssertionError, match=r"\+.*4xA100"):
        asyncio.run(look("4xA100"))


def waits(seconds=0.6):
    time.sleep(seconds)


def calculates():
    return sum(number % 7 for number in range(12_000_000))


@pytest.mark.parametrize("hold", [waits, calculates])
def test_the_watch_sees_a_blocked_loop(hold):
    """Both a wait and a calculation on the loop are seen, and where they were."""

    async def blocked():
        with testing.watching() as watch:
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(hold)
            await asyncio.sleep(0.001)
        return watch

    watch = asyncio.run(blocked())
    assert watch.longest.seconds > testing.Watch.LIMIT
    assert hold.__name__ in watch.longest.where


def test_a_thread_may_work_as_long_as_it_likes():
    """What a worker does is not counted, and a loop that does nothing long passes."""

    async def free():
        with testing.watching() as watch:
            await asyncio.to_thread(time.sleep, 0.2)
        return watch

    asyncio.run(free()).check()


@pytest.mark.slow
def test_what_holds_the_loop_in_every_round_is_an_error():
    """A scenario that blocks once passes, one that always blocks does not."""
    holds = iter([0.3, 0.0])

    async def once():
        waits(next(holds))
        await asyncio.sleep(0)

    async def always():
        waits(0.3)
        await asyncio.sleep(0)

    asyncio.run(testing.responsive(once))
    with pytest.raises(AssertionError, match="was held for"):
        asyncio.run(testing.responsive(always))
