"""What a search came to, and what of it is kept as a profile."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor import __version__
from vllm_advisor.profile import Origin, Profile, Provenance
from vllm_tuner.quality_gate import Accuracy


if TYPE_CHECKING:
    from vllm_advisor.profile import Measurement, Trial
    from vllm_tuner.contest import Contest
    from vllm_tuner.trial import Study

BETTER, NOT_BETTER, NO_DEFAULTS, UNDECIDED, NOTHING = (
    "better", "none better", "defaults do not run", "undecided", "nothing ran",
)  # fmt: skip
DEFAULTS, RUNNING = "vLLM's defaults", "the plan that runs"  # what has to be beaten


class Outcome(NamedTuple):
    """What a search came to. `verdict` is one of the five above, `says` the same in a sentence with the numbers.

    `incumbent` is the trial of what has to be beaten (`rival` names it), `best` the best other one that the accuracy
    gate let through, `chosen` the one to run (None: nothing ran). `accuracy` is what the gate says of `best`; `refused`
    are (trial, why) of those that were faster and computed something worse.
    """

    study: Study
    trials: tuple[Trial, ...]
    incumbent: Trial
    best: Trial | None
    contest: Contest | None
    chosen: Trial | None
    verdict: str
    says: str
    accuracy: Accuracy = Accuracy()
    refused: tuple[tuple[Trial, Accuracy], ...] = ()
    rival: str = DEFAULTS

    @property
    def measurement(self) -> Measurement | None:
        """The chosen one's figures: those of the comparison where there was one."""
        return self.measured(self.chosen) if self.chosen else None

    def measured(self, trial: Trial) -> Measurement | None:
        """A trial's figures, those of the comparison before its own."""
        if self.contest and trial in (self.best, self.incumbent):
            return self.contest.candidate if trial is self.best else self.contest.incumbent
        return trial.measurement

    def accuracy_of(self, trial: Trial) -> Accuracy:
        """What the gate says of a trial: nothing of those that compute what the reference does."""
        if trial is self.best:
            return self.accuracy
        return next((accuracy for refused, accuracy in self.refused if refused.id == trial.id), Accuracy())

    @property
    def behind(self) -> tuple[int, ...]:
        """Numbers of all trials that it rests on, comparisons with the reference included."""
        checks = (self.accuracy.trial, *(accuracy.trial for _, accuracy in self.refused))
        return tuple(sorted({*(trial.id for trial in self.trials), *checks} - {0}))


def profile(outcome: Outcome, model: str, of: Trial | None = None) -> Profile | None:
    """What to keep of it: the chosen plan (or `of`) with its figures; None where nothing ran.

    Validated, that is: measured here, and it computes what was asked for or passed the accuracy gate.
    """
    trial = of or outcome.chosen
    measured = outcome.measured(trial) if trial else None
    if trial is None or trial.plan is None or measured is None:
        return None
    accuracy, now = outcome.accuracy_of(trial), time.time()
    unchecked = f"unvalidated: its accuracy was not checked ({accuracy.unchecked})" if accuracy.unchecked else ""
    origin = Provenance(
        Origin.MEASURED,
        f"tuner {__version__}",
        now,
        outcome.study.node,
        note="; ".join(part for part in (outcome.says, unchecked) if part),
        trials=outcome.behind,
        validated_at=0.0 if accuracy.unchecked else now,
    )
    print_ = outcome.study.fingerprint_of(trial.plan)
    return Profile(print_, trial.plan, measured, accuracy.results, origin, model, flags=trial.settings)
