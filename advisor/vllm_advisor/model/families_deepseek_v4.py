"""DeepSeek V4: a short window in every layer, and beside it one entry for 4 or 128 tokens (models/deepseek_v4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.model.blocks import Experts, embeddings, experts, norms
from vllm_advisor.model.common import MAX_DIM, MAX_HEADS, chosen, routed, vocabulary
from vllm_advisor.model.families_mla import index_entry_bytes
from vllm_advisor.model.spec import CacheGroup


if TYPE_CHECKING:
    from vllm_advisor.model.blocks import Layers
    from vllm_advisor.model.fields import Fields
    from vllm_advisor.model.sheet import Sheet


SPARSE_RATIO = 4  # layers of this ratio choose entries by an indexer (attention.py:306)


def deepseek_v4(s: Sheet, _config: Fields, f: Fields) -> None:
    """DeepSeek V4 Flash and Pro."""
    n, mtp = len(s.layers), f.count("num_nextn_predict_layers", default=0, low=0, high=64)
    ratios = f.ints("compress_ratios", n, 0, 1 << 16)
    mult = f.count("hc_mult", default=4, high=64)
    embeddings(s, vocabulary(f), tied=False)
    hyper_head(s, mult)
    mtp = max(mtp, len(ratios) - n)  # the 0731 release lists its three DSpark draft layers after the decoder's
    by_ratio: dict[int, list[int]] = {}
    for i in s.layers[: len(ratios)]:
        by_ratio.setdefault(max(1, ratios[i]), []).append(i)
    if not ratios:
        s.unknowns.append("compress_ratios is missing: which layers compress their cache cannot be told")
    layer(s, f, s.layers, mult)
    for ratio, layers in sorted(by_ratio.items()):
        if ratio > 1:
            _compressed(s, f, tuple(layers), ratio)
    _experts(s, f, s.layers)
    drafts = s.draft(mtp)
    layer(s, f, drafts, mult)
    _experts(s, f, drafts)
    s.linear("mtp", "e_proj", s.hidden, s.hidden, drafts, "replicated", count=2)
    norms(s, drafts, 3)
    if drafts:
        hyper_head(s, mult)
    s.end_draft()


def _experts(s: Sheet, f: Fields, layers: Layers) -> None:
    """Hash-routed layers hold a token table instead of a router bias (nvidia/model.py:268-306)."""
    size, shared = f.count("moe_intermediate_size"), f.count("n_shared_experts", default=0, low=0, high=64)
    k = chosen(f)
    e = Experts(routed(f), k, size, size * shared, shared, path="ffn")
    hashed = f.count("num_hash_layers", default=0, low=0, high=1 << 16)
    experts(s, layers, e)
    s.vector("router", e.n, tuple(i for i in layers if i >= hashed), width=4)
    s.vector("router", vocabulary(f) * k, tuple(i for i in layers if i < hashed), width=4)


def layer(s: Sheet, f: Fields, layers: Layers, mult: int) -> None:
    """Attention projections, sinks, norms and the hyper-connection mixers of each layer."""
    heads, dim = f.count("num_attention_heads", high=MAX_HEADS), f.count("head_dim", high=MAX_DIM)
    q_rank, o_rank = f.count("q_lora_rank", high=MAX_DIM), f.count("o_lora_rank", high=MAX_DIM)
    groups = f.count("o_groups", high=MAX_HEADS)
    s.linear("attention", "attn.wq_a", q_rank, s.hidden, layers, "replicated")
    s.linear("attention", "attn.wkv", dim, s.hidden, layers, "replicated")
    s.linear("attention", "attn.wq_b", heads * dim, q_rank, layers, "column")
    s.linear("attention", "attn.wo_a", groups * o_rank, heads * dim // groups, layers, "column")
    s.linear("attention", "attn.wo_b", s.hidden, groups * o_rank, layers, "row")
    s.vector("norm", q_rank + dim, layers)
    s.vector("attention", heads, layers, "column", width=4)
    norms(s, layers, 2)
    mix = (2 + mult) * mult
    s.vector("other", 2 * (mix * mult * s.hidden + mix + 3), layers, width=4)
    window = f.count("sliding_window", high=1 << 31)
    s.cache(CacheGroup("sliding", layers, heads, 1, dim, 0, window, sinks=True))


def hyper_head(s: Sheet, mult: int) -> None:
    s.vector("other", mult * mult * s.hidden + mult + 1, (), width=4)


def _compressed(s: Sheet, f: Fields, layers: Layers, ratio: int) -> None:
    """The compressor of each layer, its entries and its fp32 state; the indexer with its own where the ratio is 4."""
    heads, dim = f.count("num_attention_heads", high=MAX_HEADS), f.count("head_dim", high=MAX_DIM)
    s.cache(CacheGroup("compressed", layers, heads, 1, dim, tokens_per_entry=ratio))
    _compressor(s, layers, dim, ratio)
    if ratio != SPARSE_RATIO:
        return
    n, index = f.count("index_n_heads", high=MAX_HEADS), f.count("index_head_dim", high=MAX_DIM)
    s.linear("attention", "attn.indexer.wq_b", n * index, f.count("q_lora_rank"), layers, "replicated")
    s.linear("attention", "attn.indexer.weights_proj", n, s.hidden, layers, "replicated", quantized=False)
    entry = index_entry_bytes(index)
    s.cache(CacheGroup("indexer", layers, n, 1, index, tokens_per_entry=ratio, fixed_bytes_per_token=entry))
    _compressor(s, layers, index, ratio)


def _compressor(s: Sheet, layers: Layers, dim: int, ratio: int) -> None:
    """At ratio 4 windows overlap and double the width; the state has KV and scores in fp32 (compressor.py:130-190)."""
    wide = 2 * dim if ratio == SPARSE_RATIO else dim
    s.linear("attention", "attn.compressor.wkv", wide, s.hidden, layers, "replicated", count=2, quantized=False)
    s.vector("attention", ratio * wide, layers, width=4)
    s.vector("norm", dim, layers)
    window = 2 * ratio if ratio == SPARSE_RATIO else ratio
    s.cache(CacheGroup("sliding", layers, 0, 1, 2 * wide, 0, window, fixed_bytes_per_token=8 * wide))
