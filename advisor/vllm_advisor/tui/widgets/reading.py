"""The doctor's reading of a log that goes wrong: the cause, and remedies to choose from. Nothing while all is well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Static
from textual.widgets.option_list import Option

from vllm_advisor.tui import remedy, told
from vllm_advisor.tui.widgets.lists import VimList


if TYPE_CHECKING:
    from textual.app import ComposeResult

    from vllm_advisor.doctor.remedies import Fix
    from vllm_advisor.tui.glyphs import Glyphs
    from vllm_advisor.tui.screens.planned import Chosen
    from vllm_advisor.tui.serving import Reading
    from vllm_advisor.tui.state import State


class ReadingPane(Vertical):
    """`Remedied` says which remedy somebody takes."""

    class Remedied(Message):
        """A remedy."""

        def __init__(self, fix: Fix) -> None:
            super().__init__()
            self.fix = fix

    _fixes: tuple[Fix, ...] = ()

    def compose(self) -> ComposeResult:
        """The cause, then the remedies."""
        yield Static(id="diagnosis", markup=False)
        yield VimList(id="fixes")

    def show(
        self, reading: Reading | None, state: State, chosen: Chosen | None, glyphs: Glyphs, *, ended: str | None
    ) -> None:
        """What a log comes to; `ended`: how the server ended, None while it runs."""
        said = told.diagnosis(reading, glyphs, ended=ended) if reading else ""
        self.query_one("#diagnosis", Static).update(said)
        self.display = bool(said)
        wanted = reading.fixes if reading and said else ()
        rows = [told.fix(fix, remedy.fields(fix, state, chosen)) for fix in wanted]
        options = self.query_one("#fixes", VimList)
        if wanted != self._fixes:
            self._fixes = wanted
            options.clear_options()
            options.add_options(Option(row, id=str(number)) for number, row in enumerate(rows))
        options.display = bool(wanted)

    @property
    def has_remedies(self) -> bool:
        """Whether there is something to choose."""
        return bool(self._fixes)

    def focus_remedies(self) -> None:
        """The keys go to the remedies."""
        options = self.query_one("#fixes", VimList)
        options.highlighted = 0
        options.focus()

    def on_option_list_option_selected(self, selected: VimList.OptionSelected) -> None:
        """Enter, or a click."""
        selected.stop()
        self.post_message(self.Remedied(self._fixes[int(str(selected.option.id))]))
