"""What the experts' kernels compute in. Names are those of vLLM's enums, over all releases from 0.24.0 on."""

from __future__ import annotations


# Kernels whose matrix multiplication runs in BF16 whatever the weights are: the weights are unpacked on the way.
WEIGHT_ONLY = frozenset((
    "MARLIN", "BATCHED_MARLIN", "HUMMING", "TRITON_UNFUSED", "RDNA3", "CPU", "FLASHINFER_TRTLLM_MXFP4_BF16",
    "AITER_MXFP4_BF16", "AITER_TRITON_MXFP4_BF16", "FLASHINFER_CUTLASS_MXFP4_BF16",
))  # fmt: skip
# 4-bit weights against 8-bit activations.
EIGHT_BIT = frozenset(("FLASHINFER_TRTLLM_MXFP4_MXFP8", "DEEPGEMM_MXFP4"))
# The weights are unpacked to BF16 by separate steps: memory is saved at best, time is lost.
EMULATED = frozenset(("EMULATION",))
