"""A deployment that only exists in a test: weeks of traffic with days, weekends, bursts and noise, and a service on it.

All figures are invented for the purpose: chats by day, longer jobs by night, a third of the load on weekends, hours
that run a third above or below, and now and then a customer who sends prompts four times as long for two hours.
Lengths pass through vLLM's own 1-2-5 buckets, as they would on /metrics.
"""

from __future__ import annotations

import math
import os
import random
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.vllm.metrics import Histogram
from vllm_tuner.daemon import allowance, idle
from vllm_tuner.daemon.drift import Drift, Kind, Reference, Sighting
from vllm_tuner.daemon.drift_sample import Sample, Times, lengths
from vllm_tuner.daemon.policy import step
from vllm_tuner.daemon.policy_state import (
    Abort,
    BackOff,
    Inputs,
    Mode,
    Recover,
    Settle,
    State,
    Tune,
    Work,
    WorkState,
)  # fmt: skip
from vllm_tuner.daemon.windows import Windows


if TYPE_CHECKING:
    from vllm_tuner.daemon.drift_reason import DriftLimits
    from vllm_tuner.daemon.drift_sample import Lengths
    from vllm_tuner.daemon.policy_state import Action

MONDAY = 1_767_571_200.0  # 2026-01-05 00:00 UTC
HOUR, DAY = 3600.0, 86400.0
BOUNDS = tuple(float(m * 10**e) for e in range(6) for m in (1, 2, 5))[:17]  # 1-2-5 up to 200,000


class Scene(NamedTuple):
    """What happens. From `shift_at` (seconds after the start) on, prompts and outputs are so many times as long.

    `rate` is requests/s at the busiest hour. `weekend` multiplies their number, `weekend_lengths` the lengths
    of a weekend's prompts, `night` those of a night's.
    """

    seed: int = 1
    tick_s: float = 15.0
    rate: float = 1.0
    night: float = 1.6
    weekend: float = 0.35
    weekend_lengths: float = 1.25
    noise: float = 0.3
    shift_at: float = math.inf
    prompts: float = 1.0
    outputs: float = 1.0
    start: float = MONDAY


class Shape(NamedTuple):
    """Lengths in buckets: the share of requests in each, and the mean length there."""

    shares: tuple[float, ...]
    means: tuple[float, ...]


@lru_cache(maxsize=64)
def shape(*parts: tuple[float, float, float]) -> Shape:
    """A mixture of log-normal lengths, each (share, median, standard deviation of the logarithm)."""
    edges = (0.0, *BOUNDS, math.inf)
    cells = [[_cell(*ends, median, spread) for _, median, spread in parts] for ends in pairwise(edges)]
    shares = tuple(sum(part[0] * mass for part, (mass, _) in zip(parts, cell, strict=True)) for cell in cells)
    tokens = tuple(sum(part[0] * amount for part, (_, amount) in zip(parts, cell, strict=True)) for cell in cells)
    return Shape(shares, tuple(t / s if s > 1e-12 else 1.0 for t, s in zip(tokens, shares, strict=True)))


def _cell(low: float, high: float, median: float, spread: float) -> tuple[float, float]:
    """Requests between two lengths, and their tokens (the partial expectation of a log-normal)."""

    def below(length: float, shift: float) -> float:
        if length <= 0 or math.isinf(length):
            return float(length > 0)
        return 0.5 * (1 + math.erf(((math.log(length / median) - shift) / spread) / math.sqrt(2)))

    mean = median * math.exp(spread * spread / 2)
    variance = spread * spread
    return below(high, 0.0) - below(low, 0.0), mean * (below(high, variance) - below(low, variance))


class Deployment:
    """Traffic, tick by tick. The same scene gives the same sightings."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.at = scene.start
        self._chance = random.Random(scene.seed)  # noqa: S311 - a test's traffic
        self._hour, self._level, self._burst = -1, 0.0, False

    def tick(self) -> Sighting:
        """The next interval."""
        self.at += self.scene.tick_s
        hour = int(self.at // HOUR)
        if hour != self._hour:
            self._new_hour(hour)
        expected = self.rate() * self.scene.tick_s
        return Sighting(self.at, self.scene.tick_s, self._sample(*(self._drawn(expected, s) for s in self.shapes())))

    def shapes(self) -> tuple[Shape, Shape]:
        """How long prompts and outputs are now. Jobs are a tenth by day and all but a tenth at night.

        In a burst a third of the prompts is four times as long.
        """
        scene = self.scene
        shifted = self.at - scene.start > scene.shift_at
        longer = (scene.prompts if shifted else 1.0) * (scene.weekend_lengths if self._is_weekend() else 1.0)
        jobs, bursts = (0.9 if self.at % DAY < 6 * HOUR else 0.1), (1 / 3 if self._burst else 0.0)
        prompts = (
            ((1 - jobs) * (1 - bursts), longer * 600.0, 0.9),
            (jobs * (1 - bursts), longer * 600.0 * scene.night, 0.7),
            (bursts, longer * 2400.0, 0.9),
        )
        return shape(*prompts), shape((1.0, 250.0 * (scene.outputs if shifted else 1.0), 0.8))

    def rate(self) -> float:
        """Requests a second that are expected now."""
        swing = 0.55 - 0.45 * math.cos(2 * math.pi * (self.at % DAY / HOUR - 3) / 24)
        return self.scene.rate * swing * (self.scene.weekend if self._is_weekend() else 1.0) * math.exp(self._level)

    def _is_weekend(self) -> bool:
        return int(self.at // DAY + 3) % 7 >= 5

    def _new_hour(self, hour: int) -> None:
        """The level of an hour hangs together with the last; one hour in a hundred begins a burst of two."""
        self._hour = hour
        self._level = 0.7 * self._level + 0.7 * self.scene.noise * self._chance.gauss(0, 1)
        self._burst = self._chance.random() < (0.5 if self._burst else 0.01)

    def _drawn(self, expected: float, found: Shape) -> Lengths:
        """Poisson in each bucket, which is what a Poisson number of requests of that shape is."""
        seen, tokens, buckets = 0.0, 0.0, []
        for bound, share, mean in zip((*BOUNDS, math.inf), *found, strict=True):
            count = self._poisson(expected * share)
            seen, tokens = seen + count, tokens + count * mean
            buckets.append((bound, seen))
        return lengths(Histogram(tuple(buckets), tokens, seen))

    def _sample(self, prompts: Lengths, outputs: Lengths) -> Sample:
        seconds, requests = self.scene.tick_s, prompts.requests
        running = outputs.tokens / seconds * 0.03 + self._chance.random()
        return Sample(
            seconds, prompts, outputs, running, 0.0, min(0.8, running / 64), 0.0, 0.0,
            0.2 * prompts.tokens, prompts.tokens,
            Times(requests, 0.2 * requests), Times(requests, 0.03 * requests), Times(requests, 0.01 * requests),
            Times(requests, 8.0 * requests),
        )  # fmt: skip

    def _poisson(self, mean: float) -> int:
        """Normal from thirty on, which is near enough."""
        if mean < 1e-6:
            return 0
        if mean > 30:
            return max(0, round(self._chance.gauss(mean, math.sqrt(mean))))
        count, product, floor = 0, self._chance.random(), math.exp(-mean)
        while product > floor:
            count, product = count + 1, product * self._chance.random()
        return count


class Fact(NamedTuple):
    """Something that the service ordered, and when."""

    at: float
    action: Action


class Service:
    """Drift, policy, window and allowance on a simulated deployment; a run takes an hour and ends as `outcome` says.

    `facts` are the orders, the last thousand: what a store would keep.
    """

    def __init__(
        self, scene: Scene, limits: DriftLimits | None = None, outcome: WorkState = WorkState.KEPT,
        mode: Mode = Mode.ADVISE, windows: Windows | None = None,
    ) -> None:  # fmt: skip
        self.deployment = Deployment(scene)
        self.drift = Drift(Reference(), limits)
        self.state, self.allowance = State(), allowance.Allowance()
        self.limits, self.idle_limits = allowance.AllowanceLimits(), idle.IdleLimits()
        self.windows = windows or Windows.parse(["00:00-24:00"])
        self.mode, self.outcome = mode, outcome
        self.idle = idle.Idle()
        self.facts: list[Fact] = []
        self._work, self._run_s = Work(), 0.0

    def tick(self) -> tuple[Action, ...]:
        """One tick of everything."""
        sighting = self.deployment.tick()
        reasons = self.drift.see(sighting)
        self.idle = idle.observe(self.idle, idle.Reading(host_load=0.0), self.idle_limits)
        self._run(sighting.elapsed_s)
        inputs = Inputs(
            sighting.at, sighting.elapsed_s, self.mode, reasons,
            window=self.windows.permit(sighting.at), idle=idle.permit(self.idle, self.idle_limits),
            allowance=allowance.permit(self.allowance, self.limits, sighting.at), work=self._work,
        )  # fmt: skip
        self.state, actions = step(self.state, inputs)
        for action in actions:
            self._do(action, sighting.at)
        self.facts = (
            [*self.facts, *(Fact(sighting.at, action) for action in actions)][-1000:] if actions else self.facts
        )
        return actions

    def _run(self, elapsed_s: float) -> None:
        if self._work.state is WorkState.RUNNING:
            self._run_s += elapsed_s
            self.allowance = allowance.spend(self.allowance, self.deployment.at, elapsed_s)
            if self._run_s >= HOUR:
                winner = f"profile-{self._work.attempt}" if self.outcome is WorkState.WON else ""
                self._work = self._work._replace(state=self.outcome, candidate=winner, says="simulated")

    def _do(self, action: Action, at: float) -> None:
        if isinstance(action, Tune):
            self._work, self._run_s = Work(WorkState.RUNNING, action.attempt), 0.0
        elif isinstance(action, Abort):
            self._work = Work(WorkState.ABORTED, action.attempt)
        elif isinstance(action, Settle):
            self.drift.settle(action.kinds, at)
        elif isinstance(action, BackOff):
            self.allowance = allowance.failed(self.allowance, self.limits, at)
        elif isinstance(action, Recover):
            self.allowance = allowance.succeeded(self.allowance)

    def tunes(self) -> tuple[Fact, ...]:
        """The runs that were started."""
        return tuple(fact for fact in self.facts if isinstance(fact.action, Tune))

    def reported(self, kind: Kind) -> tuple[Fact, ...]:
        """The runs that were started for such a reason."""
        return tuple(
            fact
            for fact in self.facts
            if isinstance(fact.action, Tune) and any(reason.kind is kind for reason in fact.action.reasons)
        )


def resident_bytes() -> int:
    """What this process holds in memory now (proc(5), statm)."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
