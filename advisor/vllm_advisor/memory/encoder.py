"""The vision encoder in the profile run: as many items of the largest size as the encoder's budget holds.

V1's budget is max_num_batched_tokens, or one item where that is more (v1/core/encoder_cache_manager.py
compute_encoder_budget); V0 put as many items as fit into the batch (worker/model_runner.py profile_run). A tower's
layer holds its MLP's wide tensors (two, three where it is gated) and about seven hidden-sized ones (residual, norm, Q,
K, V, attention output, projection); the dimensions are those of the published configurations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from vllm_advisor.model.spec import ModelSpec
    from vllm_advisor.plan import Plan


class _Tower(NamedTuple):
    """Of the largest item: tokens in the decoder, patches a token; then the tower's hidden size and all wide ones."""

    tokens: int
    patches: int
    hidden: int
    wide: int


# Largest items: preprocessor max_pixels over the merged patch (Qwen: 16384), pan-free SigLIP (Gemma-3: 256 tokens of
# 4 x 4 patches; Gemma-4: 280 of 3 x 3), 1540 pixels a side (Pixtral: 55 x 55 merged), 12 tiles of 256 (InternVL).
_TOWERS: tuple[tuple[str, _Tower], ...] = (
    ("Qwen2VL", _Tower(16384, 4, 1280, 2 * 5120)),
    ("Qwen2_5_VL", _Tower(16384, 4, 1280, 3 * 3420)),
    ("Qwen2_5Omni", _Tower(16384, 4, 1280, 3 * 3420)),
    ("Qwen3", _Tower(16384, 4, 1152, 2 * 4304)),
    ("Gemma3", _Tower(256, 16, 1152, 2 * 4304)),
    ("Gemma4", _Tower(280, 9, 1152, 2 * 4304)),
    ("DiffusionGemma", _Tower(280, 9, 1152, 2 * 4304)),
    ("Mistral3", _Tower(3025, 4, 1024, 3 * 4096)),
    ("Pixtral", _Tower(3025, 4, 1024, 3 * 4096)),
    ("Intern", _Tower(3328, 4, 1024, 2 * 4096)),
    ("Llama4", _Tower(2304, 4, 1408, 2 * 5632)),
    ("Glm", _Tower(6084, 4, 1536, 3 * 4096)),
)
_OTHER = _Tower(4096, 4, 1152, 2 * 4304)  # a SigLIP of ordinary size (estimate)
_HIDDEN_COPIES = 7
_ELEMENT = 2


class Encoding(NamedTuple):
    """Bytes on one rank: the encoder's own peak, and its outputs that stay while the decoder runs."""

    peak: float
    kept: float


NOTHING = Encoding(0.0, 0.0)


def encoding(model: ModelSpec, plan: Plan, *, engine_v1: bool = True) -> Encoding:
    """What the encoder takes in the profile run; nothing for a model of text alone.

    The MLP is split by TP, hidden-sized tensors are whole on each rank (mm_encoder_tp_mode "weights", the default).
    """
    if not sees(model):
        return NOTHING
    tower, batch = _tower(model), plan.max_num_batched_tokens
    tokens = max(batch // tower.tokens, 1) * tower.tokens
    tokens = tokens if engine_v1 else min(tokens, batch)
    wide = tower.wide / plan.tensor_parallel_size
    peak = tokens * tower.patches * _ELEMENT * (wide + _HIDDEN_COPIES * tower.hidden)
    return Encoding(peak, tokens * model.hidden_size * _ELEMENT)


def sees(model: ModelSpec) -> bool:
    """Whether the model has a vision encoder."""
    return "image" in model.modalities or "video" in model.modalities


def largest_item(model: ModelSpec) -> int:
    """Tokens in the decoder of the largest image."""
    return _tower(model).tokens


def _tower(model: ModelSpec) -> _Tower:
    return next((tower for name, tower in _TOWERS if model.architecture.startswith(name)), _OTHER)
