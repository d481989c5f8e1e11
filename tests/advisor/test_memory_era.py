"""What releases do differently with memory, by hand from each release's source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vllm_advisor.catalog import gpus, models
from vllm_advisor.hardware import Node
from vllm_advisor.memory.activation import activation
from vllm_advisor.memory.budget import budget
from vllm_advisor.memory.encoder import encoding
from vllm_advisor.memory.era import era_of
from vllm_advisor.memory.identity import Identity
from vllm_advisor.memory.remedies import remedies
from vllm_advisor.memory.stages import partition, stages
from vllm_advisor.memory.weights import Sharding, loaded, per_stage
from vllm_advisor.model import CacheGroup, ModelSpec, Moe, WeightGroup
from vllm_advisor.plan import Plan
from vllm_advisor.units import GIB
from vllm_advisor.vllm.history import surface_for


H100 = gpus.find("H100 SXM")


def known(name: str) -> ModelSpec:
    spec = models.find(name)
    assert spec is not None
    return spec


def plan(**changes: object) -> Plan:
    """What a server on an H100 takes without flags, at 16,000 tokens."""
    base = Plan("m", max_model_len=16_000, max_num_seqs=1024, max_num_batched_tokens=8192, gpu_memory_utilization=0.9)
    return replace(base, **changes)  # type: ignore[arg-type]


def sampler(version: str, device: str = "H100 SXM", **changes: object) -> str:
    wish = plan(**changes)
    return era_of(known("Qwen/Qwen3-32B"), wish, surface_for(version), gpus.find(device)).sampler


def peak(model: str, version: str, **changes: object) -> float:
    """GiB of the profile run on an H100."""
    spec, wish = known(model), plan(**changes)
    return activation(spec, wish, era_of(spec, wish, surface_for(version), H100)).mid / GIB


@pytest.mark.parametrize(
    ("version", "device", "expected"),
    [
        ("0.6.6", "H100 SXM", "sort"), ("0.11.0", "H100 SXM", "sort"), ("0.17.1", "H100 SXM", "triton"),
        ("0.24.0", "H100 SXM", "flashinfer"), ("0.24.0", "MI300X", "triton"), ("0.13.0", "GB10", "flashinfer"),
    ],
)  # fmt: skip
def test_the_sampler_of_the_profile_run_changed_with_releases(version, device, expected):
    """ops/topk_topp_sampler.py sorted until 0.16; Triton filters in place since 0.17, FlashInfer on CUDA since 0.21."""
    assert expected == sampler(version, device)


def test_variables_switch_the_sampler_and_the_engine():
    """VLLM_USE_FLASHINFER_SAMPLER either way, and V1 on request in 0.7 (logits alone: it ran no sampler yet)."""
    assert "flashinfer" == sampler("0.11.0", env=(("VLLM_USE_FLASHINFER_SAMPLER", "1"),))
    assert "triton" == sampler("0.24.0", env=(("VLLM_USE_FLASHINFER_SAMPLER", "0"),))
    assert "all logits" == sampler("0.7.0", env=(("VLLM_USE_V1", "1"),))


@pytest.mark.parametrize(
    ("model", "tp", "printed"),
    [("openai/gpt-oss-20b", 1, 7.38), ("Qwen/Qwen3-32B", 1, 5.64), ("meta-llama/Llama-3.3-70B-Instruct", 2, 4.84)],
)
def test_a_sampler_that_sorts_takes_38_bytes_a_logit(model, tp, printed):
    """Peaks that 0.11 printed on H100s with 1,024 rows (llm-d-benchmark, empirical-vllm-memory-results.md)."""
    assert printed == pytest.approx(peak(model, "0.11.0", tensor_parallel_size=tp), rel=0.06)


def test_one_long_prompt_on_v0_peaks_in_the_mlp():
    """vllm#10517: 17.06 and 17.98 GiB of PyTorch's peak less 14.99 of weights, at 20,000 and 29,000 tokens."""
    for length, printed in ((20_000, 2.07), (29_000, 2.99)):
        found = peak("meta-llama/Llama-3.1-8B-Instruct", "0.6.4", max_num_batched_tokens=length, max_num_seqs=256)
        assert printed == pytest.approx(found, rel=0.06)


def test_sparse_attention_reserves_room_by_the_context():
    """40 contexts of 132 bytes until 0.31, 16 beyond 256k tokens since 0.32 (0.33.0 config/vllm.py:1872)."""
    for version, contexts in (("0.28.0", 40), ("0.33.0", 16)):
        short = peak("deepseek-ai/DeepSeek-V3.2", version, max_model_len=1)
        long = peak("deepseek-ai/DeepSeek-V3.2", version, max_model_len=1 << 20)
        per_token = 40 * 132 if contexts == 40 else contexts * 132
        assert per_token * (1 << 20) / GIB == pytest.approx(long - short, rel=0.01)


def test_a_diffusion_model_holds_the_logits_of_eight_canvases():
    """8 x 256 tokens x vocabulary x 6 bytes (0.24.0 models/config.py:149), whatever the default of 256 requests is."""
    spec = replace(known("google/gemma-4-26B-A4B-it"), architecture="DiffusionGemmaForConditionalGeneration")
    era = era_of(spec, plan(), surface_for("0.24.0"), H100)
    found = activation(spec, plan(max_num_batched_tokens=2048, max_num_seqs=256), era).mid
    assert 8 * 256 * 262_144 * 6 < found < 8 * 256 * 262_144 * 6 + 0.5 * GIB


def test_the_encoder_of_qwen3_vl_is_profiled_with_one_largest_image():
    """16,384 tokens of 4 patches: two wide tensors of 4,304 (split by TP) and seven of 1,152, at 16 bits."""
    spec = known("Qwen/Qwen3-VL-8B-Instruct")
    assert 16_384 * 4 * 2 * (2 * 4304 + 7 * 1152) == encoding(spec, plan()).peak
    assert 16_384 * 4 * 2 * (4304 + 7 * 1152) == encoding(spec, plan(tensor_parallel_size=2)).peak
    assert 0 == encoding(known("Qwen/Qwen3-32B"), plan()).peak


def test_the_token_line_of_older_releases_counts_slots_of_one_group():
    """0.12 printed 155,584 tokens and 16.75x for gpt-oss-20b with 7.12 GiB: blocks // 2 x 16, not 16.75 x 16,384."""
    wish = plan(
        max_model_len=16_384, max_num_seqs=32, max_num_batched_tokens=2048, kv_cache_memory_bytes=int(7.12 * GIB)
    )
    older, newer = (
        budget(known("openai/gpt-oss-20b"), wish, gpus.node("RTX 3090"), surface_for(v)) for v in ("0.12.0", "0.22.1")
    )
    assert 155_584 == pytest.approx(older.kv_tokens, rel=0.001)
    assert 16.75 == pytest.approx(older.max_concurrency, rel=0.001)
    assert int(newer.max_concurrency * 16_384) == newer.kv_tokens


def test_windows_count_in_full_before_the_pool_was_shared():
    """Before 0.9.1 a sliding layer beside full ones took a slot for each token (history: sliding_beside_full)."""
    wish = plan(max_model_len=65_536, kv_cache_memory_bytes=8 * GIB)
    old, new = (budget(known("google/gemma-3-27b-it"), wish, Node((H100,)), surface_for(v)) for v in ("0.9.0", "0.9.1"))
    assert 507_904 == old.kv_bytes_per_token
    assert 81_920 == new.kv_bytes_per_token


def test_states_of_hybrids_lay_beside_the_pool_on_v0():
    """vllm#23230: Nemotron-Nano-9B-v2 on 0.10.1 asked for 33.75 GiB of states for 256 requests, and stopped."""
    spec = known("nvidia/NVIDIA-Nemotron-Nano-9B-v2")
    wish = plan(max_num_seqs=256, max_num_batched_tokens=2048)
    found = budget(spec, wish, gpus.node("L40S"), surface_for("0.10.1"))
    assert 33.75 == pytest.approx(found.activation.mid / GIB, rel=0.1)
    assert "does not fit" == found.verdict


def test_stages_follow_the_partition_and_take_their_own_devices():
    """vllm#34076: layers 16,32 over a 16 GB and a 32 GB card left 3.18 GiB on the first."""
    wish = plan(
        pipeline_parallel_size=2, max_model_len=262_144, max_num_seqs=256, max_num_batched_tokens=2048,
        env=(("VLLM_PP_LAYER_PARTITION", "16,32"),),
    )  # fmt: skip
    assert (range(16), range(16, 48)) == stages(48, 2, partition(wish))
    node = Node((gpus.find("RTX 5070 Ti"), gpus.find("RTX 5090 D")))
    found = budget(known("Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8"), wish, node, surface_for("0.15.1"))
    assert 3.18 == pytest.approx(found.kv_cache.mid / GIB, rel=0.03)


@pytest.mark.parametrize("text", ["16,x", "16,16", "", "48"])
def test_a_partition_that_does_not_fit_is_left_out(text):
    """Not numbers, or not the model's layers over the stages: vLLM would refuse it, we cut evenly."""
    wish = plan(pipeline_parallel_size=2, env=(("VLLM_PP_LAYER_PARTITION", text),))
    assert (range(24), range(24, 48)) == stages(48, 2, partition(wish))


def expert_model(model_type: str) -> ModelSpec:
    """One layer of an MLP and one of experts."""
    groups = (
        WeightGroup("mlp", 1000, 2000, "column", (0,), quantizable=True),
        WeightGroup("experts", 8000, 16_000, "expert", (1,), quantizable=True),
    )
    return ModelSpec("m", "M", model_type, "bfloat16", 64, 2, 1000, 4096, 4, 4, (), groups, moe=Moe(8, 2, 0, 64, (1,)))


def test_jambas_mlp_is_an_expert_layer_of_one():
    """models/jamba.py JambaMLP: experts_int8 converts it too, other models keep their MLP."""
    held = Sharding(1, online="experts_int8")
    assert (1000 + 8000,) == per_stage(Identity(expert_model("jamba")), held)
    assert (2000 + 8000,) == per_stage(Identity(expert_model("other")), held)


def test_bitsandbytes_takes_4_127_bits():
    """nf4 with double quantization: 0.5.0 printed 5.3128 GiB for Llama-3-8B on a T4 (vllm#5569)."""
    wish = plan(quantization="bitsandbytes", max_model_len=8192)
    found = budget(known("meta-llama/Meta-Llama-3-8B-Instruct"), wish, gpus.node("T4"), surface_for("0.5.0"))
    assert 5.3128 == pytest.approx(found.weights / GIB, rel=0.001)


def test_rocm_reported_what_the_driver_had_given():
    """Llama-3.1-8B: 14.9889 GiB on CUDA and 15.0586 on an R9700 with 0.13 (platforms/rocm.py:480)."""
    key = Identity(known("meta-llama/Llama-3.1-8B-Instruct"))
    assert 14.9889 == pytest.approx(loaded(key, Sharding(1))[0] / GIB, abs=0.0005)
    assert 15.0586 == pytest.approx(loaded(key, Sharding(1), from_driver=True)[0] / GIB, abs=0.002)


def hybrid() -> ModelSpec:
    """Three layers with a state, one with full attention."""
    state = CacheGroup("state", (0, 1, 2), state_shapes=((24_576, 2, True), (524_288, 4, True)))
    whole = CacheGroup("full", (3,), 32, 8, 128, 128)
    group = WeightGroup("mlp", 10**9, 2 * 10**9, "column", (0, 1, 2, 3))
    return ModelSpec("h", "H", "h", "bfloat16", 4096, 4, 32_000, 8192, 32, 8, (state, whole), (group,))


def test_as_many_sequences_as_there_are_state_blocks_is_a_remedy():
    """The first one that is offered for sequences, and it fits (0.20 and newer refuse to capture more)."""
    node, wish = gpus.node("RTX 4090"), plan(max_model_len=2048, kv_cache_memory_bytes=GIB)
    found = budget(hybrid(), wish, node, surface_for("0.24.0"))
    assert found.limits == (f"max_num_seqs 1,024 exceeds the {found.num_blocks} blocks that states can take",)
    offered = [r for r in remedies(hybrid(), wish, node, surface_for("0.24.0"), found) if "max_num_seqs" in r.change]
    assert f"max_num_seqs {found.num_blocks}" == offered[0].change
    assert offered[0].budget.fits
    assert budget(hybrid(), wish, node, surface_for("0.19.1")).fits


@pytest.mark.parametrize(
    ("version", "token"), [("0.6.6", 61 * 16 * 2 * 256 * 2), ("0.7.2", 61 * 1280), ("0.8.0", 70_272)]
)
def test_deepseeks_cache_was_keys_and_values_first_and_then_padded(version, token):
    """At TP8, 16 heads of K and V padded to 256 (deepseek_v3.py:314), then the latent vector in 256-byte steps."""
    wish = plan(tensor_parallel_size=8)
    found = budget(known("deepseek-ai/DeepSeek-V3"), wish, gpus.node("8xH200"), surface_for(version))
    assert token == found.kv_bytes_per_token


def test_v0_profiled_few_requests_of_a_model_that_sees():
    """vllm#11899: Qwen2-VL-7B-AWQ with 4,097 tokens took 0.74 GiB of activations on 0.6.5, one request sampled."""
    spec = known("Qwen/Qwen2-VL-7B-Instruct-AWQ")
    wish = plan(max_num_batched_tokens=4097, max_num_seqs=256)
    found = activation(spec, wish, era_of(spec, wish, surface_for("0.6.5"), gpus.find("A10G")))
    assert 0.74 == pytest.approx(found.mid / GIB, rel=0.08)


def test_online_fp8_takes_the_towers_of_qwen_too():
    """A tower of another family stays as it is."""
    tower = (WeightGroup("vision", 1000, 2000, "replicated"),)
    for architecture, size in (("Qwen2_5_VLForConditionalGeneration", 1000), ("OtherForConditionalGeneration", 2000)):
        spec = replace(hybrid(), architecture=architecture, weights=tower)
        assert (size,) == per_stage(Identity(spec), Sharding(1, online="fp8"))


@pytest.mark.parametrize(
    ("version", "mamba", "gated"),
    [("0.24.0", 1, 1), ("0.27.0", 0, 2), ("0.28.0", 2, 2), ("0.32.0", 3, 2), ("0.33.0", 3, 3)],
)
def test_states_that_a_request_keeps_grew_with_prefix_caching(version, mamba, gated):
    """MambaSpec in each release: one; one a block for Mamba-2 (0); two; a prefill's checkpoint besides, on Hopper."""
    for model_type, expected in (("nemotron_h", mamba), ("qwen3_next", gated)):
        spec = replace(hybrid(), model_type=model_type)
        assert expected == era_of(spec, plan(), surface_for(version), H100).state_blocks


def test_mla_keeps_its_up_projections_twice_where_they_are_fp8():
    """vllm#15453: 40.3172 GiB a rank of DeepSeek-V3 at TP16, of which 61 x 8 heads x 512 x 256 x 2 bytes are copies."""
    spec = known("deepseek-ai/DeepSeek-V3")
    found = budget(spec, plan(tensor_parallel_size=16), gpus.node("2x8xH100"), surface_for("0.8.0"))
    assert 40.3172 == pytest.approx(found.weights / GIB, rel=0.0005)


def test_nvfp4_experts_were_kept_twice_before_0_12():
    """vllm#26788: 25.9087 GiB for Qwen3-30B-A3B-NVFP4 with FlashInfer's kernel, "about 9 GiB larger than expected"."""
    spec, wish = known("RedHatAI/Qwen3-30B-A3B-NVFP4"), plan(env=(("VLLM_USE_FLASHINFER_MOE_FP4", "1"),))
    older, newer = (
        budget(spec, wish, gpus.node("RTX 5090"), surface_for(v)).weights / GIB for v in ("0.11.0", "0.12.0")
    )
    assert 25.9087 == pytest.approx(older, rel=0.005)
    assert 9.0 == pytest.approx(older - newer, rel=0.01)
