"""Bytes of cache that one more token costs, over all layers, before any sharding."""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from vllm_advisor.model.spec import CacheGroup, ModelSpec


GROWING = frozenset(("full", "mla", "indexer", "compressed"))


def entry_bytes(group: CacheGroup, kv_dtype_bytes: float) -> float:
    """Bytes of one stored entry in one layer: `fixed_bytes_per_token` where the layout is fixed, else heads × (K + V).

    Source: v1/kv_cache_interface.py, AttentionSpec.state_content_size_bytes and unpadded_page_size_bytes.
    """
    if group.fixed_bytes_per_token:
        return group.fixed_bytes_per_token
    return group.kv_heads * (group.k_dim + group.v_dim) * kv_dtype_bytes


def kv_bytes_per_token(spec: ModelSpec, kv_dtype_bytes: float) -> int:
    """Cache bytes a token of context, unsharded, over every group that grows with length (windows and states do not).

    `kv_dtype_bytes`: 2 for bf16, 1 for fp8. DeepSeek-V3 at 2: 576 × 61 × 2 = 70,272.
    """
    growing = (g for g in spec.caches if g.kind in GROWING)
    return int(sum(len(g.layers) * entry_bytes(g, kv_dtype_bytes) / g.tokens_per_entry for g in growing))


def state_bytes(spec: ModelSpec) -> int:
    """Bytes of the fixed state (Mamba, GDN, linear attention) that one request keeps, unsharded."""
    return sum(len(group.layers) * elements * size for group in spec.caches for elements, size, _ in group.state_shapes)
