"""The decoder that `config.json` describes, as far as our own forward pass knows it; anything else is refused.

Nothing of a model repository is executed, so an architecture that is not in the table can't be calibrated here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_advisor.errors import BadInput, UnsupportedModel


if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Names:
    """Where a family keeps a layer's parts, after `model.layers.N.`; experts get their number in `{}`."""

    gate: str = "mlp.gate"
    experts: str = "mlp.experts"
    up: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")


PLAIN = Names()
MIXTRAL = Names("block_sparse_moe.gate", "block_sparse_moe.experts", ("w1", "w3", "w2"))
# model_type of config.json → names. Tensor names as in the families' published checkpoints.
FAMILIES = {
    "llama": PLAIN, "mistral": PLAIN, "qwen2": PLAIN, "qwen3": PLAIN, "qwen3_moe": PLAIN, "qwen2_moe": PLAIN,
    "mixtral": MIXTRAL,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding: base, and for `llama3` (the published rule of Llama 3.1) how low frequencies are stretched."""

    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original: int = 8192


@dataclass(frozen=True, slots=True)
class Moe:
    """Routed experts of a model: `renormalize` makes the chosen shares sum to 1."""

    experts: int
    top_k: int
    renormalize: bool
    dense_layers: frozenset[int] = frozenset()
    every: int = 1

    def routes(self, layer: int) -> bool:
        """Whether this layer has experts."""
        return layer not in self.dense_layers and (layer + 1) % self.every == 0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """All that the forward pass needs besides weights. `window`: attention sees so many tokens (0: all)."""

    family: str
    names: Names
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    eps: float
    tied: bool
    rope: Rope
    length: int
    moe: Moe | None = None
    window: int = 0
    bos: int | None = None


def read_config(folder: Path) -> ModelConfig:
    """From a local model folder. Raises BadInput (no config), UnsupportedModel (an architecture we can't run)."""
    return config_of(_table(folder / "config.json"))


def _table(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise BadInput(
            f"{path.parent} has no config.json", "calibration needs a local Hugging Face model folder"
        ) from None
    except ValueError as error:
        raise BadInput(f"{path} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadInput(f"{path} is no table")
    return value


def config_of(raw: Mapping[str, Any]) -> ModelConfig:
    """From config.json's content."""
    family = str(raw.get("model_type", ""))
    _refuse(raw, family)
    try:
        return _built(raw, family)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"config.json: {error!r}") from error


def _refuse(raw: Mapping[str, Any], family: str) -> None:
    known = ", ".join(FAMILIES)
    if family not in FAMILIES:
        raise UnsupportedModel(f"no forward pass for model_type {family!r}; there is one for {known}")
    if raw.get("quantization_config"):
        raise UnsupportedModel(
            "the weights are quantized already; calibrate the bf16 model", "name the unquantized folder"
        )
    if raw.get("hidden_act", "silu") != "silu":
        raise UnsupportedModel(f"no forward pass for hidden_act {raw['hidden_act']!r}")


def _built(raw: Mapping[str, Any], family: str) -> ModelConfig:
    heads = int(raw["num_attention_heads"])
    hidden = int(raw["hidden_size"])
    return ModelConfig(
        family=family,
        names=FAMILIES[family],
        layers=int(raw["num_hidden_layers"]),
        hidden=hidden,
        heads=heads,
        kv_heads=int(raw.get("num_key_value_heads") or heads),
        head_dim=int(raw.get("head_dim") or hidden // heads),
        vocab=int(raw["vocab_size"]),
        eps=float(raw["rms_norm_eps"]),
        tied=bool(raw.get("tie_word_embeddings", False)),
        rope=_rope(raw),
        length=int(raw.get("max_position_embeddings", 2048)),
        moe=_moe(raw, family),
        window=_window(raw, family),
        bos=_bos(raw.get("bos_token_id")),
    )


def _bos(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _window(raw: Mapping[str, Any], family: str) -> int:
    wanted = raw.get("use_sliding_window", not family.startswith("qwen"))
    return int(raw.get("sliding_window") or 0) if wanted else 0


def _rope(raw: Mapping[str, Any]) -> Rope:
    scaling = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    theta = float(scaling.get("rope_theta") or raw.get("rope_theta") or 10_000.0)
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    if kind not in {"default", "linear", "llama3"}:
        raise UnsupportedModel(f"no forward pass for rotary embeddings of type {kind!r}")
    if kind == "default":
        return Rope(theta)
    low, high = float(scaling.get("low_freq_factor", 1)), float(scaling.get("high_freq_factor", 4))
    original = int(scaling.get("original_max_position_embeddings", 8192))
    return Rope(theta, kind, float(scaling["factor"]), low, high, original)


def _moe(raw: Mapping[str, Any], family: str) -> Moe | None:
    experts = raw.get("num_experts") or raw.get("num_local_experts")
    if not experts or family not in {"qwen3_moe", "qwen2_moe", "mixtral"}:
        return None
    renormalize = bool(raw.get("norm_topk_prob", family == "mixtral"))
    dense = frozenset(int(layer) for layer in raw.get("mlp_only_layers") or ())
    every = int(raw.get("decoder_sparse_step") or 1)
    return Moe(int(experts), int(raw["num_experts_per_tok"]), renormalize, dense, every)
