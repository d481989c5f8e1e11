"""The loop: legality → bound → compile → check → time → the best against the default, for one problem after the other.

Nothing is kept but trials and winners. A killed run that is begun again asks the same points and answers them from the
store. The default stays unless it loses beyond noise, and that is said.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.profile import KernelConfig
from vllm_advisor.units import significant
from vllm_tuner.budget import Budget
from vllm_tuner.kernel_tuning import contest as contests
from vllm_tuner.kernel_tuning import effort as rows
from vllm_tuner.kernel_tuning import strategies, subject
from vllm_tuner.kernel_tuning.attempt import Desk, shown
from vllm_tuner.trial import BudgetSpent


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm_advisor.store.profile_store import ProfileStore
    from vllm_tuner.kernel_tuning.attempt import Bench
    from vllm_tuner.kernel_tuning.contest import Fought
    from vllm_tuner.kernel_tuning.contract import Machine, Problem
    from vllm_tuner.kernel_tuning.points import Point, Space
    from vllm_tuner.kernel_tuning.subject import Subject

BETTER, NOT_BETTER, KNOWN, NO_DEFAULT, UNDECIDED, NOTHING = (
    "better", "none better", "known from before", "default does not run", "undecided", "nothing ran",
)  # fmt: skip


class Result(NamedTuple):
    """What came of one problem: the verdict is one of the six above, `says` the same with the numbers.

    `config` is what the store keeps now, None where nothing was decided. `timed` of `size` points have a time,
    `infeasible` cannot run.
    """

    about: Subject
    verdict: str
    says: str
    config: KernelConfig | None = None
    fought: Fought | None = None
    timed: int = 0
    infeasible: int = 0


class Run(NamedTuple):
    """One `tuner kernels`: `strategy` is a name of `strategies.STRATEGIES`, "" for what fits the space."""

    bench: Bench
    store: ProfileStore
    machine: Callable[[Problem], Machine]
    budget: Budget
    strategy: str = ""
    peaks: Callable[[str], object] = lambda _: None

    def tune(self, problems: Sequence[Problem]) -> tuple[Result, ...]:
        """All of them, each with its share of what time is left. Raises what a signal raises."""
        self.store.recover_stale(self.bench.node)
        results = []
        for number, problem in enumerate(problems):
            share = Budget(self.budget.left() / (len(problems) - number), self.budget.now)
            desk = Desk(self.bench, self.subject(problem), share, self.budget)
            desk.say(
                "problem", f"{number + 1} of {len(problems)}: {desk.about.label}, {len(desk.about.space.points)} points"
            )
            result = finished(desk, self._searched(desk))
            desk.say("result", result.says)
            results.append(result)
        return tuple(results)

    def subject(self, problem: Problem, earlier: KernelConfig | None = None) -> Subject:
        """A problem with its key, its space and its earlier winner: the given one, else the store's newest.

        What stands under the key itself is no earlier one: a run that goes on would begin elsewhere.
        """
        known = subject.key(self.bench.kernels, problem, self.machine(problem))
        earlier = earlier or self.store.kernel_before(known)
        return subject.subject(self.bench.kernels, problem, known, earlier, self.peaks(problem.op))

    def _searched(self, desk: Desk) -> Result:
        try:
            return self._decided(desk, whole=self._search(desk))
        except BudgetSpent:
            return Result(desk.about, UNDECIDED, f"{desk.about.label}: the time was up before anything was decided")

    def _search(self, desk: Desk) -> bool:
        """Ask until the trials are used up or nothing is left to ask; False where the time was up before."""
        row = self.bench.effort
        space = _compiled(desk, row.compiled)
        strategy = strategies.strategy(self.strategy, space, row.trials)
        kept_back = contests.seconds(desk, desk.us(desk.about.default) or 0.0)
        done: set[Point] = set()
        while len(done) < row.trials:
            if not desk.budget.allows(kept_back):
                return False
            point = strategy.ask()
            if point is None:
                break
            if point not in desk.known and desk.pruned(point):
                strategy.tell(point, None)
                continue
            done.add(point)
            if point not in desk.known:
                desk.attempt(point, f"{len(done)} of at most {min(row.trials, len(space.points))}")
            strategy.tell(point, desk.us(point))
        return True

    def _decided(self, desk: Desk, *, whole: bool) -> Result:
        about = desk.about
        before = self.store.kernel(about.key)
        if before and not desk.made:
            return Result(about, KNOWN, f"{about.label}: {_told(before)}, known from before", before)
        best = contests.finalists(desk)
        if best is None and desk.budget.left() <= 0:
            raise BudgetSpent
        if best is None:
            return Result(about, NOTHING, f"{about.label}: nothing ran; {_why(desk)}")
        default_us = desk.us(about.default)
        if default_us is None:
            return self._without_default(desk, best)
        if best == about.default and len(desk.known) == 1 and not whole:
            return Result(about, UNDECIDED, f"{about.label}: there was time for the default only")
        if best == about.default:
            config = self._kept(about, best, default_us, default_us, kept=False)
            return Result(about, NOT_BETTER, f"{about.label}: the default is the fastest of {len(desk.known)}", config)
        return self._fought(desk, best)

    def again(self, desk: Desk, before: KernelConfig) -> Result:
        """A stored winner against the default as both are now; one that no longer wins is kept as a loser."""
        try:
            _start(desk, desk.budget.end)
        except BudgetSpent:
            return Result(
                desk.about, UNDECIDED, f"{desk.about.label}: the time was up before it was timed again", before
            )
        about, winner = desk.about, desk.about.earlier
        if winner is not None and winner not in desk.known:
            return Result(about, UNDECIDED, f"{about.label}: {shown(before.settings)} was not timed again", before)
        if winner is None or desk.us(winner) is None:
            reason = desk.known[winner].reason if winner in desk.known else "it is no launch of these kernels"
            config = before._replace(key=about.key, kept=False, at=time.time())
            self.store.save_kernel(config)
            return Result(about, NOT_BETTER, f"{about.label}: dropped {shown(before.settings)}: {reason}", config)
        if desk.us(about.default) is None:
            return self._without_default(desk, winner)
        return self._fought(desk, winner)

    def _without_default(self, desk: Desk, best: Point) -> Result:
        """Whatever runs is better than what does not; there is nothing to compare it with."""
        if desk.about.default not in desk.known:
            return Result(desk.about, UNDECIDED, f"{desk.about.label}: the default was not measured")
        reason = desk.known[desk.about.default].reason
        contests.walkover(desk, best)
        config = self._kept(desk.about, best, desk.us(best) or 0.0, 0.0, kept=True)
        says = f"{desk.about.label}: the default does not run here ({reason}); this does: {_told(config)}"
        return Result(desk.about, NO_DEFAULT, says, config)

    def _fought(self, desk: Desk, best: Point) -> Result:
        about, settings = desk.about, shown(desk.about.space.settings(best))
        desk.say("contest", f"{settings} against the default in turns, at most {self.bench.effort.rounds} rounds")
        try:
            fought = contests.contest(desk, best)
        except BudgetSpent:
            says = f"{about.label}: {settings} looked faster than the default; the comparison was not finished"
            return Result(about, UNDECIDED, says)
        won = fought.decision.adopted
        config = self._kept(about, best, fought.us, fought.default_us, kept=won)
        says = f"{about.label}: {_told(config)}, {gained(fought)}; {fought.decision.reason}"
        return Result(about, BETTER if won else NOT_BETTER, says, config, fought)

    def _kept(self, about: Subject, point: Point, us: float, default_us: float, *, kept: bool) -> KernelConfig:
        config = KernelConfig(about.key, about.space.settings(point), us, default_us, kept, time.time())
        self.store.save_kernel(config)
        return config


def _compiled(desk: Desk, most: int) -> Space:
    """The points worth asking: starts and what the bound says could be fastest, as far as they compile.

    The starts are timed in between, so that a bound above them spares the compiler. Only they count here, so that a
    run that goes on asks the same.
    """
    about = desk.about
    end = desk.budget.now() + desk.budget.left() * rows.COMPILE_SHARE
    _start(desk, end)
    reached = min((us for start in about.space.starts if (us := desk.us(start)) is not None), default=math.inf)
    wanted = sorted(about.space.points, key=lambda p: (p not in about.space.starts, about.space.bounds[p], p))
    worth = [point for point in wanted if point in about.space.starts or about.space.bounds[point] < reached]
    desk.say("gate", f"{len(worth)} of {len(wanted)} points could beat {significant(reached)} us")
    passed = frozenset(desk.gate(worth[:most], end))
    return about.space.only(passed)


def _start(desk: Desk, end: float) -> None:
    """Compile and time the starts: the default, and an old winner."""
    for start in desk.gate(desk.about.space.starts, end):
        if start not in desk.known and desk.budget.allows():
            desk.attempt(start, "a start")


def finished(desk: Desk, result: Result) -> Result:
    """With what was counted."""
    timed = sum(desk.us(point) is not None for point in desk.known)
    return result._replace(timed=timed, infeasible=len(desk.known) - timed)


def _why(desk: Desk) -> str:
    return next((trial.reason for trial in desk.known.values() if trial.reason), "no point is legal")


def _told(config: KernelConfig) -> str:
    """`12.3 us at block_m 16, … (default 14.5 us)`."""
    default = f" (default {significant(config.default_us)} us)" if config.default_us else ""
    return f"{significant(config.median_us)} us at {shown(config.settings)}{default}"


def gained(fought: Fought) -> str:
    """`+12.3 % (+10.1 % to +14.0 %) in 7 rounds in turns`."""
    low, mid, high = (100 * (x - 1) for x in fought.speedup)
    return f"{mid:+.1f} % ({low:+.1f} % to {high:+.1f} %) in {fought.decision.rounds} rounds in turns"
