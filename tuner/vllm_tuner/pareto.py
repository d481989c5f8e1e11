"""Which measured trials nothing beats: in the two figures of the chart, and in any others that matter.

The chart's two are output tokens a second a device, and those that one user sees. The other axes are what an objective
may ask for: the first token, a whole answer, goodput within limits, what a million tokens cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.units import Interval
from vllm_tuner.cost import PRICED, UNPRICED


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm_advisor.profile import Trial


class Point(NamedTuple):
    """A trial as a place in the chart."""

    trial: Trial
    per_device: float
    per_user: float


def points(trials: Sequence[Trial]) -> tuple[Point, ...]:
    """Those that have figures, in their order."""
    found = ((trial, value(trial, "per_device"), value(trial, "per_user")) for trial in trials)
    return tuple(Point(trial, y.mid, x.mid) for trial, y, x in found if y and x)


def frontier(found: Sequence[Point]) -> tuple[Point, ...]:
    """Those that no other beats in both, from the most a device to the most a user."""
    best: list[Point] = []
    for point in sorted(found, key=lambda p: (-p.per_device, -p.per_user)):
        if not best or point.per_user > best[-1].per_user:
            best.append(point)
    return tuple(best)


class Axis(NamedTuple):
    """One figure of a trial. `less`: less of it is better."""

    name: str
    label: str
    less: bool
    of: Callable[[Trial], Interval | None]


def _figure(name: str) -> Callable[[Trial], Interval | None]:
    return lambda trial: trial.measurement.figure(name) if trial.measurement else None


def _per_device(trial: Trial) -> Interval | None:
    speed = _figure("output_tok_s")(trial)
    return speed.scaled(1 / trial.plan.world_size) if speed and trial.plan else None


def _per_user(trial: Trial) -> Interval | None:
    """What one user sees while an answer streams: one over the time a token takes."""
    gap = _figure("tpot_ms")(trial)
    if gap is None or gap.mid <= 0:
        return None
    return Interval(1000 / gap.high, 1000 / gap.mid, 1000 / gap.low if gap.low > 0 else float("inf"))


AXES = {
    axis.name: axis
    for axis in (
        Axis("output_tok_s", "output tokens a second", less=False, of=_figure("output_tok_s")),
        Axis("per_device", "output tokens a second a device", less=False, of=_per_device),
        Axis("per_user", "output tokens a second for one user", less=False, of=_per_user),
        Axis("ttft_ms", "ms to the first token", less=True, of=_figure("ttft_ms")),
        Axis("p99_ttft_ms", "ms to the first token, 99th percentile", less=True, of=_figure("p99_ttft_ms")),
        Axis("tpot_ms", "ms a token", less=True, of=_figure("tpot_ms")),
        Axis("e2el_ms", "ms a whole answer", less=True, of=_figure("e2el_ms")),
        Axis("goodput_s", "requests within the limits a second", less=False, of=_figure("goodput_s")),
        Axis(PRICED, "price of a million output tokens", less=True, of=_figure(PRICED)),
        Axis(UNPRICED, "device seconds for a million output tokens", less=True, of=_figure(UNPRICED)),
    )
}
# (across, up): throughput against what one user sees, against waiting, within limits, and against its price.
PAIRS = (
    ("per_user", "per_device"),
    ("ttft_ms", "output_tok_s"),
    ("e2el_ms", "output_tok_s"),
    ("e2el_ms", "goodput_s"),
    ("per_user", PRICED),
    ("per_user", UNPRICED),
)


def value(trial: Trial, name: str) -> Interval | None:
    """A trial's figure on an axis, None where it has none. Raises KeyError for no axis."""
    return AXES[name].of(trial)


class Plotted(NamedTuple):
    """A trial in a plot of two axes, with what its repeats leave open; `best`: nothing beats it in both."""

    trial: Trial
    x: Interval
    y: Interval
    best: bool


def plot(trials: Sequence[Trial], across: str = "per_user", up: str = "per_device") -> tuple[Plotted, ...]:
    """Every trial that has both figures, in its order, and whether it lies on the frontier. Raises KeyError."""
    best = {id(trial) for trial in unbeaten(trials, (across, up))}
    found = ((trial, value(trial, across), value(trial, up)) for trial in trials)
    return tuple(Plotted(trial, x, y, id(trial) in best) for trial, x, y in found if x and y)


def unbeaten(trials: Sequence[Trial], names: Sequence[str]) -> tuple[Trial, ...]:
    """Those that no other trial equals or beats on every axis and beats on one; without a figure is out."""
    rows = [(trial, row) for trial in trials if (row := _row(trial, names))]
    return tuple(trial for trial, row in rows if not any(_beats(other, row) for _, other in rows))


def _row(trial: Trial, names: Sequence[str]) -> tuple[float, ...]:
    """The middles, turned so that more is better; () where one is missing."""
    found = [value(trial, name) for name in names]
    if any(interval is None for interval in found):
        return ()
    pairs = zip(names, found, strict=True)
    return tuple(-interval.mid if AXES[name].less else interval.mid for name, interval in pairs if interval)


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))


def shown(trials: Sequence[Trial]) -> tuple[tuple[str, str], ...]:
    """The pairs of axes that two trials or more have figures for: the price takes the place of device seconds."""
    pairs = [pair for pair in PAIRS if len(plot(trials, *pair)) > 1 and _varies(trials, pair)]
    priced = any(PRICED in pair for pair in pairs)
    return tuple(pair for pair in pairs if not (priced and UNPRICED in pair))


def _varies(trials: Sequence[Trial], pair: tuple[str, str]) -> bool:
    """Goodput without limits is the rate of requests, and says nothing new."""
    limits = [t.measurement.workload.sla for t in trials if t.measurement and t.measurement.workload]
    limited = any(sla.ttft_ms is not None or sla.tpot_ms is not None for sla in limits)
    return "goodput_s" not in pair or limited
