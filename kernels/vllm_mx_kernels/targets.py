"""The GPU architectures that kernels are built for, and the limits that a launch has to respect on each."""

from __future__ import annotations

from typing import NamedTuple


class Target(NamedTuple):
    """One architecture. Bytes and counts are per multiprocessor (CUDA) or compute unit (ROCm) unless said otherwise.

    `arch` is what Triton's GPUTarget takes: 90 or "gfx942". `shared_block`: most shared memory (LDS) of one block.
    `registers`: 32-bit registers of the file; `warps`: most resident warps.
    """

    name: str
    backend: str
    arch: int | str
    warp_size: int
    shared_block: int
    shared: int
    registers: int
    warps: int


_KIB = 1024
# CUDA: compute capabilities table of the CUDA C++ programming guide. ROCm: the CDNA3, CDNA4 and RDNA4 ISA guides;
# occupancy of those is read from the compiler's own output, so that registers and warps are not needed here.
TARGETS = {
    t.name: t
    for t in (
        Target("sm80", "cuda", 80, 32, 163 * _KIB, 164 * _KIB, 65536, 64),
        Target("sm89", "cuda", 89, 32, 99 * _KIB, 100 * _KIB, 65536, 48),
        Target("sm90", "cuda", 90, 32, 227 * _KIB, 228 * _KIB, 65536, 64),
        Target("sm100", "cuda", 100, 32, 227 * _KIB, 228 * _KIB, 65536, 64),
        Target("sm103", "cuda", 103, 32, 227 * _KIB, 228 * _KIB, 65536, 64),
        Target("sm120", "cuda", 120, 32, 99 * _KIB, 100 * _KIB, 65536, 48),
        Target("gfx942", "hip", "gfx942", 64, 64 * _KIB, 64 * _KIB, 0, 0),
        Target("gfx950", "hip", "gfx950", 64, 160 * _KIB, 160 * _KIB, 0, 0),
        Target("gfx1201", "hip", "gfx1201", 32, 64 * _KIB, 64 * _KIB, 0, 0),
    )
}
# What Triton 3.8 turns into one instruction (`docs/kernels.md` shows the instruction of each build).
NATIVE_FP8 = frozenset(("sm89", "sm90", "sm100", "sm103", "sm120", "gfx942", "gfx950", "gfx1201"))
NATIVE_MXFP4 = frozenset(("sm100", "sm103", "sm120", "gfx950"))  # E2M1 × E2M1 with E8M0 scales
NATIVE_MXFP8_BY_MXFP4 = frozenset(("sm100", "sm103", "gfx950"))  # E4M3 × E2M1; sm120 falls to bf16
FNUZ = frozenset(("gfx942",))  # its FP8 unit takes E4M3FNUZ only
