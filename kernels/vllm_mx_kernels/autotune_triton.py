"""The space of the Triton products: tiles, warps, stages, order of tiles; what cannot be is told without a compiler."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from vllm_mx_kernels.autotune_axes import Axis
from vllm_mx_kernels.launch import default_launch
from vllm_mx_kernels.targets import TARGETS
from vllm_mx_kernels.tiles import Launch


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_mx_kernels.autotune_space import Problem

_VALUES = {
    "block_m": (16, 32, 64, 128, 256),
    "block_n": (16, 32, 64, 128, 256),
    "block_k": (32, 64, 128, 256),
    "num_warps": (1, 2, 4, 8),
    "num_stages": (1, 2, 3, 4, 5),
    "group": (1, 4, 8, 16),
}
_TENSOR_MEMORY = frozenset(("sm100", "sm103"))  # sums lie outside the registers
_BY_BLOCK = frozenset(("fp8.block", "moe.fp8_block"))  # scales by blocks of 128 take a block_k of as much
_X_BYTES = {"mxfp4.w4a16": 2.0, "moe.w4a16": 2.0, "mxfp4.w4a4": 0.5}  # of an element of x in the kernel, else 1
_MOST_REGISTERS = 255


def axes(problem: Problem) -> tuple[Axis, ...]:
    """The fields of a launch that the kernel looks at."""
    return _axes(problem.op, problem.arch, default(problem))


@cache
def _axes(op: str, arch: str, usual: Launch) -> tuple[Axis, ...]:
    names = [name for name in _VALUES if name != "group" or not op.startswith("moe.")]
    values = {name: _values(name, op, arch) for name in names}
    return tuple(Axis(name, tuple(sorted({*values[name], getattr(usual, name)}))) for name in names)


def _values(name: str, op: str, arch: str) -> tuple[int, ...]:
    if name == "block_k" and op in _BY_BLOCK:
        return (128,)
    if name == "num_stages" and TARGETS[arch].backend == "hip":
        return (1, 2, 3)
    return _VALUES[name]


def default(problem: Problem) -> Launch:
    """The table's launch of a problem."""
    share = -(-problem.m * problem.top_k // problem.experts) if problem.experts else problem.m
    return default_launch(problem.op, problem.arch, share)


def default_point(problem: Problem) -> tuple[int, ...]:
    """The same as a point."""
    return tuple(getattr(default(problem), axis.name) for axis in axes(problem))


def launch(problem: Problem, point: Sequence[int]) -> Launch:
    """The launch of a point."""
    return Launch(**{axis.name: value for axis, value in zip(axes(problem), point, strict=True)})


def objection(problem: Problem, point: tuple[int, ...]) -> str:
    """Tiles beyond the shape, sums beyond the registers, buffers beyond shared memory, warps without work."""
    asked = launch(problem, point)
    if asked == default(problem):
        return ""
    return _beyond_shape(problem, asked) or _beyond_registers(problem, asked) or _beyond_shared(problem, asked)


def _beyond_shape(problem: Problem, asked: Launch) -> str:
    tokens = max(problem.m, 16)
    for name, tile, size in (("tokens", asked.block_m, tokens), ("rows", asked.block_n, problem.n),
                             ("columns", asked.block_k, problem.k)):  # fmt: skip
        if tile >= 2 * size:
            return f"a tile of {tile} {name}, and the shape has {size}"
    one_tile = problem.m <= asked.block_m and not problem.op.startswith("moe.")
    if one_tile and asked.group != default(problem).group:
        return "group without effect: there is one tile of tokens"
    return ""


def _beyond_registers(problem: Problem, asked: Launch) -> str:
    target = TARGETS[problem.arch]
    threads = asked.num_warps * target.warp_size
    sums = asked.block_m * asked.block_n
    if sums < threads:
        return f"{asked.num_warps} warps for {sums} sums"
    if problem.arch not in _TENSOR_MEMORY and sums // threads > _MOST_REGISTERS:
        return f"{sums // threads} sums a thread, and it has {_MOST_REGISTERS} registers"
    return ""


def _beyond_shared(problem: Problem, asked: Launch) -> str:
    most, least = TARGETS[problem.arch].shared_block, least_shared(problem, asked)
    return f"{least} bytes of shared memory at least, and a block has {most}" if least > most else ""


def least_shared(problem: Problem, asked: Launch) -> int:
    """Bytes that a launch needs whatever the compiler does: of the stages one may lie in registers.

    AMD's compiler keeps weights there altogether.
    """
    cuda = TARGETS[problem.arch].backend == "cuda"
    weight = asked.block_n * (1.0 if ".fp8" in f".{problem.op}" else 0.5) * cuda
    return int(asked.block_k * (asked.block_m * _X_BYTES.get(problem.op, 1.0) + weight)) * max(asked.num_stages - 1, 0)
