"""Names and values under titles, folded to the width there is: what a detail pane shows."""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType


def page(sections: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> RenderableType:
    """A bold title a section, below it its rows; a value without a name has the whole width, and comes first."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[RenderableType] = []
    for title, rows in sections:
        indent = 1 if title else 0
        parts += [Text(title, style="bold")] if title else []
        parts += [Padding(Text(value), (0, 0, 0, indent)) for name, value in rows if not name]
        named = [row for row in rows if row[0]]
        parts += [Padding(_named(named), (0, 0, 0, indent))] if named else []
        parts += [Text("")]
    return Group(*parts[:-1])


def _named(rows: Sequence[tuple[str, str]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, 2))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(Text(name), Text(value))
    return made


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    """A table with a bold head and no lines."""
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, 2))
    for name in head:
        made.add_column(Text(name, style="bold"))
    made.show_header = True
    for row in rows:
        made.add_row(*(Text(cell, overflow="fold") for cell in row))
    return made
