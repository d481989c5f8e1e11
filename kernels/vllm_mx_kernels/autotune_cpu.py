"""The space of the C++ product: by the codes as they are, decoded piece by piece, and where both may win, both.

Which axes there are was measured: `benchmarks/kernel_space.py` records whole spaces.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_mx_kernels.autotune_axes import Axis
from vllm_mx_kernels.handoff import token_bucket
from vllm_mx_kernels.tiles import CpuTile


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm_mx_kernels.autotune_space import Problem

# Sums that the registers of an instruction set hold: `most_products` of its file in cpu/.
MOST_PRODUCTS = {"avx512": 16, "avx2": 8, "neon": 8, "plain": 8}
_ONLY_CODES, _ONLY_DECODED = 8, 128  # tokens up to which, and from which, the other path lost by far wherever measured
_BY_CODES = ("rows", "tokens", "scaled_sums", "prefetch", "task_rows")
_DECODED = ("decoded", "own_tiles", "float32")
_USUAL = CpuTile()


def arch_of(arch: str) -> str:
    """The instruction set; "cpu" is this machine's, for which the C++ path is built if need be."""
    if arch != "cpu":
        return arch
    from vllm_mx_kernels import cpu

    return cpu.instruction_set() if cpu.available() else "plain"


class _Frame(NamedTuple):
    """What all points of a problem share."""

    axes: tuple[Axis, ...]
    usual: CpuTile
    most: int
    threads: int

    def tile(self, point: Sequence[int]) -> CpuTile:
        return self.usual._replace(**{axis.name: value for axis, value in zip(self.axes, point, strict=True)})


def _frame(problem: Problem) -> _Frame:
    return _framed(arch_of(problem.arch), problem.m, problem.n, problem.k, _threads())


@cache
def _framed(arch: str, m: int, n: int, k: int, threads: int) -> _Frame:
    most = MOST_PRODUCTS[arch]
    tokens = _USUAL.tokens
    while tokens > 1 and _USUAL.rows * tokens > most:
        tokens //= 2
    if m > 1:  # the widest tile that is really used, so that it is a value of the axis
        tokens = tokens if tokens <= m else 2
    return _Frame(_axes(arch, m, n, k, threads), _USUAL._replace(tokens=tokens), most, threads)


def axes(problem: Problem) -> tuple[Axis, ...]:
    """Those of the path or paths that the number of tokens leaves open; fewer where torch has one thread."""
    return _frame(problem).axes


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def _axes(arch: str, m: int, n: int, k: int, threads: int) -> tuple[Axis, ...]:
    batches = tuple(batch for batch in (8, 16, 32, 64, 128, 256, 512) if 2 * batch <= m)
    found = [_path_axis(m), Axis("batch", (0, *batches))]
    if m < _ONLY_DECODED:
        found += [*_code_axes(m), _task_axis(n, threads, batches)]
    if m > _ONLY_CODES:
        found += [_piece_axis(m, n, k), Axis("own_tiles", (0, 1) if threads > 1 else (0,))]
        found.append(Axis("float32", (0, 1) if arch == "avx512" and multiplies_bfloat16() else (0,)))
    return tuple(axis for axis in found if len(axis.values) > 1)


def _path_axis(m: int) -> Axis:
    if not _ONLY_CODES < m < _ONLY_DECODED:
        return Axis("fused_tokens", (_USUAL.fused_tokens,))
    return Axis("fused_tokens", (0, 16) if m <= 16 else (16, token_bucket(m)))


def _code_axes(m: int) -> list[Axis]:
    rows = Axis("rows", (1, 2, 4))
    if m == 1:
        return [rows, Axis("scaled_sums", (0, 2)), Axis("prefetch", (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32))]
    if m > 16:  # much work a point, and tiles of one token have lost already
        return [rows, Axis("tokens", (2, 4, 8)), Axis("prefetch", (0, 1, 4))]
    tokens = tuple(count for count in (1, 2, 4, 8) if count <= m)
    return [rows, Axis("tokens", tokens), Axis("scaled_sums", (0, 1, 2)), Axis("prefetch", (0, 1, 2, 4, 8, 16))]


def _task_axis(n: int, threads: int, batches: tuple[int, ...]) -> Axis:
    if threads == 1 and not batches:
        return Axis("task_rows", (0,))
    some = (8, 16, 32, 64, 128, 256, 512) if not batches else (16, 64, 256)
    return Axis("task_rows", (0, *(rows for rows in some if 2 * rows <= n)))


def _piece_axis(m: int, n: int, k: int) -> Axis:
    """Powers of two, and numbers between them where nothing else is to be found; at least a row, at most about all."""
    sizes = {1 << power for power in range(14, 24)}
    if m >= _ONLY_DECODED:
        sizes |= {3 << power for power in range(13, 22)}
    return Axis("decoded", tuple(sorted({_USUAL.decoded, *(size for size in sizes if k <= size < 2 * n * k)})))


@cache
def multiplies_bfloat16() -> bool:
    """Whether torch multiplies bfloat16 by this processor's own instruction, as `ops.cpp` asks."""
    with suppress(OSError):
        return re.search(r"\bavx512_bf16\b", Path("/proc/cpuinfo").read_text()) is not None
    return False


def default_point(problem: Problem) -> tuple[int, ...]:
    """`CpuTile()`, in the smallest numbers that do the same for this problem."""
    frame = _frame(problem)
    return tuple(getattr(frame.usual, axis.name) for axis in frame.axes)


def tile(problem: Problem, point: Sequence[int]) -> CpuTile:
    """The point's tile."""
    return _frame(problem).tile(point)


def points(problem: Problem) -> Iterator[tuple[int, ...]]:
    """The points of either path, the other's numbers as they are; their objections are not asked for here."""
    frame = _frame(problem)
    usual = frame.usual
    for idle in (_DECODED, _BY_CODES):
        values = [(getattr(usual, a.name),) if a.name in idle else a.values for a in frame.axes]
        taken = product(*values)
        yield from (point for point in taken if (problem.m <= frame.tile(point).fused_tokens) == (idle is _DECODED))


def objection(problem: Problem, point: tuple[int, ...]) -> str:
    """What of a point does nothing, or no instruction set holds."""
    frame = _frame(problem)
    asked = frame.tile(point)
    fused = problem.m <= asked.fused_tokens
    idle = [name for name in (_DECODED if fused else _BY_CODES) if getattr(asked, name) != getattr(frame.usual, name)]
    if idle:
        return f"{', '.join(idle)} without effect: {'nothing' if fused else 'the weight'} is decoded"
    return _codes_objection(problem, frame, asked) if fused else _decoded_objection(problem, asked)


def _codes_objection(problem: Problem, frame: _Frame, asked: CpuTile) -> str:
    if asked.tokens <= problem.m and asked.rows * asked.tokens > frame.most:
        return f"{asked.rows} × {asked.tokens} sums, and registers hold {frame.most}"
    if asked.task_rows and frame.threads == 1 and not asked.batch:
        return "task_rows without effect: there is one thread, and one batch"
    if asked.scaled_sums == _USUAL.scaled_sums:
        return ""
    widths = _widths(problem.m, asked.batch, asked.tokens)
    mine, usual, none = ([width > most for width in widths] for most in (asked.scaled_sums, _USUAL.scaled_sums, 0))
    if mine == usual or (asked.scaled_sums == 1 and mine == none):
        return f"scaled_sums {asked.scaled_sums} without effect: tiles are of {', '.join(map(str, widths))} tokens"
    return ""


def _widths(m: int, batch: int, tokens: int) -> list[int]:
    """The widths of tiles that batches of `m` tokens are cut into: as many as may be of `tokens`, then of 2, then 1."""
    found: set[int] = set()
    for left in {min(batch or m, m), m % (batch or m)}:
        rest = left
        for width in (tokens, 2, 1):
            if width <= tokens and rest >= width:
                found.add(width)
                rest %= width
    return sorted(found, reverse=True)


def _decoded_objection(problem: Problem, asked: CpuTile) -> str:
    rows = max(asked.decoded // problem.k, 1)
    if rows >= problem.n and asked.own_tiles:
        return "own_tiles without effect: the whole weight is one piece"
    if rows >= 2 * problem.n and asked.decoded != _USUAL.decoded:
        return "decoded without effect: the whole weight is one piece"
    return ""
