"""What takes the place of a model or a machine that is not known, so that the rest can be judged.

Only rules that do not look at the stand-in are shown (`matrix.Shown.needs`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_advisor.catalog import gpus
from vllm_advisor.model.spec import CacheGroup, ModelSpec, Moe, WeightGroup


if TYPE_CHECKING:
    from vllm_advisor.check.configuration import Asked
    from vllm_advisor.hardware import Node

_LAYERS = tuple(range(32))
_LENGTH = 8192


def node(given: Asked) -> Node:
    """A machine with a device for each rank."""
    one = gpus.node("H100")
    return replace(one, gpus=one.gpus * (given.tp * given.pp * given.dp))


def model(given: Asked) -> ModelSpec:
    """Ordinary attention with heads of 128, as most models have it, and experts where the command speaks of them."""
    attention = CacheGroup("full", _LAYERS, q_heads=64, kv_heads=8, k_dim=128, v_dim=128)
    experts = given.on("--enable-expert-parallel") or given.on("--enable-eplb")
    return ModelSpec(
        name=given.reading.model or "the model",
        architecture="LlamaForCausalLM",
        model_type="llama",
        dtype="bfloat16",
        hidden_size=8192,
        num_layers=len(_LAYERS),
        vocab_size=128_256,
        max_position=max(_LENGTH, given.max_model_len or 0),
        attention_heads=64,
        kv_heads=8,
        caches=(attention,),
        weights=(WeightGroup("mlp", 1 << 20, 2 << 20, "column", _LAYERS),),
        intermediate_size=16_384,
        moe=Moe(64, 4, 0, 2048, _LAYERS) if experts else None,
    )
