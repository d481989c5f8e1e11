"""What most decoders spell alike in a config: heads, windows, ties, which layers have experts, draft heads."""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from vllm_advisor.model.blocks import Attention, Layers
    from vllm_advisor.model.fields import Fields
    from vllm_advisor.model.sheet import Sheet


MAX_HEADS = 1 << 14

MAX_DIM = 1 << 16

MAX_EXPERTS = 1 << 14

MAX_VOCAB = 1 << 26


def heads(f: Fields) -> tuple[int, int, int]:
    """Query heads, KV heads and head width (hidden size / heads when the config doesn't say)."""
    q = f.count("num_attention_heads", "n_head", high=MAX_HEADS)
    kv = f.count("num_key_value_heads", "num_kv_heads", "multi_query_group_num", default=q, high=MAX_HEADS)
    hidden = f.count("hidden_size", "n_embd", "d_model")
    d = f.count("head_dim", "attention_head_dim", default=max(1, hidden // q), high=MAX_DIM)
    return q, kv, d


def intermediate(f: Fields) -> int:
    """Width of the dense feed-forward network."""
    return f.count("intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner")


def tied(config: Fields, text: Fields, default: bool) -> bool:
    """Whether the output head is the embedding: the text config says so, else the outer one, else the class default."""
    for place in (text, config):
        if place.has("tie_word_embeddings"):
            return place.flag("tie_word_embeddings")
    return default


def layer_types(f: Fields, layers: int) -> tuple[str, ...]:
    """Kinds of layers by number; () when the config has no such list."""
    return f.texts("layer_types", layers)[:layers] if f.has("layer_types") else ()


def where(layers: Layers, kinds: tuple[str, ...], *wanted: str) -> Layers:
    """The layers whose kind is one of `wanted`."""
    return tuple(i for i in layers if kinds[i] in wanted)


def windowed(s: Sheet, f: Fields, a: Attention, *, period: int = 0, apply: bool = True) -> None:
    """Add the caches of attention layers, sliding where the config says so.

    `layer_types` decides; without it `period` > 0 makes each period-th layer global; without both, `sliding_window`
    holds for all layers (vllm/config/model.py:get_sliding_window).
    """
    window = f.count("sliding_window", default=0, low=0, high=1 << 31) if apply else 0
    kinds = layer_types(f, len(s.layers))
    if not window:
        s.cache(a.cache(s.layers))
        return
    known = {"full_attention", "sliding_attention", "attention"}
    s.unknowns.extend(f"layer type {k[:40]!r} is not known" for k in dict.fromkeys(kinds) if k not in known)
    if kinds:
        sliding = where(s.layers, kinds, "sliding_attention")
    elif period:
        sliding = tuple(i for i in s.layers if (i + 1) % period)
    else:
        sliding = s.layers
    s.cache(a.cache(tuple(i for i in s.layers if i not in set(sliding))))
    s.cache(a.cache(sliding, "sliding", window))


def vocabulary(f: Fields) -> int:
    return f.count("vocab_size", high=MAX_VOCAB)


def routed(f: Fields, *keys: str, default: int | None = None) -> int:
    """How many experts."""
    names = keys or ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
    return f.count(*names, default=default, low=0, high=MAX_EXPERTS)


def chosen(f: Fields) -> int:
    """How many of them a token uses."""
    return f.count(
        "num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_top_k", "top_k_experts", high=MAX_EXPERTS
    )


def sparse_after(s: Sheet, f: Fields, default_dense: int = 0) -> tuple[Layers, Layers]:
    """Dense and sparse layers from `mlp_layer_types`, `moe_layer_freq` (list or period) and `first_k_dense_replace`."""
    kinds = f.texts("mlp_layer_types", len(s.layers))
    if kinds:
        return where(s.layers, kinds, "dense"), tuple(i for i in s.layers if kinds[i] != "dense")
    flags = f.flags("moe_layer_freq", len(s.layers)) if isinstance(f.raw("moe_layer_freq"), list) else ()
    if flags:
        return tuple(i for i in s.layers if not flags[i]), tuple(i for i in s.layers if flags[i])
    first = f.count("first_k_dense_replace", default=default_dense, low=0, high=1 << 16)
    period = 1 if isinstance(f.raw("moe_layer_freq"), list) else f.count("moe_layer_freq", default=1, high=1 << 16)
    sparse = tuple(i for i in s.layers if i >= first and i % period == 0)
    return tuple(i for i in s.layers if i not in set(sparse)), sparse


def draft_head(s: Sheet, drafts: Layers, vocab: int, *, copies: int = 2) -> None:
    """The projection of a DeepSeek-style draft layer and its own `copies` of embedding and head."""
    if drafts:
        s.linear("mtp", "eh_proj", s.hidden, 2 * s.hidden, drafts, "replicated", quantized=False)
        s.linear("mtp", "shared_head.head", vocab, s.hidden, drafts, "vocab", count=copies, quantized=False)
