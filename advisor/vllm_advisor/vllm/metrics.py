"""What a running vLLM counts: the text of its /metrics as values, and what happened between two readings of it.

Only vLLM's own series are kept. A series that a version lacks is Unknown, never 0; counters that fell back (the server
was started again) count from their new start. Data-parallel engines are one series each (label `engine`): sums are
over all of them. Names: v1/metrics/loggers.py (0.24.0 and 0.33.0), engine/metrics.py before.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.hardware import Unknown


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PREFIX = "vllm:"
# An engine of 0.32 writes some 600 lines: room for a hundred of them.
_MOST_LINES = 60_000
_LONGEST_LINE = 1 << 16
_LINE = re.compile(r"(?P<name>vllm:[A-Za-z0-9_:]+)(?:\{(?P<labels>.*)\})?\s+(?P<value>[^\s{}]+)(?:\s+-?[0-9]+)?\s*")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
_ESCAPE = re.compile(r'\\[n"\\]')


class Series(NamedTuple):
    """One line: its labels and its value (never NaN)."""

    labels: Mapping[str, str]
    value: float


class Histogram(NamedTuple):
    """A distribution as Prometheus keeps it: (upper bound, observations up to it) in rising order, sum and count."""

    buckets: tuple[tuple[float, float], ...]
    total: float
    observed: float

    @property
    def mean(self) -> float | Unknown:
        """The exact mean; Unknown where nothing was observed."""
        return self.total / self.observed if self.observed > 0 else Unknown("nothing observed")

    def quantile(self, share: float) -> float | Unknown:
        """The value below which that share lies, even within its bucket; the last finite bound where it lies beyond."""
        if self.observed <= 0 or not self.buckets:
            return Unknown("nothing observed")
        wanted, below, start = share * self.observed, 0.0, 0.0
        for bound, seen in self.buckets:
            if seen >= wanted and seen > below:
                return start if math.isinf(bound) else start + (bound - start) * (wanted - below) / (seen - below)
            below, start = seen, start if math.isinf(bound) else bound
        return start

    def since(self, earlier: Histogram) -> Histogram:
        """What was observed after `earlier`; all of this one where it began anew or has other buckets."""
        before = dict(earlier.buckets)
        if tuple(before) != tuple(bound for bound, _ in self.buckets) or self.observed < earlier.observed:
            return self
        buckets = tuple((bound, seen - before[bound]) for bound, seen in self.buckets)
        if any(seen < 0 for _, seen in buckets):
            return self
        return Histogram(buckets, self.total - earlier.total, self.observed - earlier.observed)


class Metrics(NamedTuple):
    """One reading. `skipped`: vLLM's lines that could not be read; `cut`: there were more lines than are kept."""

    series: Mapping[str, tuple[Series, ...]]
    skipped: int = 0
    cut: bool = False

    def __bool__(self) -> bool:
        return bool(self.series)

    def lines(self, *names: str) -> tuple[Series, ...]:
        """The series of the first of these names that is there; a counter is found with and without `_total`."""
        for name in names:
            for spelled in (f"{_PREFIX}{name}", f"{_PREFIX}{name}_total"):
                if spelled in self.series:
                    return self.series[spelled]
        return ()

    def total(self, *names: str) -> float | Unknown:
        """The sum over engines and labels."""
        found = self.lines(*names)
        return sum(s.value for s in found) if found else _absent(names)

    def by(self, label: str, *names: str) -> dict[str, float]:
        """The sum for each value of a label, sorted by it; {} where this version counts no such thing."""
        sums: dict[str, float] = {}
        for series in self.lines(*names):
            if label in series.labels:
                sums[series.labels[label]] = sums.get(series.labels[label], 0.0) + series.value
        return dict(sorted(sums.items()))

    def histogram(self, *names: str) -> Histogram | Unknown:
        """The distribution over all engines, of the first of these names that is there."""
        for name in names:
            counts = self.series.get(f"{_PREFIX}{name}_count", ())
            if counts:
                return self._histogram(f"{_PREFIX}{name}", sum(s.value for s in counts))
        return _absent(names)

    def _histogram(self, name: str, count: float) -> Histogram:
        sums: dict[float, float] = {}
        for series in self.series.get(f"{name}_bucket", ()):
            bound = number(series.labels.get("le", ""))
            if bound is not None:
                sums[bound] = sums.get(bound, 0.0) + series.value
        total = sum(s.value for s in self.series.get(f"{name}_sum", ()))
        return Histogram(tuple(sorted(sums.items())), total, count)

    def engines(self) -> tuple[str, ...]:
        """The data-parallel ranks that report, in order; `0` alone for versions without the label."""
        found = {s.labels.get("engine", "0") for s in self.lines("num_requests_running")}
        return tuple(sorted(found, key=lambda engine: (len(engine), engine)))

    def model_names(self) -> tuple[str, ...]:
        """The served names that the series carry."""
        found = (s.labels.get("model_name", "") for s in self.lines("num_requests_running"))
        return tuple(dict.fromkeys(name for name in found if name))


def _absent(names: tuple[str, ...]) -> Unknown:
    return Unknown(f"this server has no {_PREFIX}{names[0]}")


def grown(earlier: float | Unknown, later: float | Unknown) -> float | Unknown:
    """What a counter gained between two readings; all of it where it began anew."""
    if isinstance(later, Unknown) or isinstance(earlier, Unknown):
        return later if isinstance(later, Unknown) else Unknown("it was there in the second reading only")
    return later - earlier if later >= earlier else later


def grown_by(earlier: Mapping[str, float], later: Mapping[str, float]) -> dict[str, float]:
    """The same for each label; a label that is new counts from 0."""
    return {
        name: value - earlier[name] if value >= earlier.get(name, 0.0) > 0 else value for name, value in later.items()
    }


def parse(text: str) -> Metrics:
    """The series of a /metrics text; whatever is no series of vLLM is passed over, what is broken is counted."""
    series: dict[str, list[Series]] = {}
    skipped, seen = 0, 0
    for line in _ours(text):
        seen += 1
        if seen > _MOST_LINES:
            break
        match = _LINE.fullmatch(line) if len(line) <= _LONGEST_LINE else None
        value = number(match["value"]) if match else None
        if match is None or value is None:
            skipped += 1
            continue
        labels = {name: _plain(said) for name, said in _LABEL.findall(match["labels"] or "")}
        series.setdefault(match["name"], []).append(Series(labels, value))
    return Metrics({name: tuple(found) for name, found in series.items()}, skipped, seen > _MOST_LINES)


def _ours(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line.startswith(_PREFIX))


def _plain(text: str) -> str:
    unescaped = _ESCAPE.sub(lambda found: _ESCAPES[found[0]], text) if "\\" in text else text
    return printable(unescaped)


def printable(text: str) -> str:
    """A server's words without what would steer a terminal."""
    return text if text.isprintable() else "".join(c for c in text if c.isprintable())


def number(text: str) -> float | None:
    """A Prometheus number, `+Inf` too; None for NaN and for what is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value
