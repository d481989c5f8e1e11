"""What `read` refuses, what it says it cannot tell, and what it makes of broken and hostile configs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_advisor.errors import AdvisorError, BadInput, UnsupportedModel
from vllm_advisor.model.config import read


DATA = Path(__file__).parent.parent / "data" / "model"
CONFIGS = [r["config"] for f in sorted(DATA.glob("*.json")) for r in json.loads(f.read_text(encoding="utf-8"))]
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 256,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["whisper", "mllama", "bart", "t5"])
def test_encoder_decoders_are_refused(kind: str) -> None:
    """Encoder-decoder models are refused by name, with the reason and a hint."""
    with pytest.raises(UnsupportedModel, match="encoder-decoder") as refused:
        read({"architectures": ["SomeForConditionalGeneration"], "model_type": kind})
    assert "decoder language models" in refused.value.hint


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        ("BertModel", "bert"),
        ("MistralModel", "mistral"),
        ("Qwen2ForSequenceClassification", "qwen2"),
        ("RobertaForMaskedLM", "roberta"),
    ],
)
def test_models_that_do_not_generate_are_refused(architecture: str, kind: str) -> None:
    """Encoders, embedding models and classifiers are not language models to serve."""
    with pytest.raises(UnsupportedModel):
        read(LLAMA | {"architectures": [architecture], "model_type": kind})


def test_an_unknown_architecture_cannot_be_told() -> None:
    """An architecture that we do not know yields no groups, and says what is missing."""
    spec = read(
        {
            "architectures": ["HyperNovaForCausalLM"],
            "model_type": "hypernova",
            "hidden_size": 64,
            "num_hidden_layers": 4,
        }
    )
    assert ((), ()) == (spec.caches, spec.weights)
    assert "HyperNovaForCausalLM" in spec.unknowns[0]


def test_an_unknown_layer_kind_is_said() -> None:
    """A layer type that Qwen3-Next does not have is named instead of being guessed."""
    config = next(c for c in CONFIGS if c.get("model_type") == "qwen3_next")
    spec = read(config | {"layer_types": ["full_attention", "spiral_attention"] * 24})
    assert "spiral_attention" in spec.unknowns[0]


def test_an_unknown_tower_is_said() -> None:
    """A vision tower of unknown kind leaves the weights untold."""
    spec = read(
        {"architectures": ["X"], "model_type": "x", "text_config": LLAMA, "vision_config": {"model_type": "prism"}}
    )
    assert ("vision tower 'prism' is not known: its weights cannot be told",) == spec.unknowns


def test_an_own_model_type_falls_back_to_the_architecture() -> None:
    """A renamed model_type with a known architecture is that architecture (vLLM's registry goes by it)."""
    assert read(LLAMA).weights == read(LLAMA | {"model_type": "my_llama"}).weights


def test_auto_map_is_ignored() -> None:
    """Code that a repository asks to run is not looked at."""
    assert read(LLAMA) == read(LLAMA | {"auto_map": {"AutoConfig": "evil.Config"}})


def test_names_travel_with_the_spec() -> None:
    """Name, source and provenance are carried as given."""
    spec = read(LLAMA, name="a/b", source="hub", provenance="verbatim")
    assert ("a/b", "hub", "verbatim", "LlamaForCausalLM") == (
        spec.name,
        spec.source,
        spec.provenance,
        spec.architecture,
    )


def test_float32_checkpoints_are_loaded_in_16_bits() -> None:
    """vLLM casts float32 to bfloat16: the spec is what is loaded."""
    spec = read(LLAMA | {"torch_dtype": "float32"})
    assert "bfloat16" == spec.dtype
    assert spec.params * 2 == spec.weight_bytes


BROKEN = [
    ([], "not a JSON object"),
    ({}, "neither an architecture nor a model_type"),
    (LLAMA | {"hidden_size": "4096"}, "hidden_size is text"),
    (LLAMA | {"hidden_size": -1}, "hidden_size is -1"),
    (LLAMA | {"num_hidden_layers": True}, "num_hidden_layers is a boolean"),
    (LLAMA | {"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
    (LLAMA | {"num_hidden_layers": None}, "num_hidden_layers is missing"),
    (LLAMA | {"vocab_size": 10**5000}, "vocab_size is an absurd value"),
    (LLAMA | {"vocab_size": {"a": 1}}, "vocab_size is an object"),
    (LLAMA | {"layer_types": ["full_attention"]}, "layer_types has 1 entries"),
    (LLAMA | {"architectures": "LlamaForCausalLM"}, "architectures is text"),
    (LLAMA | {"quantization_config": 4}, "quantization_config is a number"),
    ({"model_type": "x", "text_config": [1]}, "text_config is a list"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "says"), BROKEN)
def test_broken_configs_are_one_line_and_a_hint(config: object, says: str) -> None:
    """The message names the key and what it holds, on one line, and the hint is not empty."""
    with pytest.raises(BadInput, match=says) as broken:
        read(config)
    assert "\n" not in broken.value.message
    assert broken.value.hint


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.just(10**400)
    | st.just(-(10**20)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def damaged(draw: st.DrawFn) -> object:
    """A real config with up to three values replaced, removed or nested, at any depth."""
    config = json.loads(json.dumps(draw(st.sampled_from(CONFIGS))))
    for _ in range(draw(st.integers(1, 3))):
        place = config
        while True:
            inner = [k for k, v in place.items() if isinstance(v, dict)]
            if not inner or draw(st.booleans()):
                break
            place = place[draw(st.sampled_from(inner))]
        if not place:
            continue
        key = draw(st.sampled_from(sorted(place)))
        how = draw(st.sampled_from(("remove", "replace", "wrap", "item")))
        if how == "remove":
            del place[key]
        elif how == "item" and isinstance(place[key], list) and place[key]:
            place[key][draw(st.integers(0, len(place[key]) - 1))] = draw(JUNK)
        else:
            place[key] = [place[key]] if how == "wrap" else draw(JUNK)
    return config


def outcome(config: object) -> bool:
    """Whether the config was read, or refused in one line."""
    try:
        return read(config).weight_bytes >= 0
    except AdvisorError as broken:
        return "\n" not in broken.message


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged())
def test_damaged_configs_give_a_spec_or_an_advisor_error(config: object) -> None:
    """Missing, wrong-typed, negative, huge and nested values: nothing but our own errors comes out."""
    assert outcome(config)


def test_what_is_quoted_of_a_config_breaks_no_line_and_steers_no_terminal() -> None:
    """A name with a line's end, an escape sequence or half a character in a message and its hint."""
    groups = {"a\n\x1b[2Jb": 1}
    with pytest.raises(BadInput) as refused:
        read(LLAMA | {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": groups}})
    assert "config_groups.a  [2Jb" in refused.value.message
    for error in (refused.value, BadInput("\ud800", "\r\x9bm")):
        assert (error.message + error.hint + str(error)).isprintable()


def test_an_empty_list_counts_as_absent() -> None:
    """Empty per-layer lists are written by some tools (Llama-4's `no_rope_layers`), and mean the default."""
    deepseek = next(c for c in CONFIGS if c.get("model_type") == "deepseek_v2")
    assert read(deepseek).weights == read(deepseek | {"moe_layer_freq": []}).weights
    tower = next(c for c in CONFIGS if c.get("model_type") == "glm4v_moe")
    small = read(tower | {"vision_config": tower["vision_config"] | {"image_size": []}})
    assert small.params < read(tower).params


def test_a_deep_nest_is_no_crash() -> None:
    """A config nested ten thousand deep is refused or read, never a RecursionError."""
    nest: dict = {}
    for _ in range(10_000):
        nest = {"text_config": nest}
    with pytest.raises(BadInput):
        read(nest | {"model_type": "llama"})


def test_class_defaults_complete_a_nested_config() -> None:
    """Gemma-3-4B's published text config has neither heads nor vocabulary; the class gives them (4.30 B parameters)."""
    text = {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34}
    vision = {
        "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "model_type": "siglip_vision_model",
        "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False,
    }  # fmt: skip
    outer = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "vision_config": vision}
    spec = read(outer | {"text_config": text | {"sliding_window": 1024}})
    assert spec.params / 1e9 == pytest.approx(4.3001, rel=1e-4)
    assert (262_208, 131_072, 4, {1024}) == (
        spec.vocab_size, spec.max_position, spec.kv_heads, {c.window for c in spec.caches if c.window},
    )  # fmt: skip


def test_a_missing_size_at_the_top_is_no_default() -> None:
    """A Llama config without a hidden size is broken, not a 7B."""
    with pytest.raises(BadInput, match="hidden_size is missing"):
        read({k: v for k, v in LLAMA.items() if k != "hidden_size"})


def test_llava_takes_the_defaults_of_its_parts() -> None:
    """LLaVA-1.5-7B writes little more than two model types: 7.06 B parameters."""
    vision = {
        "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "model_type": "clip_vision_model",
        "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14, "vocab_size": 32000,
    }  # fmt: skip
    text = {"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096}
    config = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "text_config": text}
    assert read(config | {"vision_config": vision}).params / 1e9 == pytest.approx(7.063, rel=0.001)


def test_a_trimmed_step_config_cannot_be_told() -> None:
    """Step-3.5's sliding layers have head counts of their own: without them nothing is claimed."""
    config = LLAMA | {
        "model_type": "step3p5", "layer_types": ["full_attention", "sliding_attention"], "moe_num_experts": 4,
        "num_experts_per_tok": 1, "moe_intermediate_size": 32,
    }  # fmt: skip
    assert "head count of sliding layers" in read(config).unknowns[0]
