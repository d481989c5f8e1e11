"""The wizard in tests: opened without a terminal, looked at as text or as a picture, and its event loop timed.

A picture is an SVG of exactly what a terminal of that size would show. Kept ones lie in tests/data/tui; with
ADVISOR_TUI_PICTURES=write they are written anew instead of compared.
"""

from __future__ import annotations

import asyncio
import difflib
import html
import os
import re
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vllm_advisor.tui.testing_loop import Watch, excused, must, responsive, slowness, watching


if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from textual.app import App
    from textual.pilot import Pilot

__all__ = [
    "PICTURES", "SIZES", "WRITE", "Watch", "click", "drive", "opened", "picture", "press", "responsive", "rows",
    "settled", "slowness", "snapshot", "snapshots", "status", "text", "until", "watching", "write",
]  # fmt: skip
T = TypeVar("T")
SIZES = ((80, 24), (120, 40), (200, 60))  # the sizes that every screen is looked at
PICTURES = Path(__file__).resolve().parents[3] / "tests" / "data" / "tui"
WRITE = "ADVISOR_TUI_PICTURES"


@asynccontextmanager
async def opened(
    app: App[Any], size: tuple[int, int] = SIZES[0], *, forever: tuple[str, ...] = ()
) -> AsyncIterator[Pilot[Any]]:
    """The app, running and at rest, with a pilot that types and clicks. `forever`: groups of workers that never end."""
    app.animation_level = "none"
    async with app.run_test(size=size, notifications=True) as pilot:
        await settled(pilot, forever=forever)
        yield pilot


async def settled(pilot: Pilot[Any], *, forever: tuple[str, ...] = ()) -> None:
    """Until every worker came back and every message was handled. An unexpected error of the app is raised here."""
    from textual.worker import WorkerCancelled

    while True:
        await pilot.pause()
        await pilot.pause()
        running = [worker for worker in pilot.app.workers if not worker.is_finished and worker.group not in forever]
        if not running:
            return
        with suppress(WorkerCancelled):
            await pilot.app.workers.wait_for_complete(running)


async def until(pilot: Pilot[Any], holds: Callable[[], object], *, seconds: float = 60.0) -> None:
    """Until something holds that a child process, or a worker without end, brings about; AssertionError if never."""
    end = time.monotonic() + seconds
    while not holds():
        must(time.monotonic() < end, f"not seen in {seconds:g} s; the screen:\n{text(pilot.app)}")
        await pilot.pause(0.02)
    await pilot.pause()


def drive(app: App[Any], steps: Callable[[Pilot[Any]], Awaitable[T]], size: tuple[int, int] = SIZES[0]) -> T:
    """Run the app, hand its pilot to `steps`, and return what that returns."""

    async def run() -> T:
        async with opened(app, size) as pilot:
            return await steps(pilot)

    return asyncio.run(run())


async def press(pilot: Pilot[Any], *keys: str) -> None:
    """Keys, one after the other, then until the app is at rest; a worker between two keys wants two calls."""
    await pilot.press(*keys)
    await settled(pilot)


async def write(pilot: Pilot[Any], typed: str) -> None:
    """Text, sign by sign, as a keyboard would."""
    names = {" ": "space", "/": "slash", "-": "minus", ".": "full_stop", "_": "underscore", "~": "tilde", "@": "at"}
    await pilot.press(*(names.get(sign, sign) for sign in typed))
    await settled(pilot)


async def click(pilot: Pilot[Any], selector: str, at: tuple[int, int] = (0, 0)) -> None:
    """A click of the mouse on a cell of a widget, handled to its end."""
    await pilot.click(selector, offset=at)
    await settled(pilot)


def status(pilot: Pilot[Any]) -> str:
    """The line that says what is done or went wrong."""
    from textual.widgets import Static

    return str(pilot.app.screen.query_one("#status", Static).content)


# -- what a terminal would show


def text(app: App[Any]) -> str:
    """The screen as lines of text, without blanks at their ends."""
    with excused():
        shown = _recorded(app).export_text(styles=False)
    return "\n".join(line.rstrip() for line in shown.splitlines())


def picture(app: App[Any], title: str = "advisor wizard") -> str:
    """The screen as an SVG that loads nothing from elsewhere; the same screen gives the same bytes."""
    with excused():
        made = _recorded(app).export_svg(title=title, code_format=_without_fonts(), unique_id="wizard")
    return re.sub(r"[ \t]+\n", "\n", re.sub(r"\n\s*\n+", "\n", made))


def snapshot(app: App[Any], name: str) -> None:
    """Compare the screen with the kept picture of that name at this size; AssertionError shows what differs."""
    _rest(app)
    file = PICTURES / f"{name}-{app.size.width}x{app.size.height}.svg"
    made = f"<!-- {_made_with()} -->\n{picture(app)}"
    if os.environ.get(WRITE) == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(made, encoding="utf-8")
        return
    must(file.exists(), f"{file.name} is not kept yet: {WRITE}=write pytest …")
    _same(file.read_text(encoding="utf-8"), made, file.name)


async def snapshots(pilot: Pilot[Any], name: str, *, forever: tuple[str, ...] = ()) -> None:
    """`snapshot` at each of SIZES, all of them looked at before the first difference is raised."""
    wrong = []
    for size in SIZES:
        await pilot.resize_terminal(*size)
        await settled(pilot, forever=forever)
        try:
            snapshot(pilot.app, name)
        except AssertionError as error:
            wrong.append(str(error))
    must(not wrong, "\n".join(wrong))


def _same(kept: str, made: str, name: str) -> None:
    """The same picture, or with another Textual the same text."""
    if kept == made:
        return
    before, after = rows(kept), rows(made)
    differ = "\n".join(difflib.unified_diff(before, after, "kept", "now", lineterm="", n=1))
    must(before == after, f"{name} differs ({WRITE}=write accepts it):\n{differ}")
    if kept.split("\n", 1)[0] == made.split("\n", 1)[0]:  # made by the same Textual
        before, after = (svg.replace("><", ">\n<").split("\n") for svg in (kept, made))
        styles = "\n".join(difflib.unified_diff(before, after, "kept", "now", lineterm="", n=0))
        must(False, f"{name}: the same text in other styles ({WRITE}=write accepts it):\n{styles[:2000]}")


def rows(svg: str) -> list[str]:
    """The text of a picture, a string a row."""
    found = re.findall(r'<text class="wizard-[^"]*" x="([\d.]+)" y="([\d.]+)"[^>]*line-\d+\)">(.*?)</text>', svg)
    lines = dict[float, list[str]]()
    for x, y, words in found:
        line = lines.setdefault(float(y), [])
        start = round(float(x) / 12.2)
        line.extend(" " * (start - len(line)))
        line[start:] = html.unescape(words).replace("\xa0", " ")
    return ["".join(lines[y]).rstrip() for y in sorted(lines)]


def _rest(app: App[Any]) -> None:
    """What moves by itself stands still: cursors, and messages that go away."""
    from textual.widgets import TextArea

    app.clear_notifications()
    for widget in app.screen.query("Input, TextArea"):
        field: Any = widget
        field.cursor_blink = False
        field._cursor_visible = widget.has_focus  # noqa: SLF001 - wherever it was in its blinking
        if isinstance(widget, TextArea):
            field._line_cache.clear()  # noqa: SLF001 - its key does not know of the two lines above
            widget.refresh()


def _recorded(app: App[Any]) -> Any:
    """A console that has recorded the screen."""
    import io

    from rich.console import Console

    width, height = app.size
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=True, color_system="truecolor",
                      record=True, legacy_windows=False, safe_box=False)  # fmt: skip
    compositor = app.screen._compositor  # noqa: SLF001 - as App.export_screenshot, whose template names fonts elsewhere
    below = app._background_screens  # noqa: SLF001 - same
    console.print(compositor.render_update(full=True, screen_stack=below, simplify=True))
    return console


def _without_fonts() -> str:
    from rich._export_format import CONSOLE_SVG_FORMAT

    return re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def _made_with() -> str:
    from importlib.metadata import version

    return f"textual {version('textual')}, rich {version('rich')}"
