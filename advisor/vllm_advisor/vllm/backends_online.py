"""Online quantization: what each value of `--quantization` converts, and where a platform allows it."""

from __future__ import annotations

from vllm_advisor.vllm import archs


# Flag value, scheme it makes, whether it converts linear layers, whether it converts experts
# (config/quantization.py `_ONLINE_SHORTHANDS`, quantization/online/base.py `_ONLINE_*_METHODS`).
FLAGS = (
    ("fp8_per_tensor", "fp8_tensor", True, True),
    ("fp8_per_channel", "fp8_channel", True, True),
    ("fp8_per_block", "fp8_block", True, True),
    ("mxfp8", "mxfp8", True, True),
    ("int8_per_channel_weight_only", "int8", False, True),
    ("mxfp4", "mxfp4", True, True),
    ("nvfp4_per_token", "nvfp4", False, True),
)
# Not in ROCm's `supported_quantization` (0.24 platforms/rocm.py:459, 0.33 :659).
_NOT_ON_ROCM = frozenset(("int8_per_channel_weight_only", "nvfp4_per_token"))
# Run on CPUs with AVX2 and with AMX (vLLM 0.32): FP8 of dense layers served, per channel everywhere and per block with
# AMX, which has a kernel of its own for it; the others died while loading.
_ON_CPU = frozenset(("fp8_per_channel",))
_ON_AMX = _ON_CPU | {"fp8_per_block"}


def permitted(flag: str, arch: str, *, moe: bool) -> bool:
    """Whether the platform lets a flag through, for a model with experts (`moe`) or without."""
    if arch in archs.ROCM:
        return flag not in _NOT_ON_ROCM
    if arch in archs.CPU:
        return flag in (_ON_AMX if arch in archs.CPU_AMX else _ON_CPU) and not moe
    return flag != "nvfp4_per_token" or arch in archs.SM100F  # online/nvfp4.py:100
