"""What the linear layers and the experts of a checkpoint are stored in, where that is not one format."""

from __future__ import annotations

import pytest

from vllm_advisor.catalog import models
from vllm_advisor.model.config import read
from vllm_advisor.testing import TINY_LLAMA


DENSE = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 1000,
    "tie_word_embeddings": False,
}  # fmt: skip
ROUTED = DENSE | {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 512,
}  # fmt: skip
GEMMA_4 = {
    "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "vision_config": {},
    "text_config": {
        "model_type": "gemma4_text", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 1000,
    },
}  # fmt: skip


def parts(config, quantization):
    found = read(config | {"quantization_config": quantization}).quantization
    return found.linear_schemes, found.expert_scheme


def packed(ignore, **weights):
    group = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 128} | weights}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ignore}


def mixed(**layers):
    listed = {f"model.layers.{i}.{name}": {"quant_algo": algo} for i in range(4) for name, algo in layers.items()}
    return {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": listed}


@pytest.mark.parametrize(
    ("config", "quantization", "expected"),
    [
        (ROUTED, packed(["lm_head"]), ((), "")),
        (ROUTED, packed(["re:.*self_attn.*"]), (("bf16",), "")),
        (DENSE, packed(["re:.*self_attn.*"]), ((), "")),
        (ROUTED, packed([], group_size=32), (("int4_g32",), "")),
        (ROUTED, packed(["re:.*experts.*"]), ((), "bf16")),
        (
            ROUTED,
            {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["attn"]},
            (("bf16",), ""),
        ),
        (
            ROUTED,
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:.*attn.*": {}}},
            (("bf16",), ""),
        ),
        (ROUTED, {"quant_method": "mxfp4"}, (("bf16",), "")),
    ],
)
def test_the_ignore_list_decides_part_by_part(config, quantization, expected):
    """Experts alone, attention alone, or all; what is all in one scheme says nothing more."""
    assert expected == parts(config, quantization)


def test_mixed_checkpoints_name_all_formats_of_their_linear_layers():
    """The one that most layers have stands first, and weight-only NVFP4 is told from the other."""
    asked = mixed(**{
        "self_attn.q_proj": "FP8", "self_attn.k_proj": "FP8", "self_attn.v_proj": "FP8", "self_attn.o_proj": "FP8",
        "mlp.gate_proj": "W4A16_NVFP4", "mlp.up_proj": "W4A16_NVFP4", "mlp.down_proj": "W4A16_NVFP4",
    })  # fmt: skip
    assert (("fp8_tensor", "nvfp4_w4a16"), "") == parts(DENSE, asked)


def test_experts_of_a_mixed_checkpoint_have_their_own_scheme():
    """MXFP8 around experts in NVFP4 with activations in four bits."""
    asked = mixed(**{"self_attn.q_proj": "MXFP8", "self_attn.o_proj": "MXFP8", "mlp.experts.0.up_proj": "NVFP4"})
    assert (("mxfp8",), "nvfp4") == parts(ROUTED, asked)


def test_plain_checkpoints_say_nothing():
    """16 bits throughout."""
    found = read(ROUTED).quantization
    assert ((), "") == (found.linear_schemes, found.expert_scheme)


@pytest.mark.parametrize(
    ("name", "linear", "experts"),
    [
        ("deepseek-ai/DeepSeek-V4-Flash", ("fp8_block",), ""),
        ("nvidia/DeepSeek-V4-Flash-NVFP4", ("fp8_block",), "nvfp4"),
        ("nvidia/MiniMax-M3-NVFP4", ("mxfp8",), "nvfp4"),
        ("nvidia/Gemma-4-26B-A4B-NVFP4", ("bf16",), ""),
        ("moonshotai/Kimi-K2-Thinking", ("bf16",), ""),
        ("nvidia/Qwen3.6-35B-A3B-NVFP4", ("fp8_tensor", "nvfp4_w4a16"), "nvfp4_w4a16"),
        ("openai/gpt-oss-20b", ("bf16",), ""),
        ("Qwen/Qwen3-32B-AWQ", (), ""),
    ],
)
def test_published_checkpoints(name, linear, experts):
    """As vLLM built their layers when it was asked (benchmarks/oracle.md)."""
    found = models.find(name).quantization
    assert (linear, experts) == (found.linear_schemes, found.expert_scheme)


@pytest.mark.parametrize(
    ("outer", "inner", "said", "expected"),
    [
        ("gemma4", "gemma4_text", {}, False),
        ("gemma4", "gemma4_text", {"use_bidirectional_attention": "vision"}, True),
        ("gemma4_unified", "gemma4_unified_text", {}, True),
        ("gemma4_unified", "gemma4_unified_text", {"use_bidirectional_attention": "all"}, False),
    ],
)
def test_images_see_both_ways_where_the_config_or_its_class_says_so(outer, inner, said, expected):
    """transformers' class of the unified model defaults to it, the other one does not."""
    text = GEMMA_4["text_config"] | {"model_type": inner} | said
    assert expected is read(GEMMA_4 | {"model_type": outer, "text_config": text}).bidirectional_images


def test_gemma_4_experts_use_the_tanh_form():
    """models/gemma4.py:368, 0.24 :361."""
    assert models.find("google/gemma-4-26B-A4B-it").moe.activation == "gelu_tanh"


def test_a_checkpoint_that_ignores_every_layer_holds_16_bits():
    """An overlay with scales for the KV cache alone: the method is fp8, and no weight is."""
    layers = [f"model.layers.{i}.{name}" for i in range(4) for name in
              ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
               "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")]  # fmt: skip
    stored = {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": [*layers, "lm_head"]}

    found = read(TINY_LLAMA | {"quantization_config": stored}).quantization

    assert ("fp8", "bf16", 16, ()) == (found.method, found.scheme, found.weight_bits, found.linear_schemes)
