"""Storage formats and module patterns of every `quantization_config`."""

from __future__ import annotations

import pytest

from vllm_advisor.errors import BadInput
from vllm_advisor.model.config import read
from vllm_advisor.model.patterns import Patterns


SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
MOE = SMALL | {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 512, "head_dim": 128,
}  # fmt: skip
UP = 1024 * 4096  # elements of one gate, up or down projection
MLP = 3 * UP * 4


def spec(quantization: dict, base: dict = SMALL):
    return read(base | {"quantization_config": quantization})


def mlp_bytes(quantization: dict) -> int:
    return sum(g.bytes for g in spec(quantization).weights if g.role == "mlp")


def compressed(weights: dict, acts: dict | None = None, **more: object) -> dict:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": acts}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}} | more


W8 = {"num_bits": 8, "type": "float"}
A8 = {"num_bits": 8}
ROWS = 4 * (2 * 4096 + 1024)  # output rows of 4 layers' MLP
FORMATS = [
    # quantization_config, scheme, bits, activation bits, extra bytes beyond the packed elements of 4 layers' MLP
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block", 8, 8, 4 * 3 * (8 * 32) * 4),
    ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8_tensor", 8, 8, 12 * 8),
    ({"quant_method": "fbgemm_fp8"}, "fp8_channel", 8, 8, 4 * ROWS),
    ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4", 4, 16, MLP // 128 * 5 // 2),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4", 4, 16, MLP // 128 * 5 // 2 + 4 * 4 * 6144),
    ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8", 8, 16, ROWS * 3 + 4 * 4 * 6144),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8_tensor", 8, 8, 12 * 8),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 4, 4, MLP // 16 + 12 * 8),
    ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, "mxfp8", 8, 8, MLP // 32),
    ({"quant_algo": "FP8"}, "fp8_tensor", 8, 8, 12 * 8),
    ({"quant_method": "quark", "weight": "mxfp4 group 32"}, "mxfp4", 4, 4, MLP // 32),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", 8, 8, 4 * ROWS),
    ({"quant_method": "torchao", "quant_type": "Float8WeightOnlyConfig"}, "fp8_tensor", 8, 8, 12 * 8),
    ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, "int4", 4, 16, MLP // 128 * 5 // 2),
    (compressed(W8 | {"strategy": "channel"}, A8), "fp8_channel", 8, 8, ROWS * 2),
    (compressed(W8 | {"strategy": "tensor"}, None), "fp8_tensor", 8, 16, 12 * 8),
    (compressed(W8 | {"strategy": "block", "block_structure": [128, 128]}, A8), "fp8_block", 8, 8, 12 * 256 * 4),
    (compressed({"num_bits": 8, "type": "int", "strategy": "channel"}, A8), "int8", 8, 8, ROWS * 2),
    (compressed({"num_bits": 4, "type": "int", "group_size": 32}), "int4", 4, 16, MLP // 32 * 2),
    (compressed({"num_bits": 4, "group_size": 128, "symmetric": False}), "int4", 4, 16, MLP // 128 * 5 // 2),
    (compressed({"num_bits": 4, "type": "float", "group_size": 16}, {"num_bits": 4}), "nvfp4", 4, 4, MLP // 16 + 96),
    (compressed({"num_bits": 4, "type": "float", "group_size": 32}, format="mxfp4-pack-quantized"), "mxfp4", 4, 16,
     MLP // 32),
]  # fmt: skip


@pytest.mark.parametrize("case", FORMATS, ids=lambda c: f"{c[0].get('quant_method', 'bare')}-{c[1]}-{c[2]}")
def test_each_format_weighs_its_elements_and_scales(case: tuple) -> None:
    """Bytes are packed elements plus scales and zero points, and scheme and bits are told apart from activations."""
    config, scheme, bits, acts, extra = case
    told = spec(config).quantization
    assert (scheme, bits, acts) == (told.scheme, told.weight_bits, told.activation_bits)
    assert MLP * bits // 8 + extra == mlp_bytes(config)


def test_no_quantization_is_bf16() -> None:
    """Without a config the weights are two bytes and the cache is nobody's business."""
    plain = read(SMALL)
    assert ("none", "bf16", None) == (
        plain.quantization.method,
        plain.quantization.scheme,
        plain.quantization.kv_cache_dtype,
    )
    assert MLP * 2 == sum(g.bytes for g in plain.weights if g.role == "mlp")


def test_head_and_embedding_stay_in_16_bits() -> None:
    """No loader quantizes lm_head or the embedding unless the checkpoint names it."""
    bits = {g.role: g.bits for g in spec({"quant_method": "awq", "bits": 4, "group_size": 128}).weights}
    assert (16, 16, 4) == (bits["embedding"], bits["lm_head"], bits["mlp"])


@pytest.mark.parametrize(
    "pattern",
    [
        "self_attn",
        "model.layers.*.self_attn",
        "re:.*self_attn.*",
        "*self_attn*",
        "first and last, all self_attn projections",
    ],
)
@pytest.mark.parametrize("key", ["ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules"])
def test_ignored_modules_are_honoured(key: str, pattern: str) -> None:
    """Attention left out of the recipe stays in 16 bits, whatever the key and the dialect of the pattern."""
    bits = {g.role: g.bits for g in spec({"quant_method": "fp8", key: [pattern]}).weights}
    assert (16, 8) == (bits["attention"], bits["mlp"])


def test_a_pattern_of_one_layer_splits_the_group() -> None:
    """`model.layers.0*` leaves layer 0 alone in 16 bits."""
    groups = [
        g for g in spec({"quant_algo": "NVFP4", "exclude_modules": ["model.layers.0*"]}).weights if g.role == "mlp"
    ]
    assert {16: (0,), 4: (1, 2, 3)} == {g.bits: g.layers for g in groups if g.sharding == "row"}


def test_gate_is_not_gate_proj() -> None:
    """`gate` names the router, not the first half of the feed-forward network."""
    assert {8} == {
        g.bits for g in spec({"quant_method": "fp8", "modules_to_not_convert": ["gate"]}).weights if g.role == "mlp"
    }


def test_mxfp4_is_for_experts_only() -> None:
    """gpt-oss's method quantizes experts and leaves linear layers (quantization/mxfp4.py)."""
    read_as = spec({"quant_method": "mxfp4"}, MOE)
    bits = {g.role: g.bits for g in read_as.weights}
    assert (4, 16, "mxfp4") == (bits["experts"], bits["attention"], read_as.quantization.scheme)


def test_experts_may_have_their_own_format() -> None:
    """DeepSeek-V4: FP8 blocks with FP4 experts, said by `expert_dtype`."""
    bits = {
        g.role: g.bits
        for g in spec({"quant_method": "fp8", "weight_block_size": [128, 128], "expert_dtype": "fp4"}, MOE).weights
    }
    assert (4, 8) == (bits["experts"], bits["attention"])


def test_mixed_precision_reads_each_module() -> None:
    """modelopt MIXED_PRECISION: what no entry names is not quantized; one expert speaks for its layer."""
    layers = {f"model.layers.{i}.mlp.experts.{e}.up_proj": {"quant_algo": "NVFP4"} for i in range(4) for e in range(8)}
    layers |= {f"model.layers.{i}.self_attn.{p}_proj": {"quant_algo": "FP8"} for i in range(4) for p in "qkvo"}
    read_as = spec({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}, MOE)
    bits = {g.role: g.bits for g in read_as.weights}
    assert ("nvfp4_mixed", 4, 8) == (read_as.quantization.scheme, bits["experts"], bits["attention"])


def test_groups_with_targets() -> None:
    """compressed-tensors groups may name modules; the rest follows the group of `Linear`."""
    four = {"targets": ["re:.*mlp.*"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}}
    eight = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}
    config = {"quant_method": "compressed-tensors", "config_groups": {"a": four, "b": eight}}
    bits = {g.role: g.bits for g in spec(config).weights}
    assert (4, 8) == (bits["mlp"], bits["attention"])


def test_gptq_dynamic_rules() -> None:
    """`-:` rules of GPTQModel leave modules out."""
    config = {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:.*self_attn.*": {}}}
    bits = {g.role: g.bits for g in spec(config).weights}
    assert (16, 4) == (bits["attention"], bits["mlp"])


def test_the_config_may_stand_inside_text_config() -> None:
    """Kimi-K2.5 quantizes inside `text_config`: reading the top alone would triple its size."""
    nested = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava"}
    read_as = read(nested | {"text_config": SMALL | {"quantization_config": {"quant_method": "fp8"}}})
    assert "fp8_tensor" == read_as.quantization.scheme


KV = [
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}, "fp8"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
    ({"quant_algo": "FP8", "kv_cache_scheme": "FP8"}, "fp8"),
    (compressed({"num_bits": 8, "type": "float"}, kv_cache_scheme={"num_bits": 8, "type": "float"}), "fp8"),
    ({"quant_method": "fp8", "kv_cache_scheme": None}, None),
    ({"quant_method": "mxfp4"}, None),
]


@pytest.mark.parametrize(("config", "dtype"), KV)
def test_cache_dtype_is_independent_of_weights(config: dict, dtype: str | None) -> None:
    """FP8 weights ask for no FP8 cache unless the checkpoint says so."""
    assert dtype == spec(config).quantization.kv_cache_dtype


def test_an_unknown_method_cannot_be_told() -> None:
    """A method that we do not know is named in `unknowns`, and no byte count pretends to know it."""
    read_as = spec({"quant_method": "hqq"})
    assert ("quantization method 'hqq' is not known",) == read_as.unknowns
    assert "other" == read_as.quantization.scheme


def test_a_name_may_betray_a_format() -> None:
    """GGUF files come with a plain config: the size cannot be told from it."""
    assert "gguf" in read(SMALL, name="some-Q4_K_M.gguf").unknowns[0]


@pytest.mark.parametrize("pattern", ["re:(", "x" * 5000])
def test_a_broken_pattern_is_refused(pattern: str) -> None:
    """A pattern that cannot compile is bad input, not a traceback."""
    with pytest.raises(BadInput, match="quantization pattern"):
        spec({"quant_method": "compressed-tensors", "ignore": [pattern]})


PATTERNS = [
    # pattern, module, layer, meant
    ("model.layers.3.mlp.gate", "mlp.gate", 3, True),
    ("model.layers.3.mlp.gate", "mlp.gate", 4, False),
    ("language_model.model.layers.3.self_attn*", "self_attn.q_proj", 3, True),
    ("vision_model.model.layers.3.self_attn.q_proj", "self_attn.q_proj", 3, False),
    ("mlp.gate", "mlp.gate_proj", 0, False),
    ("model.layers.1.mlp.experts.0.down_proj", "mlp.experts.0.gate_proj", 1, True),
    ("model.layers.1.mlp.experts.7.down_proj", "mlp.experts.0.gate_proj", 1, False),
    ("re:.*mlp\\.(gate|up)_proj.*", "mlp.experts.0.gate_proj", 1, False),
    ("re:.*layers\\.[01]\\..*", "mlp.up_proj", 1, True),
    ("re:.*layers\\.[01]\\..*", "mlp.up_proj", 2, False),
    ("lm_head", "mlp.up_proj", 2, False),
]


@pytest.mark.parametrize(("pattern", "path", "layer", "meant"), PATTERNS)
def test_what_a_pattern_means(pattern: str, path: str, layer: int, meant: bool) -> None:
    """Names match whole components, layer numbers match that layer, towers have their own names."""
    assert meant is Patterns((pattern,)).match(path, layer)


def test_substrings_are_for_awq() -> None:
    """AWQ's list matches anywhere in the name: `attn` means self_attn."""
    assert Patterns(("attn",), substring=True).match("self_attn.q_proj", 0)
    assert not Patterns(("attn",)).match("self_attn.q_proj", 0)
