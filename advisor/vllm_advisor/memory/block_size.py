"""Tokens of a KV block before a hybrid model raises it: what the attention backend of that device can page.

Sources: config/cache.py DEFAULT_BLOCK_SIZE, platforms/interface.py (the backend's preferred size), platforms/cpu.py,
and get_supported_kernel_block_sizes of each backend. The backend is the first of vLLM's order for that device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.hardware import Vendor


if TYPE_CHECKING:
    from vllm_advisor.hardware import Gpu
    from vllm_advisor.model.spec import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.vllm.history import Era

_DEFAULT, _CPU, _CPU_MLA = 16, 128, 16
_SPARSE = 64  # FLASHMLA_SPARSE, FLASHINFER_MLA_SPARSE, indexer
_FLASHMLA = 64
_COMPRESSED = 256  # DeepSeek V4


def block_size(model: ModelSpec, plan: Plan, gpu: Gpu, kv_dtype: str, facts: Era) -> int:
    """Tokens a block; the plan's own value where it has one."""
    if plan.block_size:
        return plan.block_size
    kinds = {c.kind for c in model.caches}
    if "compressed" in kinds:
        return _COMPRESSED
    if gpu.vendor is Vendor.CPU:
        return _CPU_MLA if "mla" in kinds else _CPU
    if "mla" not in kinds:
        return _DEFAULT
    return _SPARSE if "indexer" in kinds else _latent(gpu, kv_dtype, facts)


def _latent(gpu: Gpu, kv_dtype: str, facts: Era) -> int:
    """Hopper: FLASH_ATTN_MLA pages 16 tokens, FLASHMLA (FP8 only) 64; Blackwell: FLASHINFER_MLA 32.

    Before 0.18 vLLM forced the size of one kernel, 64 on Hopper and 128 on Blackwell (platforms/cuda.py).
    """
    if gpu.capability in (100, 103):
        return facts.latent_block_blackwell
    if gpu.capability != 90:
        return _DEFAULT
    return max(facts.latent_block_hopper, _FLASHMLA) if kv_dtype.startswith("fp8") else facts.latent_block_hopper
