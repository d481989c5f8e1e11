"""DeepSeek V4.1: few layers own the compressed cache that all read; two hold n-gram tables (models/deepseek_v41)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.model.blocks import Experts, embeddings, experts, norms
from vllm_advisor.model.common import MAX_DIM, MAX_HEADS, chosen, routed, vocabulary
from vllm_advisor.model.families_deepseek_v4 import hyper_head, layer
from vllm_advisor.model.families_mla import index_entry_bytes
from vllm_advisor.model.fields import MAX_ROWS
from vllm_advisor.model.quantization import Format
from vllm_advisor.model.spec import CacheGroup


if TYPE_CHECKING:
    from vllm_advisor.model.blocks import Layers
    from vllm_advisor.model.fields import Fields
    from vllm_advisor.model.sheet import Sheet


# Engram rows: e4m3 with an e8m0 scale for each 32 elements (common/engram.py:785-791).
ENGRAM = Format("mxfp8", 8, 8, (1, 32), 1.0)
RING_ROWS = 8  # rows of the open group that the compressor keeps (compressor.py:220)


def deepseek_v41(s: Sheet, _config: Fields, f: Fields) -> None:
    """DeepSeek V4.1 Flash."""
    mult = f.count("hc_mult", default=4, high=64)
    embeddings(s, vocabulary(f), tied=False)
    hyper_head(s, mult)
    layer(s, f, s.layers, mult)
    _experts(s, f, s.layers, routed(f), chosen(f))
    _sources(s, f)
    _engrams(s, f, mult)
    drafts = s.draft(f.count("num_nextn_predict_layers", default=0, low=0, high=64))
    layer(s, f, drafts, mult)
    _experts(
        s,
        f,
        drafts,
        f.count("dspark_n_routed_experts", default=routed(f)),
        f.count("dspark_num_experts_per_tok", default=1),
    )
    s.linear("mtp", "e_proj", s.hidden, s.hidden, drafts, "replicated", count=2)
    norms(s, drafts, 3)
    s.end_draft()


def _experts(s: Sheet, f: Fields, layers: Layers, n: int, k: int) -> None:
    """Experts with a router bias for text and one for image tokens (deepseek_v4/nvidia/model.py:300-320)."""
    size, shared = f.count("moe_intermediate_size"), f.count("n_shared_experts", default=0, low=0, high=64)
    experts(s, layers, Experts(n, k, size, size * shared, shared, correction=True, path="ffn"))
    s.vector("router", n, layers, width=4)


def _sources(s: Sheet, f: Fields) -> None:
    """Compressed entries and index keys live on `kv_source_layer_ids` only; indexers on `index_source_layer_ids`."""
    ratios = f.ints("compress_ratios", len(s.layers), 0, 1 << 16)
    owners = tuple(i for i in f.ints("kv_source_layer_ids") if i < len(s.layers))
    indexers = tuple(i for i in f.ints("index_source_layer_ids") if i < len(s.layers))
    if not ratios or not owners:
        s.unknowns.append("compress_ratios or kv_source_layer_ids is missing: which layers own a cache cannot be told")
        return
    heads, dim = f.count("num_attention_heads", high=MAX_HEADS), f.count("head_dim", high=MAX_DIM)
    n, index = f.count("index_n_heads", high=MAX_HEADS), f.count("index_head_dim", high=MAX_DIM)
    by_ratio: dict[int, list[int]] = {}
    for i in owners:
        by_ratio.setdefault(max(1, ratios[i]), []).append(i)
    for ratio, found in by_ratio.items():
        layers = tuple(found)
        s.linear(
            "attention",
            "attn.compressor.wkv",
            dim,
            s.hidden,
            layers,
            "replicated",
            count=min(ratio, 2),
            quantized=False,
        )
        s.cache(CacheGroup("compressed", layers, heads, 1, dim, tokens_per_entry=ratio))
        entry = index_entry_bytes(index)
        s.cache(CacheGroup("indexer", layers, n, 1, index, tokens_per_entry=ratio, fixed_bytes_per_token=entry))
        if ratio > 1:
            s.cache(CacheGroup("sliding", layers, 0, 1, 2 * dim, 0, RING_ROWS, fixed_bytes_per_token=8 * dim))
    s.linear("attention", "attn.indexer.wk", index, dim, owners, "replicated", quantized=False)
    s.vector("norm", dim + index, owners)
    s.linear("attention", "attn.indexer.wq_b", n * index, f.count("q_lora_rank", high=MAX_DIM), indexers, "replicated")
    s.linear("attention", "attn.indexer.weights_proj", n, s.hidden, indexers, "replicated", quantized=False)


def _engrams(s: Sheet, f: Fields, mult: int) -> None:
    """An n-gram table on each of `engram_layer_ids`, and the projection of the rows that a token looks up."""
    layers = tuple(i for i in f.ints("engram_layer_ids") if i < len(s.layers))
    if not layers:
        return
    rows = f.ints("engram_num_embeddings", len(layers), 1, MAX_ROWS)
    if len(rows) < len(layers):
        s.unknowns.append("engram_num_embeddings is missing: the size of the n-gram tables cannot be told")
        return
    dim, columns = f.count("engram_head_dim", high=MAX_DIM), f.count("engram_n_heads", high=MAX_HEADS)
    columns *= f.count("engram_max_ngram_size", low=2, high=64) - 1
    for i, count in zip(layers, rows, strict=False):
        s.table(count, dim, (i,), ENGRAM)
    s.linear("other", "engram.wkv", s.hidden * (mult + 1), columns * dim, layers, "column")
    s.vector("other", 2 * mult * s.hidden, layers)
