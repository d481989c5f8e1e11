"""What a search passes around: candidates, why an attempt ended, what counts as better, and what a store must keep.

The values that outlive a search (Trial, Measurement, Profile) are the advisor's (`vllm_advisor.profile`); the states
of a trial are drawn there.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from vllm_advisor.fingerprint import canonical
from vllm_advisor.profile import TrialState
from vllm_advisor.workload import Objective


if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vllm_advisor.plan import Plan
    from vllm_advisor.profile import Event, Fingerprint, Measurement, QualityResult, Settings, Trial
    from vllm_advisor.workload import Workload

KIND = "serve"  # a configuration under load
ACCURACY = "accuracy"  # the same against the reference


class Candidate(NamedTuple):
    """One configuration to try: a plan, and flags of vLLM's that a plan has no field for (True: a switch)."""

    plan: Plan
    flags: Settings = ()

    @property
    def key(self) -> Candidate:
        """What it is known by: beside a fixed KV cache vLLM is not told the share of memory, which varies."""
        if self.plan.kv_cache_memory_bytes is None:
            return self
        return self._replace(plan=replace(self.plan, gpu_memory_utilization=1.0))


class Ended(NamedTuple):
    """How an attempt ended, with what it found; `counted` is told and not kept."""

    state: TrialState
    reason: str = ""
    measurement: Measurement | None = None
    quality: tuple[QualityResult, ...] = ()
    counted: Settings = ()


class Infeasible(Exception):
    """A configuration that cannot run here, with the reason that its log gives."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BudgetSpent(Exception):
    """The time is up; whatever was running is not counted."""


class TrialStore(Protocol):
    """What a search needs of a store (`vllm_advisor.store.profile_store.ProfileStore` has it)."""

    def add_trial(self, trial: Trial) -> int: ...

    def start(self, number: int, by: str | None = None) -> None: ...

    def finish(
        self,
        number: int,
        state: TrialState,
        measurement: Measurement | None = None,
        *,
        reason: str = "",
        quality: Sequence[QualityResult] = (),
    ) -> None: ...

    def recover_stale(self, node: str) -> tuple[int, ...]: ...

    def trials(self, study: str | None = None) -> tuple[Trial, ...]: ...

    def record(self, event: Event) -> int: ...


class Study(NamedTuple):
    """What a search is about. Equal studies share their trials, whatever their objective: figures are all kept."""

    name: str
    node: str
    fingerprint: Fingerprint
    workload: Workload
    others: tuple[tuple[str, Fingerprint], ...] = ()

    def fingerprint_of(self, plan: Plan) -> Fingerprint:
        """What a measurement of a plan depends on: `others` has those of checkpoints that were not asked for."""
        return dict(self.others).get(plan.checkpoint, self.fingerprint)


class Lessons(Protocol):
    """What a search learns from configurations that cannot run."""

    def learn(self, candidate: Candidate, diagnosis: str) -> None:
        """It did not run, with the reason that its log gives."""

    def objection(self, candidate: Candidate) -> str:
        """Why another one need not be tried after that; "" for none."""


def study_name(model: str, fingerprint: Fingerprint, load: Workload, source: str) -> str:
    """`serve MODEL 1a2b3c4d`: the same for the same machine, software, model, load and source of requests."""
    lengths = (load.input_tokens, load.output_tokens, load.concurrency, load.context, load.shared_prefix_tokens)
    text = f"{canonical(fingerprint.strict)} {lengths} {load.request_rate} {source}"
    return f"{KIND} {model.rpartition('/')[2]} {hashlib.sha256(text.encode()).hexdigest()[:8]}"


def candidate_of(trial: Trial) -> Candidate | None:
    """What a kept trial tried, None for a trial of something else."""
    return Candidate(trial.plan, tuple(sorted(trial.settings))) if trial.plan else None


def known(trials: Sequence[Trial]) -> dict[Candidate, Trial]:
    """What need not be tried again: what was measured, and what cannot run. A failure or a stop says nothing."""
    final = (TrialState.COMPLETE, TrialState.INFEASIBLE)
    ended = (t for t in trials if t.kind == KIND and t.state in final)
    return {found.key: t for t in ended if (found := candidate_of(t))}


def worth(load: Workload, figures: Mapping[str, float], devices: int) -> float:
    """What the objective counts, higher is better; the same formulas as `vllm_advisor.score` has for estimates.

    With limits asked for, the part of it that requests within the limits make up (goodput).
    """
    throughput = figures["output_tok_s"]
    one_user = throughput / max(figures["request_s"], 1e-12) * 1000 / max(figures["e2el_ms"], 1e-12)
    value = {
        Objective.THROUGHPUT: throughput,
        Objective.LATENCY: one_user,
        Objective.BALANCED: math.sqrt(throughput * one_user),
        Objective.COST: throughput / devices,
    }[load.objective]
    return value * _within_limits(load, figures)


def _within_limits(load: Workload, figures: Mapping[str, float]) -> float:
    """The share of requests that met the limits; 1 where there are none."""
    if load.sla.ttft_ms is None and load.sla.tpot_ms is None:
        return 1.0
    return figures["goodput_s"] / max(figures["request_s"], 1e-12)


def worth_of(measured: Measurement, load: Workload, devices: int) -> float:
    """The same of a measurement's middles."""
    return worth(load, {name: interval.mid for name, interval in measured.figures}, devices)


Tell: TypeAlias = "Callable[[Event], None]"
