"""A growing log with the line that says where one reads, and a field to search it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, Static

from vllm_advisor.tui.widgets.log import LogView
from vllm_advisor.units import count


if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult

    from vllm_advisor.tui.processes import Shown


class LogPane(Vertical):
    """`write` adds lines, `search` opens the field, `Searched` says what came of it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "End the search", show=False)]

    class Searched(Message):
        """A text was looked for; `lines` hold it."""

        def __init__(self, text: str, lines: int) -> None:
            super().__init__()
            self.text, self.lines = text, lines

    file = ""

    def compose(self) -> ComposeResult:
        """The log, the line, the field."""
        yield LogView(id="log")
        yield Static(id="log-state", classes="muted", markup=False, shrink=True)
        yield Input(id="search", placeholder="search the log: Enter, then n and N", compact=True)

    def on_mount(self) -> None:
        """No search yet."""
        self.query_one("#search").display = False

    @property
    def view(self) -> LogView:
        """The log itself."""
        return self.query_one(LogView)

    def write(self, lines: Sequence[Shown]) -> None:
        """What is new."""
        if lines:
            self.view.write(lines)

    def search(self) -> None:
        """Ask what for."""
        field = self.query_one("#search", Input)
        field.display = True
        field.focus()

    def on_input_submitted(self, submitted: Input.Submitted) -> None:
        """Enter."""
        submitted.stop()
        self._find(submitted.value.strip())

    def on_input_blurred(self, blurred: Input.Blurred) -> None:
        """Nothing that anybody else has to take."""
        blurred.stop()

    def action_leave(self) -> None:
        """Escape: the search is over."""
        self.query_one("#search", Input).value = ""
        self._find("")

    def _find(self, text: str) -> None:
        lines = self.view.find(text)
        self.query_one("#search").display = bool(text)
        self.view.focus()
        self.post_message(self.Searched(text, lines))

    def on_log_view_looked(self) -> None:
        """`1,234 lines, messages (w), following`, or where one reads, and what was found."""
        log = self.view
        at, of = log.match
        found = f"; match {at} of {of} (n, N)" if of else ""
        kind = "whole lines" if log.is_whole else "messages"
        where = "following" if log.is_followed else "paused: G follows"
        said = f"{count(log.line_count)} lines, {kind} (w), {where}{found}  {self.file}"
        self.query_one("#log-state", Static).update(said)
