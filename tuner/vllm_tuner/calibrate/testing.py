"""Small random models for tests, with faults planted on purpose. They need torch, and nothing that is downloaded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from vllm_tuner import kernels


if TYPE_CHECKING:
    from pathlib import Path

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 96,
    "rms_norm_eps": 1e-6, "max_position_embeddings": 512, "rope_theta": 10_000.0, "hidden_act": "silu",
    "tie_word_embeddings": True,
}  # fmt: skip
MOE = LLAMA | {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_hidden_layers": 2, "num_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True, "tie_word_embeddings": False,
}  # fmt: skip
# Keys as large as in trained models (amax about 20), a token's own meaning above what layers add to it: random models
# without that are so unstable that any rounding changes every prediction.
_GAINS = {"q_proj": 0.25, "k_proj": 6.0, "o_proj": 0.5, "down_proj": 0.5, "embed_tokens": 2.0, "lm_head": 2.0}
_DEAD = -1e4


def tensors(config: dict[str, Any], seed: int = 0) -> dict[str, torch.Tensor]:
    """Random weights of a model of this config, float32, by their names in a checkpoint."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.ones(shape)
        if len(shape) == 1
        else torch.randn(shape, generator=generator) / shape[-1] ** 0.5 * _gain(name)
        for name, shape in _shapes(config).items()
    }


def _gain(name: str) -> float:
    return next((gain for part, gain in _GAINS.items() if part in name), 1.0)


def _shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    for layer in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in _layer(config).items()}
    return shapes


def _layer(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, head = config["hidden_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,), "self_attn.q_proj": (q, hidden),
        "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, q),
    }  # fmt: skip
    if "num_experts" not in config:
        return shapes | _mlp("mlp.", hidden, config["intermediate_size"])
    shapes |= {"self_attn.q_norm": (head,), "self_attn.k_norm": (head,), "mlp.gate": (config["num_experts"], hidden)}
    for expert in range(config["num_experts"]):
        shapes |= _mlp(f"mlp.experts.{expert}.", hidden, config["moe_intermediate_size"])
    return shapes


def _mlp(prefix: str, hidden: int, inner: int) -> dict[str, tuple[int, ...]]:
    wide, narrow = (inner, hidden), (hidden, inner)
    return {f"{prefix}gate_proj": wide, f"{prefix}up_proj": wide, f"{prefix}down_proj": narrow}


def with_large_keys(weights: dict[str, torch.Tensor], factor: float) -> dict[str, torch.Tensor]:
    """The same function with keys `factor` times as large and queries as much smaller."""
    factors = {"k_proj.weight": factor, "q_proj.weight": 1 / factor}
    ends = {name: next((f for end, f in factors.items() if name.endswith(end)), 1.0) for name in weights}
    return {name: weight * ends[name] for name, weight in weights.items()}


def with_dead_expert(
    weights: dict[str, torch.Tensor], layer: int, expert: int, but_for: int | None = None
) -> dict[str, torch.Tensor]:
    """An expert that no token can reach: channel 0 is the same positive number everywhere, and its router hates it.

    `but_for`: one token has a negative number there, and always reaches it.
    """
    changed = {name: weight.clone() for name, weight in weights.items()}
    changed["model.embed_tokens.weight"][:, 0] = 1.0
    if but_for is not None:
        changed["model.embed_tokens.weight"][but_for, 0] = -1.0
    for name, weight in changed.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight[0] = 0  # nothing is ever added to the channel
    gate = changed[f"model.layers.{layer}.mlp.gate.weight"]
    gate[expert] = 0
    gate[expert, 0] = _DEAD
    return changed


def write_model(folder: Path, config: dict[str, Any], weights: dict[str, torch.Tensor]) -> Path:
    """config.json and model.safetensors in float32; returns the folder."""
    files: Any = kernels.module("checkpoint_files")
    folder.mkdir(parents=True, exist_ok=True)
    header, entries = files.layout({name: ("F32", tuple(weight.shape)) for name, weight in weights.items()})
    with files.replacing(folder / "model.safetensors") as file:
        file.write(header)
        for entry in entries:
            file.write(weights[entry.name].contiguous().numpy().tobytes())
    files.write_json(folder / "config.json", json.loads(json.dumps(config)))
    return folder


def prompts(count: int, length: int, vocab: int, seed: int = 0) -> list[list[int]]:
    """Random token ids."""
    generator = torch.Generator().manual_seed(seed)
    drawn: list[list[int]] = torch.randint(vocab, (count, length), generator=generator).tolist()
    return drawn
