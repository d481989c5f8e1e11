"""Families of device architectures as vLLM's own gates group them, and what silicon computes natively.

`family(100)` of vLLM is every capability with that major number: sm100 and sm103; family(120) is sm120 and sm121.
"""

from __future__ import annotations


CUDA = frozenset(("sm75", "sm80", "sm86", "sm87", "sm89", "sm90", "sm100", "sm103", "sm110", "sm120", "sm121"))
SM90 = frozenset(("sm90",))
SM100F = frozenset(("sm100", "sm103"))
SM110 = frozenset(("sm110",))
SM120F = frozenset(("sm120", "sm121"))
BLACKWELL = SM100F | SM110 | SM120F
SM89_UP = frozenset(("sm89",)) | SM90 | BLACKWELL

GFX90A = frozenset(("gfx90a",))
GFX942 = frozenset(("gfx942",))
GFX950 = frozenset(("gfx950",))
MI3XX = GFX942 | GFX950
CDNA = GFX90A | MI3XX
RDNA3 = frozenset(("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"))
RDNA4 = frozenset(("gfx1200", "gfx1201"))
ROCM = CDNA | RDNA3 | RDNA4

CPU_X86 = frozenset(("cpu-x86_64", "cpu-avx512", "cpu-amx"))
CPU_WIDE = frozenset(("cpu-avx512", "cpu-amx"))
CPU_AMX = frozenset(("cpu-amx",))
CPU = CPU_X86 | {"cpu-aarch64"}

# Matrix units that multiply the format itself. NVIDIA: FP8 from sm89, FP4 from sm100. AMD: FP8 on CDNA3, CDNA4 and
# RDNA4; MX formats on CDNA4 only (vLLM 0.33 platforms/rocm.py:1251 `supports_mx`).
NATIVE_FP8 = SM89_UP | MI3XX | RDNA4
NATIVE_FP4 = BLACKWELL | GFX950
NATIVE_INT8 = CUDA | ROCM | CPU

FNUZ = GFX942  # its FP8 has another bias: scales are doubled on load (quantization/kv_cache.py:128-150)


def capability(arch: str) -> int:
    """90 for sm90, 0 for anything that is not NVIDIA."""
    return int(arch[2:]) if arch.startswith("sm") else 0
