"""Builds as a Markdown table, and the page `docs/kernels.md` that is made of all of them."""

from __future__ import annotations

import difflib
import re
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from vllm_mx_kernels.compile import Build


def table(builds: Iterable[Build]) -> str:
    """A Markdown table, one build a row, in the order given. Seconds are left out: they differ from run to run."""
    rows = ["| op | target | tile | warps, stages | registers | spills | shared | warps resident | instruction |"]
    rows.append("|---|---|---|---|--:|--:|--:|--:|---|")
    rows += [_row(b) for b in builds]
    return "\n".join(rows) + "\n"


_HEADER = """# What the compiler makes of each kernel

Generated, do not edit: `python -m vllm_mx_kernels.compile --all > docs/kernels.md` (no GPU needed, minutes of CPU);
`python -m vllm_mx_kernels.compile --check docs/kernels.md` compares. These are facts of the compiler, Triton {triton}
with the assemblers that it brings, **not speeds**: nothing here was run on a GPU.

One row is one kernel at its default launch on one architecture. *decode* is the launch for up to 32 tokens, *prefill*
for more. *tile* is tokens × output rows × reduced dimension; *registers* are 32-bit registers of a thread (vector
registers on `gfx`); *spills* are bytes that did not fit them, by `ptxas -v` or by the AMD compiler's notes; *shared* is
shared memory (LDS) of a block; *warps resident* is how many a multiprocessor (a SIMD on `gfx`) holds at once by
registers and shared memory; *instruction* is the matrix instruction that occurs most, empty where a kernel multiplies
no matrices. The default launches in `launch.py` were chosen by this table: no spills, shared memory that fits, the
instruction that the number format has on that chip.

"""


_TUNING = """
## Tuned launches, and how a server gets them

The table's launches are defaults. `tuner kernels` measures others on the machine at hand, and writes the winners to one
JSON file; a server reads it where its environment names it:

    ADVISOR_KERNEL_CONFIGS=~/kernels.json vllm serve MODEL --quantization advisor_mxfp4

The name does not begin with `VLLM_`, since vLLM may refuse such names that it does not know. Each entry is one winner
with what it holds for; `vllm_mx_kernels/handoff.py` has the schema:

- `op`, `n`, `k`, `experts`, `top_k`: the product; rows and columns of the weight, of gate_up for experts.
- `tokens`: the bucket, which ends at a power of two: 16 is 9 to 16 tokens, 8192 all from 4097.
- `arch`, `device`: `sm90` and `NVIDIA H100`; for a processor its instruction set and its name.
- `source`: hash of the kernel bodies' source; `triton`: the compiler's version, "" for the C++ path.
- `driver`, `runtime`: recorded for the tuner, which times a winner again when they change.
- `launch` (tile, warps, stages, order) of a Triton body, or `tile` of the C++ path.

An entry counts where the device, the source and Triton are those of the machine. The file is read once a process, at
the first product. The log says in one line how many entries were taken, and how many were ignored and why; each op says
once which tile it took and from where:

    ADVISOR_KERNEL_CONFIGS: took 6 entries of kernels.json, ignored 2 (1 for another device, 1 for other kernels)
    cpu.mxfp4.linear: tile rows=4 task_rows=64 for m<=1 n960 k576, from kernels.json

A missing or broken file is one line with a warning, and all products take their defaults. A bucket without an entry
keeps its default, too: no entry is ever stretched over other shapes or batches.

**What can be varied.** Triton: `block_m` tokens, `block_n` rows, `block_k`, warps, stages, and the order of tiles. The
C++ path (`cpu.mxfp4.linear`): the number of tokens up to which codes are multiplied as they are (`fused_tokens`); rows
and tokens side by side in registers (`rows`, `tokens`), where scales are applied (`scaled_sums`), how far ahead codes
are fetched (`prefetch`), rows that a thread takes at a time (`task_rows`); elements that are decoded at a time
(`decoded`), by all threads or each for itself (`own_tiles`), in which type they are multiplied (`float32`), and tokens
at a time (`batch`). A tile changes the time and the order of a sum, never what is computed: tests hold every one to the
twin. `vllm_mx_kernels/autotune.py` has the facts that a search needs, most of them without a device;
`benchmarks/kernel_space.py` measures whole spaces of the C++ path.
"""


def page(builds: Iterable[Build]) -> str:
    """The whole of `docs/kernels.md`: how to read it, the table, and what is tuned beyond it."""
    return _HEADER.format(triton=version("triton")) + table(builds) + _TUNING


def _row(b: Build) -> str:
    tile, shape = b.launch.tile, f"{b.launch.num_warps}, {b.launch.num_stages}"
    if b.failure:
        return f"| {b.case} | {b.target} | {tile} | {shape} | | | | | {b.failure} |"
    shared = f"{b.shared / 1024:.0f} KiB"
    return (
        f"| {b.case} | {b.target} | {tile} | {shape} | {b.registers} | {b.spills} | {shared} | {b.occupancy} "
        f"| {f'`{b.instruction}` ' if b.instruction else ''}|"
    )


def is_current(path: Path, wanted: str) -> bool:
    """Whether the page is what this compiler makes; says the difference, or that another compiler made the page."""
    there = path.read_text()
    if there == wanted:
        return True
    if (made := _compiler_of(there)) != _compiler_of(wanted):
        sys.stdout.write(f"{path} was made with {made}, this is {_compiler_of(wanted)}\n")
        return False
    sys.stdout.writelines(difflib.unified_diff(there.splitlines(True), wanted.splitlines(True), str(path), "now"))
    return False


def _compiler_of(text: str) -> str:
    found = re.search(r"Triton [\d.]+\d", text)
    return found[0] if found else "no known compiler"
