"""Which point next: every one, any one, steps downhill, or where a model expects the most.

One protocol for all, seeded: the same space and the same answers ask the same points in the same order, which is what
resuming rests on. Times are microseconds, None for a point that cannot run or cannot win.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Protocol

from vllm_advisor.errors import UsageError
from vllm_tuner.kernel_tuning.surrogate import LEAST, Surrogate
from vllm_tuner.kernels import needed


if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from vllm_tuner.kernel_tuning.points import Point, Space

_SEED = 20_261  # any number: it only has to stay
_BOUNDED = 2  # points with the least bound that open a model's search
_PATIENCE = 3  # points in a row that are worse, before a line ends: a rough point hides what lies behind it
_FEW = 20  # random points, of which the farthest from all before is taken
_ALWAYS, _LEARN_EVERY = 20, 3  # answers until which hyperparameters are drawn at each, and then at every third


class Strategy(Protocol):
    """Asks for points of one space, each once; None when there is nothing more to ask."""

    def ask(self) -> Point | None: ...

    def tell(self, point: Point, us: float | None) -> None: ...


class Exhaustive:
    """All of them: starts first, then those that could be fastest."""

    def __init__(self, space: Space, seed: int = _SEED) -> None:
        del seed
        self._points: Iterator[Point] = iter(dict.fromkeys((*space.starts, *space.likeliest())))

    def ask(self) -> Point | None:
        """The next one."""
        return next(self._points, None)

    def tell(self, point: Point, us: float | None) -> None:
        """The order is fixed."""


class Random(Exhaustive):
    """All of them, starts first, then in any order."""

    def __init__(self, space: Space, seed: int = _SEED) -> None:
        rest = list(space.points)
        random.Random(seed).shuffle(rest)  # noqa: S311 - a search, no secret
        self._points = iter(dict.fromkeys((*space.starts, *rest)))


class Pattern:
    """Coordinate descent: along one axis as long as it helps, axis by axis; then shorter ones from other starts.

    The axis that helped most is taken first in the next round. A point that was answered before costs nothing, and a
    later descent does not go where an earlier one was: it would only come to the same end.
    """

    def __init__(self, space: Space, seed: int = _SEED) -> None:
        self._space = space
        self._rng = random.Random(seed)  # noqa: S311 - a search, no secret
        self._times: dict[Point, float] = {}
        self._patience = _PATIENCE
        self._passed: frozenset[Point] = frozenset()
        self._gains = [0.0] * len(space.axes)
        self._walk = self._search()

    def ask(self) -> Point | None:
        """The next point that has no answer yet."""
        return next((point for point in self._walk if point not in self._times), None)

    def tell(self, point: Point, us: float | None) -> None:
        """Remember a time; where none was taken, it is no way to go."""
        self._times[point] = math.inf if us is None else us

    def _search(self) -> Iterator[Point]:
        for start in self._openings():
            if start not in self._times:
                yield start
                yield from self._descend(start)
                self._passed = frozenset(self._times)
                self._patience = 1

    def _openings(self) -> Iterator[Point]:
        """The starts, the point that could be fastest, and from then on one near the best or far from all, in turn."""
        space = self._space
        yield from space.openings(1)
        rest = list(space.points)
        self._rng.shuffle(rest)
        near = False
        while rest := [point for point in rest if point not in self._times]:
            near = not near
            yield self._hop(rest) if near else space.farthest(rest[:_FEW], self._times)

    def _hop(self, rest: list[Point]) -> Point:
        """A point that was not asked and lies near the best, but not next to it in one axis."""
        here = self._space.positions(min(self._times, key=lambda point: (self._times[point], point)))
        steps = {p: [abs(a - b) for a, b in zip(self._space.positions(p), here, strict=True)] for p in rest}
        return min(rest, key=lambda point: (sum(s > 0 for s in steps[point]) < 2, sum(steps[point])))

    def _descend(self, start: Point) -> Generator[Point, None, None]:
        here, better = start, True
        while better:
            before = here
            for axis in self._order():
                here = yield from self._line(here, axis)
            better = here != before

    def _order(self) -> list[int]:
        axes = list(range(len(self._gains)))
        self._rng.shuffle(axes)
        return sorted(axes, key=lambda axis: -self._gains[axis])

    def _line(self, start: Point, axis: int) -> Generator[Point, None, Point]:
        """Both ways from a point until it gets worse; returns the best of it."""
        best = start
        for step in self._rng.sample((-1, 1), 2):
            worse = 0
            for point in self._space.along(start, axis, step):
                if point in self._passed:
                    break
                yield point
                better = self._times.get(point, math.inf) < self._times[best]
                worse = 0 if better else worse + 1
                best = point if better else best
                if worse == self._patience:
                    break
            if best != start:
                break
        if best != start:
            self._gains[axis] += math.log(min(self._times[start] / self._times[best], 1e6))
        return best


class Model:
    """A Gaussian process chooses where it expects the most: of all points, or beside the best, in turn.

    It opens with the starts, the points with the least bounds, and one step from the default in each axis.
    """

    def __init__(self, space: Space, seed: int = _SEED) -> None:
        self._space = space
        self._number = {point: i for i, point in enumerate(space.points)}
        self._surrogate = Surrogate(space, seed)
        self._rng = random.Random(seed)  # noqa: S311 - a search, no secret
        self._times: dict[int, float] = {}
        self._asked: set[int] = set()
        self._opening = list(dict.fromkeys(self._number[p] for p in self._openings()))
        self._answers = 0

    def _openings(self) -> Iterator[Point]:
        space = self._space
        yield from space.openings(_BOUNDED)
        for axis in range(len(space.axes) if space.starts else 0):
            others = [*space.along(space.starts[0], axis, -1), *space.along(space.starts[0], axis, 1)]
            yield from self._rng.sample(others, min(1, len(others)))

    def ask(self) -> Point | None:
        """The next one; None when all were asked."""
        while self._opening:
            number = self._opening.pop(0)
            if number not in self._asked:
                return self._take(number)
        if len(self._asked) == len(self._space.points):
            return None
        if len(self._times) < 2:
            return self._take(next(i for i in range(len(self._space.points)) if i not in self._asked))
        return self._take(self._most_promising())

    def _take(self, number: int) -> Point:
        self._asked.add(number)
        return self._space.points[number]

    def tell(self, point: Point, us: float | None) -> None:
        """A time; a point without one is only left out."""
        self._answers += 1
        self._asked.add(self._number[point])
        if us is not None:
            self._times[self._number[point]] = us

    def _beside_best(self) -> list[int]:
        """The points not asked that differ from the best in one axis."""
        best = self._space.points[min(self._times, key=self._times.__getitem__)]
        lines = (self._space.along(best, axis, step) for axis in range(len(self._space.axes)) for step in (-1, 1))
        return [n for line in lines for point in line if (n := self._number[point]) not in self._asked]

    def _most_promising(self) -> int:
        np = needed("numpy")
        learn = self._answers < _ALWAYS or self._answers % _LEARN_EVERY == 0
        mean, deviation = self._surrogate.predict(list(self._times), list(self._times.values()), learn=learn)
        gap = LEAST - mean
        z = gap / deviation
        density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
        expected = gap * _normal(z) + deviation * density
        expected[list(self._asked)] = -np.inf
        beside = self._beside_best() if self._answers % 2 else []
        if beside:
            return max(beside, key=lambda number: float(expected[number]))
        return int(np.argmax(expected))


def _normal(z: object) -> object:
    """The normal distribution function; Abramowitz and Stegun 26.2.17 is enough for a ranking."""
    np = needed("numpy")
    t = 1 / (1 + 0.2316419 * np.abs(z))
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = series * np.exp(-0.5 * np.square(z)) / math.sqrt(2 * math.pi)
    return np.where(np.asarray(z) >= 0, 1 - tail, tail)


STRATEGIES: dict[str, Callable[[Space, int], Strategy]] = {
    "exhaustive": Exhaustive,
    "random": Random,
    "pattern": Pattern,
    "model": Model,
}


def check(name: str) -> None:
    """Raises UsageError for a name that is none; "" is one."""
    if name and name not in STRATEGIES:
        raise UsageError(f"no strategy {name!r}", f"one of {', '.join(STRATEGIES)}")


def strategy(name: str, space: Space, trials: int, seed: int = _SEED) -> Strategy:
    """By name; "": every point where `trials` cover them, else the model. Raises UsageError."""
    check(name)
    return STRATEGIES[name or ("exhaustive" if len(space.points) <= trials else "model")](space, seed)
