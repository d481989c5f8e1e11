"""Laws of kernel times without a kernel: tile effects with cliffs, for tests of a search before a device is there.

They are made up in the shape of what GPUs and CPUs do (waves of tiles, shared memory, registers, caches), with a fixed
roughness by point that no smooth model can know; no figure of theirs is a measurement.
"""

from __future__ import annotations

import math
import random
import zlib
from typing import TYPE_CHECKING, NamedTuple

from vllm_tuner.kernel_tuning import points
from vllm_tuner.kernel_tuning.quality import Recorded


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_tuner.kernel_tuning.points import Point, Space


class Range(NamedTuple):
    """An axis."""

    name: str
    values: tuple[int, ...]


GPU = (
    Range("block_m", (16, 32, 64, 128)),
    Range("block_n", (32, 64, 128, 256)),
    Range("block_k", (32, 64, 128, 256)),
    Range("num_warps", (2, 4, 8)),
    Range("num_stages", (1, 2, 3, 4, 5)),
)
CPU = (
    Range("rows", (1, 2, 4, 8, 16)),
    Range("columns", (1, 2, 4, 8)),
    Range("block_k", (128, 256, 512, 1024, 2048, 4096)),
    Range("chunk", (8, 16, 32, 64, 128)),
)


def roughness(point: Point, seed: int, size: float = 0.04) -> float:
    """A factor around 1 that belongs to the point."""
    code = zlib.crc32(repr((point, seed)).encode())
    return math.exp(size * random.Random(code).gauss(0, 1))  # noqa: S311 - no secret


def gpu_bound(m: int, n: int, k: int) -> Callable[[Point], float]:
    """µs at full rate of the tiles' padded work, and of reading the weight once: an optimistic bound."""

    def bound(point: Point) -> float:
        bm, bn, *_ = point
        padded = math.ceil(m / bm) * bm * math.ceil(n / bn) * bn
        return max(padded * k * 2 / 400e6, n * k * 0.53 / 3e6)

    return bound


def gpu_law(m: int, n: int, k: int, seed: int = 0) -> Callable[[Point], float]:
    """µs of a tiled product on a made-up device of 132 processors."""
    floor = gpu_bound(m, n, k)

    def law(point: Point) -> float:
        bm, bn, bk, warps, stages = point
        shared = stages * (bm * bk * 2 + bn * bk * 0.53)
        accumulators = bm * bn / (warps * 32)
        resident = max(1, min(int(228e3 // (shared + 1024)), int(65536 // (warps * 32 * (accumulators + 40))), 8))
        tiles = math.ceil(m / bm) * math.ceil(n / bn)
        waves = math.ceil(tiles / (132 * resident))
        hidden = 1 - 0.7 ** (stages * resident)
        rate = 400e6 / 132 / resident * min(1.0, (bm / 64) ** 0.4) * min(1.0, (bn / 64) ** 0.3) * hidden
        own = bm * bn * k * 2 / rate + k / bk * 0.15
        spills = 1 + max(0.0, accumulators - 128) / 40
        return float(
            max(floor(point), waves * own * spills * (1.25 if warps == 2 and bn > 64 else 1)) * roughness(point, seed)
            + 3.0
        )

    return law


def gpu_objection(point: Point) -> str:
    """Shared memory that no block has."""
    bm, bn, bk, _, stages = point
    shared = stages * (bm * bk * 2 + bn * bk * 0.53)
    return f"{shared:.0f} bytes of shared memory" if shared > 227 * 1024 else ""


def cpu_law(m: int, n: int, k: int, seed: int = 0) -> Callable[[Point], float]:
    """µs of a blocked product on a made-up processor with 8 cores, 32 KiB and 1 MiB of cache."""

    def law(point: Point) -> float:
        rows, columns, bk, chunk = point
        spilled = max(0, rows * columns - 24) * 0.06
        first = 1 + max(0.0, math.log2((rows * 4 + columns * 0.53) * bk / 32768)) * 0.25
        second = 1 + max(0.0, math.log2(chunk * bk * 4.53 / (1 << 20))) * 0.15
        padded = math.ceil(m / rows) * rows * math.ceil(n / columns) * columns
        reuse = 0.6 / rows + 0.25 / columns + 0.4
        parts = math.ceil(n / chunk)
        balance = math.ceil(parts / 8) * 8 / parts
        loops = 1 + 60 / bk
        work = padded * min(bk, k) * math.ceil(k / bk) / 8e4
        return work * reuse * first * second * balance * loops * (1 + spilled) * roughness(point, seed) + 4.0

    return law


def spaces(seed: int = 0) -> tuple[Recorded, ...]:
    """Some spaces, every time known."""
    made = []
    for m, n, k in ((16, 4096, 4096), (512, 4096, 14336), (4096, 2048, 8192)):
        start = (16, 64, 128, 4, 3) if m <= 32 else (128, 128, 64, 8, 3)
        found = points.space(GPU, (start,), gpu_objection, gpu_bound(m, n, k))
        made.append(_known(f"gpu {m}x{n}x{k}", found, gpu_law(m, n, k, seed)))
    for m, n, k in ((1, 2048, 2048), (16, 1536, 576), (128, 4096, 4096)):
        found = points.space(CPU, ((4, 2, 512, 32),), lambda _: "", lambda _: 1.0)
        made.append(_known(f"cpu {m}x{n}x{k}", found, cpu_law(m, n, k, seed)))
    return tuple(made)


def _known(name: str, space: Space, law: Callable[[Point], float]) -> Recorded:
    return Recorded(name, space, {point: law(point) for point in space.points})
