"""Run a point for real: hold it against its twin, and time it with operands that no cache holds."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from vllm_mx_kernels import autotune_operands, cpu
from vllm_mx_kernels.autotune_cpu import arch_of as instruction_set_of
from vllm_mx_kernels.autotune_space import launch
from vllm_mx_kernels.device import arch_of, uses_triton
from vllm_mx_kernels.handoff import CPU_LINEAR
from vllm_mx_kernels.testing import assert_close


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm_mx_kernels.autotune_space import Problem
    from vllm_mx_kernels.tiles import CpuTile, Launch

# As in the tests of these ops: rounding to bf16, and three times of it in a mixture of experts.
_BOUNDS = {"moe": {"largest": 0.12, "rms": 0.015}, "cpu": {"largest": 0.02, "rms": 0.02}}
_USUAL_BOUNDS = {"largest": 0.03, "rms": 0.004}
_TURNS_BEYOND_CACHE = 2
_MOST_COPIES = 2048  # of weights so small that all of a model's lie in a cache, too


class NoDeviceError(RuntimeError):
    """A problem's architecture is not that of this machine."""


def correct(problem: Problem, point: Sequence[int], seed: int = 0) -> str:
    """Run the point's launch once and compare it with the twin: what differs, "" if nothing does.

    Raises NoDeviceError where the machine has no such device.
    """
    operands, expected = _expected(problem._replace(device=""), seed)
    try:
        actual = operands.run(launch(problem, point))
        assert_close(actual.cpu(), expected, **_BOUNDS.get(problem.op.partition(".")[0], _USUAL_BOUNDS))
    except (AssertionError, RuntimeError, ValueError) as error:
        return str(error).strip().partition("\n")[0] or type(error).__name__
    return ""


@lru_cache(maxsize=2)
def _expected(problem: Problem, seed: int) -> tuple[autotune_operands.Operands, torch.Tensor]:
    """The twin takes a second for a large weight; the points of a problem share it."""
    operands = autotune_operands.made(problem, seed, _device(problem))
    return operands, operands.twin().cpu()


def _device(problem: Problem) -> str:
    if problem.op == CPU_LINEAR:
        _check_instruction_set(problem)
        return "cpu"
    where = "cuda" if torch.cuda.is_available() else "cpu"
    here = torch.empty(1, device=where)
    if not uses_triton(here) or arch_of(here) != problem.arch:
        raise NoDeviceError(f"{problem.op} for {problem.arch} cannot run here: there is no such GPU")
    return where


def _check_instruction_set(problem: Problem) -> None:
    if not cpu.available():
        raise NoDeviceError("the C++ path is not built here")
    if instruction_set_of(problem.arch) != cpu.instruction_set():
        raise NoDeviceError(f"products here use {cpu.instruction_set()}, not {problem.arch}")


class Pair(NamedTuple):
    """Microseconds of two launches, one right after the other."""

    first_us: float
    second_us: float


class Timer:
    """Times launches of one problem. Operands are rotated through more memory than the last cache holds.

    Times are of the wall: CUDA or HIP events around each call on a GPU, `clock` (nanoseconds) on a CPU; of one thread,
    `time.thread_time_ns` leaves out what other processes take. Raises NoDeviceError.
    """

    def __init__(self, problem: Problem, seed: int = 0, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.problem = problem
        self._clock = clock
        self._on_gpu = _device(problem) == "cuda"
        self._copies = self._make(seed)
        self._turn = 0

    def _make(self, seed: int) -> list[autotune_operands.Operands]:
        where = "cuda" if self._on_gpu else "cpu"
        first = autotune_operands.made(self.problem, seed, where)
        enough = _TURNS_BEYOND_CACHE * cache_bytes(gpu=self._on_gpu)
        count = min(max(2, -(-enough // first.nbytes) + 1), _MOST_COPIES)
        return [first, *(first.copy() for _ in range(count - 1))]

    def time(self, point: Sequence[int], repeats: int = 10, warmup: int = 2) -> list[float]:
        """Microseconds of each of `repeats` calls, after `warmup` calls that do not count."""
        asked = launch(self.problem, point)
        for _ in range(warmup):
            self._next().run(asked)
        return self._events([asked] * repeats) if self._on_gpu else [self._once(asked) for _ in range(repeats)]

    def pair(self, a: Sequence[int], b: Sequence[int], rounds: int = 20) -> list[tuple[float, float]]:
        """Microseconds of `a` and `b`, called in turn; who comes first alternates, so that neither gains by it."""
        both = launch(self.problem, a), launch(self.problem, b)
        for asked in both:
            self._next().run(asked)
        order = [asked for turn in range(rounds) for asked in (both if turn % 2 == 0 else both[::-1])]
        times = self._events(order) if self._on_gpu else [self._once(asked) for asked in order]
        couples = [(times[2 * turn], times[2 * turn + 1]) for turn in range(rounds)]
        return [Pair(*(couple if turn % 2 == 0 else couple[::-1])) for turn, couple in enumerate(couples)]

    def _next(self) -> autotune_operands.Operands:
        self._turn += 1
        return self._copies[self._turn % len(self._copies)]

    def _once(self, asked: Launch | CpuTile) -> float:
        operands = self._next()
        start = self._clock()
        operands.run(asked)
        return (self._clock() - start) / 1e3

    def _events(self, order: list[Any]) -> list[float]:
        """The device first waits a little, so that calls are queued and its times hold no Python."""
        marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in order]
        torch.cuda._sleep(len(order) * 300_000)  # noqa: SLF001  cycles, some 150 µs a call; torch's benchmarks use it
        for asked, (begin, end) in zip(order, marks, strict=True):
            operands = self._next()
            begin.record()
            operands.run(asked)
            end.record()
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) * 1e3 for begin, end in marks]


def cache_bytes(*, gpu: bool) -> int:
    """The last cache: L2 of the GPU, or the largest that Linux names for the first processor; 32 MiB if unknown."""
    if gpu:
        return int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)) or 64 << 20
    return max(autotune_operands.cpu_caches(), default=32 << 20)
