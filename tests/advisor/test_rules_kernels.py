"""The kernels that a plan names, part by part: what the selectors are asked follows the model and the plan."""

from __future__ import annotations

import pytest

from vllm_advisor.catalog import gpus, models
from vllm_advisor.facts import Case, Facts
from vllm_advisor.memory.budget import budget
from vllm_advisor.plan import Plan
from vllm_advisor.rules import views
from vllm_advisor.rules.kernels import kernels
from vllm_advisor.vllm import surface
from vllm_advisor.workload import PRESETS


AITER = (("VLLM_ROCM_USE_AITER", "1"),)


def case(name, on, vllm="0.33.0", **plan):
    facts = Facts(gpus.node(on), models.find(name), PRESETS["chat"], surface.load(vllm))
    asked = Plan(checkpoint=name, max_model_len=8192, **plan)
    return Case(facts, asked, budget(facts.model, asked, facts.node, facts.vllm))


def named(*args, **plan):
    return dict(kernels(case(*args, **plan)))


def linear(*args, **plan):
    return named(*args, **plan)["linear layers"].partition(",")[0]


def test_linear_layers_in_two_formats_name_both_kernels():
    """FP8 attention and weight-only NVFP4 feed-forward layers, in every release, each with its arithmetic."""
    both = "CutlassFP8, multiplies in 8 bits; {}NvFp4, multiplies in 16 bits"
    found = {v: named("nvidia/Qwen3.6-27B-NVFP4", "1xH100", v)["linear layers"] for v in ("0.24.0", "0.33.0")}
    assert {"0.24.0": both.format("Marlin"), "0.33.0": both.format("Humming")} == found


@pytest.mark.parametrize(
    ("name", "on", "expected"),
    [
        ("moonshotai/Kimi-K2.5", "8xB200", "Unquantized"),
        ("nvidia/Gemma-4-26B-A4B-NVFP4", "1xB200", "Unquantized"),
        ("deepseek-ai/DeepSeek-V4-Flash", "4xB200", "DeepGemmFp8Block"),
        ("nvidia/MiniMax-M3-NVFP4", "8xH100", "HummingMxfp8"),
        ("Qwen/Qwen3.5-9B-FP8", "1xB200", "CutlassFp8Block"),
        ("RedHatAI/Qwen3-14B-FP8-dynamic", "1xA100", "HummingFP8"),
        ("gaunernst/gemma-3-27b-it-int4-awq", "1xH100", "Humming"),
    ],
)
def test_linear_layers_are_asked_for_what_they_hold(name, on, expected):
    """Not for the checkpoint's one scheme, which is that of the experts where those alone are quantized."""
    assert expected == linear(name, on)


def test_amd_loads_awq_and_fbgemm_past_the_tables():
    """AWQ has a Triton kernel of its own there, and AITER refuses fbgemm's scales."""
    assert linear("Qwen/Qwen3-0.6B-AWQ", "1xMI300X", env=AITER) == "AutoAWQ"
    with_fbgemm = {"tensor_parallel_size": 8, "env": AITER}
    assert linear("meta-llama/Llama-3.1-405B-FP8", "8xMI300X", **with_fbgemm) == "RowWiseTorchFP8"


def test_online_fp8_scales_its_experts_activations_as_they_come():
    """Another row of the experts' table than a checkpoint's static scales; linear layers have none of that."""
    asked = case("Qwen/Qwen3-30B-A3B", "1xH100", quantization="fp8_per_tensor")
    assert (views.linear_schemes(asked), views.expert_scheme(asked)) == (("fp8_tensor",), "fp8_tensor_dynamic")


def test_experts_only_flags_leave_linear_layers_alone():
    """`nvfp4_per_token` converts experts."""
    asked = case("Qwen/Qwen3-30B-A3B", "1xB200", quantization="nvfp4_per_token")
    assert (views.linear_schemes(asked), views.expert_scheme(asked)) == (("bf16",), "nvfp4")


@pytest.mark.parametrize(
    ("name", "on", "part", "expected"),
    [
        ("google/gemma-3-12b-it", "1xH100", "sliding-window attention", "TRITON_FLASH_ATTN"),
        ("google/gemma-3-12b-it", "1xA100", "attention", "TRITON_ATTN"),
        ("google/gemma-4-12B-it", "1xB200", "attention", "TRITON_FLASHINFER"),
        ("google/gemma-3-1b-it", "1xA100", "attention", "FLASH_ATTN"),
        ("google/gemma-4-E2B-it", "1xL40S", "sliding-window attention", "TRITON_ATTN"),
        ("google/gemma-4-E2B-it", "1xH100", "sliding-window attention", "FLASH_ATTN"),
        ("deepseek-ai/DeepSeek-V4-Flash", "4xB200", "sliding-window attention", "DEEPSEEK_SPARSE_SWA"),
    ],
)
def test_attention_is_asked_for_the_model(name, on, part, expected):
    """Images that see both ways, heads of several sizes, windows of latents."""
    assert expected == named(name, on)[part]


@pytest.mark.parametrize(
    ("name", "on", "vllm", "plan", "expected"),
    [
        ("deepseek-ai/DeepSeek-V3.2", "8xB200", "0.33.0", {"tensor_parallel_size": 8}, "FLASH_ATTN_MLA_SPARSE_FA4"),
        ("deepseek-ai/DeepSeek-V3.2", "8xB200", "0.33.0", {"pipeline_parallel_size": 8}, "FLASHMLA_SPARSE"),
        ("nvidia/DeepSeek-V3.2-NVFP4", "8xH100", "0.33.0", {"tensor_parallel_size": 8}, "FLASHINFER_MLA_SPARSE_SM90"),
        ("zai-org/GLM-5.2-FP8", "8xB200", "0.33.0", {"pipeline_parallel_size": 8}, "FLASHINFER_MLA_SPARSE"),
        ("zai-org/GLM-5.2-FP8", "8xB200", "0.31.0", {"pipeline_parallel_size": 8}, "FLASHMLA_SPARSE"),
    ],
)
def test_sparse_latent_attention_asks_by_heads_and_by_the_cache_that_results(name, on, vllm, plan, expected):
    """Heads a rank, ModelOpt's FP8 cache as vLLM calls it, and the cache that GLM takes by itself since 0.32."""
    assert expected == named(name, on, vllm, **plan)["latent attention"]
