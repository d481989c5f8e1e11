"""Whether the workload moved: blocks of traffic against what is usual at that time of the week, added up.

What is usual is learnt by hour of the week, in blocks of three hours, so that a night batch or a quiet Sunday is not
news, and it is fixed after four weeks, so that a slow creep is. A block that is farther from it than a slack adds the
rest to a sum, a nearer one takes from it (one-sided CUSUM, Page 1954): a strange morning is forgiven, nine hours of
a true doubling are not. A time of the week that was never seen is compared with the same hours of other days, with more
slack, and once some hours of that new day were usual, its step from the day before with theirs: a first Saturday of
lengths of its own is no news, a halving within it is. Load is not judged by other days at all, because a Sunday has
another load. After a re-tune the new traffic is usual, and the old is kept beside it: a pattern that returns each week
leads to one re-tune, not to one a weekend.

What is not caught within a day: a shift in the first day of all, which is only learnt from, and one that begins
together with the first weekend and that the weekend's own lengths partly hide.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_tuner.daemon.drift_mix import (
    Mix,
    hit_share,
    hits_apart,
    load_apart,
    load_mean,
    output_mean,
    outputs_apart,
    outputs_toward,
    prompt_mean,
    prompts_apart,
    prompts_toward,
)  # fmt: skip
from vllm_tuner.daemon.drift_reason import Evidence, Kind, Part, Reason
from vllm_tuner.daemon.drift_usual import A_DAY, SLOTS, Usual, slot_of


if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vllm_advisor.workload import Workload
    from vllm_tuner.daemon.drift_reason import DriftLimits, Sighting
    from vllm_tuner.daemon.drift_sample import Sample

_GAVE_UP_S = 86400.0  # a block that found too little traffic for a day is thrown away
DAY_SLACK = 0.55  # octaves that a block of a new day may be from how that day began
LATEST = 0.3  # what the newest block of such a day weighs in its mean
_FAR = 1.0  # octaves between the profile's own lengths and the mean of all traffic


class Dimension(NamedTuple):
    """What is compared: `slack` where that time of the week is known, `fresh` where only its hours are.

    `toward` is `apart` with a sign, for a day that is compared with itself; None: such a day is not. `most`: what one
    block may count at most. The sum stands for a reason at `enough`, and no more at 0.
    """

    name: str
    unit: str
    apart: Callable[[Mix, Mix], float]
    toward: Callable[[Mix, Mix], float] | None
    mean: Callable[[Mix], float]
    slack: float
    fresh: float
    most: float
    enough: float


DIMENSIONS = (
    #         name                unit      apart          toward          mean         slack  fresh     most enough
    Dimension("prompt length",    "tokens", prompts_apart, prompts_toward, prompt_mean, 0.50,  0.65,     1.5, 1.5),
    Dimension("output length",    "tokens", outputs_apart, outputs_toward, output_mean, 0.50,  0.65,     1.5, 1.5),
    Dimension("running requests", "",       load_apart,    None,           load_mean,   1.00,  math.inf, 2.0, 2.0),
    Dimension("prefix hits",      "share",  hits_apart,    None,           hit_share,   0.15,  0.25,     0.5, 0.4),
)  # fmt: skip


class Workloads:
    """The sequential test. Constant memory: 56 mixtures twice, the open block's, and one sum a dimension.

    `day`: how far the usual blocks of a day never seen before were from the same hours of the day before, one mean a
    dimension, with its sign; () before the first of them.
    """

    def __init__(self, limits: DriftLimits) -> None:
        self.limits = limits
        self.usual = Usual(limits.block_s / 2)
        self.block: dict[int, Mix] = {}
        self.recent: dict[int, Mix] = {}
        self.expected = Mix()
        self.sums = [0.0] * len(DIMENSIONS)
        self.raised = [False] * len(DIMENSIONS)
        self.day: tuple[float, ...] = ()
        self.since = 0.0
        self.settled = ""
        self._slot, self._today, self._open = -1, -1, Mix()
        self._block_s = 0.0

    def see(self, sighting: Sighting, sample: Sample) -> bool:
        """One interval; True where it closed a block, so that reasons may have changed."""
        slot = slot_of(sighting.at + sighting.offset_s)
        closed = slot != self._slot and self._close(sighting.at, self.limits.block_s / 2)
        if slot != self._slot:
            self._slot, self._open = slot, self.block.setdefault(slot, Mix())
        self._open.add(sample)
        self._block_s += sample.seconds
        return self._close(sighting.at, self.limits.block_s) or closed

    def _close(self, at: float, least_s: float) -> bool:
        """End the block, if it is long enough and has enough requests; one that finds none for a day is let go."""
        if self._block_s < least_s:
            return False
        enough = sum(part.requests for part in self.block.values()) >= self.limits.least_requests
        if enough:
            self._judge(at)
        elif self._block_s < max(_GAVE_UP_S, self.limits.block_s):
            return False
        self._begin()
        return True

    def _begin(self) -> None:
        self.block, self._slot, self._block_s = {}, -1, 0.0

    def _judge(self, at: float) -> None:
        """Close the block: how far it is, what that adds up to, and whether it is usual."""
        seen, expected, fresh = Mix(), Mix(), False
        for slot, part in self.block.items():
            found = self._expected(slot, part)
            if found is not None:
                seen.join(part)
                expected.join(found, _scale(part, found))
                fresh = fresh or not self.usual.known(slot)
        steps = self._steps() if fresh else ()
        self._turn_day(fresh=fresh)
        self._add_up(seen, expected, steps, fresh=fresh, at=at)
        self.expected = expected
        if any(self.sums):
            self._remember()
            return
        self.recent = {}
        if steps:
            self.day = tuple(a + LATEST * (b - a) for a, b in zip(self.day or steps, steps, strict=True))
        if self.usual.learnt_s < self.limits.learn_s:
            for slot, part in self.block.items():
                self.usual.learn(slot, part)

    def _turn_day(self, *, fresh: bool) -> None:
        """Another day is compared with itself, unless something began before it."""
        today = max(self.block) // A_DAY
        if not any(self.sums) and not (fresh and today == self._today):
            self.day = ()
        self._today = today

    def _steps(self) -> tuple[float, ...]:
        """How far the block is from the same hours of the day before, with its sign; 0 where that is not compared."""
        now, before = Mix(), Mix()
        for slot, part in self.block.items():
            found = self.usual.day_before(slot)
            if found is not None:
                now.join(part)
                before.join(found, _scale(part, found))
        return tuple(row.toward(now, before) if row.toward else 0.0 for row in DIMENSIONS)

    def _remember(self) -> None:
        """Strange traffic is kept by the time of the week: a re-tune will make it usual there."""
        for slot, part in self.block.items():
            self.recent.setdefault(slot, Mix()).join(part)

    def _expected(self, slot: int, part: Mix) -> Mix | None:
        """The nearest of what is usual; None: too early to say."""
        usual = self.usual
        if not usual.same_hours(slot) and usual.learnt_s < self.limits.warm_up_s:
            return None
        choices = [mix for mix in usual.choices(slot) if mix.time]
        return min(choices, key=lambda mix: prompts_apart(part, mix) + outputs_apart(part, mix), default=None)

    def _add_up(self, seen: Mix, expected: Mix, steps: tuple[float, ...], *, fresh: bool, at: float) -> None:
        if not seen.time:
            return
        calm = not any(self.sums)
        for number, row in enumerate(DIMENSIONS):
            slack = row.fresh if fresh else row.slack
            beyond = min(row.apart(seen, expected), row.most) - slack if math.isfinite(slack) else -row.slack
            if self.day and steps and row.toward:
                beyond = max(beyond, min(abs(steps[number] - self.day[number]), row.most) - DAY_SLACK)
            total = min(max(0.0, self.sums[number] + beyond), 1.5 * row.enough)
            self.sums[number] = total
            self.raised[number] = total >= row.enough - 1e-9 or (self.raised[number] and total > 0)
        if calm and any(self.sums):
            self.since = at

    def reason(self, workload: Workload | None) -> Reason | None:
        """The workload as one reason, with every dimension that moved as evidence; None while none did."""
        moved = [row for row, raised in zip(DIMENSIONS, self.raised, strict=True) if raised]
        if moved:
            now = _together(self.recent)
            evidence = tuple(
                Evidence(row.name, _digits(row.mean(self.expected)), _digits(row.mean(now)), row.unit) for row in moved
            )
            return _reason(f"workload:{self.usual.generation}", "the workload moved", evidence, self.since)
        key, evidence = _beside_key(workload), self._beside(workload)
        if evidence and key != self.settled:
            return _reason(key, "the traffic is not what the profile was measured with", evidence, 0.0)
        return None

    def _beside(self, workload: Workload | None) -> tuple[Evidence, ...]:
        """Mean lengths of all traffic against those that the profile was measured with, once a day's are known."""
        regime = self.usual.regime
        if workload is None or self.usual.learnt_s < self.limits.warm_up_s:
            return ()
        pairs = (
            ("prompt length", float(workload.input_tokens), prompt_mean(regime)),
            ("output length", float(workload.output_tokens), output_mean(regime)),
        )
        return tuple(
            Evidence(name, then, _digits(now), "tokens")
            for name, then, now in pairs
            if then > 0 and now > 0 and abs(math.log2(now / then)) >= _FAR
        )

    def settle(self, workload: Workload | None) -> None:
        """A re-tune took the traffic as it is: it is usual from now on, and the profile's lengths are no news."""
        self.settled = _beside_key(workload)
        self.usual.renew(self.recent)
        self.recent, self.sums, self.day = {}, [0.0] * len(DIMENSIONS), ()
        self.raised = [False] * len(DIMENSIONS)
        self._begin()

    def plain(self) -> dict[str, object]:
        """All of it, for a JSON text."""
        return {
            "usual": self.usual.plain(),
            "block": [[slot, *mix.plain()] for slot, mix in sorted(self.block.items())],
            "block_s": round(self._block_s, 1),
            "recent": [[slot, *mix.plain()] for slot, mix in sorted(self.recent.items())],
            "expected": self.expected.plain(),
            "sums": [round(total, 4) for total in self.sums],
            "raised": list(self.raised),
            "day": [round(offset, 4) for offset in self.day],
            "today": self._today,
            "since": self.since,
            "settled": self.settled,
        }

    @classmethod
    def read(cls, plain: Mapping[str, Any], limits: DriftLimits) -> Workloads:
        """From that. Raises ValueError, KeyError or TypeError for anything else."""
        tests = cls(limits)
        tests.usual = Usual.read(plain["usual"], limits.block_s / 2)
        tests.block = {int(slot) % SLOTS: Mix.read(sums) for slot, *sums in plain["block"]}
        tests._block_s, tests.since = float(plain["block_s"]), float(plain["since"])
        tests.recent = {int(slot) % SLOTS: Mix.read(sums) for slot, *sums in plain["recent"]}
        tests.expected = Mix.read(plain["expected"])
        tests.day, tests._today = tuple(float(step) for step in plain["day"]), int(plain["today"])
        if len(tests.day) not in (0, len(DIMENSIONS)):
            raise ValueError("no steps of a day")
        for number, (total, raised) in enumerate(zip(plain["sums"], plain["raised"], strict=True)):
            tests.sums[number], tests.raised[number] = float(total), bool(raised)
        tests.settled = str(plain["settled"])
        return tests


def _beside_key(workload: Workload | None) -> str:
    return f"workload:profile:{workload.input_tokens}:{workload.output_tokens}" if workload else ""


def _scale(part: Mix, usual: Mix) -> float:
    """What is usual, brought to the traffic of this part."""
    return part.requests / usual.requests if usual.requests else 1.0


def _together(parts: Mapping[int, Mix]) -> Mix:
    whole = Mix()
    for part in parts.values():
        whole.join(part)
    return whole


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def _reason(key: str, says: str, evidence: tuple[Evidence, ...], since: float) -> Reason:
    figures = "; ".join(f"{e.name} {e.then:g} → {e.now:g} {e.unit}".rstrip() for e in evidence)
    return Reason(Kind.WORKLOAD, key, f"{says}: {figures}", (Part.SERVER,), evidence, since)
