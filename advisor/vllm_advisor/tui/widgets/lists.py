"""Lists and tables that vim's keys walk, and a search field above them that hands the arrows on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Input, OptionList


if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from textual import events


class VimList(OptionList):
    """An option list: j, k, g and G beside the arrows."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("g", "first", show=False),
        Binding("G", "last", show=False),
        Binding("ctrl+d", "page_down", show=False),
        Binding("ctrl+u", "page_up", show=False),
    ]


class VimTable(DataTable[Any]):
    """A table of rows: h, j, k, l, g and G beside the arrows. `fill` changes only what differs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("h", "cursor_left", show=False),
        Binding("l", "cursor_right", show=False),
        Binding("g", "scroll_top", show=False),
        Binding("G", "scroll_bottom", show=False),
        Binding("ctrl+d", "page_down", show=False),
        Binding("ctrl+u", "page_up", show=False),
    ]

    def fill(self, rows: Sequence[Iterable[Any]], at: int = 0) -> None:
        """Show these rows with the cursor on row `at`: cells that stay are not drawn again."""
        while self.row_count > len(rows):
            self.remove_row(self.ordered_rows[-1].key)
        columns = [column.key for column in self.ordered_columns]
        for number, row in enumerate(rows):
            if number >= self.row_count:
                self.add_row(*row)
                continue
            key = self.ordered_rows[number].key
            for column, new, old in zip(columns, row, self.get_row(key), strict=True):
                if new != old:
                    self.update_cell(key, column, new, update_width=True)
        if rows:
            self.move_cursor(row=min(at, len(rows) - 1), animate=False)


class Search(Input):
    """One line to type in. `?` is help here too; down, and Escape, go to `below`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "below", show=False),
        Binding("escape", "below", "To the list", show=False),
    ]

    def __init__(self, below: str, **options: Any) -> None:
        super().__init__(compact=True, **options)
        self._below = below

    def on_key(self, event: events.Key) -> None:
        """A question mark is never part of a name: it is left to the app."""
        if event.key == "question_mark":
            event.prevent_default()

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """The same, for what the footer shows."""
        return key != "question_mark" and super().check_consume_key(key, character)

    def action_below(self) -> None:
        """To the list."""
        self.screen.query_one(self._below).focus()
