"""One problem as the store knows it: the key that its times depend on, the study that its trials share, its space."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.profile import Fingerprint, KernelKey, Trial, TrialState
from vllm_advisor.store.form import dumps
from vllm_tuner.kernel_tuning import points
from vllm_tuner.kernel_tuning.contract import CONTEST, KIND


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.profile import KernelConfig, Settings
    from vllm_tuner.kernel_tuning.contract import Kernels, Machine, Problem
    from vllm_tuner.kernel_tuning.points import Point, Space

_SIZES = ("m", "n", "k", "experts", "top_k")
_SIZE = "problem."


class Subject(NamedTuple):
    """What is tuned. `earlier`: the launch that won under other versions, if any."""

    problem: Problem
    key: KernelKey
    space: Space
    default: Point
    earlier: Point | None = None

    @property
    def study(self) -> str:
        """`kernel OP BUCKET 1a2b3c4d`."""
        return study_name(self.key)

    @property
    def fingerprint(self) -> Fingerprint:
        """The key, as a trial keeps it."""
        return Fingerprint(tuple(self.key._asdict().items()), tuple(self.key._asdict().items())[:3])

    @property
    def label(self) -> str:
        """`mxfp4.w4a16, 16 tokens, 4096 x 14336`."""
        return label(self.problem)


def study_name(key: KernelKey) -> str:
    """The same for the same kernel, bucket, machine and versions."""
    return f"{KIND} {key.kernel} {key.bucket} {hashlib.sha256(dumps(key).encode()).hexdigest()[:8]}"


def label(problem: Problem) -> str:
    """A problem in words."""
    experts = f", {problem.top_k} of {problem.experts} experts" if problem.experts else ""
    return f"{problem.op}, {problem.m} tokens, {problem.n} x {problem.k}{experts}"


def key(kernels: Kernels, problem: Problem, machine: Machine) -> KernelKey:
    """What a problem is kept under."""
    return KernelKey(
        problem.op, kernels.bucket(problem), problem.arch, kernels.source_hash(problem.op), machine.device,
        machine.driver, machine.triton, machine.runtime,
    )  # fmt: skip


def subject(
    kernels: Kernels, problem: Problem, known: KernelKey, earlier: KernelConfig | None, peaks: object
) -> Subject:
    """With its legal points. Starts: the default, then the earlier winner."""
    axes = tuple(kernels.axes(problem))
    default = tuple(kernels.default_point(problem))
    won = points.point_of(axes, earlier.settings) if earlier and earlier.kept else None
    found = points.space(
        axes,
        [default, *([won] if won else [])],
        lambda point: kernels.objection(problem, point),
        lambda point: kernels.bound_us(problem, point, peaks),
    )
    return Subject(problem, known, found, default, won)


def sizes(problem: Problem) -> Settings:
    """What a comparison's trial keeps of the problem, so that it can be asked again."""
    return tuple((_SIZE + name, getattr(problem, name)) for name in _SIZES)


def sizes_of(trial: Trial) -> dict[str, int]:
    """The same read back."""
    named = dict(trial.settings)
    return {name: int(named.get(_SIZE + name) or 0) for name in _SIZES}


def trial(about: Subject, node: str, settings: Settings, kind: str = KIND) -> Trial:
    """A trial to be made."""
    return Trial(about.study, kind, None, settings, node, fingerprint=about.fingerprint)


def answered(about: Subject, trials: Sequence[Trial]) -> dict[Point, Trial]:
    """What was measured, and what cannot run, by point. A failure or a stop says nothing."""
    ended = [t for t in trials if t.kind == KIND and t.state in (TrialState.COMPLETE, TrialState.INFEASIBLE)]
    found = ((points.point_of(about.space.axes, t.settings), t) for t in ended)
    return {point: t for point, t in found if point is not None}


def last_contest(trials: Sequence[Trial]) -> Trial | None:
    """The last finished comparison with the default."""
    fought = [t for t in trials if t.kind == CONTEST and t.state is TrialState.COMPLETE]
    return fought[-1] if fought else None
