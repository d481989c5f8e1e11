"""The loop: ask → RUNNING in the store → measure → tell → COMPLETE, INFEASIBLE or FAILED, inside a hard time budget.

Nothing is kept but trials. A search that is begun again asks the same questions in the same order, since it is seeded,
and answers those of them from the store that were answered before: that is all that resuming is.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from vllm_advisor.errors import AdvisorError, UsageError
from vllm_advisor.profile import Event, Trial, TrialState
from vllm_tuner.spaces import label
from vllm_tuner.trial import ACCURACY, KIND, BudgetSpent, Candidate, Ended, Infeasible, candidate_of, known, worth_of


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from vllm_advisor.profile import Settings
    from vllm_tuner.budget import Budget
    from vllm_tuner.serving import Measured
    from vllm_tuner.spaces import Point, Space
    from vllm_tuner.trial import Lessons, Study, Tell, TrialStore

_EVENTS = {KIND: "trial", ACCURACY: "accuracy"}
_SEED = 20_261  # any number: it only has to stay
_FEW = 10  # trials: as many optuna's estimator draws at random before it estimates (n_startup_trials)
_FREE_ANSWERS = 200  # questions in a row that cost nothing, before the space counts as searched


class Strategy(Protocol):
    """Which point next, None for none; it learns a point's worth, None for one that cannot run."""

    def ask(self) -> Point | None: ...

    def tell(self, point: Point, worth: float | None) -> None: ...


class Search(NamedTuple):
    """One search: what it is about, where trials are kept, how long, and who listens.

    `measure` takes a candidate, a name for its run folder, the end, and the worth below which it may stop early: that
    is the pruning, for a candidate whose interval ends below the best so far is not repeated any more. What it measured
    until then is told to the strategy as it is; Optuna's own pruners would forget it. `lessons` veto what earlier
    failures rule out.
    """

    study: Study
    space: Space
    store: TrialStore
    measure: Callable[[Candidate, str, float, float | None], Measured]
    budget: Budget
    tell: Tell
    lessons: Lessons | None = None

    def run(self, strategy: Strategy, most: int, kept_back: float = 0.0) -> tuple[Trial, ...]:
        """Try at most `most` candidates; the seconds kept back stay unused. The trials in their order."""
        tried, done = known(self.store.trials(self.study.name)), dict[Candidate, Trial]()
        for before in tried.values():
            self._learn(before)
        while len(done) < most and self.budget.allows(kept_back):
            point = self._question(strategy, tried, done)
            if point is None:
                break
            candidate = self.space.candidate(point)
            trial = tried.get(candidate.key)
            if trial is None:
                place = f"{len(done) + 1} of at most {most}"
                trial = self.attempt(candidate, self.budget.end - kept_back, self.best(done), place)
            else:
                self.say("trial", f"known from before: {label(candidate)}", trial=trial.id)
            if trial.state is TrialState.ABORTED:
                break
            done[candidate.key] = trial
            strategy.tell(point, self.worth(trial))
        return tuple(done.values())

    def _question(
        self, strategy: Strategy, tried: Mapping[Candidate, Trial], done: Mapping[Candidate, Trial]
    ) -> Point | None:
        """The next point that this run has no answer to; vetoes and what was answered before are told at once."""
        for _ in range(_FREE_ANSWERS):
            point = strategy.ask()
            if point is None:
                return None
            candidate = self.space.candidate(point)
            if candidate.key in done:
                strategy.tell(point, self.worth(done[candidate.key]))
            elif candidate.key not in tried and (why := self._objection(candidate)):
                self.say("vetoed", why)
                strategy.tell(point, None)
            else:
                return point
        return None

    def _objection(self, candidate: Candidate) -> str:
        """The space's, else what earlier failures teach."""
        learnt = self.lessons.objection(candidate) if self.lessons else ""
        return self.space.objection(candidate) or learnt

    def _learn(self, trial: Trial) -> None:
        candidate = candidate_of(trial)
        if self.lessons and candidate and trial.state is TrialState.INFEASIBLE:
            self.lessons.learn(candidate, trial.reason)

    def attempt(self, candidate: Candidate, end: float, beat: float | None = None, place: str = "") -> Trial:
        """One measurement, from WAITING to its end."""

        def work(name: str) -> Ended:
            found = self.measure(candidate, name, end, beat)
            return Ended(TrialState.COMPLETE, "", found.measurement, (), found.counted)

        return self.tried(KIND, candidate, work, place)

    def tried(self, kind: str, candidate: Candidate, work: Callable[[str], Ended], place: str = "") -> Trial:
        """Work that is given the name of a run folder, as a trial with every step in the store.

        A signal passes through, ABORTED behind it.
        """
        study = self.study
        made = Trial(study.name, kind, candidate.plan, candidate.flags, study.node)
        made = made._replace(fingerprint=study.fingerprint_of(candidate.plan))
        number = self.store.add_trial(made)
        self.store.start(number)
        made = made._replace(id=number, started=time.time())
        self.say(_EVENTS[kind], f"started{place and f' ({place})'}: {label(candidate)}", trial=number)
        begun = self.budget.now()
        try:
            ended = work(f"trial-{number}")
        except Infeasible as no:
            ended = Ended(TrialState.INFEASIBLE, no.reason)
        except BudgetSpent:
            ended = Ended(TrialState.ABORTED, "the time budget was spent")
        except AdvisorError as error:
            ended = Ended(TrialState.FAILED, error.message)
        except BaseException as stopped:
            self.store.finish(number, TrialState.ABORTED, reason=f"stopped: {str(stopped) or type(stopped).__name__}")
            raise
        finally:
            self.budget.learn(self.budget.now() - begun)
        return self._ended(made, ended)

    def _ended(self, made: Trial, end: Ended) -> Trial:
        self.store.finish(made.id, end.state, end.measurement, reason=end.reason, quality=end.quality)
        trial = made._replace(
            state=end.state, reason=end.reason, measurement=end.measurement, quality=end.quality, finished=time.time()
        )
        self._learn(trial)
        message = "passed" if end.quality and not end.reason else end.state
        more = (*_shown(trial, self.worth(trial)), *end.counted)
        self.say(_EVENTS[made.kind], f"{message}: {end.reason}" if end.reason else message, more, trial=made.id)
        return trial

    def worth(self, trial: Trial) -> float | None:
        """What the objective counts of a trial, None where nothing was measured under load."""
        if trial.measurement is None or trial.plan is None or trial.kind != KIND:
            return None
        return worth_of(trial.measurement, self.study.workload, trial.plan.world_size)

    def best(self, trials: Mapping[Candidate, Trial]) -> float | None:
        """The most that any is worth."""
        return max((value for trial in trials.values() if (value := self.worth(trial)) is not None), default=None)

    def say(self, kind: str, message: str, more: Settings = (), **details: float | str | None) -> None:
        """Tell whoever listens."""
        left = ("left_s", round(self.budget.left(), 1))
        self.tell(Event(kind, message, self.study.node, (*more, *details.items(), left), time.time()))


def _shown(trial: Trial, worth: float | None) -> Settings:
    """The middles that people look at."""
    checked = tuple((result.check, result.value.mid) for result in trial.quality)
    if trial.measurement is None or worth is None:
        return checked
    names = ("output_tok_s", "tpot_ms", "ttft_ms")
    figures = ((name, trial.measurement.figure(name)) for name in names)
    return (*((name, found.mid) for name, found in figures if found), ("worth", worth))


def strategy(space: Space, trials: int) -> Strategy:
    """Every point where they are few, steps uphill for few trials, else what a Parzen estimator asks for."""
    if space.size <= trials:
        return Grid(space)
    return Climb(space) if trials < _FEW else Tpe(space, trials)


class Grid:
    """All points: those that differ least from a recommended plan first."""

    def __init__(self, space: Space) -> None:
        self._points: Iterator[Point] = space.points()

    def ask(self) -> Point | None:
        """The next one."""
        return next(self._points, None)

    def tell(self, point: Point, worth: float | None) -> None:
        """The order is fixed."""


class Climb:
    """Pattern search: the openings, then the points next to the best so far, from there the next ones, and so on.

    Until something runs, the points next to those that do not.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._queue = list(space.openings())
        self._asked: set[Point] = set()
        self._failed: list[Point] = []
        self._most = -math.inf

    def ask(self) -> Point | None:
        """The next one that was not asked; None once all around the best was."""
        while self._queue or self._around():
            point = self._queue.pop(0)
            if point not in self._asked:
                self._asked.add(point)
                return point
        return None

    def _around(self) -> bool:
        """Whether there is more next to what failed, where nothing has run yet."""
        if self._failed and self._most == -math.inf:
            self._queue += self._space.neighbours(self._failed.pop(0))
        return bool(self._queue)

    def tell(self, point: Point, worth: float | None) -> None:
        """A new best one is where the search goes on; what waited before waits behind."""
        if worth is None:
            self._failed.append(point)
        elif worth > self._most:
            self._most = worth
            waiting = [p for p in self._space.openings() if p not in self._asked]
            self._queue = [*waiting, *self._space.neighbours(point), *self._queue]


class Tpe:
    """Optuna's estimator over the knobs' positions: the recommended plans first, then where good ones were dense."""

    def __init__(self, space: Space, trials: int) -> None:
        optuna = _optuna()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler(seed=_SEED, n_startup_trials=max(3, trials // 4))
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._unmeasured = optuna.trial.TrialState.PRUNED  # below every measured one; FAIL would be forgotten
        self._knobs = space.knobs
        self._asked: Any = None
        ranges = optuna.distributions
        self._ranges = {
            knob.name: ranges.IntDistribution(0, len(knob.values) - 1)
            if knob.ordered
            else ranges.CategoricalDistribution(tuple(range(len(knob.values))))
            for knob in space.knobs
        }
        for start in space.openings():
            positions = {k.name: k.values.index(v) for k, v in zip(space.knobs, start, strict=True) if v in k.values}
            self._study.enqueue_trial(positions)

    def ask(self) -> Point | None:
        """The next one; there always is one."""
        self._asked = self._study.ask(self._ranges)
        return tuple(knob.values[self._asked.params[knob.name]] for knob in self._knobs)

    def tell(self, point: Point, worth: float | None) -> None:
        """What the last question came to."""
        del point
        if worth is None:
            self._study.tell(self._asked, state=self._unmeasured)
        else:
            self._study.tell(self._asked, worth)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UsageError("a search of this size needs optuna", "pip install 'vllm-advisor[tuner]'") from None
    return optuna
