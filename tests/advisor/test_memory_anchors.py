"""The figures that a memory model of known checkpoints must give, from the catalog's own specs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from vllm_advisor.catalog import gpus, models
from vllm_advisor.memory.budget import budget
from vllm_advisor.memory.remedies import remedies
from vllm_advisor.plan import Plan
from vllm_advisor.units import GIB
from vllm_advisor.vllm.history import surface_for
from vllm_advisor.vllm.surface import load


if TYPE_CHECKING:
    from vllm_advisor.facts import MemoryBudget
    from vllm_advisor.model import ModelSpec


VERSIONS = ("0.24.0", "0.33.0")


def known(name: str) -> ModelSpec:
    spec = models.find(name)
    assert spec is not None
    return spec


def plan(spec: ModelSpec, **changes: object) -> Plan:
    values = {"max_model_len": 8192, "max_num_seqs": 256, "max_num_batched_tokens": 8192, **changes}
    return Plan(spec.name, **values)  # type: ignore[arg-type]


def on(spec: ModelSpec, machine: str, version: str = "0.33.0", **changes: object) -> MemoryBudget:
    return budget(spec, plan(spec, **changes), gpus.node(machine), load(version))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("tp", [1, 8, 16])
def test_deepseek_v3_keeps_70272_bytes_a_token_at_any_tp(version, tp):
    """576 × 61 × 2, bf16."""
    b = on(known("deepseek-ai/DeepSeek-V3"), f"{-(-tp // 8)}x{min(tp, 8)}xH200", version, tensor_parallel_size=tp)
    assert 70_272 == b.kv_bytes_per_token


@pytest.mark.parametrize("version", VERSIONS)
def test_gemma_3_27b_grows_on_10_of_62_layers(version):
    """81,920 bytes a token, not 507,904."""
    assert 81_920 == on(known("google/gemma-3-27b-it"), "1xH100", version).kv_bytes_per_token


@pytest.mark.parametrize("version", VERSIONS)
def test_llama_3_1_8b_keeps_128_kib_a_token(version):
    """32 × 8 × 256 × 2."""
    assert 131_072 == on(known("meta-llama/Llama-3.1-8B-Instruct"), "1xH100", version).kv_bytes_per_token


def test_gpt_oss_120b_is_60_8_gib_as_stored_and_more_as_loaded():
    """The checkpoint, and what 0.11 on an H100 and 0.22 on two to eight H200 printed (a kernel's tiles)."""
    spec = known("openai/gpt-oss-120b")
    assert 60.8 == pytest.approx(spec.weight_bytes / GIB, rel=0.01)
    b = budget(spec, plan(spec), gpus.node("1xH100"), surface_for("0.11.0"))
    assert 64.38 == pytest.approx(b.weights / GIB, rel=0.005)
    for tp, printed in ((2, 34.38), (4, 17.22), (8, 8.66)):
        b = budget(spec, plan(spec, tensor_parallel_size=tp), gpus.node("8xH200"), surface_for("0.22.1"))
        assert printed == pytest.approx(b.weights / GIB, rel=0.005)


@pytest.mark.parametrize("version", VERSIONS)
def test_minimax_m3_in_fp8_does_not_fit_four_80_gb_cards(version):
    """About 400 GiB in FP8; the limit has the numbers, and each remedy fits."""
    spec, node = known("MiniMaxAI/MiniMax-M3"), gpus.node("4xH100")
    wish = plan(spec, tensor_parallel_size=4, quantization="fp8_per_tensor")
    b = budget(spec, wish, node, load(version))
    assert "does not fit" == b.verdict
    assert b.limits[0].startswith("weights 100.2 GiB and ")
    found = remedies(spec, wish, node, load(version), b)
    assert "tensor_parallel_size 8, which needs 4 more NVIDIA H100 SXM" in [r.change for r in found]
    assert all(r.budget.fits for r in found)


def test_the_hybrid_that_refused_1024_sequences_on_an_h100_is_refused():
    """A 27-billion hybrid at the default of 1,024 sequences has fewer state blocks (0.28 printed 969 for its kin)."""
    b = on(known("Qwen/Qwen3.5-27B"), "1xH100", max_num_seqs=1024, gpu_memory_utilization=0.9)
    assert b.num_blocks < 1024
    assert any(limit.startswith("max_num_seqs 1,024 exceeds the ") for limit in b.limits)
