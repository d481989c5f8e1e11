"""How a search goes: the time that is left, the best so far or the result, every trial, and what was said of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Vertical
from textual.widgets import Static

from vllm_advisor.tui import searched
from vllm_advisor.tui.widgets.keyed import KeyTable


if TYPE_CHECKING:
    from textual.app import ComposeResult

    from vllm_advisor.tui.glyphs import Glyphs
    from vllm_advisor.tui.tuning import Progress


class Trials(Vertical):
    """`show` draws what events say, `time` the clock."""

    _progress: Progress | None = None

    def compose(self) -> ComposeResult:
        """What matters most stands first."""
        yield Static(id="time", markup=False)
        yield Static(id="best", markup=False)
        yield Static(id="result", markup=False)
        yield KeyTable(*searched.HEAD, id="trials")
        yield Static(id="why", classes="muted", markup=False)

    def show(self, progress: Progress, glyphs: Glyphs) -> None:
        """Everything but the clock."""
        self._progress = progress
        rows, keys = searched.rows(progress, glyphs)
        self.query_one(KeyTable).put(rows, keys)
        self._write("#best", searched.best(progress))
        self._write("#result", searched.result(progress, glyphs))
        self._draw_why()

    def time(self, progress: Progress | None, now: float | None, glyphs: Glyphs, *, plain: bool) -> None:
        """The clock; None: there is none any more."""
        shown = progress is not None and now is not None
        self._write("#time", searched.time_left(progress, now, glyphs, plain=plain) if shown else "")  # type: ignore[arg-type]

    def focus_table(self) -> None:
        """The keys go to the trials."""
        self.query_one(KeyTable).focus()

    def on_data_table_row_highlighted(self) -> None:
        """What was said of the trial under the cursor."""
        self._draw_why()

    def _draw_why(self) -> None:
        trial = self.query_one(KeyTable).key
        self._write("#why", searched.why(self._progress, trial) if self._progress else "")

    def _write(self, name: str, text: str) -> None:
        """A line that takes no room while it is empty."""
        self.query_one(name, Static).update(text)
        self.query_one(name).display = bool(text)
