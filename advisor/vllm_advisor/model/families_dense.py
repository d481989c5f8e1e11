"""Decoders of attention and one dense feed-forward network a layer, as one table of how they differ.

Each row was read from vLLM's model file of that name (model_executor/models/) and from the tensor names of its
checkpoints; the exceptions that a row cannot say have their own reader below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.model.blocks import Attention, attention, embeddings, mlp, norms
from vllm_advisor.model.common import heads, intermediate, tied, windowed


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.model.fields import Fields
    from vllm_advisor.model.sheet import Sheet


class Dense(NamedTuple):
    """How a dense decoder differs from Llama.

    `qkv_bias`, `o_bias`, `mlp_bias`: always (True), never (False), or the config key that decides.
    `qk_norm`: "" none, "head" one vector of head width for q and k, "full" over all heads.
    `norms`: vectors of hidden size a layer. `final`: vectors of the final norm. `period`: how often a layer is global.
    """

    qkv_bias: bool | str = "attention_bias"
    o_bias: bool | str = "attention_bias"
    mlp_bias: bool | str = "mlp_bias"
    qk_norm: str = ""
    norms: int = 2
    final: int = 1
    gated: bool = True
    tied: bool = False
    period: int = 0
    window: bool = True
    qkv_name: str = ""
    up_name: str = ""


DENSE: Mapping[str, Dense] = {
    #                     qkv bias           o bias             mlp bias    qk norm  norms
    "llama": Dense(),
    "mistral": Dense(False, False, False),
    "ministral": Dense(False, False, False),
    "ministral3": Dense(False, False, False),
    "internlm3": Dense("qkv_bias", "bias", "bias"),
    "internlm2": Dense("bias", "bias", False, window=False),
    "qwen2": Dense(True, False, False),
    "qwen2_5_omni_text": Dense(True, False, False),
    "qwen2_vl_text": Dense(True, False, False, window=False),
    "qwen2_5_vl_text": Dense(True, False, False, window=False),
    "qwen3": Dense("attention_bias", "attention_bias", False, "head"),
    "qwen3_vl_text": Dense("attention_bias", "attention_bias", False, "head", window=False),
    "mimo": Dense("attention_bias", False, False),
    "seed_oss": Dense("attention_bias", "attention_out_bias", "mlp_bias"),
    "smollm3": Dense(tied=True),
    "granite": Dense(),
    "arcee": Dense(gated=False),
    "olmo": Dense(norms=0, final=0),
    "olmo2": Dense("attention_bias", "attention_bias", False, "full"),
    "olmo3": Dense("attention_bias", "attention_bias", False, "full"),
    "exaone4": Dense(False, False, False, "head"),
    "phi3": Dense(False, False, False, qkv_name="qkv_proj", up_name="gate_up_proj"),
    "glm": Dense("attention_bias", False, False, up_name="gate_up_proj"),
    "glm4": Dense("attention_bias", False, False, norms=4, up_name="gate_up_proj"),
    "cohere": Dense("attention_bias", "attention_bias", False, norms=1, tied=True),
    "cohere2": Dense("attention_bias", "attention_bias", False, norms=1, tied=True, period=4),
    "gemma": Dense("attention_bias", "attention_bias", False, tied=True),
    "gemma2": Dense("attention_bias", "attention_bias", False, norms=4, tied=True, period=2),
    "gemma3_text": Dense("attention_bias", "attention_bias", False, "head", norms=4, tied=True, period=6),
    "starcoder2": Dense("use_bias", "use_bias", "use_bias", norms=4, final=2, gated=False, tied=True),
    "nemotron": Dense("attention_bias", "attention_bias", "mlp_bias", norms=4, final=2, gated=False),
    "stablelm": Dense("use_qkv_bias", False, False, norms=4, final=2),
    "ernie4_5": Dense("use_bias", "use_bias", "use_bias", tied=True),
    "hunyuan_v1_dense": Dense("attention_bias", "attention_bias", False, "head"),
    "apertus": Dense("attention_bias", "attention_bias", False, "head", gated=False),
    "minicpm": Dense(tied=True, window=False),
    "solar": Dense("attention_bias", "attention_bias", "mlp_bias"),
    "teleflm": Dense(),
    "iquestcoder": Dense(),
}  # fmt: skip


def dense(s: Sheet, config: Fields, f: Fields, row: Dense) -> None:
    """Read a decoder that one `Dense` row describes."""
    q, kv, d = heads(f)
    bias = _says(f, row.qkv_bias)
    a = Attention(
        q, kv, d, bias=bias, o_bias=_says(f, row.o_bias), qk_norm=_qk_norm(row.qk_norm, q, kv, d), fused=row.qkv_name
    )
    embeddings(s, f.count("vocab_size", high=1 << 26), tied=tied(config, f, row.tied), norm=row.final)
    attention(s, s.layers, a)
    norms(s, s.layers, row.norms)
    mlp(s, s.layers, intermediate(f), gated=row.gated, bias=_says(f, row.mlp_bias))
    apply = row.window and f.flag("use_sliding_window", default=True)
    windowed(s, f, a, period=_period(f, row.period), apply=apply)


def _says(f: Fields, bias: bool | str) -> bool:
    return f.flag(bias) if isinstance(bias, str) else bias


def _qk_norm(kind: str, q: int, kv: int, d: int) -> int:
    return {"": 0, "head": 2 * d, "full": (q + kv) * d}[kind]


def _period(f: Fields, default: int) -> int:
    value = f.raw("sliding_window_pattern")
    return f.count("sliding_window_pattern", default=default, low=0) if isinstance(value, int) else default


def qwen2(s: Sheet, config: Fields, f: Fields) -> None:
    """Qwen2 with windows on the layers from `max_window_layers` on, when `use_sliding_window` says so."""
    if f.flag("use_sliding_window") and not f.has("layer_types") and f.has("max_window_layers"):
        q, kv, d = heads(f)
        dense(s, config, f, DENSE["qwen2_vl_text"])
        s.caches.clear()
        first = f.count("max_window_layers", low=0, high=1 << 16)
        a = Attention(q, kv, d)
        window = f.count("sliding_window", default=4096, high=1 << 31)
        s.cache(a.cache(s.layers[:first]))
        s.cache(a.cache(s.layers[first:], "sliding", window))
        return
    keep = f.flag("use_sliding_window")
    dense(s, config, f, DENSE["qwen2"] if keep else DENSE["qwen2_vl_text"])


def mimo(s: Sheet, config: Fields, f: Fields) -> None:
    """MiMo-7B: Qwen2 with multi-token-prediction layers (mimo_mtp.py: one decoder layer, two norms, one projection)."""
    row = DENSE["mimo"]._replace(window=f.flag("use_sliding_window"), qkv_bias=f.flag("attention_bias", default=True))
    dense(s, config, f, row)
    mtp = f.count("num_nextn_predict_layers", default=0, low=0, high=64)
    if mtp:
        q, kv, d = heads(f)
        drafts = s.draft(mtp)
        attention(s, drafts, Attention(q, kv, d, bias=row.qkv_bias is True))
        mlp(s, drafts, intermediate(f))
        norms(s, drafts, 5)
        s.linear("mtp", "input_proj", s.hidden, 2 * s.hidden, drafts, "replicated", quantized=False)
        s.end_draft()


def opt(s: Sheet, config: Fields, f: Fields) -> None:
    """OPT: learned positions, LayerNorms with bias, perhaps a projection from embedding to hidden size (opt.py)."""
    q, h = f.count("num_attention_heads", high=1 << 14), s.hidden
    width = f.count("word_embed_proj_dim", default=h)
    before = f.flag("do_layer_norm_before", default=True)
    embeddings(s, f.count("vocab_size", high=1 << 26), tied=tied(config, f, True), norm=2 if before else 0, width=width)
    s.vector("other", (f.count("max_position_embeddings", high=1 << 24) + 2) * h, ())
    if width != h:
        s.linear("other", "project_in", h, width, (), "replicated", count=2, quantized=False)
    bias = f.flag("enable_bias", default=True)
    a = Attention(q, q, h // q, bias=bias, o_bias=bias)
    attention(s, s.layers, a)
    norms(s, s.layers, 4)
    mlp(s, s.layers, f.count("ffn_dim"), gated=False, bias=bias)
    s.cache(a.cache(s.layers))


def gpt2(s: Sheet, config: Fields, f: Fields) -> None:
    """GPT-2: learned positions, biases everywhere (gpt2.py)."""
    q, h = f.count("n_head", "num_attention_heads", high=1 << 14), s.hidden
    embeddings(s, f.count("vocab_size", high=1 << 26), tied=tied(config, f, True), norm=2)
    s.vector("other", f.count("n_positions", "max_position_embeddings", high=1 << 24) * h, ())
    a = Attention(q, q, max(1, h // q), bias=True, o_bias=True, path="attn")
    attention(s, s.layers, a)
    norms(s, s.layers, 4)
    mlp(s, s.layers, f.count("n_inner", default=4 * h), gated=False, bias=True)
    s.cache(a.cache(s.layers))


def falcon(s: Sheet, config: Fields, f: Fields) -> None:
    """Falcon 7B, 40B and 180B: multi-query or grouped heads, one or two parallel LayerNorms (falcon.py)."""
    q, h = f.count("num_attention_heads", "n_head", high=1 << 14), s.hidden
    new = f.flag("new_decoder_architecture")
    kv = f.count("num_kv_heads", default=q, high=1 << 14) if new else (1 if f.flag("multi_query", default=True) else q)
    bias = f.flag("bias")
    embeddings(s, f.count("vocab_size", high=1 << 26), tied=tied(config, f, True), norm=2)
    a = Attention(q, kv, max(1, h // q), bias=bias, o_bias=bias, path="self_attention")
    attention(s, s.layers, a)
    norms(s, s.layers, 4 if new or not f.flag("parallel_attn", default=True) else 2)
    mlp(s, s.layers, f.count("ffn_hidden_size", default=4 * h), gated=False, bias=bias)
    s.cache(a.cache(s.layers))


def chatglm(s: Sheet, _config: Fields, f: Fields) -> None:
    """ChatGLM 2 to 4 in their own format: `multi_query_group_num` KV heads, qkv bias only (chatglm.py)."""
    q, h = f.count("num_attention_heads", high=1 << 14), s.hidden
    kv = f.count("multi_query_group_num", high=1 << 14) if f.flag("multi_query_attention") else q
    d = f.count("kv_channels", default=max(1, h // q), high=1 << 16)
    embeddings(s, f.count("padded_vocab_size", "vocab_size", high=1 << 26), tied=f.flag("tie_word_embeddings"))
    a = Attention(
        q, kv, d, bias=f.flag("add_qkv_bias", default=True), o_bias=f.flag("add_bias_linear"), path="self_attention"
    )
    attention(s, s.layers, a)
    norms(s, s.layers, 2)
    mlp(s, s.layers, f.count("ffn_hidden_size"), bias=f.flag("add_bias_linear"))
    s.cache(a.cache(s.layers))


def nemotron_nas(s: Sheet, config: Fields, f: Fields) -> None:
    """DeciLM and Nemotron-NAS: each layer has its own head groups and width, or none (nemotron_nas.py)."""
    n, h = len(s.layers), s.hidden
    q = f.count("num_attention_heads", high=1 << 14)
    d = f.count("head_dim", default=max(1, h // q), high=1 << 16)
    bias, mlp_bias = f.flag("attention_bias"), f.flag("mlp_bias")
    embeddings(s, f.count("vocab_size", high=1 << 26), tied=tied(config, f, False))
    by_group: dict[int, list[int]] = {}
    by_size: dict[int, list[int]] = {}
    for i, block in enumerate(f.objects("block_configs", n)[:n]):
        attn, ffn = block.sub("attention"), block.sub("ffn")
        if attn and attn.has("n_heads_in_group") and not attn.flag("no_op"):
            by_group.setdefault(attn.count("n_heads_in_group", high=1 << 14), []).append(i)
        size = _nas_size(ffn, h)
        if size:
            by_size.setdefault(size, []).append(i)
        for part in (attn, ffn):
            if part and part.flag("replace_with_linear"):
                s.unknowns.append(f"layer {i} replaces a block by a linear layer, which is not modelled")
    for group, layers in by_group.items():
        a = Attention(q, max(1, q // group), d, bias=bias, o_bias=bias)
        attention(s, tuple(layers), a)
        norms(s, tuple(layers), 1)
        s.cache(a.cache(tuple(layers)))
    for size, layers in by_size.items():
        mlp(s, tuple(layers), size, bias=mlp_bias)
        norms(s, tuple(layers), 1)


def _nas_size(ffn: Fields | None, h: int) -> int:
    """The width: explicit, or 2/3 of a multiple of the hidden size, rounded up to 256 (nemotron_nas.py)."""
    if ffn is None or ffn.flag("no_op"):
        return 0
    if ffn.has("intermediate_size"):
        return ffn.count("intermediate_size")
    if not ffn.has("ffn_mult"):
        return 0
    size = int(2 * ffn.number("ffn_mult", 0.0, 0.0, 1024.0) * h / 3)
    return size if size % 256 == 0 else size + 256 - size % 256
