"""One problem under search: points compiled, checked and timed, every step of a trial in the store at once."""

from __future__ import annotations

import math
import time
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.errors import AdvisorError, EngineError
from vllm_advisor.profile import Event, Measurement, TrialState
from vllm_advisor.units import Interval, significant
from vllm_tuner.kernel_tuning import effort as rows
from vllm_tuner.kernel_tuning.subject import answered, trial
from vllm_tuner.trial import BudgetSpent


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.profile import Scalar, Settings, Trial
    from vllm_tuner.budget import Budget
    from vllm_tuner.kernel_tuning.contract import Kernels, Timer
    from vllm_tuner.kernel_tuning.effort import Effort
    from vllm_tuner.kernel_tuning.points import Point
    from vllm_tuner.kernel_tuning.subject import Subject
    from vllm_tuner.trial import Tell, TrialStore

TOOL = "vllm_mx_kernels.autotune"
SEARCH_SEED, CONTEST_SEED = 0, 1  # other inputs decide than those that a winner was picked on


class Bench(NamedTuple):
    """What measures and where results go: the same for every problem of a run. `jobs`: compilers at once."""

    kernels: Kernels
    effort: Effort
    store: TrialStore
    tell: Tell
    node: str
    jobs: int = 1


class Desk:
    """One problem with what is known of its points: answers of earlier runs first, unless all is to be `fresh`.

    `budget` is its share of the run's, which is what people are told of.
    """

    def __init__(self, bench: Bench, about: Subject, budget: Budget, whole: Budget, *, fresh: bool = False) -> None:
        self.bench, self.about, self.budget, self._whole = bench, about, budget, whole
        self.known: dict[Point, Trial] = {} if fresh else answered(about, bench.store.trials(about.study))
        self.made = 0
        self._failed = 0
        self._timer: Timer | None = None

    def us(self, point: Point) -> float | None:
        """A point's time, None where there is none: the first quartile, since others can only slow a launch."""
        found = self.known.get(point)
        figure = found.measurement.figure("median_us") if found and found.measurement else None
        return figure.low if figure else None

    def best(self) -> Point | None:
        """The fastest so far; of equals the one that comes first."""
        timed = [(us, point) for point in self.known if (us := self.us(point)) is not None]
        return min(timed)[1] if timed else None

    def best_us(self) -> float:
        """Its time; infinite where nothing was timed."""
        best = self.best()
        return math.inf if best is None else self.us(best) or math.inf

    def pruned(self, point: Point) -> bool:
        """Whether a point cannot win: its optimistic bound is no better than the best that was measured."""
        return self.about.space.bounds[point] >= self.best_us()

    def gate(self, points: Sequence[Point], end: float) -> tuple[Point, ...]:
        """Compile points that have no answer yet, in parallel, until `end`; those that may run, known ones included.

        What does not compile, fit or use the unit that it should is INFEASIBLE, in the store. Points that the clock
        left no time for are missing.
        """
        passed = [point for point in points if self.us(point) is not None]
        rest = [point for point in points if point not in self.known]
        size = rows.CHUNK * self.bench.jobs
        for start in range(0, len(rest), size):
            left = end - self.budget.now()
            if left <= 0:
                self.say("gate", f"no time to compile {len(rest) - start} of {len(points)} points: they are left out")
                break
            passed += self._compiled(rest[start : start + size], min(rows.COMPILE_LIMIT_S, left))
        order = {point: number for number, point in enumerate(points)}
        return tuple(sorted(passed, key=order.__getitem__))

    def _compiled(self, points: Sequence[Point], limit_s: float) -> list[Point]:
        reports = self.bench.kernels.gate(self.about.problem, points, jobs=self.bench.jobs, limit_s=limit_s)
        passed = []
        for point in points:
            why = refused(reports.get(point))
            if why:
                self._ended(self._opened(point), TrialState.INFEASIBLE, why)
            else:
                passed.append(point)
        return passed

    def attempt(self, point: Point, place: str = "") -> Trial:
        """Check a point against its twin and time it, from WAITING to the end.

        A signal passes through, ABORTED behind it. Raises BudgetSpent when the time is up, EngineError after several
        failures in a row that no candidate explains.
        """
        opened = self._opened(point)
        self.say(
            "trial", f"started{place and f' ({place})'}: {shown(self.about.space.settings(point))}", trial=opened.id
        )
        begun = self.budget.now()
        try:
            found = self._measured(point)
        except AdvisorError as error:
            return self._failure(opened, error.message)
        except BudgetSpent:
            self._ended(opened, TrialState.ABORTED, "the time budget was spent")
            raise
        except Exception as error:  # noqa: BLE001 - a compiler or a driver may raise anything
            return self._failure(opened, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:300])
        except BaseException as stopped:
            reason = f"stopped: {str(stopped) or type(stopped).__name__}"
            self.bench.store.finish(opened.id, TrialState.ABORTED, reason=reason)
            raise
        finally:
            self.budget.learn(self.budget.now() - begun)
        self._failed = 0
        if isinstance(found, str):
            return self._ended(opened, TrialState.INFEASIBLE, found)
        return self._ended(opened, TrialState.COMPLETE, "", found)

    def _failure(self, opened: Trial, reason: str) -> Trial:
        ended = self._ended(opened, TrialState.FAILED, reason)
        self._failed += 1
        if self._failed >= rows.FAILURES:
            hint = "a broken device fails every launch: look at the driver's log, then run the same command again"
            raise EngineError(f"{self._failed} launches in a row failed: {reason}", hint)
        return ended

    def _opened(self, point: Point) -> Trial:
        store, made = self.bench.store, trial(self.about, self.bench.node, self.about.space.settings(point))
        number = store.add_trial(made)
        store.start(number)
        self.made += 1
        return made._replace(id=number, started=time.time())

    def _measured(self, point: Point) -> Measurement | str:
        """Times, or why there are none."""
        self._check_time()
        wrong = self.bench.kernels.correct(self.about.problem, point, SEARCH_SEED)
        if wrong:
            return f"wrong: {wrong}"
        self._check_time()
        begun = self.budget.now()
        times = self._times(point)
        return measurement([("median_us", times)], self.budget.now() - begun)

    def _times(self, point: Point) -> list[float]:
        """A look first: what is far behind is timed no further."""
        row, timer = self.bench.effort, self.timer()
        look = timer.time(point, rows.LOOK, row.warmup)
        if min(look) > rows.HOPELESS * self.best_us():
            return look
        self._check_time()
        return timer.time(point, self.launches(min(look)), 0)

    def timer(self) -> Timer:
        """Inputs for the search, made when they are first needed."""
        if self._timer is None:
            self._timer = self.bench.kernels.Timer(self.about.problem, SEARCH_SEED)
        return self._timer

    def launches(self, us: float, parts: int = 1) -> int:
        """How many launches of this time fill a slice, or what is left of the budget for so many parts."""
        most = int(self.budget.left() * 1e6 / max(us, 1e-3)) // parts
        return max(1, min(most, rows.launches(self.bench.effort, us)))

    def forget_inputs(self) -> None:
        """Give the device's memory back."""
        self._timer = None

    def _check_time(self) -> None:
        if self.budget.left() <= 0:
            raise BudgetSpent

    def _ended(self, made: Trial, state: TrialState, reason: str, measured: Measurement | None = None) -> Trial:
        self.bench.store.finish(made.id, state, measured, reason=reason)
        ended = made._replace(state=state, reason=reason, measurement=measured, finished=time.time())
        point = tuple(int(value) for _, value in made.settings if isinstance(value, int))
        if state in (TrialState.COMPLETE, TrialState.INFEASIBLE):
            self.known[point] = ended
        figure = measured.figure("median_us") if measured else None
        more = f": {significant(figure.mid)} us" if figure else f": {reason}"
        self.say("trial", f"{state}{more} ({shown(made.settings)})", trial=made.id)
        return ended

    def say(self, kind: str, message: str, **details: Scalar) -> None:
        """Tell whoever listens."""
        left = ("left_s", round(self._whole.left(), 1))
        self.bench.tell(Event(kind, message, self.bench.node, (*details.items(), left), time.time()))


def refused(report: Any) -> str:
    """Why a compiled point may not run; "" where it may."""
    return "the compiler said nothing" if report is None else str(report.failure)


def measurement(figures: Sequence[tuple[str, Sequence[float]]], seconds: float) -> Measurement:
    """Medians, with the quartiles as interval."""
    made = tuple((name, spread(values)) for name, values in figures)
    repeats = max(len(values) for _, values in figures)
    return Measurement(made, None, repeats, seconds, TOOL, time.time())


def spread(values: Sequence[float]) -> Interval:
    """First quartile, median, third quartile: launches are slowed by others, and never sped up."""
    ordered = sorted(values)
    return Interval(ordered[len(ordered) // 4], median(ordered), ordered[-(len(ordered) // 4) - 1])


def shown(settings: Settings) -> str:
    """`block_m 16, block_n 64`."""
    return ", ".join(f"{name} {value}" for name, value in settings)
