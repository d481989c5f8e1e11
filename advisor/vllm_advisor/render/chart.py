"""A Pareto chart of plans: as text for a terminal, as SVG for a page or a file. Both axes are logarithmic."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.units import significant


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 20, 50
_X, _Y = "output tokens a second for one user", "output tokens a second a GPU"


class Dot(NamedTuple):
    """A point to draw: `best` ones are joined by a line, `text` says what it is."""

    x: float
    y: float
    best: bool
    text: str


class _Axis(NamedTuple):
    """The logarithmic range of values, and the tick values inside it."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """0…1 along the axis."""
        return (math.log10(value) - self.low) / (self.high - self.low)


def _axis(values: Sequence[float]) -> _Axis:
    low, high = math.log10(min(values)), math.log10(max(values))
    pad = max(0.05, (high - low) * 0.06)
    low, high = low - pad, high + pad
    steps = (m * 10.0**e for e in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5))
    return _Axis(low, high, tuple(t for t in steps if low <= math.log10(t) <= high))


def text(dots: Sequence[Dot], *, width: int = 72, height: int = 18, utf8: bool = True) -> list[str]:
    """The chart in characters. The best plans carry letters, from the most a device on; [] for no dots."""
    if not dots:
        return []
    x, y = _axis([d.x for d in dots]), _axis([d.y for d in dots])
    grid = [[" "] * width for _ in range(height)]
    for dot, mark in _marks(dots, "·" if utf8 else "."):
        grid[height - 1 - round(y.at(dot.y) * (height - 1))][round(x.at(dot.x) * (width - 1))] = mark
    labels = {height - 1 - round(y.at(t) * (height - 1)): significant(t, 2) for t in y.ticks}
    wall, floor, corner = ("│", "─", "└") if utf8 else ("|", "-", "+")
    margin = max(len(t) for t in labels.values()) if labels else 1
    rows = [f"{labels.get(i, ''):>{margin}} {wall}{''.join(row)}".rstrip() for i, row in enumerate(grid)]
    scale = _scale(x, width)
    return [
        _Y,
        *rows,
        f"{'':>{margin}} {corner}{floor * width}",
        f"{'':>{margin}}  {scale}".rstrip(),
        _X.rjust(width + margin),
    ]


def _marks(dots: Sequence[Dot], plain: str) -> list[tuple[Dot, str]]:
    """Plain dots first, so that letters stand above them."""
    best = [d for d in dots if d.best]
    letters = [(d, letter(i)) for i, d in enumerate(best)]
    return [(d, plain) for d in dots if not d.best] + letters[::-1]


def letter(index: int) -> str:
    """A, B, … Z, a, b, …; * beyond."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    return alphabet[index] if index < len(alphabet) else "*"


def _scale(axis: _Axis, width: int) -> str:
    line = [" "] * (width + 8)
    free = 0
    for tick in axis.ticks:
        shown, at = significant(tick, 2), round(axis.at(tick) * (width - 1))
        if at >= free:
            line[at : at + len(shown)] = shown
            free = at + len(shown) + 1
    return "".join(line)


def svg(dots: Sequence[Dot], *, title: str) -> str:
    """The chart as one SVG element, readable in light and dark; each dot says in a tooltip what it is."""
    x, y = _axis([d.x for d in dots] or [1.0]), _axis([d.y for d in dots] or [1.0])
    place_x, place_y = _scaled(x, _LEFT, _WIDTH - _RIGHT), _scaled(y, _HEIGHT - _BOTTOM, _TOP)
    best = [d for d in dots if d.best]
    line = " ".join(f"{place_x(d.x):.1f},{place_y(d.y):.1f}" for d in best)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
    parts = [
        f'{head} font-family="sans-serif" font-size="12"><title>{escape(title)}</title>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        *(_tick_x(place_x(t), t) for t in x.ticks),
        *(_tick_y(place_y(t), t) for t in y.ticks),
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 12}" text-anchor="middle" fill="#333">{_X}</text>',
        f'<text transform="translate(16 {_HEIGHT / 2}) rotate(-90)" text-anchor="middle" fill="#333">{_Y}</text>',
        f'<polyline points="{line}" fill="none" stroke="#0b6" stroke-width="2"/>',
        *(_dot(place_x(d.x), place_y(d.y), d) for d in sorted(dots, key=lambda d: d.best)),
        "</svg>",
    ]
    return "\n".join(parts)


def _scaled(axis: _Axis, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + axis.at(value) * (end - start)


def _tick_x(at: float, value: float) -> str:
    below = _HEIGHT - _BOTTOM + 16
    return (
        f'<path d="M{at:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#ddd"/>'
        f'<text x="{at:.1f}" y="{below}" text-anchor="middle" fill="#333">{significant(value, 2)}</text>'
    )


def _tick_y(at: float, value: float) -> str:
    return (
        f'<path d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>'
        f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end" fill="#333">{significant(value, 2)}</text>'
    )


def _dot(x: float, y: float, dot: Dot) -> str:
    colour, size = ("#0b6", 5) if dot.best else ("#999", 3)
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{colour}"><title>{escape(dot.text)}</title></circle>'
