"""Names and what is said of each, in two columns that fold to the width there is."""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType


def pairs(rows: Sequence[tuple[str, str]], title: str = "") -> RenderableType:
    """A bold title, then the rows; a name that is too long goes over two lines, as the other column does."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(max_width=max((len(name) for name, _ in rows), default=1), overflow="fold")
    grid.add_column(ratio=1, overflow="fold")
    for name, said in rows:
        grid.add_row(Text(name), Text(said))
    return Group(Text(title, style="bold"), grid) if title else grid


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> RenderableType:
    """A table without lines; columns of these `numbers` stand to the right."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    for place, name in enumerate(head):
        made.add_column(Text(name, style="bold"), justify="right" if place in numbers else "left")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made
