"""The best launch against the default, in turns: what drifts with the device hits both alike.

Inputs are other ones than those that the winner was picked on. The order is default first, then candidate first, and so
on; each round gives one pair of medians, and the gate says after every round whether that is enough.
"""

from __future__ import annotations

import math
import time
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.profile import TrialState
from vllm_advisor.units import Interval
from vllm_tuner.gate import Outcome, Pair, decide
from vllm_tuner.kernel_tuning import effort as rows
from vllm_tuner.kernel_tuning.attempt import CONTEST_SEED, measurement, spread
from vllm_tuner.kernel_tuning.contract import CONTEST
from vllm_tuner.kernel_tuning.subject import sizes, trial
from vllm_tuner.trial import BudgetSpent


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.profile import Measurement, Trial
    from vllm_tuner.gate import Decision
    from vllm_tuner.kernel_tuning.attempt import Desk
    from vllm_tuner.kernel_tuning.contract import Timer
    from vllm_tuner.kernel_tuning.points import Point

# In fewer rounds the gate is never sure: seven wins in a row decide at 95 %.
_LEAST_ROUNDS = 7


class Fought(NamedTuple):
    """A comparison's end. Times are medians over its rounds, in µs; `speedup` is default over candidate."""

    trial: Trial
    decision: Decision
    default_us: float
    us: float
    speedup: Interval


def finalists(desk: Desk) -> Point | None:
    """The best of the few best after one more timing of each, in turns; None where nothing was timed.

    A search's minimum is partly luck: the more points were timed, the more of it.
    """
    timed = sorted((us, point) for point in desk.known if (us := desk.us(point)) is not None)
    few = [point for _, point in timed[: desk.bench.effort.finalists]]
    if len(few) < 2:
        return few[0] if few else None
    again = {point: list[float]() for point in few}
    for turn in range(2):
        for point in few if turn == 0 else few[::-1]:
            if desk.budget.left() <= 0:
                return few[0]
            again[point] += desk.timer().time(point, desk.launches(desk.us(point) or 0.0), 1)
    return min(few, key=lambda point: (spread(again[point]).low, point))


def seconds(desk: Desk, default_us: float) -> float:
    """What the comparison and what goes before it will take, from the default's time: kept back from the search."""
    row = desk.bench.effort
    launches = rows.launches(row, default_us) * 2 * (min(row.rounds, _LEAST_ROUNDS) + row.finalists)
    return launches * default_us * 1.5e-6  # half more than the launches alone: an estimate


def walkover(desk: Desk, ours: Point) -> None:
    """A default that does not run loses without a round: kept as a trial too, since that is what names the problem."""
    store = desk.bench.store
    number = store.add_trial(_made(desk, ours))
    store.start(number)
    store.finish(number, TrialState.COMPLETE, desk.known[ours].measurement, reason="the default does not run here")


def _made(desk: Desk, ours: Point) -> Trial:
    settings = (*desk.about.space.settings(ours), *sizes(desk.about.problem))
    return trial(desk.about, desk.bench.node, settings, CONTEST)


def contest(desk: Desk, ours: Point) -> Fought:
    """Rounds until the gate is sure or the effort's are used up; kept as one trial.

    Raises BudgetSpent, and what a launch raises, with the trial ended.
    """
    made, store = _made(desk, ours), desk.bench.store
    number = store.add_trial(made)
    store.start(number)
    begun = desk.budget.now()
    try:
        pairs, decision = _rounds(desk, ours)
    except BudgetSpent:
        store.finish(number, TrialState.ABORTED, reason="the time budget was spent")
        raise
    except BaseException as stopped:
        store.finish(number, TrialState.ABORTED, reason=f"stopped: {str(stopped) or type(stopped).__name__}"[:300])
        raise
    measured = _measured(pairs, decision, desk.budget.now() - begun)
    store.finish(number, TrialState.COMPLETE, measured, reason=decision.reason)
    done = made._replace(id=number, state=TrialState.COMPLETE, reason=decision.reason, measurement=measured)
    return Fought(done, decision, *_middles(pairs), _speedup(decision))


def _rounds(desk: Desk, ours: Point) -> tuple[list[tuple[float, float]], Decision]:
    desk.forget_inputs()
    timer = desk.bench.kernels.Timer(desk.about.problem, CONTEST_SEED)
    default, row, pairs = desk.about.default, desk.bench.effort, list[tuple[float, float]]()
    us = max(min(timer.time(side, rows.LOOK, row.warmup)) for side in (default, ours))
    while True:
        if desk.budget.left() <= 0:
            raise BudgetSpent
        count = desk.launches(us, parts=2)
        pairs.append(_pair(timer, default, ours, count, swapped=len(pairs) % 2 == 1))
        decision = decide(None, [Pair(1 / a, 1 / b) for a, b in pairs], most_rounds=row.rounds)
        desk.say("round", f"{decision.rounds}: won {decision.wins}, {decision.outcome}")
        if decision.outcome is not Outcome.MEASURE_MORE:
            return pairs, decision


def _pair(timer: Timer, default: Point, ours: Point, count: int, *, swapped: bool) -> tuple[float, float]:
    """(default, ours) in µs: the medians of one round."""
    first, second = (ours, default) if swapped else (default, ours)
    both = timer.pair(first, second, count)
    a, b = median(x for x, _ in both), median(y for _, y in both)
    return (b, a) if swapped else (a, b)


def _middles(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return median(a for a, _ in pairs), median(b for _, b in pairs)


def _speedup(decision: Decision) -> Interval:
    """1.05: the candidate is 5 % faster. An end that the rounds leave open is where zero and the middle are."""
    gain = decision.gain or Interval(0.0, 0.0, 0.0)
    low = max(1 + gain.low, 0.0)
    return Interval(low, 1 + gain.mid, 1 + gain.high if math.isfinite(gain.high) else 1 + gain.mid)


def _measured(pairs: Sequence[tuple[float, float]], decision: Decision, took: float) -> Measurement:
    found = measurement([("median_us", [b for _, b in pairs]), ("default_us", [a for a, _ in pairs])], took)
    return found._replace(figures=(*found.figures, ("speedup", _speedup(decision))), at=time.time())
