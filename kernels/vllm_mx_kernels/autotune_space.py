"""The finite space of each op: a problem's axes, which points cannot be or only repeat another, and what bounds each.

Nothing here needs torch or a device. A point is a tuple of whole numbers in the order of `axes`. Points are compared by
what they make a kernel do: one that differs only where it does nothing (a decode size, where nothing is decoded) has an
objection, so that a space counts no behaviour twice.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from vllm_mx_kernels import autotune_cpu, autotune_triton
from vllm_mx_kernels.formats import BLOCK
from vllm_mx_kernels.handoff import CPU_LINEAR, LAST_BUCKET, Key, bucket_text, token_bucket
from vllm_mx_kernels.targets import NATIVE_FP8, NATIVE_MXFP4, NATIVE_MXFP8_BY_MXFP4, TARGETS


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm_mx_kernels.autotune_axes import Axis
    from vllm_mx_kernels.tiles import CpuTile, Launch

INSTRUCTION_SETS = ("avx512", "avx2", "neon", "plain")


class Problem(NamedTuple):
    """One shape of an op on an architecture of `targets`, or an instruction set of the CPU ("cpu": this machine's).

    `m` tokens by a weight [n, k]; of a mixture of experts gate_up [experts, n, k], down [experts, k, n / 2], and
    `top_k` choices a token. `device`: as the driver names it, "" for this machine's.
    """

    op: str
    arch: str
    m: int
    n: int
    k: int
    experts: int = 0
    top_k: int = 0
    device: str = ""


class Peaks(NamedTuple):
    """The most that a device does: bytes a second from memory, operations a second of the op's matrix instruction."""

    bytes_s: float
    flops_s: float


def catalog(arch: str) -> tuple[str, ...]:
    """The ops that can be tuned on an architecture or instruction set ("cpu": any). Raises KeyError for an unknown."""
    if arch == "cpu" or arch in INSTRUCTION_SETS:
        return (CPU_LINEAR,)
    if arch not in TARGETS:
        raise KeyError(f"nothing is tuned on {arch}; one of {', '.join(TARGETS)}, cpu")
    ops = ["mxfp4.w4a16", "moe.w4a16"]
    if arch in NATIVE_FP8:
        ops += ["mxfp4.w4a8", "fp8.tensor", "fp8.channel", "fp8.block", "moe.w4a8", "moe.fp8", "moe.fp8_block"]
    ops += ["mxfp4.w4a4"] * (arch in NATIVE_MXFP4) + ["mxfp4.w4a8mx"] * (arch in NATIVE_MXFP8_BY_MXFP4)
    return tuple(ops)


def key_of(problem: Problem) -> Key:
    """What the hand-off file is looked up by for a problem."""
    op, arch, m, n, k, experts, top_k, _ = problem
    return Key(op, autotune_cpu.arch_of(arch) if _on_cpu(problem) else arch, token_bucket(m), n, k, experts, top_k)


def bucket(problem: Problem) -> str:
    """The name of a problem's bucket: `m<=16 n4096 k4096`."""
    return bucket_text(key_of(problem))


def problems(
    op: str, arch: str, *, hidden: int, intermediate: int, experts: int = 0, top_k: int = 0,
    tokens: Sequence[int] = (1, 16, 64, 512), qkv: int = 0, attention: int = 0, device: str = "",
) -> tuple[Problem, ...]:  # fmt: skip
    """The shapes that a model's layers ask an op for, at the tops of the buckets of `tokens`; each once.

    `intermediate`: of the MLP, or of one expert. `qkv`: rows of the stacked query, key and value projection,
    `attention`: width of what comes back from attention (0: of those layers nothing). All sizes are one rank's.
    """
    if op.startswith("moe."):
        buckets = sorted(set(map(token_bucket, tokens)))
        return tuple(Problem(op, arch, m, 2 * intermediate, hidden, experts, top_k, device) for m in buckets)
    dense = [(qkv, hidden)] * (qkv > 0) + [(hidden, attention)] * (attention > 0)
    inner = [(2 * intermediate, hidden), (hidden, intermediate)]
    wanted = {(m, *shape) for m in tokens for shape in dense}
    # A product that knows one expert sees its share of the batch.
    wanted |= {(-(-m * top_k // experts) if experts else m, *shape) for m in tokens for shape in inner}
    return tuple(
        Problem(op, arch, *one, device=device) for one in sorted({(token_bucket(m), n, k) for m, n, k in wanted})
    )


def axes(problem: Problem) -> tuple[Axis, ...]:
    """What can be varied, each in order. Raises KeyError for an op that its architecture does not have."""
    _check(problem)
    return autotune_cpu.axes(problem) if _on_cpu(problem) else autotune_triton.axes(problem)


def points(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Every point without an objection."""
    on_cpu = _on_cpu(problem)
    every = autotune_cpu.points(problem) if on_cpu else product(*(axis.values for axis in axes(problem)))
    return (point for point in every if not objection(problem, point))


def default_point(problem: Problem) -> tuple[int, ...]:
    """Where an untuned server stands."""
    _check(problem)
    return autotune_cpu.default_point(problem) if _on_cpu(problem) else autotune_triton.default_point(problem)


def launch(problem: Problem, point: Sequence[int]) -> Launch | CpuTile:
    """What a point stands for. Raises ValueError for a point of another length."""
    if len(point) != len(axes(problem)):
        raise ValueError(f"a point of {problem.op} has {len(axes(problem))} numbers, not {len(point)}")
    return autotune_cpu.tile(problem, point) if _on_cpu(problem) else autotune_triton.launch(problem, point)


def objection(problem: Problem, point: Sequence[int]) -> str:
    """Why a point is not worth a measurement: it cannot be, or does what another one does; "" where it is."""
    room = autotune_cpu if _on_cpu(problem) else autotune_triton
    for axis, value in zip(room.axes(problem), point, strict=True):
        if value not in axis.values:
            return f"{axis.name} {value} is none of {', '.join(map(str, axis.values))}"
    return room.objection(problem, tuple(point))


def bound_us(problem: Problem, point: Sequence[int], peaks: Peaks) -> float:
    """Microseconds that no launch can beat: memory once and the operations of whole tiles, at the device's peaks.

    Experts: the fewest that the choices can fall on, so that it stays a bound for any routing.
    """
    tokens = problem.m * max(problem.top_k, 1)
    work = 2 * _whole(problem, tokens, point) * problem.k
    weight, activations = _bytes(problem, tokens)
    return max((weight + activations) / peaks.bytes_s, work / peaks.flops_s) * 1e6


def _whole(problem: Problem, tokens: int, point: Sequence[int]) -> int:
    """Products a step of the reduced dimension: tokens × rows, both filled up to tiles where a tile is a whole."""
    if _on_cpu(problem):
        return tokens * problem.n
    tile = autotune_triton.launch(problem, point)
    rows = -(-problem.n // tile.block_n) * tile.block_n
    padded = -(-tokens // tile.block_m) * tile.block_m * rows
    # The second product of experts: half as many operations, its own tiles not counted.
    return padded + (tokens * problem.n // 2 if problem.experts else 0)


def _bytes(problem: Problem, tokens: int) -> tuple[float, float]:
    weight = problem.n * problem.k * (1.0 if ".fp8" in f".{problem.op}" else 0.5 + 1 / BLOCK)
    if problem.experts:
        return problem.top_k * weight * 1.5, 4.0 * problem.m * problem.k
    return weight, 2.0 * tokens * (problem.n + problem.k)


def _on_cpu(problem: Problem) -> bool:
    return problem.op == CPU_LINEAR


def _check(problem: Problem) -> None:
    if problem.op not in catalog(problem.arch):
        raise KeyError(f"{problem.op} is not tuned on {problem.arch}")


__all__ = ["LAST_BUCKET", "Peaks", "Problem", "axes", "bound_us", "bucket", "catalog", "default_point", "key_of",
           "launch", "objection", "points", "problems"]  # fmt: skip
