"""How well a strategy searches a space whose every time is known: questions until it is within 3 % of the true best."""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from vllm_tuner.kernel_tuning.points import Space


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from vllm_tuner.kernel_tuning.points import Point
    from vllm_tuner.kernel_tuning.strategies import Strategy

CLOSE = 0.03  # of the best: the bar


class Values(NamedTuple):
    """An axis as a file has it."""

    name: str
    values: tuple[int, ...]


class Recorded(NamedTuple):
    """A whole space that was measured: every legal point's median time in µs."""

    name: str
    space: Space
    times: Mapping[Point, float]

    @property
    def best(self) -> float:
        """The true best."""
        return min(self.times.values())

    def near(self, close: float = CLOSE) -> int:
        """How many points are as good as the best."""
        return sum(us <= self.best * (1 + close) for us in self.times.values())


def read(path: Path) -> Recorded:
    """A file of `benchmarks/kernel_space.py`; on a processor no bound tells points apart."""
    found = json.loads(path.read_text(encoding="utf-8"))
    axes = tuple(Values(axis["name"], tuple(axis["values"])) for axis in found["axes"])
    times = {tuple(row["point"]): float(row["median_us"]) for row in found["points"]}
    space = Space(axes, tuple(sorted(times)), (tuple(found["default"]),), dict.fromkeys(times, 1.0))
    return Recorded(f"{found['op']} {found['arch']} {found['bucket']}", space, times)


def questions(strategy: Strategy, known: Recorded, close: float = CLOSE) -> int:
    """How many points were asked until one was within `close` of the true best."""
    enough = known.best * (1 + close)
    for count in range(1, len(known.times) + 1):
        point = strategy.ask()
        if point is None:
            break
        us = known.times[point]
        strategy.tell(point, us)
        if us <= enough:
            return count
    return len(known.times)


def median_share(make: Callable[[Space, int], Strategy], known: Recorded, seeds: Iterable[int]) -> float:
    """The median share of the space that was asked until then."""
    return median(questions(make(known.space, seed), known) for seed in seeds) / len(known.times)
