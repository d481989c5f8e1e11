"""Rows of a label and a text that wraps below its own start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text


if TYPE_CHECKING:
    from collections.abc import Iterable


def grid(rows: Iterable[tuple[str, str]], title: str = "") -> Table:
    """Two columns without lines; `title` stands above them, in bold. Nothing in the texts is markup."""
    table = Table.grid(padding=(0, 1), expand=True)
    table.title, table.title_justify, table.title_style = (Text(title, "bold") if title else None), "left", ""
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for label, text in rows:
        table.add_row(Text(label), Text(text))
    return table
