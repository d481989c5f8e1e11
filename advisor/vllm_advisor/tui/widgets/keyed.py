"""A table whose rows have names, so that the cursor stays on what it was on; and text that scrolls with vim's keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from vllm_advisor.tui.widgets.lists import VimTable


if TYPE_CHECKING:
    from collections.abc import Sequence


class KeyTable(VimTable):
    """A table of texts, a row at a time, each with a key."""

    def __init__(self, *columns: str, id: str | None = None) -> None:  # noqa: A002 - Textual's own word
        super().__init__(cursor_type="row", id=id)
        self._heads = columns
        self._keys: list[str] = []

    def on_mount(self) -> None:
        """The columns, once."""
        if not self.columns:
            self.add_columns(*self._heads)

    def put(self, rows: Sequence[tuple[str, ...]], keys: Sequence[str]) -> None:
        """Show these rows instead; the cursor stays on its key where that is still there, or goes to the top."""
        here, self._keys = self.key, list(keys)
        self.fill(rows, self._keys.index(here) if here in self._keys else 0)

    @property
    def key(self) -> str:
        """The key of the row under the cursor, "" where there is none."""
        return self._keys[self.cursor_row] if 0 <= self.cursor_row < min(self.row_count, len(self._keys)) else ""


class VimScroll(VerticalScroll):
    """Text that scrolls: j k, g and G, once it has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "Down", show=False),
        Binding("k", "scroll_up", "Up", show=False),
        Binding("g", "scroll_home", "Top", show=False),
        Binding("G", "scroll_end", "Bottom", show=False),
    ]
