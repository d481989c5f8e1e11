"""Kimi delta attention with latent attention every few layers: Kimi-Linear, Kimi-K3, GLM-5.3-Flash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.model.blocks import Experts, embeddings, experts, latent_attention, mlp, norms
from vllm_advisor.model.common import (
    MAX_DIM,
    MAX_HEADS,
    chosen,
    draft_head,
    intermediate,
    layer_types,
    routed,
    sparse_after,
    tied,
    vocabulary,
    where,
)
from vllm_advisor.model.families_mla import index_entry_bytes, latent_of
from vllm_advisor.model.recurrent import (
    Kda,
    kda,
)
from vllm_advisor.model.spec import CacheGroup


if TYPE_CHECKING:
    from vllm_advisor.model.blocks import Layers
    from vllm_advisor.model.fields import Fields
    from vllm_advisor.model.sheet import Sheet


def kimi_linear(s: Sheet, config: Fields, f: Fields) -> None:
    """Kimi-Linear and Kimi-K3: KDA with latent attention each fourth layer; layer numbers count from 1 (kimi_k3/)."""
    cfg = f.sub("linear_attn_config")
    if cfg is None:
        s.unknowns.append("linear_attn_config is missing: which layers are linear cannot be told")
        return
    full = tuple(i - 1 for i in cfg.ints("full_attn_layers", None, 1, 1 << 16) if i <= len(s.layers))
    linear = tuple(i - 1 for i in cfg.ints("kda_layers", None, 1, 1 << 16) if i <= len(s.layers))
    if sorted((*full, *linear)) != list(s.layers):
        s.unknowns.append("linear_attn_config does not name each layer once")
    a = latent_of(f)
    gate = cfg.flag("use_full_rank_gate")
    k = Kda(
        cfg.count("num_heads", high=MAX_HEADS),
        cfg.count("head_dim", high=MAX_DIM),
        cfg.count("short_conv_kernel_size", default=4, high=64),
        gate,
    )
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    latent_attention(s, full, a)
    if f.flag("mla_use_output_gate"):
        s.linear("attention", "self_attn.g_proj", a.heads * a.v, s.hidden, full, "column")
    kda(s, linear, k)
    norms(s, s.layers, 2)
    if f.has("attn_res_block_size"):
        norms(s, s.layers, 4)
        s.vector("norm", 2 * s.hidden, ())
    _kimi_experts(s, f)
    s.cache(a.cache(full))
    s.cache(k.cache(linear))


def _kimi_experts(s: Sheet, f: Fields) -> None:
    rest, sparse = sparse_after(s, f)
    if rest:
        mlp(s, rest, intermediate(f))
    n = routed(f, default=0)
    if not n or not sparse:
        return
    size, shared = f.count("moe_intermediate_size"), f.count("num_shared_experts", default=0, low=0, high=64)
    latent = f.count("routed_expert_hidden_size", default=0, low=0)
    e = Experts(
        n,
        chosen(f),
        size,
        size * shared,
        shared,
        correction=True,
        latent=latent,
        path="block_sparse_moe",
        activation=f.text("hidden_act", "silu"),
    )
    experts(s, sparse, e)
    s.linear("experts", "block_sparse_moe.routed_expert_down_proj", latent, s.hidden, sparse, "replicated")
    s.linear("experts", "block_sparse_moe.routed_expert_up_proj", s.hidden, latent, sparse, "replicated")
    s.vector("norm", latent if f.flag("latent_moe_use_norm") else 0, sparse)


def glm5_next(s: Sheet, config: Fields, f: Fields) -> None:
    """GLM-5.3-Flash: KDA with indexed latent attention, hyper-connections (models/glm5next/common)."""
    kinds = layer_types(f, len(s.layers))
    full = where(s.layers, kinds, "indexed_attention", "full_attention") if kinds else ()
    linear = where(s.layers, kinds, "linear_attention") if kinds else ()
    if len(full) + len(linear) != len(s.layers):
        s.unknowns.append("layer_types does not name each layer as linear or indexed attention")
    a = latent_of(f)
    k = Kda(
        f.count("linear_num_heads", high=MAX_HEADS),
        f.count("linear_head_dim", high=MAX_DIM),
        f.count("linear_conv_kernel_dim", default=4, high=64),
    )
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    latent_attention(s, full, a)
    kda(s, linear, k)
    norms(s, s.layers, 2)
    _pooled_indexer(s, f, full, a.q_rank)
    mult = f.count("hc_mult", default=0, low=0, high=64)
    mix = (2 + mult) * mult
    s.vector("other", 2 * (mix * mult * s.hidden + mix + 3) if mult else 0, s.layers, width=4)
    s.vector("other", mult * mult * s.hidden + mult + 1 if mult else 0, (), width=4)
    rest, sparse = sparse_after(s, f)
    if rest:
        mlp(s, rest, intermediate(f))
    size, shared = f.count("moe_intermediate_size"), f.count("n_shared_experts", default=0, low=0, high=64)
    e = Experts(routed(f), chosen(f), size, size * shared, shared, correction=True)
    experts(s, sparse, e)
    s.cache(a.cache(full))
    s.cache(k.cache(linear))
    drafts = s.draft(f.count("num_nextn_predict_layers", default=0, low=0, high=64))
    latent_attention(s, drafts, a)
    _pooled_indexer(s, f, drafts, a.q_rank)
    experts(s, drafts, e)
    norms(s, drafts, 5)
    draft_head(s, drafts, vocabulary(f), copies=0)
    s.end_draft()


def _pooled_indexer(s: Sheet, f: Fields, layers: Layers, q_rank: int) -> None:
    """An index key for each pool of `index_kpool` tokens (models/glm5next/common/attention.py:170-240)."""
    if not f.has("index_topk"):
        return
    n, dim = f.count("index_n_heads", high=MAX_HEADS), f.count("index_head_dim", high=MAX_DIM)
    pool = f.count("index_kpool", default=1, high=1 << 16)
    s.linear("attention", "self_attn.indexer.wq_b", n * dim, q_rank, layers, "replicated")
    s.linear("attention", "self_attn.indexer.wk", dim, s.hidden, layers, "replicated", quantized=False)
    s.linear("attention", "self_attn.indexer.weights_proj", n, s.hidden, layers, "replicated", quantized=False)
    s.vector("norm", 2 * dim, layers)
    if pool > 1:
        s.vector("attention", pool * dim, layers, width=4)
        s.vector("attention", dim * s.hidden, layers)
    s.cache(
        CacheGroup("indexer", layers, n, 1, dim, tokens_per_entry=pool, fixed_bytes_per_token=index_entry_bytes(dim))
    )
