"""Bytes of the weights on one rank, by tensor group.

What tensor parallelism splits and what it repeats, what pipeline stages hold, where experts go under expert
parallelism, what online quantization leaves, and what kernels pad.
Sources: vLLM's linear and embedding layers (model_executor/layers/linear.py, vocab_parallel_embedding.py: the
vocabulary is padded to 64), fused_moe/layer.py (experts by TP or by EP), distributed/utils.py (stages).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.memory import widths
from vllm_advisor.memory.stages import partition, stages
from vllm_advisor.vllm import plugin
from vllm_advisor.vllm.backends import moe
from vllm_advisor.vllm.schemes import aiter_experts


if TYPE_CHECKING:
    from vllm_advisor.hardware import Gpu
    from vllm_advisor.memory.identity import Identity
    from vllm_advisor.model.spec import ModelSpec, WeightGroup
    from vllm_advisor.plan import Plan
    from vllm_advisor.vllm.surface import Surface

_VOCABULARY_PADDING = 64  # vocab_parallel_embedding.py DEFAULT_VOCAB_PADDING_SIZE
_LATENT_ROTARY = 64  # qk_rope_head_dim of every MLA model so far
# qk_nope_head_dim + v_head_dim: of DeepSeek-V2 to V3.2 and Kimi, and of GLM-5.
_LATENT_HEAD, _LATENT_HEADS = 128 + 128, {"glm_moe_dsa": 192 + 256}
# Bits a weight after online quantization, scales included (0.33.0 config/quantization.py _ONLINE_SHORTHANDS).
ONLINE_BITS = {
    "fp8": 8.0,
    "fp8_per_tensor": 8.0,
    "fp8_per_channel": 8.0,
    "fp8_per_block": 8.0 + 32 / (128 * 128),
    "mxfp8": 8.25,
    "int8_per_channel_weight_only": 8.0,
    "mxfp4": 4.25,
    plugin.NAME: 4.25,
    "nvfp4_per_token": 4.5,
    "experts_int8": 8.0,
    "bitsandbytes": 4.0 + (8 + 32 / 256) / 64,  # nf4: an 8-bit maximum for 64 elements, a float32 for 256 of those
}
_EXPERTS_ONLY = ("int8_per_channel_weight_only", "nvfp4_per_token", "experts_int8")  # linear layers stay as they are
_PLAUSIBLE = 0.1
_FUSED_MLP = ("jamba",)  # models/jamba.py JambaMLP is an expert layer of one expert
# What ROCm's allocator holds beside the weights: 0.07 GiB in start-ups of BF16 models, and 3 % where weights were
# repacked (median of eight start-ups of FP8, GPTQ and MXFP4 checkpoints; an estimate).
_RESERVED, _REPACKING = int(0.07 * (1 << 30)), 0.03
Tile = tuple[int, int]
_NO_TILE: Tile = (1, 1)
# Our plugin keeps an int32 exponent a row of a weight that folds into FP8 (vllm_mx_kernels/mxfp4.py fold).
_ROW_EXPONENT = 4
# Tiles that MXFP4 experts are padded to by the kernel that takes them, (hidden, intermediate of a rank):
# fused_moe/oracle/mxfp4.py mxfp4_round_up_hidden_size_and_intermediate_size. Triton's Hopper layout pads further: both
# sides of gpt-oss as H200 start-ups of 0.22 printed (34.38 GiB at TP2), 2,880 as it is in 0.11 (64.38 at TP1).
_MXFP4_TILES: tuple[tuple[str, Tile], ...] = (
    ("MARLIN", (256, 128)),
    ("TRTLLM", (256, 128)),
    ("DEEPGEMM", (128, 128)),
    ("CUTLASS", (128, 128)),
    ("AITER", (256, 256)),
    ("TRITON", (256, 128)),
)
_TRITON_OLD: Tile = (256, 64)  # before 0.20 (0.11.0 quantization/mxfp4.py:225); the release between was not found


class Sharding(NamedTuple):
    """How one checkpoint is spread. `expert_ranks` hold whole experts (1 without expert parallelism).

    `expert_split` ranks slice each expert: TP × DP, since without expert parallelism vLLM runs tensor parallelism over
    all data-parallel ranks inside an expert layer (fused_moe/config.py flatten_tp_across_dp_and_pcp).
    `parts`: layers of each stage, () for even ones. `kept_twice`: the part of 4-bit experts that is held in two forms.
    `row_bytes`: what our plugin keeps beside each row of a 4-bit weight.
    """

    tensor_parallel: int
    pipeline_parallel: int = 1
    expert_ranks: int = 1
    online: str | None = None
    expert_split: int = 1
    tile: Tile = _NO_TILE
    parts: tuple[int, ...] = ()
    kept_twice: float = 0.0
    row_bytes: int = 0


@functools.lru_cache(maxsize=4096)
def per_stage(key: Identity[ModelSpec], sharding: Sharding) -> tuple[int, ...]:
    """Bytes on one rank of each pipeline stage (data-parallel ranks hold the same, except experts under EP)."""
    model = key.value
    cuts = stages(model.num_layers, sharding.pipeline_parallel, sharding.parts)
    totals = [0.0] * len(cuts)
    for group in model.weights:
        if group.role != "mtp":
            share = rank_bytes(group, model, sharding)
            for stage, part in _spread(group, cuts):
                totals[stage] += share * part
    if model.tied_embeddings and len(cuts) > 1:  # the last stage needs its own copy as the head
        totals[-1] += sum(rank_bytes(g, model, sharding) for g in model.weights if g.role == "embedding")
    exact = 1.0 if sharding.online else _exact(model)
    return tuple(int(t * exact) for t in totals)


def _exact(model: ModelSpec) -> float:
    """What the files' own index says, drafts included, against the sum of our groups.

    Further apart than a tenth, the files hold something else than what is loaded: float32, several copies, adapters.
    """
    counted = sum(group.bytes for group in model.weights)
    ratio = (model.exact_weight_bytes or counted) / counted if counted else 1.0
    return ratio if abs(ratio - 1) <= _PLAUSIBLE else 1.0


@functools.lru_cache(maxsize=4096)
def loaded(key: Identity[ModelSpec], sharding: Sharding, *, from_driver: bool = False) -> tuple[int, ...]:
    """What "Model loading took … GiB" reports by stage: weights, and the tables that layers make beside them.

    `from_driver`: ROCm before 0.21 reports what is taken from the driver, with the blocks that the allocator keeps
    (0.13.0 platforms/rocm.py:480): more where loading repacks quantized weights.
    """
    beside = _absorbed(key.value, sharding.tensor_parallel) + _kept_twice(key.value, sharding)
    tables = _rotary_tables(key.value) + beside // sharding.pipeline_parallel
    plain = key.value.quantization.scheme == "bf16" and not sharding.online
    kept = (1.0 if plain else 1 + _REPACKING, _RESERVED) if from_driver else (1.0, 0)
    return tuple(int(held * kept[0]) + tables + kept[1] for held in per_stage(key, sharding))


def _rotary_tables(model: ModelSpec) -> int:
    """Cosines and sines for each position, one table a kind of attention (layers/rotary_embedding, a buffer each)."""
    kinds = {c.kind: c.k_dim for c in model.caches if c.kind in ("full", "sliding") and c.q_heads and c.v_dim}
    kinds |= {c.kind: _LATENT_ROTARY for c in model.caches if c.kind in ("mla", "compressed")}
    return sum(model.max_position * dim * 2 for dim in kinds.values())


def _absorbed(model: ModelSpec, tensor_parallel: int) -> int:
    """MLA's up-projections of K and V, kept in 16 bits beside the FP8 ones (mla_attention.py W_UK_T and W_UV)."""
    if not model.quantization.scheme.startswith("fp8"):
        return 0
    wide = _LATENT_HEADS.get(model.model_type, _LATENT_HEAD)
    latent = [c for c in model.caches if c.kind == "mla"]
    return sum(len(c.layers) * (c.q_heads // tensor_parallel) * (c.k_dim - _LATENT_ROTARY) * wide * 2 for c in latent)


def _kept_twice(model: ModelSpec, sharding: Sharding) -> int:
    """Codes of 4-bit experts that a repacked copy did not replace."""
    if not sharding.kept_twice:
        return 0
    codes = sum(g.params / 2 for g in model.weights if g.role == "experts" and g.bits == 4)
    return int(codes * _expert_share(model, sharding) * sharding.kept_twice)


def rank_bytes(group: WeightGroup, model: ModelSpec, sharding: Sharding) -> float:
    """Bytes of all layers of a group on one rank."""
    fused = group.role == "experts" or (group.role == "mlp" and model.model_type in _FUSED_MLP)
    tower = group.role == "vision" and model.architecture.startswith("Qwen")  # their towers take the method too
    if sharding.online == plugin.NAME or sharding.row_bytes:
        stored = _by_plugin(group, model, sharding)
    else:
        stored = online_bytes(group, sharding.online, fused=fused, tower=tower)
    if group.sharding == "vocab":
        return stored * _padded(model.vocab_size, _VOCABULARY_PADDING) / sharding.tensor_parallel
    if group.sharding == "kv":
        heads = group.kv_heads or model.kv_heads or 1
        return stored / min(sharding.tensor_parallel, heads)
    if group.sharding == "expert":
        return stored * _expert_share(model, sharding)
    return stored if group.sharding == "replicated" else stored / sharding.tensor_parallel


def online_bytes(group: WeightGroup, method: str | None, *, fused: bool | None = None, tower: bool = False) -> float:
    """Bytes after `--quantization`: what it converts takes the method's bits, the rest stays as stored.

    `fused`: whether a fused expert layer holds the group (None: by its role). `tower`: a tower that converts too.
    """
    bits = ONLINE_BITS.get(method or "")
    expert = group.role == "experts" if fused is None else fused
    converts = (group.quantizable or tower) and group.bits > 8 and (expert or method not in _EXPERTS_ONLY)
    return group.params * bits / 8 if bits and converts else float(group.bytes)


def _by_plugin(group: WeightGroup, model: ModelSpec, sharding: Sharding) -> float:
    """Bytes under our plugin: towers stay, and so does a group of which one input does not split into its blocks.

    Only that one layer of the group would stay in 16 bits, so this is the most that it can be. A row's exponent is
    counted for rows of the group's mean length.
    """
    split = 1 if sharding.expert_ranks > 1 else sharding.expert_split
    inputs = widths.inputs(group, model, sharding.tensor_parallel, split)
    stays = group.role in _TOWERS or any(width % plugin.BLOCK for width in inputs)
    stored = float(group.bytes) if stays else online_bytes(group, sharding.online)
    packed = group.bits == 4 or stored < group.bytes
    rows = group.params / widths.mean_row(group, model) if packed and model.hidden_size else 0.0
    return stored + rows * sharding.row_bytes


_TOWERS = ("vision", "audio")


def _expert_share(model: ModelSpec, sharding: Sharding) -> float:
    """The part of the experts that one rank holds: whole ones under EP, a slice of each otherwise."""
    experts = model.moe.num_experts if model.moe else 0
    if sharding.expert_ranks > 1 and experts:
        return -(-experts // sharding.expert_ranks) / experts * _tile_padding(model, sharding, 1)
    return _tile_padding(model, sharding, sharding.expert_split) / sharding.expert_split


def _tile_padding(model: ModelSpec, sharding: Sharding, split: int) -> float:
    """How much larger MXFP4 experts get because a kernel wants whole tiles."""
    if sharding.tile == _NO_TILE or not model.moe:
        return 1.0
    hidden, intermediate = sharding.tile
    slice_ = max(1, model.moe.intermediate_size // split)
    return _padded(model.hidden_size, hidden) * _padded(slice_, intermediate)


def sharding(model: ModelSpec, plan: Plan, gpu: Gpu, surface: Surface) -> Sharding:
    """How this plan spreads the checkpoint on these devices."""
    ours = plugin.serves(model, plan)
    return Sharding(
        plan.tensor_parallel_size,
        plan.pipeline_parallel_size,
        plan.expert_parallel_size,
        None if ours and not plugin.converts(model, plan) else plan.quantization,
        plan.tensor_parallel_size * plan.data_parallel_size,
        _NO_TILE if ours else _tile(model, plan, gpu, surface),
        partition(plan),
        _copies(model, plan, gpu) if model.quantization.scheme == "nvfp4" and not surface.at_least(0, 12) else 0.0,
        _ROW_EXPONENT if ours and plugin.uses_fp8(gpu.arch) else 0,
    )


def _copies(model: ModelSpec, plan: Plan, gpu: Gpu) -> float:
    """The part of NVFP4 experts that 0.11 and older kept as loaded beside the form that the kernel takes.

    compressed_tensors_moe.py dropped w13_weight_packed and w2_weight_packed only from 0.12 on: FlashInfer's order
    copies the first projection (two thirds), Marlin's both.
    """
    if model.quantization.method != "compressed-tensors":
        return 0.0
    if ("VLLM_USE_FLASHINFER_MOE_FP4", "1") in plan.env:
        return 2 / 3
    return 1.0 if 0 < gpu.capability < 100 else 0.0


def _tile(model: ModelSpec, plan: Plan, gpu: Gpu, surface: Surface) -> Tile:
    if model.moe is None or model.quantization.scheme != "mxfp4":
        return _NO_TILE
    kernel = moe(
        surface,
        gpu.arch,
        model.quantization.scheme,
        model.moe.activation,
        aiter=aiter_experts(plan),
        expert_parallel=plan.enable_expert_parallel,
        model_type=model.model_type,
    )
    if kernel and "TRITON" in kernel and not surface.at_least(0, 20):
        return _TRITON_OLD
    return next((tile for name, tile in _MXFP4_TILES if name in (kernel or "")), _NO_TILE)


def _padded(size: int, multiple: int) -> float:
    return -(-size // multiple) * multiple / size


@functools.lru_cache(maxsize=1024)  # plans that are compared are cut alike
def _inside(layers: tuple[int, ...], cuts: tuple[range, ...]) -> tuple[int, ...]:
    """How many of the layers each stage has."""
    return tuple(sum(layer in cut for layer in layers) for cut in cuts)


def _spread(group: WeightGroup, cuts: tuple[range, ...]) -> list[tuple[int, float]]:
    """(stage, part) of a group: by its layers, or the first stage (embedding, towers) or the last (head, norm)."""
    if len(cuts) == 1:
        return [(0, 1.0)]
    if group.layers:
        return [(i, n / len(group.layers)) for i, n in enumerate(_inside(group.layers, cuts)) if n]
    first = group.role in ("embedding", "vision", "audio")
    return [(0 if first else len(cuts) - 1, 1.0)]
