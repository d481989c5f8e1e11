"""Decoders with routed experts and ordinary attention: Mixtral, Qwen, GLM-4.5, gpt-oss, Llama 4, Granite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.model.blocks import Attention, Experts, attention, embeddings, experts, mlp, norms
from vllm_advisor.model.common import (
    chosen,
    draft_head,
    heads,
    intermediate,
    routed,
    sparse_after,
    tied,
    vocabulary,
    windowed,
)


if TYPE_CHECKING:
    from vllm_advisor.model.fields import Fields
    from vllm_advisor.model.sheet import Sheet


def mixtral(s: Sheet, config: Fields, f: Fields) -> None:
    """Mixtral (mixtral.py)."""
    q, kv, d = heads(f)
    a = Attention(q, kv, d)
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    attention(s, s.layers, a)
    norms(s, s.layers, 2)
    experts(s, s.layers, Experts(routed(f), chosen(f), intermediate(f), path="block_sparse_moe"))
    windowed(s, f, a)


def qwen2_moe(s: Sheet, config: Fields, f: Fields) -> None:
    """Qwen1.5 and Qwen2 MoE: qkv bias and a gated shared expert (qwen2_moe.py)."""
    q, kv, d = heads(f)
    a = Attention(q, kv, d, bias=f.flag("qkv_bias", default=True))
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    attention(s, s.layers, a)
    norms(s, s.layers, 2)
    shared = f.count("shared_expert_intermediate_size", default=0, low=0)
    _qwen_experts(s, f, shared)
    windowed(s, f, a, apply=f.flag("use_sliding_window"))


def qwen3_moe(s: Sheet, config: Fields, f: Fields) -> None:
    """Qwen3 MoE, text part of Qwen3-VL MoE too (qwen3_moe.py)."""
    q, kv, d = heads(f)
    bias = f.flag("attention_bias")
    a = Attention(q, kv, d, bias=bias, o_bias=bias, qk_norm=2 * d)
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    attention(s, s.layers, a)
    norms(s, s.layers, 2)
    _qwen_experts(s, f, 0)
    windowed(s, f, a, apply=f.flag("use_sliding_window"))


def _qwen_experts(s: Sheet, f: Fields, shared: int) -> None:
    """Experts in each `decoder_sparse_step`-th layer but those of `mlp_only_layers`."""
    step = f.count("decoder_sparse_step", default=1, high=1 << 16)
    only = set(f.ints("mlp_only_layers"))
    n = routed(f, "num_experts", "num_local_experts")
    sparse = tuple(i for i in s.layers if n and i not in only and (i + 1) % step == 0)
    rest = tuple(i for i in s.layers if i not in set(sparse))
    if rest:
        mlp(s, rest, intermediate(f))
    if sparse:
        e = Experts(
            n, chosen(f), f.count("moe_intermediate_size"), shared, shared_gate=shared > 0, shared_path="shared_expert"
        )
        experts(s, sparse, e)


def glm4_moe(s: Sheet, config: Fields, f: Fields) -> None:
    """GLM-4.5 to 4.7 (glm4_moe.py), with MTP layers as in glm4_moe_mtp.py."""
    q, kv, d = heads(f)
    a = Attention(q, kv, d, bias=f.flag("attention_bias"), qk_norm=2 * d if f.flag("use_qk_norm") else 0)
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    attention(s, s.layers, a)
    norms(s, s.layers, 2)
    size, shared = f.count("moe_intermediate_size"), f.count("n_shared_experts", default=1, low=0, high=64)
    e = Experts(routed(f), chosen(f), size, size * shared, shared, correction=True)
    rest, sparse = sparse_after(s, f, 1)
    if rest:
        mlp(s, rest, intermediate(f))
    experts(s, sparse, e)
    windowed(s, f, a)
    mtp = f.count("num_nextn_predict_layers", default=0, low=0, high=64)
    drafts = s.draft(mtp)
    attention(s, drafts, a)
    norms(s, drafts, 5)
    experts(s, drafts, e)
    draft_head(s, drafts, vocabulary(f))
    s.end_draft()


def gpt_oss(s: Sheet, config: Fields, f: Fields) -> None:
    """gpt-oss: sinks, biases everywhere, alternating windows (gpt_oss.py)."""
    q, kv, d = heads(f)
    bias = f.flag("attention_bias", default=True)
    a = Attention(q, kv, d, bias=bias, o_bias=bias, sinks=True)
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    attention(s, s.layers, a)
    norms(s, s.layers, 2)
    e = Experts(
        routed(f), chosen(f), intermediate(f), bias=True, router_bias=True, gate="router", activation="swigluoai"
    )
    experts(s, s.layers, e)
    windowed(s, f, a, period=2)


def llama4(s: Sheet, config: Fields, f: Fields) -> None:
    """Llama 4: experts in each `interleave_moe_layer_step`-th layer; rotary layers attend in chunks (llama4.py)."""
    q, kv, d = heads(f)
    n, bias = len(s.layers), f.flag("attention_bias")
    a = Attention(q, kv, d, bias=bias, o_bias=bias)
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    attention(s, s.layers, a)
    norms(s, s.layers, 2)
    step = f.count("interleave_moe_layer_step", default=1, high=1 << 16)
    sparse = f.ints("moe_layers") or tuple(i for i in s.layers if (i + 1) % step == 0)
    sparse = tuple(i for i in s.layers if i in set(sparse))
    rest = tuple(i for i in s.layers if i not in set(sparse))
    if rest:
        mlp(s, rest, f.count("intermediate_size_mlp", default=intermediate(f)), path="feed_forward")
    size = intermediate(f)
    e = Experts(routed(f), chosen(f), size, size, 1, path="feed_forward", gate="router", shared_path="shared_expert")
    experts(s, sparse, e)
    rotary = f.ints("no_rope_layers", n)[:n] or tuple(
        int((i + 1) % f.count("no_rope_layer_interval", default=4)) for i in s.layers
    )
    chunk = f.count("attention_chunk_size", default=0, low=0, high=1 << 31)
    chunked = tuple(i for i in s.layers if rotary[i] and chunk)
    s.cache(a.cache(tuple(i for i in s.layers if i not in set(chunked))))
    s.cache(a.cache(chunked, "chunked", chunk))


def ernie4_5_moe(s: Sheet, config: Fields, f: Fields) -> None:
    """ERNIE 4.5 MoE (ernie45_moe.py)."""
    q, kv, d = heads(f)
    bias = f.flag("use_bias")
    a = Attention(q, kv, d, bias=bias, o_bias=bias)
    embeddings(s, vocabulary(f), tied=tied(config, f, True))
    attention(s, s.layers, a)
    norms(s, s.layers, 2)
    first = f.count("moe_layer_start_index", default=0, low=0, high=1 << 16)
    last = f.count("moe_layer_end_index", default=len(s.layers) - 1, low=-1, high=1 << 16)
    step = f.count("moe_layer_interval", default=1, high=1 << 16)
    end = last if last >= 0 else len(s.layers) - 1
    sparse = tuple(i for i in s.layers if first <= i <= end and (i + 1) % step == 0)
    rest = tuple(i for i in s.layers if i not in set(sparse))
    if rest:
        mlp(s, rest, intermediate(f), bias=bias)
    size, shared = f.count("moe_intermediate_size"), f.count("moe_num_shared_experts", default=0, low=0, high=64)
    experts(s, sparse, Experts(routed(f), chosen(f), size, size * shared, shared, correction=True, gate_width=4))
    windowed(s, f, a)


def granitemoe(s: Sheet, config: Fields, f: Fields) -> None:
    """Granite and Power MoE, with a shared expert in granitemoeshared (granitemoe.py)."""
    q, kv, d = heads(f)
    bias = f.flag("attention_bias")
    a = Attention(q, kv, d, bias=bias, o_bias=bias)
    embeddings(s, vocabulary(f), tied=tied(config, f, True))
    attention(s, s.layers, a)
    norms(s, s.layers, 2)
    shared = f.count("shared_intermediate_size", default=0, low=0)
    experts(s, s.layers, Experts(routed(f), chosen(f), intermediate(f), shared, path="block_sparse_moe"))
    windowed(s, f, a)


def hunyuan_moe(s: Sheet, config: Fields, f: Fields) -> None:
    """Hunyuan V1 MoE: per-layer expert width, choice and shared experts; qk norms (hunyuan_v1.py)."""
    q, kv, d = heads(f)
    bias = f.flag("attention_bias")
    a = Attention(q, kv, d, bias=bias, o_bias=bias, qk_norm=2 * d if f.flag("use_qk_norm", default=True) else 0)
    embeddings(s, vocabulary(f), tied=tied(config, f, True))
    attention(s, s.layers, a)
    norms(s, s.layers, 2)
    sizes, ks, shares = (_each(f, key, len(s.layers), default) for key, default in _HUNYUAN)
    by_shape: dict[tuple[int, int, int], list[int]] = {}
    for i in s.layers:
        by_shape.setdefault((sizes[i] or intermediate(f), ks[i], shares[i]), []).append(i)
    for (size, k, share), layers in by_shape.items():
        e = Experts(
            routed(f, "num_experts"),
            max(1, k),
            size,
            intermediate(f) * share,
            share,
            gate="gate.wg",
            shared_path="shared_mlp",
        )
        experts(s, tuple(layers), e)
    windowed(s, f, a)


_HUNYUAN = (("moe_intermediate_size", 0), ("moe_topk", 1), ("num_shared_expert", 1))


def _each(f: Fields, key: str, layers: int, default: int) -> tuple[int, ...]:
    if isinstance(f.raw(key), list):
        return f.ints(key, layers)[:layers] or (default,) * layers
    return (f.count(key, default=default, low=0),) * layers


def olmoe(s: Sheet, config: Fields, f: Fields) -> None:
    """OLMoE: norms over all query and key heads (olmoe.py)."""
    q, kv, d = heads(f)
    bias = f.flag("attention_bias")
    a = Attention(q, kv, d, bias=bias, o_bias=bias, qk_norm=(q + kv) * d)
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    attention(s, s.layers, a)
    norms(s, s.layers, 2)
    experts(s, s.layers, Experts(routed(f, "num_experts"), chosen(f), intermediate(f)))
    windowed(s, f, a)


def phimoe(s: Sheet, config: Fields, f: Fields) -> None:
    """Phi-3.5-MoE: LayerNorms, biases in attention and head (phimoe.py)."""
    q, kv, d = heads(f)
    bias = f.flag("attention_bias")
    a = Attention(q, kv, d, bias=bias, o_bias=bias)
    embeddings(s, vocabulary(f), tied=tied(config, f, False), norm=2, lm_bias=f.flag("lm_head_bias"))
    attention(s, s.layers, a)
    norms(s, s.layers, 4)
    experts(s, s.layers, Experts(routed(f), chosen(f), intermediate(f), path="block_sparse_moe"))
    windowed(s, f, a)
