"""F5: what the background re-tuning does now, and what tuner and daemon did before."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from textual.containers import Container
from textual.widgets import Static

from vllm_advisor import profiles
from vllm_advisor.tui.screens.aside import Aside
from vllm_advisor.tui.widgets.keyed import KeyTable, VimScroll
from vllm_advisor.tui.widgets.page import page


if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from vllm_advisor.profile import Event
    from vllm_advisor.tui.state import State

_SECONDS = 20  # `tuner status` asks a local socket; a daemon that does not answer by then is said to be silent
_NEWER_S = 15.0
_NO_EVENTS = "Nothing was tuned on this machine yet: no events are kept."


class Found(NamedTuple):
    """The status as named values (empty: none, and `why`), and the events, the newest first."""

    status: tuple[tuple[str, str], ...]
    why: str
    events: tuple[Event, ...]


class DaemonAside(Aside):
    """The status above, the history below it, and the page of one event."""

    HEADING = "The re-tuning daemon"
    HELP = """The daemon

`tuner daemon` watches a running server, notices when its plan no longer fits, tunes again in quiet hours, and adopts
only what is proven better. Here is what `tuner status` says of it, read again every 15 seconds, and below what tuner
and daemon did, the newest first, with the numbers behind each decision.

Nothing here starts, stops or changes anything."""
    BINDINGS: ClassVar[list[BindingType]] = [("r", "again", "Read again")]

    _read = False
    _found: Found | None = None

    def body(self) -> ComposeResult:
        """Status, history, page."""
        with VimScroll(id="now"):
            yield Static(id="daemon", markup=False)
        with Container(id="pair"):
            yield KeyTable("at", "what", "node", "says", id="events")
            with VimScroll(id="page"):
                yield Static(id="shown", markup=False)

    def on_mount(self) -> None:
        """Read again now and then, while the screen is looked at."""
        self.set_interval(_NEWER_S, self._tick)

    def _tick(self) -> None:
        if self.is_current:
            self.action_again()

    def show(self, state: State) -> None:  # noqa: ARG002 - the daemon is the same for every state
        """Read once; `r` and the clock read again."""
        if not self._read:
            self._read = True
            self.work("asking the daemon", read, self._drawn)

    def _drawn(self, found: Found) -> None:
        first, self._found = self._found is None, found
        said = page([("", found.status)]) if found.status else found.why
        self.query_one("#daemon", Static).update(said)
        table = self.query_one("#events", KeyTable)
        table.put([_row(event) for event in found.events], [str(event.id) for event in found.events])
        if not found.events:
            self.query_one("#shown", Static).update(_NO_EVENTS)
        self._follow()
        if first:
            table.focus()

    def on_data_table_row_highlighted(self) -> None:
        """The page follows the cursor."""
        self._follow()

    def _follow(self) -> None:
        key = self.query_one("#events", KeyTable).key
        event = next((event for event in self._found.events if str(event.id) == key), None) if self._found else None
        if event is not None:
            rows = [("at", _time(event.at, "%Y-%m-%d %H:%M:%S UTC")), ("node", event.node or "–")]
            rows += [(name, str(value)) for name, value in event.details]
            self.query_one("#shown", Static).update(page([(event.kind, [("", event.message)]), ("Details", rows)]))
            self.query_one("#page", VimScroll).scroll_home(animate=False)

    def action_again(self) -> None:
        """Ask once more."""
        self._read = False
        self.show(self.wizard.state)


def _row(event: Event) -> tuple[str, str, str, str]:
    return _time(event.at, "%m-%d %H:%M"), event.kind, event.node, event.message


def _time(at: float, form: str) -> str:
    return datetime.fromtimestamp(at, UTC).strftime(form) if at else "–"


def read() -> Found:
    """Status and history. Raises StoreError; a daemon that is not there is an answer."""
    events = profiles.history()
    plain, why = _status()
    return Found(tuple(_flat(plain)), why, events)


def _status() -> tuple[dict[str, Any], str]:
    """What `tuner status --json` prints, or why there is nothing."""
    import shutil
    import subprocess

    command = shutil.which("tuner") or shutil.which("tuner", path=str(Path(sys.executable).parent))
    if not command:
        return {}, "The tuner is not installed here: pip install 'vllm-advisor[tuner]'"
    try:
        asked = [command, "status", "--json"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603
        plain = json.loads(done.stdout) if done.returncode == 0 else None
    except subprocess.TimeoutExpired:
        return {}, f"`tuner status` did not answer within {_SECONDS} s"
    except (OSError, ValueError) as error:
        return {}, f"`tuner status` cannot be understood: {error}"
    if not isinstance(plain, dict):
        said = [line.removeprefix("error: ") for line in done.stderr.splitlines() if line.strip()]
        return {}, f"No daemon runs here ({said[0] if said else f'exit {done.returncode}'}): tuner daemon --config FILE"
    return plain, ""


def _flat(plain: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """`mode: advise`, `deployment url: http://…`: names and values, nested ones behind the name of their parent."""
    for name, value in plain.items():
        words = f"{before} {name.replace('_', ' ')}".strip()
        if isinstance(value, dict):
            yield from _flat(value, words)
        elif isinstance(value, list):
            yield words, "; ".join(_said(item) for item in value) or "none"
        else:
            yield words, _said(value)


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_said(inner)}" for name, inner in value.items())
    if value is None:
        return "–"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
