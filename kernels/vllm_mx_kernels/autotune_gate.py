"""What a compiler says of many launches at once, with no device: whether each builds, fits, and spills nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_mx_kernels import autotune_triton
from vllm_mx_kernels.handoff import CPU_LINEAR
from vllm_mx_kernels.targets import TARGETS


if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_mx_kernels.autotune_space import Problem
    from vllm_mx_kernels.compile import Build

DECODE_TOKENS = 32  # as `launch.TABLE` divides, by which `catalog` names its cases


class GateReport(NamedTuple):
    """`failure`: why a launch is not worth a device's time, "" if it is. Bytes; seconds of the compiler."""

    failure: str = ""
    registers: int = 0
    spills: int = 0
    shared: int = 0
    instruction: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether it may be timed."""
        return not self.failure


def gate(
    problem: Problem, points: Iterable[tuple[int, ...]], *, jobs: int = 2, limit_s: float = 120.0
) -> dict[tuple[int, ...], GateReport]:
    """Build each point's launch in `jobs` processes, each build no longer than `limit_s`, in the order given.

    The CPU's tiles are numbers that one build takes, so that they all pass. Raises KeyError for an unknown op.
    """
    from vllm_mx_kernels.compile import build_all

    wanted = list(dict.fromkeys(points))
    if problem.op == CPU_LINEAR:
        return {point: GateReport() for point in wanted}
    case, target = _case(problem), TARGETS[problem.arch]
    asked = [(case, autotune_triton.launch(problem, point), target) for point in wanted]
    built = build_all(asked, limit_s, min(jobs, len(wanted)))
    return {point: _report(build) for point, build in zip(wanted, built, strict=True)}


def _case(problem: Problem) -> str:
    share = -(-problem.m * problem.top_k // problem.experts) if problem.experts else problem.m
    return f"{problem.op} {'decode' if share <= DECODE_TOKENS else 'prefill'}"


def _report(build: Build) -> GateReport:
    shared = TARGETS[build.target].shared_block
    failure = build.failure
    if not failure and build.spills:
        failure = f"{build.spills} bytes spilled"
    if not failure and build.shared > shared:
        failure = f"{build.shared} bytes of shared memory, and a block has {shared}"
    return GateReport(failure, build.registers, build.spills, build.shared, build.instruction, build.seconds)
