"""Experts under attention that differs by layer: MiniMax-M2, M3 and 01, MiMo-V2, Step-3.5."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.model.blocks import Attention, Experts, attention, embeddings, experts, mlp, norms
from vllm_advisor.model.common import (
    MAX_HEADS,
    chosen,
    heads,
    intermediate,
    layer_types,
    routed,
    sparse_after,
    tied,
    vocabulary,
    where,
    windowed,
)
from vllm_advisor.model.recurrent import (
    Lightning,
    lightning,
)
from vllm_advisor.model.spec import CacheGroup


if TYPE_CHECKING:
    from vllm_advisor.model.blocks import Layers
    from vllm_advisor.model.fields import Fields
    from vllm_advisor.model.sheet import Sheet


def minimax_m2(s: Sheet, config: Fields, f: Fields) -> None:
    """MiniMax-M2 (minimax_m2.py): norms over all query and key heads, router bias. MTP modules are not published."""
    q, kv, d = heads(f)
    norm = (q + kv) * d if f.text("qk_norm_type", "per_layer") == "per_layer" else 2 * d
    a = Attention(q, kv, d, qk_norm=norm if f.flag("use_qk_norm", default=True) else 0)
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    attention(s, s.layers, a)
    norms(s, s.layers, 2)
    e = Experts(
        routed(f),
        chosen(f),
        intermediate(f),
        correction=f.flag("use_routing_bias", default=True),
        path="block_sparse_moe",
        gate_width=4,
    )
    experts(s, s.layers, e)
    windowed(s, f, a)


def minimax_m3(s: Sheet, config: Fields, f: Fields) -> None:
    """MiniMax-M3: leading dense layers; sparse attention layers add an index query and key (models/minimax_m3)."""
    q, kv, d = heads(f)
    norm = 2 * d if f.flag("use_qk_norm", default=True) else 0
    a = Attention(q, kv, d, qk_norm=norm, gate=f.flag("attention_output_gate"))
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    attention(s, s.layers, a)
    norms(s, s.layers, 2)
    rest, sparse = sparse_after(s, f)
    if rest:
        mlp(s, rest, f.count("dense_intermediate_size", default=intermediate(f)))
    size, shared = intermediate(f), f.count("n_shared_experts", default=0, low=0, high=64)
    e = Experts(
        routed(f), chosen(f), size, size * shared, shared, path="block_sparse_moe", activation="swigluoai",
        gate_width=4, correction=f.flag("use_routing_bias", default=True),
    )  # fmt: skip
    experts(s, sparse, e)
    s.cache(a.cache(s.layers))
    _minimax_index(s, f)


def _minimax_index(s: Sheet, f: Fields) -> None:
    """The index heads of sparse layers: bf16 keys of `sparse_index_dim` a token (minimax_m3/common/indexer.py:147)."""
    cfg = f.sub("sparse_attention_config")
    if cfg is None or not cfg.flag("use_sparse_attention", default=True):
        return
    flags = cfg.flags("sparse_attention_freq", len(s.layers))
    layers = tuple(i for i in s.layers if flags[i]) if flags else s.layers
    dim, n = cfg.count("sparse_index_dim", high=1 << 16), cfg.count("sparse_num_index_heads", high=1 << 14)
    s.linear("attention", "self_attn.index_q_proj", n * dim, s.hidden, layers, "column")
    s.linear("attention", "self_attn.index_k_proj", dim, s.hidden, layers, "replicated")
    s.vector("norm", 2 * dim, layers)
    s.cache(CacheGroup("indexer", layers, n, 1, dim))


def mimo_v2(s: Sheet, config: Fields, f: Fields) -> None:
    """MiMo-V2: windows with sinks and own head counts, values narrower than keys (mimo_v2.py)."""
    q, kv, d = heads(f)
    bias = f.flag("attention_bias")
    full = Attention(q, kv, d, f.count("v_head_dim", default=d), bias, sinks=f.flag("add_full_attention_sink_bias"))
    swa_d = f.count("swa_head_dim", default=d)
    swa = Attention(
        f.count("swa_num_attention_heads", default=q), f.count("swa_num_key_value_heads", default=kv), swa_d,
        f.count("swa_v_head_dim", default=full.dv), bias, sinks=f.flag("add_swa_attention_sink_bias"),
    )  # fmt: skip
    flags = f.flags("hybrid_layer_pattern", len(s.layers))
    sliding = tuple(i for i in s.layers if flags and flags[i])
    rest = tuple(i for i in s.layers if i not in set(sliding))
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    attention(s, rest, full)
    attention(s, sliding, swa)
    norms(s, s.layers, 2)
    dense_layers, sparse = sparse_after(s, f)
    if dense_layers:
        mlp(s, dense_layers, intermediate(f))
    e = Experts(routed(f), chosen(f), f.count("moe_intermediate_size"), correction=f.text("topk_method") == "noaux_tc")
    experts(s, sparse, e)
    s.cache(full.cache(rest))
    s.cache(swa.cache(sliding, "sliding", f.count("sliding_window", "sliding_window_size", default=128, high=1 << 31)))


def step3p5(s: Sheet, config: Fields, f: Fields) -> None:
    """Step-3.5 and 3.7 Flash: leading dense layers, one shared expert, windows with own head counts (step3p5.py)."""
    q, _, d = heads(f)
    kv = f.count("num_attention_groups", "num_key_value_heads", default=q, high=MAX_HEADS)
    a = Attention(q, kv, d, qk_norm=2 * d)
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    kinds = layer_types(f, len(s.layers))
    sliding = where(s.layers, kinds, "sliding_attention") if kinds else ()
    rest = tuple(i for i in s.layers if i not in set(sliding))
    near = a._replace(q=_sliding_heads(s, f, q, sliding))
    for layers, kind in ((rest, a), (sliding, near)):
        attention(s, layers, kind)
        if f.flag("use_head_wise_attn_gate"):
            s.linear("attention", "self_attn.g_proj", kind.q, s.hidden, layers, "column")
    norms(s, s.layers, 2)
    dense_layers, sparse = _step_layers(s, f)
    if dense_layers:
        mlp(s, dense_layers, intermediate(f))
    shared = f.count("share_expert_dim", "share_expert_dims", default=0, low=0)
    n, k = routed(f, "moe_num_experts", "num_experts"), chosen(f)
    e = Experts(n, k, f.count("moe_intermediate_size"), shared, 1, path="moe", shared_path="share_expert")
    experts(s, sparse, e._replace(correction=f.flag("use_moe_router_bias")))
    s.cache(a.cache(rest))
    s.cache(near.cache(sliding, "sliding", f.count("sliding_window", default=512, high=1 << 31)))


def _sliding_heads(s: Sheet, f: Fields, q: int, sliding: Layers) -> int:
    """Query heads of sliding layers, which differ from the others' in the published models."""
    other = f.sub("attention_other_setting")
    if other:
        return other.count("num_attention_heads", default=q, high=MAX_HEADS)
    if sliding and not f.has("num_sliding_attention_heads"):
        s.unknowns.append(
            "the head count of sliding layers is missing (attention_other_setting): the config is trimmed"
        )
    return f.count("num_sliding_attention_heads", default=q, high=MAX_HEADS)


def _step_layers(s: Sheet, f: Fields) -> tuple[Layers, Layers]:
    """Dense and sparse layers; older files list the sparse ones as text."""
    named = f.text("moe_layers_enum")
    if not named:
        return sparse_after(s, f)
    listed = {int(part) for part in named.split(",") if part.strip().isdigit() and len(part) < 8}
    return tuple(i for i in s.layers if i not in listed), tuple(i for i in s.layers if i in listed)


def minimax_01(s: Sheet, config: Fields, f: Fields) -> None:
    """MiniMax-Text-01 and M1: lightning attention, softmax where `attn_type_list` is 1. Last in vLLM 0.23.0."""
    q, kv, d = heads(f)
    flags = f.flags("attn_type_list", len(s.layers))
    kinds = layer_types(f, len(s.layers))
    full = tuple(i for i in s.layers if (flags[i] if flags else bool(kinds) and kinds[i] == "full_attention"))
    a = Attention(q, kv, d)
    linear = Lightning(q, d)
    rest = tuple(i for i in s.layers if i not in set(full))
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    attention(s, full, a)
    lightning(s, rest, linear)
    norms(s, s.layers, 2)
    experts(s, s.layers, Experts(routed(f), chosen(f), intermediate(f), path="block_sparse_moe", gate_width=4))
    s.cache(a.cache(full))
    s.cache(linear.cache(rest))
    if not flags and not kinds:
        s.unknowns.append("attn_type_list is missing: which layers are linear cannot be told")
