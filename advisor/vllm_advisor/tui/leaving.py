"""What becomes of children when the wizard ends, and of those that an earlier one left behind."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from vllm_advisor.launch.left import SEARCH, SERVER
from vllm_advisor.tui.widgets.ask import Pick


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.tui.app import Wizard
    from vllm_advisor.tui.processes import Child


class Leave(Pick):
    """Stop what runs, or leave it running."""


def leave(app: Wizard) -> None:
    """End the wizard; where something runs, only after somebody said what becomes of it."""
    running = app.processes.running() if "processes" in app.__dict__ else ()
    if not running:
        app.exit(app.state)
    elif not isinstance(app.screen, Leave):
        text = "\n".join([*map(said, running), "", "What becomes of it?"])
        ways = {"s": "Stop it and quit", "l": "Leave it running and quit"}
        app.push_screen(Leave(text, ways, "Stay"), partial(_leave, app, running))


def said(child: Child) -> str:
    """One line about a child."""
    if child.left.kind == SEARCH:
        return f"A search measures {child.model} (process {child.pid}); what it has measured is kept."
    return f"vLLM serves {child.model} at {child.url} (process {child.pid})."


def _leave(app: Wizard, running: Sequence[Child], way: str | None) -> None:
    if way == "l":
        app.exit(app.state)
    elif way == "s":
        app.notify("stopping, up to 30 s …", timeout=30)
        app.run_worker(partial(_stop, app, running), thread=True, group="leaving")


def _stop(app: Wizard, running: Sequence[Child]) -> None:
    for child in running:
        child.stop()
    app.call_from_thread(app.exit, app.state)


def look_around(app: Wizard) -> None:
    """Ask, in a worker, what earlier wizards left running, and offer it."""
    app.run_worker(partial(_look, app), thread=True, group="leaving")


def _look(app: Wizard) -> None:
    found = (*app.processes.orphans(SERVER), *app.processes.orphans(SEARCH))
    if found:
        app.call_from_thread(_offer, app, found)


def _offer(app: Wizard, found: Sequence[Child]) -> None:
    """One after the other."""
    child, rest = found[0], found[1:]
    ways = {"a": "Show it here", "s": "Stop it"}
    text = f"From an earlier wizard:\n{said(child)}"
    app.push_screen(Pick(text, ways, "Leave it alone"), partial(_taken, app, child, rest))


def _taken(app: Wizard, child: Child, rest: Sequence[Child], way: str | None) -> None:
    if way == "a":
        step = "tune" if child.left.kind == SEARCH else "launch"
        setattr(app.processes, child.left.kind, child)
        app.show(step)
    elif way == "s":
        app.notify("stopping …", timeout=5)
        app.run_worker(child.stop, thread=True, group="leaving")
    if rest:
        _offer(app, rest)
