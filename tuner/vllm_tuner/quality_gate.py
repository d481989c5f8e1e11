"""The accuracy gate of a search: what computes something else than the reference is compared with it before it may win.

The reference is what was asked for as vLLM serves it by itself. Each comparison is a trial of its own kind in the
store, with its figures, so that a search that goes on does not compare twice. The servers never run together: answers
are taken, kept, and judged later.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.profile import Measurement, QualityResult, TrialState
from vllm_advisor.units import Interval
from vllm_tuner import quality_exam, spaces
from vllm_tuner.quality import Figure
from vllm_tuner.quality_servers import judge_answers
from vllm_tuner.serving import serving
from vllm_tuner.trial import ACCURACY, BudgetSpent, Ended, candidate_of


if TYPE_CHECKING:
    from vllm_advisor.plan import Plan
    from vllm_advisor.profile import Trial
    from vllm_tuner.quality import Quality
    from vllm_tuner.quality_exam import Exam, Level
    from vllm_tuner.quality_servers import Answers
    from vllm_tuner.search import Search
    from vllm_tuner.serving import Bench
    from vllm_tuner.trial import Candidate

TOOL = "vllm_tuner.quality_servers"


class Accuracy(NamedTuple):
    """What the gate says of a candidate.

    `results`: the figures; none where nothing was compared. `refused`: why it may not win, "" where it may.
    `unchecked`: why nothing was compared though it computes something else. `trial`: the comparison's, 0 for none.
    """

    results: tuple[QualityResult, ...] = ()
    refused: str = ""
    unchecked: str = ""
    trial: int = 0

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.refused

    def reasons(self) -> tuple[str, ...]:
        """Why not."""
        return (self.refused,) if self.refused else ()


def same_computation(one: Plan, other: Plan) -> bool:
    """Whether two plans compute the same numbers but for their rounding: weights, their format, the cache's format."""
    return (one.checkpoint, one.quantization, one.kv_cache_dtype) == (
        other.checkpoint,
        other.quantization,
        other.kv_cache_dtype,
    )


def _computed(plan: Plan) -> str:
    """`SmolLM2 fp8, KV fp8`: what is computed, in words."""
    kv = f", KV {plan.kv_cache_dtype}" if plan.kv_cache_dtype != "auto" else ""
    return f"{plan.checkpoint.rpartition('/')[2]}{f' {plan.quantization}' if plan.quantization else ''}{kv}"


class Gate:
    """Candidates against one reference, whose answers are taken once a level."""

    def __init__(self, search: Search, bench: Bench, reference: Candidate, level: Level) -> None:
        self._search, self._bench, self._reference, self._level = search, bench, reference, level
        self._said: dict[str, tuple[Exam, Answers]] = {}

    def judge(self, candidate: Candidate, end: float) -> Accuracy:
        """At the level asked; where that leaves it open, once more at the last level.

        Raises BudgetSpent; EngineError and Infeasible where the reference itself cannot be asked.
        """
        last = quality_exam.LEVELS["full"]
        found = self._at(candidate, self._level, end)
        if found.refused and self._level != last and not settled(found.results):
            self._search.say("accuracy", f"{self._level.name} leaves it open: once more at {last.name}")
            found = self._at(candidate, last, end)
        return found

    def _at(self, candidate: Candidate, level: Level, end: float) -> Accuracy:
        known = self._known(candidate, level)
        if known is not None:
            self._search.say("accuracy", f"known from before: {spaces.label(candidate)}", trial=known.id)
            return judged(known)
        exam, reference = self._answers(level, end)

        def work(name: str) -> Ended:
            begun = time.monotonic()
            with serving(self._bench, candidate, name, end) as session:
                said = quality_exam.answers(session.target, exam, end)
            quality = judge_answers(reference, said, self._bench.workload.sensitivity, exam.tasks)
            return self._ended(quality, level, time.monotonic() - begun)

        trial = self._search.tried(ACCURACY, candidate, work, "against the reference")
        if trial.state is TrialState.ABORTED:
            raise BudgetSpent
        return judged(trial)

    def _answers(self, level: Level, end: float) -> tuple[Exam, Answers]:
        if level.name not in self._said:
            label = spaces.label(self._reference)
            self._search.say("accuracy", f"the reference answers {level.requests} questions: {label}")
            with serving(self._bench, self._reference, f"reference-{level.name}", end) as session:
                exam = quality_exam.exam(session.target, level, self._reference.plan.max_model_len, end)
                self._said[level.name] = exam, quality_exam.answers(session.target, exam, end)
        return self._said[level.name]

    def _known(self, candidate: Candidate, level: Level) -> Trial | None:
        """A comparison of before, of the same at the same level and limits."""
        wanted = self._about(level)
        trials = (t for t in self._search.store.trials(self._search.study.name) if t.kind == ACCURACY and t.quality)
        found = [t for t in trials if (made := candidate_of(t)) and made.key == candidate.key]
        return next((t for t in found if all(r.note.startswith(wanted) for r in t.quality)), None)

    def _about(self, level: Level) -> str:
        return f"{level.name}, {self._bench.workload.sensitivity}, against {_computed(self._reference.plan)}:"

    def _ended(self, quality: Quality, level: Level, seconds: float) -> Ended:
        about = f"{self._about(level)} {quality.prompts} prompts, {quality.positions} tokens"
        counts = (("positions", quality.positions), ("prompts", quality.prompts))
        figures = tuple((name, Interval(float(n), float(n), float(n))) for name, n in counts)
        measured = Measurement(figures, self._bench.workload, 1, seconds, TOOL, time.time())
        kept = results(quality, about)
        reason = "" if quality.passed else _refusal(kept)
        return Ended(TrialState.COMPLETE, reason, measured, kept)


def results(quality: Quality, note: str = "") -> tuple[QualityResult, ...]:
    """As the store keeps them. NaN, which no database orders, is the worst there is."""
    now = time.time()
    return tuple(
        QualityResult(f.name, _ordered(f), f.limit, f.passed, "; ".join(filter(None, (note, f.where))), now)
        for f in quality.figures
    )


def _ordered(figure: Figure) -> Interval:
    worst = math.inf if figure.at_most else -math.inf
    return Interval(*(worst if math.isnan(end) else end for end in figure.value))


def settled(kept: tuple[QualityResult, ...]) -> bool:
    """Whether more samples could not change a verdict: it passed, or some figure fails whatever they say."""
    failed = [r for r in kept if not r.passed]
    return not failed or any(Figure(r.check, r.value, r.limit, at_most=True).settled for r in failed)


def judged(trial: Trial) -> Accuracy:
    """What an ended comparison says: nothing compared is no pass."""
    if not trial.quality:
        return Accuracy(refused=f"it could not be compared with the reference: {trial.reason}", trial=trial.id)
    return Accuracy(trial.quality, _refusal(trial.quality), trial=trial.id)


def _refusal(kept: tuple[QualityResult, ...]) -> str:
    return "; ".join(said(result) for result in kept if not result.passed)


def said(result: QualityResult) -> str:
    """`KL divergence is 0.031 (0.028 to 0.035), limit 0.04`."""
    low, mid, high = result.value
    return f"{result.check} is {mid:.3g} ({low:.3g} to {high:.3g}), limit {result.limit:g}"
