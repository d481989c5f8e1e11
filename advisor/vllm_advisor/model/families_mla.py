"""DeepSeek V2 and V3 and those built on them: latent attention, dense-first experts, sparse indexer, MTP layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.model.blocks import (
    Attention,
    Experts,
    Latent,
    embeddings,
    experts,
    latent_attention,
    mlp,
    norms,
)
from vllm_advisor.model.common import (
    MAX_DIM,
    MAX_HEADS,
    chosen,
    draft_head,
    intermediate,
    routed,
    sparse_after,
    tied,
    vocabulary,
)
from vllm_advisor.model.spec import CacheGroup


if TYPE_CHECKING:
    from vllm_advisor.model.blocks import Layers
    from vllm_advisor.model.fields import Fields
    from vllm_advisor.model.sheet import Sheet


# One index key: 128 e4m3 bytes and an fp32 scale for each 128 of them (sparse_attn_indexer, deepseek_v2.py Indexer).
def index_entry_bytes(dim: int) -> int:
    """Bytes of one fp8 index key: dim + 4 for each 128 elements (132 for 128)."""
    return dim + 4 * max(1, dim // 128)


def latent_of(f: Fields) -> Latent:
    """The latent attention of a config."""
    return Latent(
        f.count("num_attention_heads", high=MAX_HEADS),
        f.count("q_lora_rank", default=0, low=0, high=MAX_DIM),
        f.count("kv_lora_rank", high=MAX_DIM),
        f.count("qk_nope_head_dim", high=MAX_DIM),
        f.count("qk_rope_head_dim", low=0, high=MAX_DIM),
        f.count("v_head_dim", high=MAX_DIM),
    )


def deepseek(s: Sheet, config: Fields, f: Fields) -> None:
    """DeepSeek V2, V3, V3.2, Kimi-K2, GLM-5 (`glm_moe_dsa`), GLM-4.7-Flash and Mistral 4 (deepseek_v2.py)."""
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    a = latent_of(f)
    latent_attention(s, s.layers, a)
    norms(s, s.layers, 2)
    s.cache(a.cache(s.layers))
    indexed = _index_layers(s, f)
    _indexer(s, f, indexed, a)
    rest, sparse = sparse_after(s, f)
    if rest:
        mlp(s, rest, intermediate(f))
    e = routed_experts(f)
    if sparse:
        experts(s, sparse, e)
    drafts = s.draft(f.count("num_nextn_predict_layers", default=0, low=0, high=64))
    latent_attention(s, drafts, a)
    _indexer(s, f, drafts if indexed else (), a)
    norms(s, drafts, 5)
    experts(s, drafts, e)
    # GLM-5 stores no copies: with them GLM-5.2-FP8 would be 3.5 GiB above the published size.
    draft_head(s, drafts, vocabulary(f), copies=0 if f.text("model_type") == "glm_moe_dsa" else 2)
    s.end_draft()


def routed_experts(f: Fields) -> Experts:
    """DeepSeek's experts: `n_shared_experts` of the routed width, router bias where `topk_method` is noaux_tc."""
    size, shared = f.count("moe_intermediate_size"), f.count("n_shared_experts", default=0, low=0, high=64)
    corrected = f.text("topk_method") == "noaux_tc" or f.text("model_type") in {
        "glm4_moe_lite",
        "mistral4",
        "glm_moe_dsa",
    }
    return Experts(routed(f), chosen(f), size, size * shared, shared, correction=corrected)


def _index_layers(s: Sheet, f: Fields) -> Layers:
    """Layers with an own indexer: all, or those that do not share another's (`indexer_types`, `index_topk_freq`)."""
    if not f.has("index_topk"):
        return ()
    kinds = f.texts("indexer_types", len(s.layers))
    if kinds:
        return tuple(i for i in s.layers if kinds[i] != "shared")
    pattern = f.text("index_topk_pattern")
    if pattern:
        return tuple(i for i in s.layers if pattern[i : i + 1] != "S")
    period = f.count("index_topk_freq", default=1, high=1 << 16)
    offset = f.count("index_skip_topk_offset", default=2, low=0, high=1 << 16)
    return tuple(i for i in s.layers if max(i - offset + 1, 0) % period == 0)


def _indexer(s: Sheet, f: Fields, layers: Layers, a: Latent) -> None:
    """The lightning indexer, replicated on every rank, and its key cache (deepseek_v32/attention.py)."""
    if not layers:
        return
    n, dim = f.count("index_n_heads", high=MAX_HEADS), f.count("index_head_dim", high=MAX_DIM)
    s.linear("attention", "self_attn.indexer.wq_b", n * dim, a.q_rank or s.hidden, layers, "replicated")
    s.linear("attention", "self_attn.indexer.wk", dim, s.hidden, layers, "replicated")
    s.linear("attention", "self_attn.indexer.weights_proj", n, s.hidden, layers, "replicated", quantized=False)
    s.vector("norm", 2 * dim, layers)
    s.cache(CacheGroup("indexer", layers, n, 1, dim, fixed_bytes_per_token=index_entry_bytes(dim)))


def minicpm3(s: Sheet, config: Fields, f: Fields) -> None:
    """MiniCPM3: latent projections, but vLLM keeps plain keys and values, V padded to the K width (minicpm3.py)."""
    a = latent_of(f)
    embeddings(s, vocabulary(f), tied=tied(config, f, True))
    latent_attention(s, s.layers, a)
    norms(s, s.layers, 2)
    mlp(s, s.layers, intermediate(f))
    s.cache(Attention(a.heads, a.heads, a.nope + a.rope).cache(s.layers))
