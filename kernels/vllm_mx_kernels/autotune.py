"""The finite search's facts: what can be varied for a problem, what cannot be, what bounds it, what it takes to know.

The search itself is the tuner's. All of this works for `cpu.mxfp4.linear` on any machine with a compiler; for a GPU's
architecture everything but `correct` and `Timer` works without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_mx_kernels.autotune_axes import Axis
from vllm_mx_kernels.autotune_gate import GateReport, gate
from vllm_mx_kernels.autotune_space import (
    Peaks,
    Problem,
    axes,
    bound_us,
    bucket,
    catalog,
    default_point,
    key_of,
    launch,
    objection,
    points,
    problems,
)
from vllm_mx_kernels.handoff import Entry, Key, source_hash


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_mx_kernels.autotune_run import NoDeviceError, Timer, correct

__all__ = [
    "Axis", "Entry", "GateReport", "Key", "NoDeviceError", "Peaks", "Problem", "Timer", "axes", "bound_us", "bucket",
    "catalog", "correct", "default_point", "entry", "gate", "key_of", "launch", "objection", "points", "problems",
    "source_hash",
]  # fmt: skip


def entry(problem: Problem, point: Sequence[int]) -> Entry:
    """A winner as the hand-off file takes it, with the facts of this machine."""
    from vllm_mx_kernels import machine

    op = problem.op
    facts = problem.device or machine.device(op), source_hash(op), machine.triton_version(op)
    return Entry(key_of(problem), *facts, machine.driver(op), machine.runtime(op), launch(problem, point))


def __getattr__(name: str) -> object:
    """What needs torch comes when it is asked for."""
    if name in {"NoDeviceError", "Timer", "correct"}:
        from vllm_mx_kernels import autotune_run

        return getattr(autotune_run, name)
    raise AttributeError(name)
