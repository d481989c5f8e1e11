"""Measure the C++ path for MXFP4 against torch on this processor: one thread, one run, ratios of interleaved pairs.

    python benchmarks/cpu_kernels.py [--json]

Weights are 4096 × 4096, packed ones rotated through 12 copies (102 MiB) and bf16 ones through 4 (128 MiB), so that no
cache holds them. Before each call 256 MiB are read, or it would pay for writing back what the call before left in the
caches. Times are process-CPU time: other processes take turns, not seconds. A ratio is the median of 15.
Both sides of "dequantize" write the float32 or bf16 result into memory that is there; "fresh" lines allocate it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import torch

from vllm_mx_kernels import cpu
from vllm_mx_kernels.formats import BLOCK, E2M1, values
from vllm_mx_kernels.packing import unpack_nibbles
from vllm_mx_kernels.scales import scale_values


if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 4096
COPIES, WIDE_COPIES, PAIRS = 12, 4, 15
OTHERS = torch.ones(64 << 20)  # 256 MiB that no call has


class Row(NamedTuple):
    """One comparison: median milliseconds of ours and of torch, and the median of their ratios, pair by pair."""

    name: str
    ours_ms: float
    torch_ms: float
    ratio: float


def timed(call: Callable[[int], object], turn: int) -> float:
    """Milliseconds of process-CPU time, from caches without work that is left."""
    OTHERS.sum()
    start = time.process_time_ns()
    call(turn)
    return (time.process_time_ns() - start) / 1e6


def compare(name: str, ours: Callable[[int], object], theirs: Callable[[int], object]) -> Row:
    """Alternate, the first pair unmeasured."""
    pairs = [(timed(ours, turn), timed(theirs, turn)) for turn in range(PAIRS + 1)][1:]
    mine, torchs = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Row(name, mine, torchs, statistics.median(b / a for a, b in pairs))


def packed() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Random weights: any code, scales of ordinary sizes."""
    made = torch.Generator().manual_seed(0)
    codes = (SIZE, SIZE // 2), (SIZE, SIZE // BLOCK)
    return [
        (
            torch.randint(0, 256, codes[0], dtype=torch.uint8, generator=made),
            torch.randint(115, 125, codes[1], dtype=torch.uint8, generator=made),
        )
        for _ in range(COPIES)
    ]


def products(weights: list[tuple[torch.Tensor, torch.Tensor]]) -> list[Row]:
    """Multiply bf16 x of M rows by the weights, against torch's bf16 linear."""
    wide = [torch.randn(SIZE, SIZE, dtype=torch.bfloat16) for _ in range(WIDE_COPIES)]
    rows = []
    for m in (1, 4, 16, 64, 128):
        x = torch.randn(m, SIZE, dtype=torch.bfloat16)
        rows.append(
            compare(
                f"linear M={m}",
                lambda turn, x=x: cpu.linear(x, *weights[turn % COPIES]),
                lambda turn, x=x: torch.nn.functional.linear(x, wide[turn % WIDE_COPIES]),
            )
        )
    return rows


def look_up(codes: torch.Tensor, scales: torch.Tensor, out: torch.Tensor) -> None:
    """What torch can do: index a table of sixteen with unpacked nibbles, times the scales."""
    table = torch.tensor(values(E2M1), dtype=out.dtype)
    elements = table[unpack_nibbles(codes).int()].unflatten(-1, (-1, BLOCK))
    torch.mul(elements, scale_values(scales, out.dtype).unsqueeze(-1), out=out.unflatten(-1, (-1, BLOCK)))


def dequantizing(weights: list[tuple[torch.Tensor, torch.Tensor]], dtype: torch.dtype) -> list[Row]:
    """Into memory that is there, and into fresh memory, against the look-up."""
    name, out = str(dtype).removeprefix("torch."), torch.zeros(SIZE, SIZE, dtype=dtype)

    def table(turn: int) -> None:
        look_up(*weights[turn % COPIES], out)

    def table_fresh(turn: int) -> None:
        look_up(*weights[turn % COPIES], torch.empty(SIZE, SIZE, dtype=dtype))

    return [
        compare(f"dequantize {name}", lambda turn: cpu.dequantize_into(*weights[turn % COPIES], out), table),
        compare(f"dequantize {name} fresh", lambda turn: cpu.dequantize(*weights[turn % COPIES], dtype), table_fresh),
    ]


def quantizing() -> list[Row]:
    """A stream of bf16, against a copy of it; GB/s of input follow from the time."""
    x = torch.randn(SIZE, SIZE).bfloat16()
    to = torch.empty_like(x)
    return [
        compare(f"quantize {mode}", lambda _, mode=mode: cpu.quantize(x, mode), lambda _: to.copy_(x))
        for mode in ("floor", "rceil")
    ]


def gigabytes_a_second(row: Row) -> float:
    """Bytes of bf16 input a second of `ours`."""
    return SIZE * SIZE * 2 / row.ours_ms / 1e6


def main(arguments: list[str]) -> int:
    """Print the table, or JSON by name. 1 where the C++ path cannot be built."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args(arguments).json
    torch.set_num_threads(1)
    if not cpu.available():
        return 1
    weights = packed()
    rows = [*products(weights), *dequantizing(weights, torch.bfloat16), *dequantizing(weights, torch.float32)]
    rows += quantizing()
    if as_json:
        print(json.dumps({row.name: {**row._asdict(), "gb_s": gigabytes_a_second(row)} for row in rows}))
        return 0
    print(f"{cpu.instruction_sets()[0]}, torch {torch.__version__}\n{'':28}{'ours ms':>9}{'torch ms':>10}{'ratio':>8}")
    for row in rows:
        speed = f"{gigabytes_a_second(row):8.1f} GB/s in" if row.name.startswith("quantize") else ""
        print(f"{row.name:28}{row.ours_ms:9.2f}{row.torch_ms:10.2f}{row.ratio:8.2f}{speed}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
