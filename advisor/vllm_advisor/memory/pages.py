"""Bytes that one token leaves in one layer's KV cache on one rank, and bytes of a recurrent state.

KV dtype and weight dtype are independent; `auto` means the checkpoint's own kv_cache_scheme, else the model's dtype
(vLLM 0.33.0 utils/torch_utils.py:498-516).
"""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from vllm_advisor.model.spec import CacheGroup, ModelSpec

_BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "half": 16}
# Sparse latent layouts, bytes a token: v1/attention/backends/mla/flashmla_sparse.py; 0.33.0 mla_attention.py:1386.
_LATENT_BLOBS = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
# Bits of a code and whether keys are FP8: quantization/turboquant/config.py (from_cache_dtype, slot_size).
_TURBOQUANT = {"turboquant_k8v4": (8, 4), "turboquant_4bit_nc": (4, 4),
               "turboquant_k3v4_nc": (3, 4), "turboquant_3bit_nc": (3, 3)}  # fmt: skip
_EXPANDED = 256
_PER_TOKEN_HEAD_SCALE = 4  # one float32 for K and one for V a head: v1/attention/backends/triton_attn.py:308


def kv_cache_dtype(model: ModelSpec, wanted: str) -> str:
    """What `--kv-cache-dtype` comes to: the checkpoint's scheme or the model's dtype for `auto`."""
    if wanted != "auto":
        return wanted
    return model.quantization.kv_cache_dtype or model.dtype


def token_bytes(group: CacheGroup, dtype: str, tensor_parallel_size: int, *, sparse: bool = False) -> float:
    """Bytes a token of one layer on one rank; 0 for a state. `sparse`: the model has a sparse indexer.

    K and V heads are split by TP and repeated beyond (config/model.py get_num_kv_heads); a latent vector is whole on
    each rank.
    """
    if group.fixed_bytes_per_token:
        return group.fixed_bytes_per_token / group.tokens_per_entry
    heads = max(1, group.kv_heads // tensor_parallel_size)
    if (
        group.kind == "indexer"
    ):  # keys of its own, which the flag does not quantize (models/minimax_m3/common/indexer.py)
        return group.k_dim * 2
    if group.kind in ("mla", "compressed"):
        return _latent(group.k_dim, dtype, sparse=sparse) / group.tokens_per_entry
    return heads * _head(group.k_dim, group.v_dim, dtype) / group.tokens_per_entry


def _latent(dim: int, dtype: str, *, sparse: bool) -> float:
    """A sparse backend that is asked for FP8 stores its own layout (mla_attention.py, canonicalize_sparse_mla…)."""
    name = "fp8_ds_mla" if sparse and dtype.startswith("fp8") else dtype
    return _LATENT_BLOBS.get(name) or _head(dim, 0, name)


def expanded_bytes(group: CacheGroup, dtype: str, tensor_parallel_size: int) -> float:
    """Bytes a token where MLA was cached as K and V of each head, padded to 256 (0.6.6 models/deepseek_v3.py:314)."""
    heads = max(1, group.q_heads // tensor_parallel_size)
    return heads * _head(_EXPANDED, _EXPANDED, dtype)


def _head(k: int, v: int, dtype: str) -> float:
    """K and V of one head. NVFP4: half a byte a value and one scale byte for 16; per-token-head: a float32 a side."""
    if dtype.startswith("nvfp4"):
        return (k + v) * (1 / 2 + 1 / 16)
    if dtype.startswith("turboquant"):
        return _turboquant(k, v, dtype)
    sides = (k > 0) + (v > 0)
    scales = _PER_TOKEN_HEAD_SCALE * sides if dtype.endswith("per_token_head") else 0
    return (k + v) * _element_bits(dtype) / 8 + scales


def _turboquant(k: int, v: int, dtype: str) -> int:
    """Codes, a norm of two bytes for keys that are not FP8, a scale and a zero of two bytes for values; made even."""
    k_bits, v_bits = _TURBOQUANT.get(dtype, (8, 4))
    keys = k if k_bits == 8 else (k * k_bits + 7) // 8 + 2
    slot = keys + (v * v_bits + 7) // 8 + 4
    return slot + slot % 2


def _element_bits(dtype: str) -> int:
    if dtype.startswith(("fp8", "int8")):
        return 8
    return 4 if dtype.startswith(("int4", "ultraquant", "octave")) else _BITS.get(dtype, 16)


def state_bytes(group: CacheGroup, tensor_parallel_size: int, *, wide: bool = True) -> int:
    """Bytes of one layer's state for one request on one rank (v1/kv_cache_interface.py MambaSpec).

    Without `wide`, no element takes more than 16 bits, whatever dtype the checkpoint asks for.
    """
    parts = [tensor_parallel_size if split else 1 for _, _, split in group.state_shapes]
    return sum(
        -(-n // part) * (size if wide else min(size, 2))
        for (n, size, _), part in zip(group.state_shapes, parts, strict=True)
    )
