"""The whole of `tuner serve`: vLLM's defaults, the search, the accuracy gate, then the best against the defaults.

What is chosen is what computes no worse and won beyond noise; where nothing did, vLLM's defaults are the answer, and
that is said. A candidate that the accuracy gate refuses makes way for the next best.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import EngineError
from vllm_advisor.profile import Event, TrialState
from vllm_tuner import contest as contests
from vllm_tuner import serving, spaces
from vllm_tuner.outcome import (
    BETTER,
    DEFAULTS,
    NO_DEFAULTS,
    NOT_BETTER,
    NOTHING,
    RUNNING,
    UNDECIDED,
    Outcome,
    profile,
)
from vllm_tuner.quality_exam import LEVELS
from vllm_tuner.quality_gate import Accuracy, Gate, same_computation
from vllm_tuner.search import Search, strategy
from vllm_tuner.trial import BudgetSpent, Infeasible, candidate_of, known


if TYPE_CHECKING:
    from vllm_advisor.plan import Plan
    from vllm_advisor.profile import Trial
    from vllm_tuner.budget import Budget
    from vllm_tuner.gate import Decision
    from vllm_tuner.quality_exam import Level
    from vllm_tuner.serving import Bench
    from vllm_tuner.spaces import Space
    from vllm_tuner.trial import Candidate, Lessons, Study, Tell, TrialStore

__all__ = ["BETTER", "NOTHING", "NOT_BETTER", "NO_DEFAULTS", "UNDECIDED", "Outcome", "Wish", "profile", "tune"]

# In fewer rounds the gate is never sure: seven wins in a row decide at 95 %.
_LEAST_ROUNDS = 7


class Wish(NamedTuple):
    """How to search. `quality`: what the accuracy gate asks, None: nothing is compared, and the profile says so.

    `only`: this one candidate against the defaults, measured anew, and no search. `lessons`: what failures teach.
    `against`: the plan that runs now, which is then the incumbent in the place of vLLM's defaults.
    """

    quality: Level | None = LEVELS["quick"]
    only: Candidate | None = None
    lessons: Lessons | None = None
    against: Candidate | None = None

    @property
    def rival(self) -> str:
        """What the incumbent is called."""
        return RUNNING if self.against else DEFAULTS

    def incumbent(self, space: Space) -> Candidate:
        """What has to be beaten."""
        return self.against or spaces.defaults(space.facts, space.plans)


_PLAIN = Wish()


def tune(  # noqa: PLR0917 - what is searched, with what, where it is kept, how long, who listens, and how
    study: Study, bench: Bench, store: TrialStore, budget: Budget, tell: Tell, wish: Wish = _PLAIN
) -> Outcome:
    """Search inside the budget. Raises what a signal raises, with all finished trials kept."""
    serving.sweep(bench.folder)
    store.recover_stale(study.node)

    def measure(candidate: Candidate, name: str, end: float, beat: float | None) -> serving.Measured:
        return serving.measure(bench, candidate, name, end, beat)

    search = Search(study, bench.space, store, measure, budget, tell, wish.lessons)
    incumbent = _incumbent(search, wish)
    kept_back = _kept_back(bench, incumbent, wish)
    trials = _only(search, incumbent, wish.only) if wish.only else _searched(search, bench, kept_back)
    outcome = _Decision(search, bench, wish, incumbent, trials).outcome()
    store.record(Event("tuned", outcome.says, study.node, (("study", study.name), ("verdict", outcome.verdict))))
    return outcome


def _incumbent(search: Search, wish: Wish) -> Trial:
    """The trial of what has to be beaten, from the store where it ended before."""
    candidate = wish.incumbent(search.space)
    search.say("defaults", f"{wish.rival}: {spaces.label(candidate)}")
    found = None if wish.only else known(search.store.trials(search.study.name)).get(candidate.key)
    if found is None:
        return search.attempt(candidate, search.budget.end)
    search.say("trial", f"known from before: {spaces.label(candidate)}", trial=found.id)
    return found


def _searched(search: Search, bench: Bench, kept_back: float) -> tuple[Trial, ...]:
    return search.run(strategy(bench.space, bench.effort.trials), bench.effort.trials, kept_back)


def _only(search: Search, incumbent: Trial, candidate: Candidate) -> tuple[Trial, ...]:
    """The one candidate; where that is what vLLM does by itself, its trial is there already."""
    made = candidate_of(incumbent)
    if made and made.key == candidate.key:
        return (incumbent,)
    return (search.attempt(candidate, search.budget.end),)


def _kept_back(bench: Bench, incumbent: Trial, wish: Wish) -> float:
    """Seconds that the end will take, from what the defaults took: starts, turns of one repeat each, questions."""
    measured = incumbent.measurement
    if measured is None:
        return 0.0
    repeat = measured.seconds / measured.repeats
    start = max(0.0, incumbent.finished - incumbent.started - measured.seconds)
    turns = 2 * min(bench.effort.rounds, _LEAST_ROUNDS)
    together = contests.fit_together(bench.space, wish.incumbent(bench.space))
    return turns * repeat + (2 if together else turns) * start + _asking(bench, incumbent, wish, start)


def _asking(bench: Bench, incumbent: Trial, wish: Wish, start: float) -> float:
    """Seconds of the accuracy gate: both servers once more, and each question as long as one of the load's requests."""
    plans = [ranked.plan for _, ranked in bench.space.plans]
    needed = incumbent.plan and any(not same_computation(plan, incumbent.plan) for plan in plans)
    request = incumbent.measurement and incumbent.measurement.figure("e2el_ms")
    if wish.quality is None or not needed or not request:
        return 0.0
    return 2 * (start + wish.quality.requests * request.mid / 1000)


class _Decision(NamedTuple):
    """From trials to an outcome."""

    search: Search
    bench: Bench
    wish: Wish
    incumbent: Trial
    trials: tuple[Trial, ...]

    def outcome(self) -> Outcome:
        """Try the candidates, the best first, until one is neither refused nor beaten."""
        incumbent = self.incumbent
        every = (incumbent, *(t for t in self.trials if t.id != incumbent.id))
        out = Outcome(self.search.study, every, incumbent, None, None, None, NOTHING, "nothing ran here")._replace(
            rival=self.wish.rival
        )
        ranked = sorted((t for t in every[1:] if self._worth(t)), key=lambda t: -self._worth(t))
        if not ranked:
            return self._without(out)
        gate = self._gate(ranked)
        for best in ranked:
            if self._beaten(best):
                break
            try:
                accuracy = self._accuracy(best, gate)
            except (BudgetSpent, Infeasible, EngineError) as stopped:
                unchecked = out._replace(best=best, accuracy=Accuracy(unchecked="the comparison was not finished"))
                return self._open(unchecked, best, "its accuracy was not compared", stopped)
            if accuracy.passed:
                return self._fought(out._replace(best=best, accuracy=accuracy), best)
            self.search.say("refused", f"trial {best.id}: {accuracy.refused}", trial=best.id)
            out = out._replace(refused=(*out.refused, (best, accuracy)))
        return self._none(out)

    def _worth(self, trial: Trial) -> float:
        return self.search.worth(trial) or 0.0

    def _beaten(self, trial: Trial) -> bool:
        """Whether the search itself says that the defaults are as good; one that was asked for is compared anyway."""
        return self.wish.only is None and self._worth(trial) <= self._worth(self.incumbent)

    def _without(self, out: Outcome) -> Outcome:
        """Nothing but the defaults was measured, if those."""
        incumbent = self.incumbent
        if incumbent.state is not TrialState.COMPLETE:
            return out._replace(says=f"nothing ran here; {self.wish.rival}: {incumbent.reason or incumbent.state}")
        if self.wish.only and self.trials == (incumbent,):
            return out._replace(chosen=incumbent, verdict=NOT_BETTER, says=f"it is the same as {self.wish.rival}")
        return out._replace(chosen=incumbent, verdict=UNDECIDED, says=self._nothing_else())

    def _nothing_else(self) -> str:
        """Why nothing but the defaults was measured: nothing else runs, or there was no time for it."""
        if self.trials:
            return f"nothing else ran: {self.trials[0].reason}"
        took = self.incumbent.finished - self.incumbent.started
        kept_back = _kept_back(self.bench, self.incumbent, self.wish)
        needed = math.ceil((took * (self.bench.effort.trials + 1) + kept_back) / 60)
        return (
            f"no time for anything else: {self.wish.rival} took {took:.0f} of {self.search.budget.seconds:.0f} s; "
            f"all of it would take about {needed} minutes (--budget {needed}m), less with --trials"
        )

    def _none(self, out: Outcome) -> Outcome:
        """Nothing may take the place of the defaults."""
        refused = "; ".join(f"trial {t.id} was refused: {accuracy.refused}" for t, accuracy in out.refused)
        if self.incumbent.state is not TrialState.COMPLETE:
            return out._replace(says=f"{self.wish.rival} did not run here ({self.incumbent.reason}); {refused}")
        what = "nothing that computes as well" if refused else "nothing"
        says = "; ".join(part for part in (f"{what} measured better than {self.wish.rival}", refused) if part)
        return out._replace(chosen=self.incumbent, verdict=NOT_BETTER, says=says)

    def _gate(self, ranked: list[Trial]) -> Gate | str:
        """The accuracy gate with its reference, or why there is none."""
        if self.wish.quality is None:
            return "--no-quality"
        runs = [t for t in (self.incumbent, *ranked) if t.state is TrialState.COMPLETE]
        reference = next((candidate_of(t) for t in runs if t.plan and same_computation(t.plan, self._asked)), None)
        if reference is None:
            return "nothing that computes what was asked for runs here"
        return Gate(self.search, self.bench, reference, self.wish.quality)

    @property
    def _asked(self) -> Plan:
        return spaces.defaults(self.search.space.facts, self.search.space.plans).plan

    def _accuracy(self, best: Trial, gate: Gate | str) -> Accuracy:
        """What the gate says; nothing where the same is computed."""
        candidate = candidate_of(best)
        if candidate is None or same_computation(candidate.plan, self._asked):
            return Accuracy()
        return Accuracy(unchecked=gate) if isinstance(gate, str) else gate.judge(candidate, self.search.budget.end)

    def _open(self, out: Outcome, best: Trial, what: str, stopped: Exception) -> Outcome:
        """The time was up, or a server died, before it was decided: what runs now stays."""
        why = "the time was up" if isinstance(stopped, BudgetSpent) else f"{stopped}"
        says = f"trial {best.id} looked better than {self.wish.rival}; {what}: {why}"
        runs = self.incumbent if self.incumbent.state is TrialState.COMPLETE else None
        return out._replace(chosen=runs, verdict=UNDECIDED, says=says)

    def _fought(self, out: Outcome, best: Trial) -> Outcome:
        """The best against the defaults, in turns."""
        if self.incumbent.state is not TrialState.COMPLETE:
            why = self.incumbent.reason or self.incumbent.state
            says = f"{self.wish.rival} did not run here ({why}); this is the best that does"
            return out._replace(chosen=best, verdict=NO_DEFAULTS, says=says)
        try:
            found = self._contest(best, out.accuracy)
        except (BudgetSpent, Infeasible, EngineError) as stopped:
            return self._open(out, best, "the comparison was not finished", stopped)
        says = f"trial {best.id} against {self.wish.rival}: {_gained(found)}; {found.decision.reason}"
        self.search.say("contest", says)
        if found.won:
            return out._replace(contest=found, chosen=best, verdict=BETTER, says=says)
        return out._replace(contest=found, chosen=self.incumbent, verdict=NOT_BETTER, says=says)

    def _contest(self, best: Trial, accuracy: Accuracy) -> contests.Contest:
        search, bench = self.search, self.bench
        ours, theirs = candidate_of(best), candidate_of(self.incumbent)
        if ours is None or theirs is None:
            raise ValueError("a trial of a server has a plan")
        together = contests.fit_together(bench.space, ours, theirs)

        def told(so_far: Decision) -> None:
            search.say("round", f"{so_far.rounds}: won {so_far.wins}, {so_far.outcome}")

        rival = self.wish.rival
        search.say("contest", f"trial {best.id} against {rival} in turns, at most {bench.effort.rounds} rounds")
        return contests.contest(bench, ours, theirs, search.budget.end, together=together, told=told, quality=accuracy)


def _gained(found: contests.Contest) -> str:
    gain = found.decision.gain
    if gain is None:
        return "nothing compared"
    sure = "" if math.isinf(gain.low) else f" ({_percent(gain.low)} to {_percent(gain.high)})"
    return f"{_percent(gain.mid)}{sure} in {found.decision.rounds} rounds in turns"


def _percent(share: float) -> str:
    return f"{share * 100:+.1f} %"
