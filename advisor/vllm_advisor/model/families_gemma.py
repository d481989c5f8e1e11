"""Gemma 3n and 4: two head shapes, keys that serve as values, caches shared across layers, per-layer embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.model.blocks import Attention, Experts, attention, embeddings, experts, mlp, norms
from vllm_advisor.model.common import MAX_DIM, MAX_HEADS, heads, layer_types, routed, tied, vocabulary, where


if TYPE_CHECKING:
    from vllm_advisor.model.blocks import Layers
    from vllm_advisor.model.fields import Fields
    from vllm_advisor.model.sheet import Sheet


def gemma4(s: Sheet, config: Fields, f: Fields) -> None:
    """Gemma 4 (gemma4.py): full layers have `global_head_dim` and `num_global_key_value_heads`, and K = V there."""
    q, kv, d = heads(f)
    kinds = layer_types(f, len(s.layers))
    sliding = where(s.layers, kinds, "sliding_attention") if kinds else tuple(i for i in s.layers if (i + 1) % 6)
    full = tuple(i for i in s.layers if i not in set(sliding))
    same = f.flag("attention_k_eq_v")
    wide = _global_head_dim(f, full, d)
    g_kv = f.count("num_global_key_value_heads", default=kv, high=MAX_HEADS) if same else kv
    near = Attention(q, kv, d, qk_norm=2 * d)
    far = Attention(q, g_kv, wide, qk_norm=2 * wide, shared_kv=same)
    embeddings(s, vocabulary(f), tied=tied(config, f, True))
    first_shared = len(s.layers) - f.count("num_kv_shared_layers", default=0, low=0, high=len(s.layers))
    window = f.count("sliding_window", default=512, high=1 << 31)
    for layers, a, kind, size in ((sliding, near, "sliding", window), (full, far, "full", 0)):
        own, borrowed = tuple(i for i in layers if i < first_shared), tuple(i for i in layers if i >= first_shared)
        attention(s, own, a)
        attention(s, borrowed, a._replace(qk_norm=a.qk_norm // 2), own_kv=False)
        s.cache(a.cache(own, kind, size))
    norms(s, s.layers, 4)
    _gemma4_mlp(s, f, first_shared)
    _per_layer_embedding(s, f)
    s.vector("other", 1, s.layers)


def _global_head_dim(f: Fields, full: Layers, default: int) -> int:
    """Width of a full layer's heads; transformers 5 writes it as an override of each full layer."""
    overrides = f.sub("per_layer_config")
    for i in full:
        own = (overrides.sub(str(i)) or overrides.sub(f"{i:02}")) if overrides else None
        if own and own.has("head_dim"):
            return own.count("head_dim", high=MAX_DIM)
    return f.count("global_head_dim", default=default, high=MAX_DIM)


def _gemma4_mlp(s: Sheet, f: Fields, first_shared: int) -> None:
    size = f.count("intermediate_size")
    double = f.flag("use_double_wide_mlp")
    mlp(s, s.layers[:first_shared] if double else s.layers, size)
    if double and s.layers[first_shared:]:
        mlp(s, s.layers[first_shared:], 2 * size)
    if not f.flag("enable_moe_block"):
        return
    n, k = routed(f, "num_experts"), f.count("top_k_experts", "num_experts_per_tok", high=1 << 14)
    size = f.count("moe_intermediate_size", "expert_intermediate_size")
    e = Experts(n, k, size, path="moe", gate="router", activation="gelu_tanh")
    experts(s, s.layers, e)
    norms(s, s.layers, 3)
    s.vector("router", s.hidden + n, s.layers)


def _per_layer_embedding(s: Sheet, f: Fields) -> None:
    """A second embedding, one slice of `hidden_size_per_layer_input` a layer, with its gates (Gemma 3n, E2B, E4B)."""
    width = f.count("hidden_size_per_layer_input", default=0, low=0)
    if not width:
        return
    total = width * len(s.layers)
    rows = f.count("vocab_size_per_layer_input", default=262144, high=1 << 26)
    s.linear("embedding", "embed_tokens_per_layer", rows, total, (), "vocab", quantized=False)
    s.linear("other", "per_layer_model_projection", total, s.hidden, (), "replicated", quantized=False)
    s.vector("norm", width, ())
    s.linear("other", "per_layer_input_gate", width, s.hidden, s.layers, "replicated")
    s.linear("other", "per_layer_projection", s.hidden, width, s.layers, "replicated")
    norms(s, s.layers, 1)


def gemma3n(s: Sheet, config: Fields, f: Fields) -> None:
    """Gemma 3n (gemma3n.py): alternating updates, a low-rank side path, per-layer widths."""
    q, kv, d = heads(f)
    kinds = layer_types(f, len(s.layers))
    sliding = where(s.layers, kinds, "sliding_attention") if kinds else tuple(i for i in s.layers if (i + 1) % 5)
    first_shared = len(s.layers) - f.count("num_kv_shared_layers", default=0, low=0, high=len(s.layers))
    a = Attention(q, kv, d, qk_norm=2 * d)
    embeddings(s, vocabulary(f), tied=tied(config, f, True))
    attention(s, s.layers, a)
    norms(s, s.layers, 4)
    _own_caches(s, f, a, sliding, first_shared)
    sizes = f.ints("intermediate_size", len(s.layers)) if isinstance(f.raw("intermediate_size"), list) else ()
    by_size: dict[int, list[int]] = {}
    for i in s.layers:
        by_size.setdefault(sizes[i] if sizes else f.count("intermediate_size"), []).append(i)
    for size, layers in by_size.items():
        mlp(s, tuple(layers), size)
    _per_layer_embedding(s, f)
    n, rank = f.count("altup_num_inputs", default=4, high=64), f.count("laurel_rank", default=64, high=MAX_DIM)
    s.linear("other", "altup_projections", s.hidden, s.hidden, (), "replicated", count=2 * (n - 1), quantized=False)
    s.linear("other", "laurel.linear_left", rank, s.hidden, s.layers, "replicated", count=2)
    s.vector("other", n * n + n * n * n + 2 * n * s.hidden, s.layers)


def _own_caches(s: Sheet, f: Fields, a: Attention, sliding: Layers, first_shared: int) -> None:
    near = set(sliding)
    s.cache(a.cache(tuple(i for i in s.layers if i < first_shared and i not in near)))
    window = f.count("sliding_window", default=512, high=1 << 31)
    s.cache(a.cache(tuple(i for i in sliding if i < first_shared), "sliding", window))
