"""What a compiler says of a kernel that it built: registers, spills, shared and tensor memory, matrix instruction."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from vllm_mx_kernels.compile import Build
    from vllm_mx_kernels.targets import Target

_MATRIX = re.compile(r"\b(wgmma\.mma_async\S+|tcgen05\.mma\S+|mma\.sync\S+|v_(?:mfma|wmma|swmmac)_\S+)")


def _instruction(text: str) -> str:
    """The matrix instruction that occurs most; the first of equals."""
    found = _MATRIX.findall(text)
    return max(dict.fromkeys(found), key=found.count) if found else ""


def cuda(empty: Build, compiled: Any, target: Target) -> Build:
    """The build with what ptxas says of its PTX."""
    ptx = compiled.asm["ptx"]
    said = _assembler_notes(ptx, target)
    registers = int(re.search(r"Used (\d+) registers", said)[1])  # type: ignore[index]
    spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", said))
    shared = compiled.metadata.shared
    return empty._replace(
        registers=registers,
        spills=spills,
        shared=shared,
        tensor_memory=getattr(compiled.metadata, "tmem_size", 0) or 0,
        occupancy=_resident_warps(registers, shared, empty.launch.num_warps, target),
        instruction=_instruction(ptx),
    )


def _assembler_notes(ptx: str, target: Target) -> str:
    import triton

    folder = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    blackwell = folder / "ptxas-blackwell"
    program = blackwell if int(target.arch) >= 100 and blackwell.is_file() else folder / "ptxas"
    arch = re.search(r"\.target\s+(sm_\w+)", ptx)[1]  # type: ignore[index]
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "kernel.ptx")
        source.write_text(ptx)
        argv = [program, "-v", "-arch", arch, source, "-o", Path(scratch, "kernel.cubin")]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stderr  # noqa: S603  Triton's own


def _resident_warps(registers: int, shared: int, num_warps: int, target: Target) -> int:
    """Registers are given to a warp in units of 256 (CUDA occupancy calculator), 1 KiB of shared memory is reserved."""
    a_warp = -(-registers * 32 // 256) * 256
    blocks = min(target.registers // (a_warp * num_warps), target.warps // num_warps, target.shared // (shared + 1024))
    return blocks * num_warps


def hip(empty: Build, compiled: Any, _: Target) -> Build:
    """The build with what the AMD compiler noted in its assembly."""
    text = compiled.asm["amdgcn"]
    number = lambda pattern: int(re.search(pattern, text)[1])  # type: ignore[index]  # noqa: E731
    return empty._replace(
        registers=number(r"\.vgpr_count:\s+(\d+)"),
        spills=4 * (number(r"\.vgpr_spill_count:\s+(\d+)") + number(r"\.sgpr_spill_count:\s+(\d+)")),
        shared=compiled.metadata.shared,
        occupancy=number(r"Occupancy:\s+(\d+)"),
        instruction=_instruction(text),
    )
