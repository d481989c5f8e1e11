"""The finite space of one kernel's launches: a point holds one value of each axis; a space lists the points that count.

Axes are ordered, so that neighbours in an axis are neighbours in effect. Which points are legal, and how fast each can
be at best, the kernels say (`vllm_mx_kernels.autotune`); here they are only numbers.
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from vllm_advisor.profile import Settings

Point: TypeAlias = tuple[int, ...]


class Axis(Protocol):
    """One number of a launch and the values that it may take, in order."""

    @property
    def name(self) -> str: ...

    @property
    def values(self) -> tuple[int, ...]: ...


class Space(NamedTuple):
    """The points to search. `starts`: the default first, then an old winner; `bounds`: the least time in µs of each.

    Starts are members. Equal spaces in equal order give equal searches.
    """

    axes: tuple[Axis, ...]
    points: tuple[Point, ...]
    starts: tuple[Point, ...]
    bounds: Mapping[Point, float]

    def positions(self, point: Point) -> tuple[int, ...]:
        """Where a point's values stand in their axes."""
        return tuple(axis.values.index(value) for axis, value in zip(self.axes, point, strict=True))

    def at(self, positions: Sequence[int]) -> Point:
        """The point of such positions; IndexError beyond an axis."""
        return tuple(axis.values[i] for axis, i in zip(self.axes, positions, strict=True))

    def along(self, point: Point, axis: int, step: int) -> Iterator[Point]:
        """The members on one side of a point in one axis, the nearest first."""
        positions = list(self.positions(point))
        positions[axis] += step
        while 0 <= positions[axis] < len(self.axes[axis].values):
            other = self.at(positions)
            if other in self.bounds:
                yield other
            positions[axis] += step

    def only(self, keep: Iterable[Point]) -> Space:
        """The same without the other points."""
        kept = frozenset(keep)
        points = tuple(point for point in self.points if point in kept)
        starts = tuple(start for start in self.starts if start in kept)
        return Space(self.axes, points, starts, {point: self.bounds[point] for point in points})

    def likeliest(self) -> list[Point]:
        """By their bounds: what could be fastest comes first."""
        return sorted(self.points, key=lambda point: (self.bounds[point], point))

    def openings(self, count: int) -> list[Point]:
        """The starts, and some of the likeliest where bounds tell points apart."""
        told_apart = len(set(self.bounds.values())) > 1
        return [*self.starts, *(self.likeliest()[:count] if told_apart else [])]

    def farthest(self, some: Sequence[Point], others: Iterable[Point]) -> Point:
        """The one of some points whose nearest of the others is farthest, the whole of an axis being 1."""
        places = [self._place(other) for other in others]
        return max(some, key=lambda point: min((math.dist(self._place(point), x) for x in places), default=0.0))

    def _place(self, point: Point) -> tuple[float, ...]:
        widths = (max(1, len(axis.values) - 1) for axis in self.axes)
        return tuple(at / width for at, width in zip(self.positions(point), widths, strict=True))

    def settings(self, point: Point) -> Settings:
        """By axis name, as the store keeps it."""
        return tuple((axis.name, value) for axis, value in zip(self.axes, point, strict=True))


def space(
    axes: Sequence[Axis],
    starts: Sequence[Point],
    objection: Callable[[Point], str],
    bound: Callable[[Point], float],
) -> Space:
    """Every legal point. The starts belong to it whatever the axes hold, but for one that is not legal."""
    every = dict.fromkeys((*starts, *product(*(axis.values for axis in axes))))
    points = tuple(point for point in every if fits(axes, point) and not objection(point))
    members = frozenset(points)
    legal = tuple(dict.fromkeys(start for start in starts if start in members))
    return Space(tuple(axes), points, legal, {point: bound(point) for point in points})


def fits(axes: Sequence[Axis], point: Point) -> bool:
    """Whether a point is made of the axes' values."""
    return len(point) == len(axes) and all(value in axis.values for axis, value in zip(axes, point, strict=True))


def point_of(axes: Sequence[Axis], settings: Settings) -> Point | None:
    """The point of stored settings; None where the axes are others now."""
    named = dict(settings)
    values = tuple(named.get(axis.name) for axis in axes)
    point = tuple(value for value in values if isinstance(value, int) and not isinstance(value, bool))
    return point if len(point) == len(values) and fits(axes, point) else None
