"""One number that a search may change."""

from __future__ import annotations

from typing import NamedTuple


class Axis(NamedTuple):
    """The field of a `Launch` or `CpuTile` and its values, in order."""

    name: str
    values: tuple[int, ...]
