"""A stand-in for the kernels: legal points, times by a law, and whatever should go wrong. Shipped, as ours are.

No torch, no compiler, no device; the laws are `synthetic`'s.
"""

from __future__ import annotations

import json
import random
import zlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

from vllm_tuner.kernel_tuning import synthetic
from vllm_tuner.kernel_tuning.contract import Machine
from vllm_tuner.kernel_tuning.door import Door


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from vllm_tuner.kernel_tuning.points import Point

MACHINE = Machine("Test GPU", "575.57", "3.8.0", "CUDA 13.0")


class Problem(NamedTuple):
    """As the kernels' own."""

    op: str = "mxfp4.w4a16"
    arch: str = "sm90"
    m: int = 16
    n: int = 4096
    k: int = 4096
    experts: int = 0
    top_k: int = 0
    device: str = "Test GPU"


class Report(NamedTuple):
    """What a compiler said; "" for a build that may run."""

    failure: str = ""


class FakeKernels:
    """The face of `vllm_mx_kernels.autotune`. Points in `uncompilable` and `wrong` fail so; `noise` is of one launch.

    `asked`, `gated` and `timed` say what was wanted of it. `before_launch` is called before each timing and may raise.
    """

    def __init__(
        self,
        axes: Sequence[synthetic.Range] = synthetic.GPU,
        law: Callable[[Point], float] | None = None,
        *,
        default: Point = (16, 64, 128, 4, 3),
        noise: float = 0.005,
        uncompilable: Iterable[Point] = (),
        wrong: Iterable[Point] = (),
        before_launch: Callable[[Point], None] = lambda _: None,
    ) -> None:
        self._axes, self._default, self.noise = tuple(axes), default, noise
        self._law = law
        self.uncompilable, self.wrong = frozenset(uncompilable), frozenset(wrong)
        self.before_launch = before_launch
        self.source = "0123456789abcdef"
        self.gated: list[Point] = []
        self.checked: list[Point] = []
        self.timed: list[Point] = []

    def bucket(self, problem: Problem) -> str:
        """`m<=16 n4096 k4096`."""
        return f"m<={1 << max(problem.m - 1, 0).bit_length()} n{problem.n} k{problem.k}"

    def source_hash(self, op: str) -> str:
        """`source`, whatever the op."""
        del op
        return self.source

    def axes(self, problem: Problem) -> tuple[synthetic.Range, ...]:
        """The given ones."""
        del problem
        return self._axes

    def default_point(self, problem: Problem) -> Point:
        """The given one."""
        del problem
        return self._default

    def objection(self, problem: Problem, point: Point) -> str:
        """Shared memory, on the made-up GPU."""
        del problem
        return synthetic.gpu_objection(point) if self._axes == synthetic.GPU else ""

    def bound_us(self, problem: Problem, point: Point, peaks: object) -> float:
        """Of the made-up GPU; 0 for a law of one's own."""
        del peaks
        return 0.0 if self._law else synthetic.gpu_bound(problem.m, problem.n, problem.k)(point)

    def us(self, problem: Problem, point: Point) -> float:
        """The true time."""
        law = self._law or synthetic.gpu_law(problem.m, problem.n, problem.k)
        return law(point)

    def entry(self, problem: Problem, point: Point) -> dict[str, object]:
        """A winner as `door`'s file takes it."""
        return {**problem._asdict(), "launch": list(point)}

    def gate(self, problem: Problem, points: Sequence[Point], *, jobs: int, limit_s: float) -> dict[Point, Report]:
        """Every point compiles, but for the uncompilable."""
        del problem, jobs, limit_s
        self.gated += points
        return {p: Report("4 bytes of spills" if p in self.uncompilable else "") for p in points}

    def correct(self, problem: Problem, point: Point, seed: int = 0) -> str:
        """All are, but for the wrong."""
        del problem, seed
        self.checked.append(point)
        return "3 of 4 elements differ" if point in self.wrong else ""

    def Timer(self, problem: Problem, seed: int) -> FakeTimer:  # noqa: N802 - as the kernels' class
        """A clock that knows the law."""
        return FakeTimer(self, problem, seed)


class FakeTimer:
    """Times by the law and a noise that belongs to problem and seed."""

    def __init__(self, kernels: FakeKernels, problem: Problem, seed: int) -> None:
        self._kernels, self._problem = kernels, problem
        self._rng = random.Random(zlib.crc32(repr((problem, seed)).encode()))  # noqa: S311 - no secret

    def time(self, point: Point, repeats: int, warmup: int) -> list[float]:
        """Launches, µs."""
        del warmup
        self._kernels.timed.append(point)
        return [self._launch(point) for _ in range(repeats)]

    def pair(self, a: Point, b: Point, rounds: int) -> list[tuple[float, float]]:
        """Launches in turns, µs."""
        self._kernels.timed += [a, b]
        return [(self._launch(a), self._launch(b)) for _ in range(rounds)]

    def _launch(self, point: Point) -> float:
        self._kernels.before_launch(point)
        return self._kernels.us(self._problem, point) * (1 + abs(self._rng.gauss(0, self._kernels.noise)))


def door(kernels: FakeKernels, machine: Machine = MACHINE) -> Door:
    """A machine with such kernels: what `kernel_tuning.door.here` returns."""

    def write_configs(path: Path, entries: Iterable[dict[str, object]]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"schema": 1, "entries": list(entries)}), encoding="utf-8")

    files = SimpleNamespace(token_bucket=lambda m: 1 << max(m - 1, 0).bit_length(), write_configs=write_configs)
    ops = ("mxfp4.w4a16", "mxfp4.w4a8", "moe.w4a16", "moe.w4a8")
    return Door(kernels, files, Problem, "sm90", ops, lambda _: machine, lambda _: None)
