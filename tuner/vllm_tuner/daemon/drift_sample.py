"""What happened between two readings of /metrics, in a size that does not depend on the server: lengths by octave.

Token lengths span five decades, and what a plan feels is their ratio; so they are counted in octaves (a bin each),
whatever buckets a version has. Mass inside a bucket is spread evenly over its logarithm. vLLM's own buckets are 1-2-5
up to the model's length (0.33.0 v1/metrics/buckets.py:195).
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.hardware import Unknown
from vllm_advisor.vllm.metrics import Histogram


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.vllm.metrics import Metrics
    from vllm_advisor.workload import Sla

OCTAVES = 22  # up to four million tokens; longer ones count in the last
_SANE = 1e15  # counters beyond are garbage


class Lengths(NamedTuple):
    """Requests by the octave of their length, and their tokens together."""

    counts: tuple[float, ...]
    tokens: float

    @property
    def requests(self) -> float:
        """All of them."""
        return sum(self.counts)


class Times(NamedTuple):
    """So many requests took so many seconds together, `late` of them more than the limit (0 without one)."""

    requests: float
    seconds: float
    late: float = 0.0


class Sample(NamedTuple):
    """One interval. Gauges are those of its end; whatever this version does not count is Unknown.

    `running` and `waiting`: requests; `usage`: share of the fullest engine's KV cache; `queue` and `latency` of the
    requests that ended.
    """

    seconds: float
    prompts: Lengths | Unknown
    outputs: Lengths | Unknown
    running: float | Unknown = Unknown("not counted")
    waiting: float | Unknown = Unknown("not counted")
    usage: float | Unknown = Unknown("not counted")
    preemptions: float | Unknown = Unknown("not counted")
    rejections: float | Unknown = Unknown("not counted")
    hits: float | Unknown = Unknown("not counted")
    queries: float | Unknown = Unknown("not counted")
    ttft: Times | Unknown = Unknown("not counted")
    tpot: Times | Unknown = Unknown("not counted")
    queue: Times | Unknown = Unknown("not counted")
    latency: Times | Unknown = Unknown("not counted")


def sample(before: Metrics, after: Metrics, seconds: float, sla: Sla | None = None) -> Sample | Unknown:
    """The interval of `seconds` between two readings of one server.

    Unknown where it can't be told: nothing was read, or the server began anew in between (one interval is the price;
    counters of a lost data-parallel engine would otherwise be taken for new traffic).
    """
    if not before or not after:
        return Unknown("/metrics had none of vLLM's series")
    if _restarted(before, after):
        return Unknown("the server began anew")
    return Sample(
        seconds,
        prompts=_lengths(before, after, "request_prompt_tokens"),
        outputs=_lengths(before, after, "request_generation_tokens"),
        running=_gauge(after, "num_requests_running"),
        waiting=_gauge(after, "num_requests_waiting"),
        usage=_fullest(after),
        preemptions=_gained(before, after, "num_preemptions"),
        rejections=_gained(before, after, "admission_rejections"),
        hits=_gained(before, after, "prefix_cache_hits", "gpu_prefix_cache_hits"),
        queries=_gained(before, after, "prefix_cache_queries", "gpu_prefix_cache_queries"),
        ttft=_times(before, after, sla.ttft_ms if sla else None, "time_to_first_token_seconds"),
        tpot=_times(before, after, sla.tpot_ms if sla else None, *_TPOT),
        queue=_times(before, after, None, "request_queue_time_seconds"),
        latency=_times(before, after, None, "e2e_request_latency_seconds"),
    )


_TPOT = ("request_time_per_output_token_seconds", "time_per_output_token_seconds")  # the second before 0.11
_NEVER_FALL = ("prompt_tokens", "generation_tokens", "request_success")


def _restarted(before: Metrics, after: Metrics) -> bool:
    pairs = [(before.total(name), after.total(name)) for name in _NEVER_FALL]
    return any(not isinstance(a, Unknown) and not isinstance(b, Unknown) and b < a for a, b in pairs)


def _gauge(reading: Metrics, name: str) -> float | Unknown:
    return _sane(reading.total(name))


def _fullest(reading: Metrics) -> float | Unknown:
    names = ("kv_cache_usage_perc", "gpu_cache_usage_perc")
    found = [s.value for s in reading.lines(*names)]
    return _sane(max(found)) if found else reading.total(*names)


def _sane(value: float | Unknown) -> float | Unknown:
    if isinstance(value, Unknown) or 0 <= value < _SANE:
        return value
    return Unknown(f"{value:g} is no count")


def _gained(before: Metrics, after: Metrics, *names: str) -> float | Unknown:
    first, second = _sane(before.total(*names)), _sane(after.total(*names))
    if isinstance(first, Unknown) or isinstance(second, Unknown):
        return first if isinstance(first, Unknown) else second
    return second - first if second >= first else Unknown("it fell")


def _ended(before: Metrics, after: Metrics, *names: str) -> Histogram | Unknown:
    """What one of these histograms gained; Unknown for anything that no histogram does."""
    first, second = before.histogram(*names), after.histogram(*names)
    if isinstance(first, Unknown) or isinstance(second, Unknown):
        return first if isinstance(first, Unknown) else second
    if len(first.buckets) != len(second.buckets) or second.observed < first.observed:
        return Unknown("its buckets changed")
    gained = Histogram(
        tuple((bound, b - a) for (bound, b), (_, a) in zip(second.buckets, first.buckets, strict=True)),
        second.total - first.total,
        second.observed - first.observed,
    )
    return gained if _is_histogram(gained) else Unknown("its buckets contradict each other")


def _is_histogram(gained: Histogram) -> bool:
    seen = [0.0, *(count for _, count in gained.buckets)]
    rising = all(a <= b for a, b in pairwise(seen))
    return rising and 0 <= gained.total < _SANE and seen[-1] <= gained.observed < _SANE


def _lengths(before: Metrics, after: Metrics, name: str) -> Lengths | Unknown:
    gained = _ended(before, after, name)
    return gained if isinstance(gained, Unknown) else lengths(gained)


def lengths(gained: Histogram) -> Lengths:
    """A histogram of tokens by octave."""
    counts, below = [0.0] * OCTAVES, 0.0
    bounds = tuple(bound for bound, _ in gained.buckets)
    for (_, seen), shares in zip(gained.buckets, _spread(bounds), strict=True):
        if seen > below:
            for octave, share in shares:
                counts[octave] += share * (seen - below)
            below = seen
    return Lengths(tuple(counts), gained.total)


@lru_cache(maxsize=8)
def _spread(bounds: tuple[float, ...]) -> tuple[tuple[tuple[int, float], ...], ...]:
    """For each bucket: which octaves it covers and with which share of its logarithm."""
    edges = [0.0, *(math.log2(max(1.0, bound)) if bound < _SANE else math.inf for bound in bounds)]
    return tuple(_shares(low, high) for low, high in pairwise(edges))


def _shares(low: float, high: float) -> tuple[tuple[int, float], ...]:
    last = OCTAVES - 1
    if not math.isfinite(high) or high - low < 1e-9:
        return ((min(last, int(low)), 1.0),)
    parts = []
    for octave in range(min(last, int(low)), min(last, int(high)) + 1):
        top = high if octave == last else octave + 1
        covered = min(high, top) - max(low, octave)
        if covered > 0:
            parts.append((octave, covered / (high - low)))
    return tuple(parts) or ((last, 1.0),)


def _times(before: Metrics, after: Metrics, limit_ms: float | None, *names: str) -> Times | Unknown:
    gained = _ended(before, after, *names)
    if isinstance(gained, Unknown):
        return gained
    return Times(gained.observed, gained.total, late(gained, limit_ms / 1000) if limit_ms else 0.0)


def late(gained: Histogram, limit: float) -> float:
    """How many observations lie above a limit; inside the bucket that holds it, in proportion."""
    below, start = 0.0, 0.0
    for bound, seen in gained.buckets:
        if bound >= limit:
            inside = (limit - start) / (bound - start) if math.isfinite(bound) else 0.0
            return gained.observed - below - inside * (seen - below)
        below, start = seen, bound
    return gained.observed - below


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Earth mover's distance of two counts by octave, in octaves; 0 where one is empty.

    Why this one: a doubling of all lengths is 1.0 whatever their distribution, a tenth of the traffic made 4 times as
    long is 0.2, and neither depends on how fine the buckets are. Jensen-Shannon saturates once two distributions no
    longer meet (2 times and 200 times look alike for fixed-length traffic) and grows with finer buckets.
    """
    here, there = sum(one), sum(other)
    if here <= 0 or there <= 0:
        return 0.0
    moved, carried = 0.0, 0.0
    for a, b in zip(one, other, strict=True):
        carried += a / here - b / there
        moved += abs(carried)
    return moved
