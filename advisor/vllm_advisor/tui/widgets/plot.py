"""A scatter plot in text, both axes logarithmic: plans as dots, those that nothing beats joined, and where one is."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, cast

from rich.text import Text
from textual.widget import Widget

from vllm_advisor.tui.glyphs import UTF8
from vllm_advisor.units import significant


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from textual.geometry import Size

    from vllm_advisor.tui.app import Wizard

_HEIGHT, _TALL, _FROM = 9, 14, 45  # rows of the plot, and from how many of the screen it has more
_LEAST, _ABOVE = 4, 18  # at least so many; in a small terminal the screen's less what stands above it
_BRAILLE = 0x2800
# The bit of each of the 2 × 4 dots of a braille cell, by row and column (Unicode 15, block U+2800).
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


class Spot(NamedTuple):
    """A point: `kind` is `best`, `here` or `other`; `row` is what it is, in figures, for those who cannot see it."""

    x: float
    y: float
    kind: str
    row: str = ""


class Axis(NamedTuple):
    """A logarithmic range."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """0…1 along it."""
        return (math.log10(value) - self.low) / (self.high - self.low)

    def ticks(self) -> Iterator[float]:
        """1, 2, 5, 10, … inside it."""
        for power in range(math.floor(self.low), math.ceil(self.high) + 1):
            yield from (t for m in (1, 2, 5) if self.low <= math.log10(t := m * 10.0**power) <= self.high)


def axis(values: Sequence[float]) -> Axis:
    """An axis that shows them all with a little room."""
    low, high = math.log10(min(values)), math.log10(max(values))
    room = max(0.05, (high - low) * 0.05)
    return Axis(low - room, high + room)


class Plot(Widget):
    """`show` spots; `x` and `y` name the axes."""

    def __init__(self, x: str, y: str, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own word
        super().__init__(id=id)
        self._names = (x, y)
        self._spots: tuple[Spot, ...] = ()
        self._waits = ""

    def show(self, spots: Sequence[Spot], waits: str = "") -> None:
        """Draw them; `waits` says instead why there are none yet."""
        self._spots = tuple(spot for spot in spots if spot.x > 0 and spot.y > 0)
        self._waits = waits
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - Textual's
        """Fixed, so that what is below does not jump; in text a line a point."""
        if cast("Wizard", self.app).plain:
            return 2 + len(self._rows())
        most = _TALL if viewport.height >= _FROM else _HEIGHT
        return max(_LEAST, min(most, viewport.height - _ABOVE)) + 3

    def render(self) -> Text:
        """The plot, or rows of figures where pictures are not wanted."""
        wizard = cast("Wizard", self.app)
        if not self._spots:
            return Text(self._waits or "no plan stands at any load", "dim")
        if wizard.plain:
            return Text("\n".join((f"{self._names[1]} against {self._names[0]} (estimates)", *self._rows())))
        return drawn(self._spots, self._names, max(20, self.size.width), self._room, utf8=wizard.glyphs == UTF8)

    @property
    def _room(self) -> int:
        return max(3, self.size.height - 3)

    def _rows(self) -> list[str]:
        return [spot.row for spot in self._spots if spot.kind != "other" and spot.row]


def drawn(spots: Sequence[Spot], names: tuple[str, str], width: int, height: int, *, utf8: bool) -> Text:
    """Title line, `height` rows, floor with ticks: `height` + 3 lines of at most `width` cells."""
    x, y = axis([s.x for s in spots]), axis([s.y for s in spots])
    labels = {height - 1 - round(y.at(t) * (height - 1)): significant(t, 2) for t in y.ticks()}
    margin = max(map(len, labels.values()), default=1)
    cells = _cells(spots, (x, y), (width - margin - 2, height), utf8=utf8)
    wall, floor, corner = ("│", "─", "└") if utf8 else ("|", "-", "+")
    other, best, here = _signs(utf8=utf8)
    text = Text(no_wrap=True, overflow="crop")
    text.append(f"{names[1]}    {best} best  {other} others  {here} this plan\n", "dim")
    for i, row in enumerate(cells):
        text.append(f"{labels.get(i, ''):>{margin}} {wall}", "dim")
        for sign in row:
            text.append(sign, {best: "bold", here: "bold reverse"}.get(sign, ""))
        text.append("\n")
    text.append(f"{'':>{margin}} {corner}{floor * (width - margin - 2)}\n", "dim")
    text.append(f"{'':>{margin}}  {_scale(x, width - margin - 2, names[0])}", "dim")
    return text


def _signs(*, utf8: bool) -> tuple[str, str, str]:
    return ("·", "●", "◆") if utf8 else (".", "*", "@")


def _cells(spots: Sequence[Spot], axes: tuple[Axis, Axis], size: tuple[int, int], *, utf8: bool) -> list[list[str]]:
    """The grid of signs: the line first, then dots, then the best, then the chosen."""
    width, height = size
    other, best, here = _signs(utf8=utf8)
    grid = [[" "] * width for _ in range(height)]
    joined = sorted((s for s in spots if s.kind == "best"), key=lambda s: s.x)
    places = [(axes[0].at(s.x), axes[1].at(s.y)) for s in joined]
    _line(grid, places, utf8=utf8)
    for kind, sign in (("other", other), ("best", best), ("here", here)):
        for spot in spots:
            if spot.kind == kind:
                row = height - 1 - round(axes[1].at(spot.y) * (height - 1))
                grid[row][round(axes[0].at(spot.x) * (width - 1))] = sign
    return grid


def _line(grid: list[list[str]], places: Sequence[tuple[float, float]], *, utf8: bool) -> None:
    """Join the places: in braille dots, or a dash a cell."""
    wide, tall = (2, 4) if utf8 else (1, 1)
    columns, rows = len(grid[0]), len(grid)
    bits = dict[tuple[int, int], int]()
    for (x0, y0), (x1, y1) in pairwise(places):
        steps = max(1, round(2 * max(abs(x1 - x0) * columns * wide, abs(y1 - y0) * rows * tall)))
        for k in range(steps + 1):
            column = _dot((x0 + (x1 - x0) * k / steps) * (columns - 1), wide)
            row = _dot((1 - y0 - (y1 - y0) * k / steps) * (rows - 1), tall)
            cell = (row // tall, column // wide)
            bits[cell] = bits.get(cell, 0) | _BITS[row % tall][column % wide]
    for (row, column), dots in bits.items():
        grid[row][column] = chr(_BRAILLE + dots) if utf8 else "-"


def _dot(cell: float, dots: int) -> int:
    """The dot at the place of a cell, whose own place is its middle."""
    return math.floor(cell * dots + dots / 2)


def _scale(x: Axis, width: int, name: str) -> str:
    """Ticks in their places, the name of the axis behind them."""
    line, free = [" "] * width, 0
    for tick in x.ticks():
        shown, at = significant(tick, 2), round(x.at(tick) * (width - 1))
        if free <= at <= width - len(shown) - len(name) - 2:
            line[at : at + len(shown)] = shown
            free = at + len(shown) + 1
    return "".join(line)[: max(0, width - len(name) - 1)].ljust(max(0, width - len(name))) + name
