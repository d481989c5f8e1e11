"""What this room needs of the kernels: the face of `vllm_mx_kernels.autotune`, behind which tests put a fake.

The kernels know what is legal, how fast it can be at best, what compiles, what is correct and how long it takes; what
to try, and what to believe of it, is decided here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vllm_tuner.kernel_tuning.points import Axis, Point

KIND, CONTEST = "kernel", "kernel contest"


class Machine(NamedTuple):
    """What times depend on beside the kernels: the device's name, and versions, "" where there is no such thing."""

    device: str
    driver: str
    triton: str
    runtime: str


class Problem(Protocol):
    """One product: m tokens by a weight [n, k], or by `top_k` of `experts` such weights; on one device."""

    @property
    def op(self) -> str: ...
    @property
    def arch(self) -> str: ...
    @property
    def m(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def experts(self) -> int: ...
    @property
    def top_k(self) -> int: ...
    @property
    def device(self) -> str: ...


class Timer(Protocol):
    """Inputs of one problem on its device, and launches over them."""

    def time(self, point: Point, repeats: int, warmup: int) -> list[float]: ...

    def pair(self, a: Point, b: Point, rounds: int) -> list[tuple[float, float]]: ...


class Kernels(Protocol):
    """The module's functions. Times are µs; an objection, a failure or a wrong result is a sentence, "" for none."""

    def bucket(self, problem: Any) -> str: ...

    def source_hash(self, op: str) -> str: ...

    def axes(self, problem: Any) -> Sequence[Axis]: ...

    def default_point(self, problem: Any) -> Point: ...

    def objection(self, problem: Any, point: Point) -> str: ...

    def bound_us(self, problem: Any, point: Point, peaks: Any) -> float: ...

    def entry(self, problem: Any, point: Point) -> Any: ...

    def gate(self, problem: Any, points: Sequence[Point], *, jobs: int, limit_s: float) -> Mapping[Point, Any]: ...

    def correct(self, problem: Any, point: Point, seed: int = 0) -> str: ...

    def Timer(self, problem: Any, seed: int) -> Timer: ...  # noqa: N802 - a class of the module
