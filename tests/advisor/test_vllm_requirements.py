"""What a model needs on its command line, by family and version."""

from __future__ import annotations

import pytest

from vllm_advisor.model import ModelSpec, Quantization
from vllm_advisor.vllm.families import FAMILIES, REPOSITORY_CODE
from vllm_advisor.vllm.requirements import requirements
from vllm_advisor.vllm.surface import load, versions
from vllm_advisor.workload import Workload


VERSIONS = versions()


def model(name, architecture, **fields):
    return ModelSpec(name, architecture, "any", "bfloat16", 4096, 32, 128256, 131072, 32, 8, (), (), **fields)


def needed(name, architecture, version="0.33.0", **fields):
    return requirements(model(name, architecture, **fields), load(version), Workload())


def flags(found):
    return {r.flag: r.value for r in found if r.flag}


def remarks(found):
    return [r.why for r in found if not r.flag]


@pytest.mark.parametrize(
    ("name", "architecture", "reasoning", "tools"),
    [
        ("openai/gpt-oss-120b", "GptOssForCausalLM", None, "openai"),
        ("Qwen/Qwen3-30B-A3B", "Qwen3MoeForCausalLM", "qwen3", "hermes"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "Qwen3MoeForCausalLM", None, "hermes"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507", "Qwen3MoeForCausalLM", "qwen3", "hermes"),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", "Qwen3MoeForCausalLM", None, "qwen3_xml"),
        ("Qwen/Qwen3.6-35B-A3B-FP8", "Qwen3_5MoeForConditionalGeneration", "qwen3", "qwen3_xml"),
        ("Qwen/Qwen2.5-72B-Instruct", "Qwen2ForCausalLM", None, "hermes"),
        ("Qwen/Qwen2.5-72B", "Qwen2ForCausalLM", None, None),
        ("Qwen/QwQ-32B", "Qwen2ForCausalLM", "deepseek_r1", "hermes"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "Qwen2ForCausalLM", "deepseek_r1", None),
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "Qwen3ForCausalLM", "deepseek_r1", None),
        ("deepseek-ai/DeepSeek-R1", "DeepseekV3ForCausalLM", "deepseek_r1", None),
        ("deepseek-ai/DeepSeek-R1-0528", "DeepseekV3ForCausalLM", "deepseek_r1", "deepseek_v3"),
        ("nvidia/DeepSeek-V3.1-NVFP4", "DeepseekV3ForCausalLM", "deepseek_v3", "deepseek_v31"),
        ("deepseek-ai/DeepSeek-V3", "DeepseekV3ForCausalLM", None, None),
        ("deepseek-ai/DeepSeek-V3.2", "DeepseekV32ForCausalLM", "deepseek_v3", "deepseek_v32"),
        ("deepseek-ai/DeepSeek-V4-Flash-0731", "DeepseekV4ForCausalLM", "deepseek_v4", "deepseek_v4"),
        ("deepseek-ai/DeepSeek-V4-Flash-Base", "DeepseekV4ForCausalLM", None, None),
        ("deepseek-ai/DeepSeek-V4.1-Flash", "DeepseekV41ForCausalLM", "deepseek_v41", "deepseek_v41"),
        ("moonshotai/Kimi-K2-Instruct", "DeepseekV3ForCausalLM", None, "kimi_k2"),
        ("moonshotai/Kimi-K2-Thinking", "DeepseekV3ForCausalLM", "kimi_k2", "kimi_k2"),
        ("moonshotai/Kimi-K2.5", "KimiK25ForConditionalGeneration", "kimi_k2", "kimi_k2"),
        ("zai-org/GLM-4.5-Air", "Glm4MoeForCausalLM", "glm45", "glm45"),
        ("zai-org/GLM-4.7-FP8", "Glm4MoeForCausalLM", "glm47", "glm47"),
        ("zai-org/GLM-5.1-FP8", "GlmMoeDsaForCausalLM", "glm47", "glm47"),
        ("MiniMaxAI/MiniMax-M2.5", "MiniMaxM2ForCausalLM", "minimax_m2", "minimax_m2"),
        ("MiniMaxAI/MiniMax-M3", "MiniMaxM3SparseForConditionalGeneration", "minimax_m3", "minimax_m3"),
        ("mistralai/Magistral-Small-2509", "Mistral3ForConditionalGeneration", "mistral", "mistral"),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "Mistral3ForConditionalGeneration", None, "mistral"),
        ("mistralai/Mistral-7B-v0.3", "MistralForCausalLM", None, None),
        ("google/gemma-4-31B-it", "Gemma4ForConditionalGeneration", "gemma4", "gemma4"),
        ("google/gemma-4-31B", "Gemma4ForConditionalGeneration", None, None),
        ("meta-llama/Llama-3.3-70B-Instruct", "LlamaForCausalLM", None, "llama3_json"),
        ("meta-llama/Llama-3.1-8B", "LlamaForCausalLM", None, None),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "LlamaForCausalLM", None, None),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", "NemotronHForCausalLM", "nemotron_v3", "qwen3_xml"),
        ("ibm-granite/granite-4.0-h-small", "GraniteMoeHybridForCausalLM", None, "granite4"),
    ],
)
def test_parsers_of_a_family(name, architecture, reasoning, tools):
    """A family has its reasoning and tool-call parser; a pretrained model has neither."""
    found = flags(needed(name, architecture))
    assert (reasoning, tools) == (found.get("--reasoning-parser"), found.get("--tool-call-parser"))
    assert ("" if tools else None) == found.get("--enable-auto-tool-choice")


def test_a_quantized_copy_is_known_by_its_base_model():
    """A repository of another name takes the parsers of the model that it was made of."""
    found = flags(needed("someone/m3-w4", "MiniMaxM2ForCausalLM", base_model="MiniMaxAI/MiniMax-M2"))
    assert "minimax_m2" == found["--tool-call-parser"]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f"{f.architectures.split()[0]}-{f.pattern or 'all'}")
def test_the_newest_version_knows_every_parser_of_the_table(family):
    """No row names a parser that the newest shipped version lacks."""
    surface = load("0.33.0")
    assert set(family.reasoning.split()) <= set(surface.reasoning_parsers)
    assert set(family.tools.split()) <= set(surface.tool_parsers)


def test_a_family_that_the_version_has_no_parser_for():
    """Kimi-K3's parsers came after 0.24.0: nothing is written, and it is said."""
    found = needed("moonshotai/Kimi-K3", "KimiK3ForConditionalGeneration", "0.24.0")
    assert {} == flags(found)
    assert any("no tool-call parser" in text for text in remarks(found))


@pytest.mark.parametrize("version", VERSIONS)
def test_minimax_m3_needs_blocks_of_128(version):
    """Its sparse attention selects blocks of 128 tokens."""
    found = flags(needed("MiniMaxAI/MiniMax-M3", "MiniMaxM3SparseForConditionalGeneration", version))
    assert "128" == found["--block-size"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("method", ["fbgemm_fp8", "fp_quant"])
def test_a_method_about_to_go_needs_its_owners_word(version, method):
    """The configuration refuses such a checkpoint without the flag, in every version."""
    stored = Quantization(method, "fp8_channel", 8, 8)
    found = needed("meta-llama/Llama-3.1-405B-FP8", "LlamaForCausalLM", version, quantization=stored)
    assert "" == flags(found)["--allow-deprecated-quantization"]


def test_a_method_that_stays_needs_no_word():
    """FP8 of today is not deprecated."""
    stored = Quantization("fp8", "fp8_block", 8, 8, block=(128, 128))
    found = needed("Qwen/Qwen3-8B-FP8", "Qwen3ForCausalLM", quantization=stored)
    assert "--allow-deprecated-quantization" not in flags(found)


def test_no_other_model_gets_a_block_size():
    """A block size is written for the model that needs it only."""
    assert "--block-size" not in flags(needed("Qwen/Qwen3-8B", "Qwen3ForCausalLM"))


def test_a_chat_template_that_tools_need_is_a_remark():
    """A template lies in vLLM's examples, not in the wheel: it is said, not written."""
    found = needed("meta-llama/Llama-3.1-8B-Instruct", "LlamaForCausalLM")
    assert "--chat-template" not in flags(found)
    assert any("tool_chat_template_llama3.1_json.jinja" in text for text in remarks(found))


def test_losing_a_modality_is_for_the_user_to_decide():
    """A model that sees gets the advice for text-only load, and no flag."""
    found = needed("Qwen/Qwen3-VL-8B-Instruct", "Qwen3VLForConditionalGeneration", modalities=("vision",))
    assert "--language-model-only" not in flags(found)
    assert any("--language-model-only" in text for text in remarks(found))
    assert not any("--language-model-only" in text for text in remarks(needed("Qwen/Qwen3-8B", "Qwen3ForCausalLM")))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("moonshotai/Kimi-K2-Instruct", "DeepseekV3ForCausalLM"),
        ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "NemotronHForCausalLM"),
        ("someone/strange", "StrangeForCausalLM"),
    ],
)
def test_code_of_a_repository_is_never_switched_on(version, name, architecture):
    """Where code of the repository may be needed it is said, and the flag is not written."""
    found = needed(name, architecture, version)
    assert "--trust-remote-code" not in flags(found)
    assert any("--trust-remote-code" in text for text in remarks(found))


def test_an_architecture_that_vllm_once_had():
    """A removed architecture is told with the last version that had it."""
    found = needed("meta-llama/Llama-3.2-11B-Vision-Instruct", "MllamaForConditionalGeneration")
    assert any("the last version that had it: 0.10.2" in text for text in remarks(found))


def test_a_catalog_entry_may_have_our_own_name_of_an_architecture():
    """A flattened catalog entry is not warned of; the same name in a published config is."""
    ours = needed("MiniMaxAI/MiniMax-M3", "MiniMaxM3ForCausalLM", provenance="verbatim")
    published = needed("MiniMaxAI/MiniMax-M3", "MiniMaxM3ForCausalLM", provenance="hub")
    assert [] == remarks(ours)
    assert any("not in the model registry" in text for text in remarks(published))


def test_a_known_architecture_gets_no_remark():
    """Nothing is said of an architecture that is in the registry."""
    assert [] == remarks(needed("Qwen/Qwen3-8B", "Qwen3ForCausalLM"))


def test_every_requirement_has_why_and_source():
    """Each row of what is needed says why and where it stands."""
    for family in FAMILIES:
        assert "" != family.source
    for name, architecture in (("MiniMaxAI/MiniMax-M3", "MiniMaxM3SparseForCausalLM"), ("a/Kimi-K2", "KimiLinear")):
        assert all(r.why and r.source for r in needed(name, architecture))
    assert all(all(row) for row in REPOSITORY_CODE)
