"""Which kernel vLLM takes for a quantized linear layer, by version, weight scheme and device.

One tuple a scheme of (kernel, devices) in priority order, from `model_executor/kernels/linear/__init__.py` (the lists)
and each kernel's `is_supported` (the devices). `can_implement` still filters by shape in vLLM. Names are vLLM's class
names without the common tail (`LinearKernel`, `ScaledMM…`). Optional packages (b12x, fbgemm, zentorch) are left out.
"""

from __future__ import annotations

from vllm_advisor.vllm.archs import (
    BELOW_SM89,
    BLACKWELL,
    CPU,
    CPU_AMX,
    CPU_X86,
    CUDA,
    GFX90A,
    GFX950,
    MI3XX,
    RDNA3,
    RDNA4,
    ROCM,
    SM89_UP,
    SM90,
    SM100F,
    SM110,
    SM120F,
)  # fmt: skip


Kernel = tuple[str, frozenset[str]]

_UNQUANTIZED: tuple[Kernel, ...] = (("Unquantized", CUDA | ROCM | CPU),)
_INT8: tuple[Kernel, ...] = (("CutlassInt8", CUDA), ("TritonInt8", ROCM), ("CPUInt8", CPU))
_MXFP8: tuple[Kernel, ...] = (
    ("FlashInferCutedslMxfp8", SM100F),
    ("FlashInferCutlassMxfp8", SM110 | SM120F),
    ("MarlinMxfp8", CUDA),
    ("RocmDotScaledMxfp8", GFX950),
    ("EmulationMxfp8", ROCM),
)
_NVFP4: tuple[Kernel, ...] = (
    ("FlashInferCuteDslNvFp4", SM100F),
    ("FlashInferCutlassNvFp4", SM120F),
    ("CutlassNvFp4", SM110),
    ("MarlinNvFp4", CUDA),
    ("EmulationNvFp4", ROCM),
)

# Since 0.33 Humming stands before Marlin on sm90 (kernels/linear/__init__.py:426, utils/humming/priority.py:11).
_MXFP8_33: tuple[Kernel, ...] = (("HummingMxfp8", SM90), *_MXFP8)
_NVFP4_33: tuple[Kernel, ...] = (("HummingNvFp4", SM90), *_NVFP4)

V24: dict[str, tuple[Kernel, ...]] = {
    "bf16": _UNQUANTIZED,
    # Marlin is first in the list and refuses from sm89 on (scaled_mm/marlin.py:47)
    "fp8_tensor": (
        ("MarlinFP8", BELOW_SM89),
        ("FlashInferFP8", BLACKWELL),
        ("CutlassFP8", SM89_UP),
        ("ROCmFP8", MI3XX | RDNA4),
    ),
    # torch's scaled matmul: RowWise on MI3xx (scaled_mm/pytorch.py:101), ChannelWise elsewhere
    "fp8_channel": (
        ("MarlinFP8", BELOW_SM89),
        ("CutlassFP8", SM89_UP),
        ("RowWiseTorchFP8", MI3XX),
        ("ChannelWiseTorchFP8", RDNA4 | CPU_X86),
    ),
    "fp8_block": (
        ("FlashInferFp8DeepGEMMDynamicBlockScaled", SM90),
        ("DeepGemmFp8Block", SM100F | SM120F),
        ("MarlinFP8", BELOW_SM89),
        ("TritonFp8Block", CUDA | ROCM),
        ("CPUFp8Block", CPU_AMX),
    ),
    "mxfp8": _MXFP8,
    "nvfp4": _NVFP4,
    # no ROCm list in 0.24: quark's OCP-MX layers have their own way, online mxfp4 does not exist yet
    "mxfp4": (("FlashInferMxFp4", BLACKWELL), ("MarlinMxFp4", CUDA)),
    "int4": (
        ("Machete", SM90),
        ("Marlin", CUDA),
        ("RDNA3W4A16", RDNA3),
        ("TritonW4A16", ROCM),
        ("CPUWNA16", CPU_X86),
        ("Dynamic4bit", CPU),
    ),
    "int8": _INT8,
}

V33: dict[str, tuple[Kernel, ...]] = {
    "bf16": _UNQUANTIZED,
    "fp8_tensor": (
        ("FlashInferFP8", BLACKWELL),
        ("CutlassFP8", SM89_UP),
        ("MarlinFP8", CUDA),
        ("ROCmFP8", MI3XX | RDNA4),
        ("CPUFp8PerTensor", CPU_AMX),
    ),
    "fp8_channel": (
        ("CutlassFP8", SM89_UP),
        ("MarlinFP8", CUDA),
        ("RowWiseTorchFP8", MI3XX),
        ("ChannelWiseTorchFP8", RDNA4),
        ("CPUFp8ChannelWise", CPU_AMX),
        ("ChannelWiseTorchFP8", CPU_X86),
    ),
    # on sm89 Marlin stands before Triton: weights in FP8, arithmetic in BF16
    "fp8_block": (
        ("FlashInferFp8DeepGEMMDynamicBlockScaled", SM90),
        ("DeepGemmFp8Block", SM100F | SM120F),
        ("MarlinFP8", CUDA),
        ("TritonFp8Block", ROCM),
        ("CPUFp8Block", CPU_AMX),
    ),
    "mxfp8": _MXFP8_33,
    "nvfp4": _NVFP4_33,
    "mxfp4": (
        ("FlashInferMxFp4", BLACKWELL),
        ("HummingMxFp4", SM90),
        ("MarlinMxFp4", CUDA),
        ("Rdna3W4A8MxFp4", RDNA3),
        ("AiterMxfp4", GFX950),
        ("EmulationMxfp4", ROCM),
    ),
    "int4": (
        ("Machete", SM90),
        ("Marlin", CUDA),
        ("RDNA3W4A16", RDNA3),
        ("RDNAHybridW4A16", RDNA4),
        ("TritonW4A16", ROCM),
        ("CPUWNA16", CPU_X86),
        ("Dynamic4bit", CPU),
    ),
    "int8": _INT8,
}

# With VLLM_ROCM_USE_AITER=1 these stand first (scaled_mm/aiter.py).
AITER: dict[str, tuple[Kernel, ...]] = {
    "fp8_channel": (("AiterPreshuffledPerTokenFp8", MI3XX),),
    "fp8_block": (("AiterFp8Block", MI3XX),),
    "int8": (("AiterInt8", MI3XX | GFX90A),),
}

WEIGHT_ONLY = frozenset((
    "MarlinFP8", "MarlinMxfp8", "MarlinMxFp4", "MarlinNvFp4", "Marlin", "HummingMxfp8", "HummingMxFp4",
    "HummingNvFp4", "Machete", "RDNA3W4A16", "RDNAHybridW4A16", "TritonW4A16", "CPUWNA16", "Dynamic4bit", "CPUFp8Block",
    "CPUFp8PerTensor", "CPUFp8ChannelWise", "Unquantized",
))  # fmt: skip
EIGHT_BIT = frozenset(("Rdna3W4A8MxFp4",))
EMULATED = frozenset(("EmulationMxfp8", "EmulationMxfp4", "EmulationNvFp4"))
