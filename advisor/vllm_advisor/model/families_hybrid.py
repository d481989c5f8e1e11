"""Attention mixed with layers of fixed state: Qwen3-Next and 3.5, Nemotron-H, Falcon-H1, Jamba, Granite 4, Mamba."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.model.blocks import Attention, Experts, attention, embeddings, experts, mlp, norms
from vllm_advisor.model.common import (
    MAX_DIM,
    MAX_HEADS,
    chosen,
    heads,
    intermediate,
    layer_types,
    routed,
    tied,
    vocabulary,
    where,
)
from vllm_advisor.model.recurrent import (
    DTYPE_BYTES,
    DeltaNet,
    Mamba1,
    Mamba2,
    delta_net,
    mamba1,
    mamba2,
)


if TYPE_CHECKING:
    from vllm_advisor.model.blocks import Layers
    from vllm_advisor.model.fields import Fields
    from vllm_advisor.model.sheet import Sheet


def _rest(s: Sheet, taken: Layers) -> Layers:
    seen = set(taken)
    return tuple(i for i in s.layers if i not in seen)


def _delta(f: Fields, *, split: bool) -> DeltaNet:
    return DeltaNet(
        f.count("linear_num_key_heads", high=MAX_HEADS), f.count("linear_num_value_heads", high=MAX_HEADS),
        f.count("linear_key_head_dim", high=MAX_DIM), f.count("linear_value_head_dim", high=MAX_DIM),
        f.count("linear_conv_kernel_dim", default=4, high=64), split, DTYPE_BYTES.get(f.text("mamba_ssm_dtype"), 2),
    )  # fmt: skip


def qwen3_next(s: Sheet, config: Fields, f: Fields, *, split: bool = False) -> None:
    """Qwen3-Next, Qwen3.5 and later: three gated delta nets, then one gated attention (qwen3_next.py, qwen3_5.py)."""
    q, kv, d = heads(f)
    kinds = layer_types(f, len(s.layers))
    interval = f.count("full_attention_interval", default=4, high=1 << 16)
    full = where(s.layers, kinds, "full_attention") if kinds else tuple(i for i in s.layers if (i + 1) % interval == 0)
    s.unknowns.extend(f"layer type {k[:40]!r} is not known" for k in dict.fromkeys(kinds) if k not in _QWEN_KINDS)
    bias = f.flag("attention_bias")
    gate = f.flag("attn_output_gate", default=True)
    a = Attention(q, kv, d, bias=bias, o_bias=bias, qk_norm=2 * d, gate=gate)
    g = _delta(f, split=split)
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    linear = _rest(s, full)
    attention(s, full, a)
    delta_net(s, linear, g)
    norms(s, s.layers, 2)
    _qwen_mlp(s, f, s.layers)
    s.cache(a.cache(full))
    s.cache(g.cache(linear))
    mtp = f.count("mtp_num_hidden_layers", "num_nextn_predict_layers", default=0 if split else 1, low=0, high=64)
    drafts = s.draft(mtp)
    attention(s, drafts, a)
    _qwen_mlp(s, f, drafts)
    norms(s, drafts, 5)
    s.linear("mtp", "fc", s.hidden, 2 * s.hidden, drafts[:1], "replicated", quantized=False)
    s.end_draft()


_QWEN_KINDS = frozenset(("full_attention", "linear_attention"))


def _qwen_mlp(s: Sheet, f: Fields, layers: Layers) -> None:
    n = routed(f, "num_experts", default=0)
    if not n:
        mlp(s, layers, intermediate(f))
        return
    shared = f.count("shared_expert_intermediate_size", default=0, low=0)
    only = set(f.ints("mlp_only_layers"))
    step = f.count("decoder_sparse_step", default=1, high=1 << 16)
    dense = tuple(i for i in layers if i in only or (i + 1) % step)
    if dense:
        mlp(s, dense, intermediate(f))
    e = Experts(
        n, chosen(f), f.count("moe_intermediate_size"), shared, shared_gate=shared > 0, shared_path="shared_expert"
    )
    experts(s, tuple(i for i in layers if i not in set(dense)), e)


def qwen3_5(s: Sheet, config: Fields, f: Fields) -> None:
    """Qwen3.5, 3.6 and 3.8: as Qwen3-Next with the delta net's projections in four."""
    qwen3_next(s, config, f, split=True)


def nemotron_h(s: Sheet, config: Fields, f: Fields) -> None:
    """Nemotron-H and Nemotron 3: one block a layer, by letter: M Mamba 2, * attention, - feed-forward, E experts."""
    pattern = _nemotron_pattern(s, f)
    at = {kind: tuple(i for i in s.layers if pattern[i : i + 1] == kind) for kind in "M*-E"}
    q, kv, _ = heads(f)
    d = f.count("head_dim", "attention_head_dim", default=128, high=MAX_DIM)
    bias = f.flag("attention_bias")
    a = Attention(q, kv, d, bias=bias, o_bias=bias, path="mixer")
    m = Mamba2(
        f.count("mamba_num_heads", high=MAX_HEADS), f.count("mamba_head_dim", high=MAX_DIM),
        f.count("n_groups", "mamba_n_groups", default=8, high=MAX_HEADS), f.count("ssm_state_size", high=MAX_DIM),
        f.count("conv_kernel", default=4, high=64), f.flag("use_conv_bias", default=True), f.flag("use_bias"),
        ssm_bytes=DTYPE_BYTES.get(f.text("mamba_ssm_cache_dtype", "float32"), 4),
    )  # fmt: skip
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    norms(s, s.layers, 1)
    mamba2(s, at["M"], m)
    attention(s, at["*"], a)
    if at["-"]:
        mlp(s, at["-"], intermediate(f), gated=False, bias=f.flag("mlp_bias"), path="mixer")
    e = _nemotron_experts(s, f, at["E"])
    s.cache(a.cache(at["*"]))
    s.cache(m.cache(at["M"]))
    if e is None or not f.count("num_nextn_predict_layers", default=0, low=0, high=64):
        return
    drafts = s.draft(f.count("num_nextn_predict_layers", high=64))
    attention(s, drafts, a)
    experts(s, drafts, e)
    _latent_projections(s, e, drafts)
    norms(s, drafts, 5)
    s.linear("mtp", "eh_proj", s.hidden, 2 * s.hidden, drafts, "replicated", quantized=False)
    s.end_draft()


def _nemotron_pattern(s: Sheet, f: Fields) -> str:
    kinds = f.texts("layers_block_type", len(s.layers))
    letters = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "mlp": "-", "moe": "E"}
    pattern = "".join(letters.get(k, "?") for k in kinds) if kinds else f.text("hybrid_override_pattern")
    strange = sorted(set(pattern) - set("M*-E"))
    if strange or len(pattern) < len(s.layers):
        s.unknowns.append(
            f"the hybrid pattern has {len(pattern)} letters for {len(s.layers)} layers, unknown: {strange}"
        )
    return pattern


def _nemotron_experts(s: Sheet, f: Fields, layers: Layers) -> Experts | None:
    if not layers:
        return None
    shared = f.count("moe_shared_expert_intermediate_size", default=0, low=0)
    n_shared = f.count("n_shared_experts", default=0, low=0, high=64)
    e = Experts(
        routed(f), chosen(f), f.count("moe_intermediate_size"), shared * max(1, n_shared), n_shared,
        correction=True, gated=False, latent=f.count("moe_latent_size", default=0, low=0), path="mixer",
        activation="relu2", gate_width=4,
    )  # fmt: skip
    experts(s, layers, e)
    _latent_projections(s, e, layers)
    return e


def _latent_projections(s: Sheet, e: Experts, layers: Layers) -> None:
    """Down and up again around experts of a narrower space (nemotron_h.py: fc1_latent_proj, fc2_latent_proj)."""
    s.linear("experts", f"{e.path}.fc1_latent_proj", e.latent, s.hidden, layers, "replicated")
    s.linear("experts", f"{e.path}.fc2_latent_proj", s.hidden, e.latent, layers, "replicated")


def falcon_h1(s: Sheet, config: Fields, f: Fields) -> None:
    """Falcon-H1: attention and Mamba 2 side by side in each layer, then a feed-forward network (falcon_h1.py)."""
    q, kv, d = heads(f)
    bias = f.flag("attention_bias")
    a = Attention(q, kv, d, bias=bias, o_bias=bias)
    inner = f.count("mamba_d_ssm", default=int(f.number("mamba_expand", 2, 0, 1024) * s.hidden))
    n = f.count("mamba_n_heads", high=MAX_HEADS)
    m = Mamba2(
        n, max(1, inner // n), f.count("mamba_n_groups", default=1, high=MAX_HEADS), f.count("mamba_d_state",
        high=MAX_DIM), f.count("mamba_d_conv", default=4, high=64), f.flag("mamba_conv_bias", default=True),
        f.flag("mamba_proj_bias"), norm=f.flag("mamba_rms_norm"), path="mamba",
    )  # fmt: skip
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    attention(s, s.layers, a)
    mamba2(s, s.layers, m)
    norms(s, s.layers, 2)
    mlp(s, s.layers, intermediate(f), bias=f.flag("mlp_bias"), path="feed_forward")
    s.cache(a.cache(s.layers))
    s.cache(m.cache(s.layers))


def granite_hybrid(s: Sheet, config: Fields, f: Fields) -> None:
    """Granite 4: Mamba 2 with a few attention layers, experts and a shared one (granitemoehybrid.py)."""
    q, kv, d = heads(f)
    kinds = layer_types(f, len(s.layers)) or f.texts("layers_block_type", len(s.layers))
    full = where(s.layers, kinds, "attention", "full_attention") if kinds else s.layers
    bias = f.flag("attention_bias")
    a = Attention(q, kv, d, bias=bias, o_bias=bias)
    embeddings(s, vocabulary(f), tied=tied(config, f, True))
    attention(s, full, a)
    s.cache(a.cache(full))
    _granite_mamba(s, f, _rest(s, full))
    norms(s, s.layers, 2)
    shared, n = f.count("shared_intermediate_size", default=0, low=0), routed(f, default=0)
    if n:
        experts(
            s,
            s.layers,
            Experts(n, chosen(f), intermediate(f), shared, path="block_sparse_moe", shared_path="shared_mlp"),
        )
    elif shared:
        mlp(s, s.layers, shared, path="shared_mlp")


def _granite_mamba(s: Sheet, f: Fields, layers: Layers) -> None:
    if not layers:
        return
    m = Mamba2(
        f.count("mamba_n_heads", high=MAX_HEADS), f.count("mamba_d_head", high=MAX_DIM),
        f.count("mamba_n_groups", default=1, high=MAX_HEADS), f.count("mamba_d_state", high=MAX_DIM),
        f.count("mamba_d_conv", default=4, high=64), f.flag("mamba_conv_bias", default=True), f.flag("mamba_proj_bias"),
        path="mamba",
    )  # fmt: skip
    mamba2(s, layers, m)
    s.cache(m.cache(layers))


def jamba(s: Sheet, config: Fields, f: Fields) -> None:
    """Jamba: Mamba 1 with an attention layer each period, experts every other layer (jamba.py)."""
    q, kv, d = heads(f)
    period, offset = (
        f.count("attn_layer_period", default=8, high=1 << 16),
        f.count("attn_layer_offset", default=4, low=0),
    )
    full = tuple(i for i in s.layers if i % period == offset)
    e_period, e_offset = (
        f.count("expert_layer_period", default=2, high=1 << 16),
        f.count("expert_layer_offset", default=1, low=0),
    )
    n = routed(f, default=1)
    sparse = tuple(i for i in s.layers if n > 1 and i % e_period == e_offset)
    a = Attention(q, kv, d)
    state_size = f.count("mamba_d_state", default=16, high=MAX_DIM)
    rank = f.raw("mamba_dt_rank")
    m = Mamba1(
        f.count("mamba_expand", default=2, high=64) * s.hidden, state_size, f.count("mamba_d_conv", default=4, high=64),
        -(-s.hidden // 16) if rank in (None, "auto") else f.count("mamba_dt_rank", high=MAX_DIM),
        f.flag("mamba_conv_bias", default=True), f.flag("mamba_proj_bias"), norms=True,
    )  # fmt: skip
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    attention(s, full, a)
    mamba1(s, _rest(s, full), m)
    norms(s, s.layers, 2)
    dense = _rest(s, sparse)
    if dense:
        mlp(s, dense, intermediate(f), path="feed_forward")
    if sparse:
        experts(s, sparse, Experts(n, chosen(f), intermediate(f), path="feed_forward", gate="router"))
    s.cache(a.cache(full))
    s.cache(m.cache(_rest(s, full)))


def mamba(s: Sheet, config: Fields, f: Fields) -> None:
    """Mamba 1 and FalconMamba: nothing but state (mamba.py)."""
    inner = f.count("intermediate_size", default=2 * s.hidden)
    rank = f.raw("time_step_rank")
    m = Mamba1(
        inner, f.count("state_size", default=16, high=MAX_DIM), f.count("conv_kernel", default=4, high=64),
        -(-s.hidden // 16) if rank in (None, "auto") else f.count("time_step_rank", high=MAX_DIM),
        f.flag("use_conv_bias", default=True), f.flag("use_bias"), path="mixer",
    )  # fmt: skip
    embeddings(s, vocabulary(f), tied=tied(config, f, True))
    mamba1(s, s.layers, m)
    norms(s, s.layers, 1)
    s.cache(m.cache(s.layers))


def pure_mamba2(s: Sheet, config: Fields, f: Fields) -> None:
    """Mamba 2 alone, Codestral-Mamba (mamba2.py)."""
    m = Mamba2(
        f.count("num_heads", high=MAX_HEADS), f.count("head_dim", high=MAX_DIM), f.count("n_groups",
        default=1, high=MAX_HEADS), f.count("state_size", default=128, high=MAX_DIM), f.count("conv_kernel",
        default=4, high=64), f.flag("use_conv_bias", default=True), f.flag("use_bias"),
    )  # fmt: skip
    embeddings(s, vocabulary(f), tied=tied(config, f, False))
    mamba2(s, s.layers, m)
    norms(s, s.layers, 1)
    s.cache(m.cache(s.layers))
