"""Which mixture-of-experts kernel vLLM takes, by version, weight scheme, device and activation: its lists as tables.

One tuple of rows a scheme, in that version's priority order; the first row whose device and activation fit is taken.
Read from `model_executor/layers/fused_moe/oracle/*.py` (order) and `fused_moe/experts/*.py` (`_supports_*`, device,
scheme, activation). Choices that need a package which vLLM's images do not carry are left out (b12x, HPC, amd-quark).
Names are those of vLLM's enums.
"""

from __future__ import annotations

from typing import NamedTuple

from vllm_advisor.vllm.archs import (
    CDNA,
    CPU,
    CPU_AMX,
    CUDA,
    GFX942,
    GFX950,
    MI3XX,
    RDNA3,
    ROCM,
    SM89_UP,
    SM90,
    SM100F,
    SM110,
    SM120F,
)  # fmt: skip


class Row(NamedTuple):
    """A kernel and what it takes. `acts` None: any. `aiter`: needs VLLM_ROCM_USE_AITER=1. `ep`: None, or only so."""

    backend: str
    archs: frozenset[str]
    acts: frozenset[str] | None = None
    aiter: bool = False
    ep: bool | None = None


_TRTLLM_24 = frozenset(("silu", "relu2_no_mul"))
_TRTLLM_33 = _TRTLLM_24 | {"swigluoai_uninterleave"}
_TRTLLM_FP4_24 = _TRTLLM_24 | {"gelu", "gelu_tanh"}
_TRTLLM_FP4_33 = _TRTLLM_FP4_24 | {"swigluoai_uninterleave"}
_FI_24 = frozenset(("silu", "gelu_tanh", "relu2_no_mul", "swigluoai"))
_FI_33 = _FI_24 | {"swigluoai_uninterleave"}
_DEEPGEMM = frozenset(("silu", "swiglustep", "swigluoai_uninterleave"))
_AITER_24 = frozenset(("silu", "gelu", "swigluoai"))
_AITER_33 = _AITER_24 | {"situ", "swigluoai_uninterleave"}
_GPT_OSS = frozenset(("swigluoai",))
_GPT_OSS_OR_SILU = frozenset(("swigluoai", "silu"))
_UNFUSED = frozenset(("silu", "gelu", "swigluoai", "swiglustep", "swigluoai_uninterleave"))
_SILU = frozenset(("silu",))
_SILU_OR_M3 = frozenset(("silu", "swigluoai_uninterleave"))

_FI_DEVICES = SM90 | SM100F | SM120F  # experts/flashinfer_cutlass_moe.py:128 `_supports_current_device`
_OAI_TRITON_24 = SM90 | SM100F | ROCM  # experts/gpt_oss_triton_kernels_moe.py:37
_OAI_TRITON_33 = SM90 | SM100F | SM110 | ROCM  # :41, and SM12x behind Marlin (oracle/mxfp4.py:425)
_TRITON_FP8_24 = SM89_UP | (ROCM - RDNA3)  # platforms/rocm.py:871 `supports_fp8`
_TRITON_FP8_33 = SM89_UP | ROCM  # platforms/rocm.py:1255

V24: dict[str, tuple[Row, ...]] = {
    # oracle/unquantized.py:57-85; on sm90 FlashInfer goes behind Triton
    "bf16": (
        Row("AITER", MI3XX, _AITER_24, aiter=True),
        Row("FLASHINFER_TRTLLM", SM100F, _TRTLLM_24),
        Row("FLASHINFER_CUTLASS", SM100F | SM120F, _FI_24),
        Row("TRITON", CUDA | ROCM),
        Row("CPU", CPU),
    ),
    # oracle/fp8.py:75-88
    "fp8_tensor": (
        Row("AITER", MI3XX, _AITER_24, aiter=True),
        Row("FLASHINFER_TRTLLM", SM100F, _TRTLLM_24),
        Row("FLASHINFER_CUTLASS", _FI_DEVICES, _FI_24),
        Row("TRITON", _TRITON_FP8_24),
        Row("MARLIN", CUDA),
    ),
    # both users of per-channel FP8 allow vLLM's own CUTLASS: online/fp8.py:654, compressed_tensors_moe
    "fp8_channel": (
        Row("AITER", MI3XX, _AITER_24, aiter=True),
        Row("VLLM_CUTLASS", SM90 | SM100F, _FI_24 | {"gelu"}),
        Row("TRITON", _TRITON_FP8_24),
        Row("MARLIN", CUDA),
    ),
    "fp8_block": (
        Row("AITER", MI3XX, _AITER_24, aiter=True),
        Row("FLASHINFER_CUTLASS", SM90, _FI_24, ep=True),
        Row("TRITON", SM90),
        Row("FLASHINFER_TRTLLM", SM100F, _TRTLLM_24),
        Row("DEEPGEMM", SM100F | SM120F, _DEEPGEMM),
        Row("TRITON", _TRITON_FP8_24),
        Row("MARLIN", CUDA),
        Row("CPU", CPU, _SILU),
    ),
    # oracle/mxfp4.py:307-322; the end of select_mxfp4_moe_backend is the ROCm fallback
    "mxfp4": (
        Row("FLASHINFER_TRTLLM_MXFP4_BF16", SM100F, _GPT_OSS_OR_SILU),
        Row("AITER_MXFP4_BF16", GFX950, _AITER_24, aiter=True),
        Row("TRITON", _OAI_TRITON_24, _GPT_OSS),
        Row("FLASHINFER_CUTLASS_MXFP4_BF16", SM90, _FI_24),
        Row("MARLIN", CUDA),
        Row("TRITON_UNFUSED", ROCM, _UNFUSED),
        Row("CPU", CPU, _GPT_OSS_OR_SILU),
    ),
    # oracle/mxfp4.py:325-345 and the DeepSeek-V4 routing on ROCm
    "mxfp4_deepseek_v4": (
        Row("FLASHINFER_TRTLLM_MXFP4_MXFP8", SM100F, _GPT_OSS_OR_SILU),
        Row("DEEPGEMM_MXFP4", SM120F, frozenset(("silu", "swiglustep"))),
        Row("MARLIN", CUDA),
        Row("AITER_MXFP4_BF16", GFX950, _AITER_24, aiter=True),
        Row("TRITON_UNFUSED", ROCM, _UNFUSED),
    ),
    # oracle/mxfp8.py:19-24 and _select_rocm_mxfp8_backend
    "mxfp8": (
        Row("FLASHINFER_TRTLLM", SM100F, _TRTLLM_24),
        Row("DEEPGEMM", SM100F, _DEEPGEMM),
        Row("MARLIN", CUDA),
        Row("NATIVE_MXFP8", GFX950),
        Row("EMULATION", ROCM),
    ),
    # oracle/nvfp4.py:165-173
    "nvfp4": (
        Row("FLASHINFER_TRTLLM", SM100F, _TRTLLM_FP4_24),
        Row("FLASHINFER_CUTEDSL", SM100F, _SILU),
        Row("FLASHINFER_CUTLASS", SM100F | SM120F, _FI_24),
        Row("VLLM_CUTLASS", SM100F | SM110 | SM120F, ep=False),
        Row("MARLIN", CUDA),
        Row("EMULATION", ROCM),
    ),
    # oracle/int_wna16.py:88-92; ROCm goes through moe_wna16's Triton kernel
    "int4": (Row("MARLIN", CUDA), Row("TRITON", ROCM)),
    "int8": (Row("TRITON", CUDA),),
}

V33: dict[str, tuple[Row, ...]] = {
    # oracle/unquantized.py:63-105
    "bf16": (
        Row("AITER", MI3XX, _AITER_33, aiter=True),
        Row("FLASHINFER_TRTLLM", SM100F, _TRTLLM_24),
        Row("FLASHINFER_CUTLASS", SM100F | SM120F, _FI_33),
        Row("TRITON", CUDA | ROCM),
        Row("CPU", CPU),
    ),
    # oracle/fp8.py:88-160; Humming stands before Marlin on sm90 (quantization/utils/humming/priority.py:11)
    "fp8_tensor": (
        Row("AITER", MI3XX, _AITER_33, aiter=True),
        Row("FLASHINFER_TRTLLM", SM100F, _TRTLLM_33),
        Row("FLASHINFER_CUTLASS", _FI_DEVICES, _FI_33),
        Row("TRITON", _TRITON_FP8_33),
        Row("MARLIN", CUDA),
    ),
    # both users of per-channel FP8 allow vLLM's own CUTLASS: online/fp8.py:789, compressed_tensors_moe_w8a8_fp8.py:111
    "fp8_channel": (
        Row("AITER", MI3XX, _AITER_33, aiter=True),
        Row("VLLM_CUTLASS", SM90 | SM100F),
        Row("TRITON", _TRITON_FP8_33),
        Row("MARLIN", CUDA),
    ),
    "fp8_block": (
        Row("AITER", MI3XX, _AITER_33, aiter=True),
        Row("FLASHINFER_CUTLASS", SM90, _FI_33, ep=True),
        Row("TRITON", SM90),
        Row("FLASHINFER_TRTLLM", SM100F, _TRTLLM_33),
        Row("DEEPGEMM", SM100F | SM120F, _DEEPGEMM),
        Row("TRITON", _TRITON_FP8_33),
        Row("MARLIN", CUDA),
        Row("CPU", CPU_AMX, frozenset(("silu", "gelu", "gelu_tanh"))),
    ),
    # oracle/mxfp4.py:402-435, BF16 activations unless asked for otherwise (:575 `_filter_by_activation`)
    "mxfp4": (
        Row("FLASHINFER_TRTLLM_MXFP4_BF16", SM100F, _GPT_OSS_OR_SILU),
        Row("AITER_MXFP4_BF16", GFX950, _AITER_33, aiter=True),
        Row("AITER_TRITON_MXFP4_BF16", MI3XX, _GPT_OSS_OR_SILU, aiter=True),
        Row("TRITON", _OAI_TRITON_33, _GPT_OSS),
        Row("FLASHINFER_CUTLASS_MXFP4_BF16", SM90, _FI_33),
        Row("HUMMING", SM90),
        Row("MARLIN", CUDA),
        Row("CPU", CPU_AMX, frozenset(("silu", "swigluoai", "gelu", "gelu_tanh"))),
    ),
    # oracle/mxfp4.py:438-465
    "mxfp4_deepseek_v4": (
        Row("FLASHINFER_TRTLLM_MXFP4_MXFP8", SM100F, _GPT_OSS_OR_SILU | {"situ"}),
        Row("DEEPGEMM_MXFP4", SM120F, frozenset(("silu", "swiglustep", "situ"))),
        Row("HUMMING", SM90),
        Row("MARLIN", CUDA),
        Row("AITER_MXFP4_BF16", GFX950, _AITER_33, aiter=True),
        Row("CPU", CPU_AMX, frozenset(("silu", "swigluoai", "gelu", "gelu_tanh"))),
    ),
    # oracle/mxfp8.py:19-32
    "mxfp8": (
        Row("FLASHINFER_TRTLLM", SM100F, _TRTLLM_33),
        Row("DEEPGEMM", SM100F, _DEEPGEMM),
        Row("HUMMING", SM90),
        Row("MARLIN", CUDA),
        Row("AITER_MXFP8", GFX950, _SILU_OR_M3, aiter=True, ep=False),
        Row("TRITON_MXFP8", GFX950),
        Row("EMULATION", ROCM),
    ),
    # oracle/nvfp4.py:203-213
    "nvfp4": (
        Row("FLASHINFER_TRTLLM", SM100F, _TRTLLM_FP4_33),
        Row("FLASHINFER_CUTEDSL", SM100F, frozenset(("silu", "swigluoai", "swigluoai_uninterleave", "relu2_no_mul"))),
        Row("FLASHINFER_CUTLASS", SM100F | SM120F, _FI_33),
        Row("VLLM_CUTLASS", SM100F | SM110 | SM120F),
        Row("HUMMING", SM90),
        Row("MARLIN", CUDA),
        Row("EMULATION", ROCM),
    ),
    # oracle/int_wna16.py:128-147; RDNA3 is gated on gfx1100 (experts/rdna3_moe.py:89)
    "int4": (
        Row("RDNA3", frozenset(("gfx1100",))),
        Row("HUMMING", SM90),
        Row("MARLIN", CUDA),
        Row("TRITON", ROCM),
        Row("CPU", CPU_AMX, frozenset(("silu", "gelu_tanh"))),
    ),
    "int8": (Row("TRITON", CUDA | ROCM), Row("CPU", CPU_AMX | {"cpu-aarch64"})),
}

# Kernels whose matrix multiplication runs in BF16 whatever the weights are: the weights are unpacked on the way.
WEIGHT_ONLY = frozenset((
    "MARLIN", "HUMMING", "TRITON_UNFUSED", "RDNA3", "CPU", "FLASHINFER_TRTLLM_MXFP4_BF16", "AITER_MXFP4_BF16",
    "AITER_TRITON_MXFP4_BF16", "FLASHINFER_CUTLASS_MXFP4_BF16",
))  # fmt: skip
# 4-bit weights against 8-bit activations.
EIGHT_BIT = frozenset(("FLASHINFER_TRTLLM_MXFP4_MXFP8", "DEEPGEMM_MXFP4"))
# The weights are unpacked to BF16 by separate steps: memory is saved at best, time is lost.
EMULATED = frozenset(("EMULATION",))
# Devices that vLLM lets run FP8 experts although they have no FP8 matrix unit; Triton converts each tile.
FP8_BY_CONVERSION = (CDNA | RDNA3) - GFX942 - GFX950
