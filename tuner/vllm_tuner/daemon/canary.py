"""A candidate on live traffic against what the incumbent did before: a request's milliseconds a token, wait included.

Live traffic cannot be interleaved, so each reading of the candidate is compared with the incumbent's readings at the
same load: as many requests in flight, and as many a second, within a factor of 1.4. Both count, because clients that
wait for an answer keep the first and clients that come as they like keep the second, whatever plan runs. Slower by more
than the margin in either is a loss, else a win. A load at which the incumbent was not seen says nothing, unless the
candidate is slower than the incumbent was while it served more a second with no more in flight: a loss, too, for
clients that wait slow down with a slow plan. The verdict falls once the evidence that most are wins (or losses) is
strong enough, by the sequential test of `gate`; rejections end it at once. Without a verdict the candidate is not
proven.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.hardware import Unknown
from vllm_tuner.daemon.drift_sample import Lengths, Sample, Times
from vllm_tuner.daemon.policy_state import Canary, Verdict
from vllm_tuner.gate import evidence_of


if TYPE_CHECKING:
    from collections.abc import Iterator

MARGIN = 0.10  # slower by more counts as worse: readings of live traffic differ by some per cent
CERTAIN = 20.0  # as the gate: wrong in one of twenty at most
LEAST = 8  # readings, however they fall; and of the incumbent, before it is left
_NEAR = 0.5  # octaves between two loads that are the same
_FEW = 3  # readings of a load, at least
_REJECTED_SHARE = 0.01
_KEPT = 128
_VERSION = 2


class Pulse(NamedTuple):
    """One reading with traffic: requests in flight and requests a second, both as octaves, and ms a token."""

    flight: float
    rate: float
    ms: float


class Baseline(NamedTuple):
    """What the incumbent did, the newest last."""

    pulses: tuple[Pulse, ...] = ()

    def with_(self, pulse: Pulse | None) -> Baseline:
        """One more reading, where it was one."""
        return self if pulse is None else Baseline((*self.pulses, pulse)[-_KEPT:])

    @property
    def enough(self) -> bool:
        """Whether something can be compared with it at all."""
        return len(self.pulses) >= LEAST

    def expected(self, at: Pulse) -> tuple[float, ...]:
        """The medians at the same load, by requests in flight and by requests a second, as far as they are known."""
        return tuple(self._medians(at))

    def bound(self, at: Pulse) -> float:
        """What it needed at most, by what it needed when it served more a second; infinite where that was not seen."""
        found = sorted(p.ms for p in self.pulses if p.rate > at.rate + _NEAR and p.flight <= at.flight)
        return found[len(found) // 2] if len(found) >= _FEW else math.inf

    def _medians(self, at: Pulse) -> Iterator[float]:
        for place in (0, 1):
            near = sorted(p.ms for p in self.pulses if abs(p[place] - at[place]) <= _NEAR)
            if len(near) >= _FEW:
                yield near[len(near) // 2]


def pulse(seen: Sample | Unknown) -> Pulse | None:
    """A reading in which requests ended, else None.

    Latency by token ("normalized latency") holds the wait in the queue, the prompt and the decoding: a plan that lets
    few requests in makes a token fast and its users wait.
    """
    if isinstance(seen, Unknown):
        return None
    each = _latency_ms(seen)
    if not (math.isfinite(each) and each > 0):
        return None
    return Pulse(_octave(max(1.0, _in_flight(seen))), _octave(_count(seen) / max(seen.seconds, 1e-6)), each)


def _in_flight(seen: Sample) -> float:
    """Requests in flight on average: by Little's law the seconds of those that ended, over the interval.

    The gauges of its end tell of one moment: one at which a fast server happens to have answered all. They count where
    requests last longer than the interval, which then holds little of the seconds of those that ended in it.
    """
    ended = seen.latency
    if isinstance(ended, Times) and 0 < ended.seconds <= ended.requests * seen.seconds:
        return ended.seconds / seen.seconds
    return sum(0.0 if isinstance(part, Unknown) else part for part in (seen.running, seen.waiting))


def _octave(value: float) -> float:
    return round(math.log2(max(value, 1e-6)), 3)


def _latency_ms(seen: Sample) -> float:
    """Of the requests that ended; a token's own time where the version counts no latency; 0 for none."""
    if isinstance(seen.latency, Times) and isinstance(seen.outputs, Lengths) and seen.outputs.tokens > 0:
        return 1000 * seen.latency.seconds / seen.outputs.tokens
    if isinstance(seen.tpot, Times) and seen.tpot.requests > 0:
        return 1000 * seen.tpot.seconds / seen.tpot.requests
    return 0.0


class Trial(NamedTuple):
    """A canary so far."""

    attempt: int
    wins: int = 0
    losses: int = 0
    asked: float = 0.0
    rejected: float = 0.0

    def with_(self, seen: Sample | Unknown, baseline: Baseline) -> Trial:
        """One more reading of the candidate."""
        if isinstance(seen, Unknown):
            return self
        after = self._replace(asked=self.asked + _count(seen), rejected=self.rejected + _rejections(seen))
        found = pulse(seen)
        if found is None:
            return after
        expected = baseline.expected(found)
        lost = found.ms > min(expected or (baseline.bound(found),)) * (1 + MARGIN)
        if not (expected or lost):
            return after
        return after._replace(wins=after.wins + (not lost), losses=after.losses + lost)

    def verdict(self) -> Canary:
        """What it says by now."""
        rounds = self.wins + self.losses
        says = f"{self.losses} of {rounds} readings slower by more than {MARGIN:.0%}"
        if self.rejected > max(1.0, _REJECTED_SHARE * self.asked):
            return Canary(Verdict.WORSE, self.attempt, f"{self.rejected:g} requests rejected")
        if evidence_of(self.losses, rounds) >= CERTAIN:
            return Canary(Verdict.WORSE, self.attempt, says)
        if rounds >= LEAST and evidence_of(self.wins, rounds) >= CERTAIN:
            return Canary(Verdict.PASSED, self.attempt, says)
        return Canary(Verdict.RUNNING, self.attempt, says)


def _count(seen: Sample) -> float:
    return 0.0 if isinstance(seen.prompts, Unknown) else seen.prompts.requests


def _rejections(seen: Sample) -> float:
    return 0.0 if isinstance(seen.rejections, Unknown) else seen.rejections


def dumps(baseline: Baseline) -> str:
    """As a JSON text."""
    return json.dumps({"version": _VERSION, "pulses": baseline.pulses})


def loads(text: str) -> Baseline:
    """From that text; empty for anything else: a canary without a baseline finds only failures."""
    try:
        plain = json.loads(text)
        found = tuple(Pulse(float(flight), float(rate), float(ms)) for flight, rate, ms in plain["pulses"])
    except (ValueError, TypeError, KeyError):
        return Baseline()
    return Baseline(tuple(p for p in found if p.ms > 0 and all(map(math.isfinite, p)))[-_KEPT:])
