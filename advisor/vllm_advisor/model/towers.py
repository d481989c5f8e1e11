"""Vision and audio towers: weights only, they keep nothing for a request. Their weights stay in 16 bits.

Quantization configs name towers in their ignore lists almost without exception, and vLLM loads them in the model's
dtype. Sharding: towers built from vLLM's parallel layers are split by TP (Qwen, SigLIP, CLIP, Pixtral, GLM, Kimi,
MiniMax, Llama 4); those taken from transformers are replicated (Gemma 4, Qwen2-Audio and Qwen2.5-Omni audio).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.model.common import MAX_DIM, MAX_HEADS
from vllm_advisor.model.defaults import TOWERS as TOWER_DEFAULTS


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from vllm_advisor.model.fields import Fields
    from vllm_advisor.model.sheet import Sheet


class Vit(NamedTuple):
    """A transformer encoder: attention `inner` wide over `hidden`, feed-forward `size`.

    `norms` vectors of hidden size a layer; `extra` more elements a layer; biases of attention and feed-forward.
    """

    layers: int
    hidden: int
    size: int
    inner: int = 0
    gated: bool = False
    attention_bias: bool = True
    mlp_bias: bool = True
    norms: int = 4
    extra: int = 0

    @property
    def params(self) -> int:
        inner = self.inner or self.hidden
        attention = 4 * self.hidden * inner + (3 * inner + self.hidden if self.attention_bias else 0)
        wide = 2 if self.gated else 1
        mlp = (wide + 1) * self.hidden * self.size + (wide * self.size + self.hidden if self.mlp_bias else 0)
        return self.layers * (attention + mlp + self.norms * self.hidden + self.extra)


def dense(rows: int, cols: int, *, bias: bool = True) -> int:
    """Parameters of a linear layer."""
    return rows * cols + (rows if bias else 0)


def add_towers(s: Sheet, config: Fields) -> None:
    """Add the weights of every tower that the config describes; a tower of unknown kind goes to `unknowns`."""
    outer = config.text("model_type")
    inner = config.sub("thinker_config") or config
    for key, role in (("vision_config", "vision"), ("audio_config", "audio")):
        tower = inner.sub(key)
        if tower is None:
            continue
        kind = tower.text("model_type") or outer
        reader = TOWERS.get(kind) or TOWERS.get(f"{outer}:{role}")
        if reader is None:
            s.unknowns.append(f"{role} tower {kind[:40]!r} is not known: its weights cannot be told")
            continue
        tower = tower.over(TOWER_DEFAULTS.get(kind, {}))
        sharding = "replicated" if kind in REPLICATED else "column"
        s.vector(role, reader(tower, inner, s.hidden), (), sharding)
        s.tower_widths = tuple(sorted({*s.tower_widths, *_converted(kind, tower)}))


def _converted(kind: str, tower: Fields) -> Iterator[int]:
    """Input widths of the tower's linear layers that `--quantization` converts while loading.

    SigLIP leaves its feed-forward layers alone, and Gemma 4 its whole tower, unless their sizes are multiples of 64
    (models/siglip.py:421-428, gemma4_mm.py:102-120); towers that transformers runs, and Llama 4's
    (mllama4.py:769-775), get no quantization at all.
    """
    if kind in _NEVER_CONVERTED:
        return
    widths = {key: tower.count(key, default=0, low=0) for key in _WIDTH_KEYS}
    regular = widths["hidden_size"] % 64 == 0 and widths["intermediate_size"] % 64 == 0
    if kind == "gemma4_vision" and not regular:
        return
    if kind == "siglip_vision_model" and not regular:
        widths["intermediate_size"] = 0
    yield from (width for width in widths.values() if width)


_NEVER_CONVERTED = frozenset(("llama4_vision_model", "qwen2_audio_encoder", "qwen2_5_omni_audio_encoder"))
_WIDTH_KEYS = (
    "hidden_size", "intermediate_size", "embed_dim", "out_hidden_size", "vt_hidden_size", "vt_intermediate_size",
    "qkv_hidden_size", "projection_intermediate_size",
)  # fmt: skip


def _positions(t: Fields, default_patch: int = 14) -> tuple[int, int]:
    """Patch side and the number of patches of an image."""
    patch = _side(t, "patch_size", default_patch)
    return patch, (_side(t, "image_size", 224) // patch) ** 2


def _side(t: Fields, key: str, default: int) -> int:
    value = t.raw(key)
    if isinstance(value, list):
        return max(t.ints(key, 1, 1, MAX_DIM), default=default)
    return t.count(key, default=default, high=MAX_DIM)


def _siglip(t: Fields, outer: Fields, text: int) -> int:
    """SigLIP as in Gemma 3: positions, no pooling head; a norm and one projection to the text width (gemma3_mm.py)."""
    h, (patch, n) = t.count("hidden_size"), _positions(t)
    vit = Vit(t.count("num_hidden_layers", high=1024), h, t.count("intermediate_size"))
    head = 0
    if t.flag("vision_use_head", default=False):
        head = h + 4 * (h * h + h) + dense(vit.size, h) + dense(h, vit.size) + 2 * h
    project = h * text + h if outer.text("model_type").startswith("gemma") else dense(text, h) + dense(text, text)
    return vit.params + dense(h, 3 * patch * patch) + n * h + 2 * h + head + project


def _clip(t: Fields, outer: Fields, text: int) -> int:
    """CLIP as in LLaVA: class token, positions, two outer norms, a two-layer projector; MiniMax-M3 merges patches."""
    h, (patch, n) = t.count("hidden_size"), _positions(t)
    vit = Vit(t.count("num_hidden_layers", high=1024), h, t.count("intermediate_size"))
    if outer.text("model_type").startswith("minimax_m3"):
        project, merged = outer.count("projector_hidden_size", default=text), 4 * text
        merge = dense(project, merged) + dense(text, project)
        return vit.params + 3 * 2 * patch * patch * h + 2 * h + dense(project, h) + dense(text, project) + merge
    return (
        vit.params + dense(h, 3 * patch * patch, bias=False) + (n + 2) * h + 4 * h + dense(text, h) + dense(text, text)
    )


def _gemma4(t: Fields, _outer: Fields, text: int) -> int:
    """Gemma 4 (transformers' own tower): gated network, qk norms, two position tables, one projection."""
    h, q = t.count("hidden_size"), t.count("num_attention_heads", high=MAX_HEADS)
    d, patch = t.count("head_dim", default=64, high=MAX_DIM), t.count("patch_size", default=16, high=MAX_DIM)
    vit = Vit(
        t.count("num_hidden_layers", high=1024), h, t.count("intermediate_size"), q * d, True, False, False, 4, 2 * d
    )
    table = 2 * t.count("position_embedding_size", default=10240) * h
    standard = 2 * h if t.flag("standardize") else 0
    return vit.params + 3 * patch * patch * h + table + standard + h * text


def _gemma4_unified(t: Fields, _outer: Fields, text: int) -> int:
    """Gemma 4 12B: no encoder, patches are projected straight into the text width."""
    width, patch = t.count("mm_embed_dim", default=text), t.count("model_patch_size", default=48, high=MAX_DIM)
    return (
        dense(width, 3 * patch * patch) + 2 * t.count("mm_posemb_size", default=1120) * width + 6 * width + width * text
    )


def _gemma4_unified_audio(t: Fields, _outer: Fields, text: int) -> int:
    """Gemma 4 12B audio: one projection of raw samples."""
    return t.count("audio_embed_dim", "hidden_size", default=640) * text


def _qwen2_vl(t: Fields, _outer: Fields, text: int) -> int:
    """Qwen2-VL (qwen2_vl.py): patches over two frames, LayerNorms, a merger of 2 × 2 patches."""
    e, patch = t.count("embed_dim", default=1280), t.count("patch_size", "spatial_patch_size", default=14, high=MAX_DIM)
    vit = Vit(t.count("depth", default=32, high=1024), e, int(t.number("mlp_ratio", 4.0, 0.0, 1024.0) * e))
    return vit.params + _cube(t, patch) * e + 2 * e + _merger(4 * e, t.count("hidden_size", default=text))


def _qwen2_5_vl(t: Fields, _outer: Fields, text: int) -> int:
    """Qwen2.5-VL (qwen2_5_vl.py): gated network and RMS norms."""
    h, patch = (
        t.count("hidden_size", default=1280),
        t.count("patch_size", "spatial_patch_size", default=14, high=MAX_DIM),
    )
    vit = Vit(
        t.count("depth", default=32, high=1024), h, t.count("intermediate_size", default=3420), 0, True, True, True, 2
    )
    return vit.params + _cube(t, patch) * h + h + _merger(4 * h, t.count("out_hidden_size", default=text))


def _qwen3_vl(t: Fields, _outer: Fields, text: int) -> int:
    """Qwen3-VL and Qwen3.5 (qwen3_vl.py): position table, one more merger for each deepstack level."""
    h, patch = t.count("hidden_size"), t.count("patch_size", default=16, high=MAX_DIM)
    vit = Vit(t.count("depth", high=1024), h, t.count("intermediate_size"))
    out = t.count("out_hidden_size", default=text)
    table = t.count("num_position_embeddings", default=2304) * h
    levels = len(t.ints("deepstack_visual_indexes"))
    deepstack = levels * (_merger(4 * h, out) + 8 * h)
    return vit.params + dense(h, _cube(t, patch)) + table + 2 * h + _merger(4 * h, out) + deepstack


def _cube(t: Fields, patch: int) -> int:
    return 3 * t.count("temporal_patch_size", default=2, high=64) * patch * patch


def _merger(merged: int, out: int) -> int:
    return dense(merged, merged) + dense(out, merged)


def _pixtral(t: Fields, outer: Fields, text: int) -> int:
    """Pixtral in Mistral 3 (pixtral.py, mistral3.py): no biases, patch merger, two-layer projector."""
    h, patch = t.count("hidden_size"), t.count("patch_size", default=16, high=MAX_DIM)
    vit = Vit(t.count("num_hidden_layers", high=1024), h, t.count("intermediate_size"), 0, True, False, False, 2)
    merge = outer.count("spatial_merge_size", default=2, high=64) ** 2
    bias = outer.flag("multimodal_projector_bias")
    project = dense(text, h, bias=bias) + dense(text, text, bias=bias)
    return vit.params + 3 * patch * patch * h + h + h + merge * h * h + project


def _internvl(t: Fields, _outer: Fields, text: int) -> int:
    """InternViT (interns1_vit.py): class token, position table, layer scales, a projector over 2 × 2 patches."""
    h, (patch, n) = t.count("hidden_size"), _positions(t)
    vit = Vit(t.count("num_hidden_layers", high=1024), h, t.count("intermediate_size"), norms=6)
    project = 8 * h + dense(text, 4 * h) + dense(text, text)
    bare = vit.params - (0 if t.flag("attention_bias") else vit.layers * 3 * h)
    return bare + dense(h, 3 * patch * patch) + h + (n + 1) * h + project


def _whisper_encoder(t: Fields, outer: Fields, text: int) -> int:
    """The Whisper encoder of Qwen2-Audio and Qwen2.5-Omni: two convolutions, no key bias, one projection."""
    h, size = t.count("d_model"), t.count("encoder_ffn_dim")
    layers, mels = t.count("encoder_layers", high=1024), t.count("num_mel_bins", default=128, high=MAX_DIM)
    vit = Vit(layers, h, size)
    convolutions = dense(h, 3 * mels) + dense(h, 3 * h)
    omni = "omni" in outer.text("model_type")
    positions = 2 * text if omni else t.count("max_source_positions", default=1500) * h
    return vit.params - layers * h + convolutions + positions + 2 * h + dense(t.count("output_dim", default=text), h)


def _glm4v(t: Fields, _outer: Fields, text: int) -> int:
    """GLM-4.5V (glm4_1v.py): feed-forward as wide as the text model, downsampling convolution, gated merger."""
    h, (patch, n) = t.count("hidden_size"), _positions(t)
    out, depth = t.count("out_hidden_size", default=text), t.count("depth", high=1024)
    vit = Vit(depth, h, out, 0, True, t.flag("attention_bias"), False, 2)
    down = dense(out, 4 * h)
    merger = out * out + 2 * out + 3 * out * t.count("intermediate_size")
    return vit.params + dense(h, _cube(t, patch)) + n * h + 2 * h + down + merger


def _glm5_next(t: Fields, _outer: Fields, text: int) -> int:
    """GLM-5.3-Flash (models/glm5next/common/multimodal.py)."""
    h, patch = t.count("hidden_size"), t.count("patch_size", default=14, high=MAX_DIM)
    out, depth = t.count("out_hidden_size", default=text), t.count("depth", high=1024)
    heads = t.count("num_heads", default=16, high=MAX_HEADS)
    vit = Vit(depth, h, t.count("intermediate_size"), 0, True, True, True, 2, 2 * (h // heads))
    merger = out * out + 2 * out + 3 * out * t.count("projection_intermediate_size", default=out)
    return vit.params + dense(h, _cube(t, patch)) + h + dense(out, 4 * h) + merger


def _moonvit(t: Fields, _outer: Fields, text: int) -> int:
    """MoonViT of Kimi-K2.5 and K3 (kimi_k25_vit.py): position table, merger of 2 × 2 patches into the text width."""
    h, patch = t.count("vt_hidden_size"), t.count("patch_size", default=14, high=MAX_DIM)
    bias, rms = t.flag("attn_bias", default=True), t.text("norm_type") == "rmsnorm"
    inner = t.count("qkv_hidden_size", default=h)
    vit = Vit(t.count("vt_num_hidden_layers", high=1024), h, t.count("vt_intermediate_size"), inner, False, bias,
              t.flag("linear_bias", default=True), 2 if rms else 4)  # fmt: skip
    table = t.count("init_pos_emb_height", default=64) * t.count("init_pos_emb_width", default=64) * h
    out = t.count("text_hidden_size", default=text)
    return vit.params + dense(h, 3 * patch * patch) + table + 4 * h + _merger(4 * h, out)


def _llama4(t: Fields, _outer: Fields, text: int) -> int:
    """Llama 4 (mllama4.py): class token, positions, pixel shuffle and two projections."""
    h, (patch, n) = t.count("hidden_size"), _positions(t)
    vit = Vit(t.count("num_hidden_layers", high=1024), h, t.count("intermediate_size"))
    ratio = t.number("pixel_shuffle_ratio", 0.5, 0.01, 1.0)
    p_in, p_out = t.count("projector_input_dim", default=4096), t.count("projector_output_dim", default=4096)
    adapter = int(h / ratio**2) * p_in + p_in * p_out
    return (
        vit.params
        + 3 * patch * patch * h
        + (n + 2) * h
        + 4 * h
        + adapter
        + t.count("vision_output_dim", default=4096) * text
    )


def _deepseek_v41(t: Fields, _outer: Fields, text: int) -> int:
    """DeepSeek V4.1 (models/deepseek_v4/common/vision.py): gated, RMS norms, an aligner over merged patches."""
    h, patch = t.count("hidden_size"), t.count("patch_size", default=14, high=MAX_DIM)
    vit = Vit(t.count("num_hidden_layers", high=1024), h, t.count("intermediate_size"), 0, True, True, False, 2)
    merged = h * t.count("downsample_ratio", default=3, high=64) ** 2
    return vit.params + dense(h, 3 * patch * patch) + h + dense(text, merged) + dense(text, text) + 3 * text


TOWERS: Mapping[str, Callable[[Fields, Fields, int], int]] = {
    "siglip_vision_model": _siglip, "clip_vision_model": _clip, "gemma4_vision": _gemma4, "gemma4_unified_vision":
    _gemma4_unified, "gemma4_unified_audio": _gemma4_unified_audio, "qwen2_vl": _qwen2_vl, "qwen2_5_vl":
    _qwen2_5_vl, "qwen2_5_omni_vision_encoder": _qwen2_5_vl, "qwen3_vl": _qwen3_vl, "qwen3_vl_moe": _qwen3_vl,
    "qwen3_5": _qwen3_vl, "qwen3_5_moe": _qwen3_vl, "qwen3_5_vision": _qwen3_vl, "qwen3_5_moe_vision": _qwen3_vl,
    "qwen3_vl_vision": _qwen3_vl, "qwen3_vl_moe_vision": _qwen3_vl, "qwen2_vl_vision": _qwen2_vl,
    "qwen2_5_vl_vision": _qwen2_5_vl, "pixtral": _pixtral, "internvl_vision": _internvl, "qwen2_audio_encoder":
    _whisper_encoder, "qwen2_5_omni_audio_encoder": _whisper_encoder, "glm4v_moe_vision": _glm4v, "glm4v_vision":
    _glm4v, "glm5_next_vision": _glm5_next, "deepseek_v41_vision": _deepseek_v41, "llama4_vision_model": _llama4,
    "kimi_k25:vision": _moonvit, "kimi_k3:vision": _moonvit,
}  # fmt: skip
REPLICATED = frozenset((
    "gemma4_vision", "gemma4_unified_vision", "gemma4_unified_audio", "qwen2_audio_encoder",
    "qwen2_5_omni_audio_encoder",
))  # fmt: skip
