"""The budget of a plan: what vLLM takes, what is left, whether it starts, and what would make it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vllm_advisor.catalog import gpus
from vllm_advisor.hardware import Host, Node, Unknown, Vendor
from vllm_advisor.memory import graphs, weights
from vllm_advisor.memory.budget import budget
from vllm_advisor.memory.identity import Identity
from vllm_advisor.memory.remedies import remedies
from vllm_advisor.memory.stages import stages
from vllm_advisor.model import CacheGroup, ModelSpec, Moe, WeightGroup
from vllm_advisor.plan import Plan
from vllm_advisor.units import GIB
from vllm_advisor.vllm.history import surface_for
from vllm_advisor.vllm.surface import load


V24, V33 = load("0.24.0"), load("0.33.0")


def group(role: str, params: int, sharding: str, layers: tuple[int, ...] = (), **more: object) -> WeightGroup:
    """Tensors at 16 bits."""
    return WeightGroup(role, params, 2 * params, sharding, layers, **more)  # type: ignore[arg-type]


def llama_8b(vocab: int = 128_256, **changes: object) -> ModelSpec:
    """Llama-3.1-8B by its config: 32 layers, 4096 wide, 8 of 32 heads keep K and V."""
    wide, inner, layers = 4096, 14_336, tuple(range(32))
    groups = (
        group("embedding", vocab * wide, "vocab"),
        group("lm_head", vocab * wide, "vocab"),
        group("attention", 32 * 2 * wide * wide, "column", layers, quantizable=True),
        group("attention", 32 * 2 * wide * 1024, "kv", layers, quantizable=True, kv_heads=8),
        group("mlp", 32 * 3 * wide * inner, "column", layers, quantizable=True),
        group("norm", 65 * wide, "replicated", layers),
    )
    spec = ModelSpec(
        "meta-llama/Llama-3.1-8B-Instruct", "LlamaForCausalLM", "llama", "bfloat16", wide, 32, vocab, 131_072, 32, 8,
        (CacheGroup("full", layers, 32, 8, 128, 128),), groups, intermediate_size=inner,
    )  # fmt: skip
    return replace(spec, **changes)


def big_moe() -> ModelSpec:
    """A 400-billion MoE in BF16: 60 layers, 128 experts, 4 KV heads."""
    layers = tuple(range(60))
    groups = (
        group("embedding", 200_000 * 6144, "vocab"),
        group("lm_head", 200_000 * 6144, "vocab"),
        group("attention", 60 * 2 * 6144 * 8192, "column", layers, quantizable=True),
        group("attention", 60 * 2 * 6144 * 512, "kv", layers, quantizable=True, kv_heads=4),
        group("experts", 60 * 128 * 3 * 6144 * 2816, "expert", layers, quantizable=True),
        group("router", 60 * 128 * 6144, "replicated", layers),
    )
    return ModelSpec(
        "big/moe", "M", "m", "bfloat16", 6144, 60, 200_000, 262_144, 64, 4,
        (CacheGroup("full", layers, 64, 4, 128, 128),), groups, moe=Moe(128, 8, 0, 2816, layers),
    )  # fmt: skip


def plan(**changes: object) -> Plan:
    """One H100's defaults at 8,192 tokens."""
    base = Plan("m", max_model_len=8192, max_num_seqs=1024, max_num_batched_tokens=8192)
    return replace(base, **changes)


def h100(n: int = 1) -> Node:
    return gpus.node(f"{n}xH100")


def test_requested_is_the_total_times_the_utilization_rounded_up():
    """ceil(85,018,542,080 × 0.9)."""
    assert 76_516_687_872 == budget(llama_8b(), plan(gpu_memory_utilization=0.9), h100(), V33).requested


def test_llama_8b_weighs_what_vllm_prints():
    """14.9889 GiB in start-ups: 14.9575 of tensors and 131,072 × 128 × 2 bytes of rotary tables."""
    assert 14.9889 == pytest.approx(budget(llama_8b(), plan(), h100(), V33).weights / GIB, abs=0.0002)


def test_what_is_left_is_what_is_requested_less_the_terms():
    """The middle is an identity; low and high lie around it."""
    b = budget(llama_8b(), plan(), h100(), V33)
    left = b.requested - b.weights - b.activation.mid - b.graphs.mid - b.non_torch.mid
    assert left == pytest.approx(b.kv_cache.mid, abs=1)
    assert b.kv_cache.low < b.kv_cache.mid < b.kv_cache.high


def test_tokens_are_concurrency_times_length():
    """As vLLM prints both (v1/core/kv_cache_utils.py get_kv_cache_capacity)."""
    b = budget(llama_8b(), plan(max_model_len=131_072), h100(), V33)
    assert b.num_blocks / (131_072 // 16) == b.max_concurrency
    assert int(b.max_concurrency * 131_072) == b.kv_tokens
    assert b.num_blocks == b.kv_cache.mid // (16 * 131_072)


def test_llama_8b_on_one_h100_keeps_a_plausible_cache():
    """An older version printed 51.63 GiB at 0.9 (a sampler that sorted took 3 GiB more); 0.92 leaves 1.6 GiB more."""
    b = budget(llama_8b(), plan(max_model_len=131_072), h100(), V33)
    assert 51.63 < b.kv_cache.low / GIB < 51.63 + 1.6 + 3 < b.kv_cache.high / GIB < 59


def test_tp_splits_weights_and_heads():
    """At TP8 a rank has an eighth of both (norms and rotary tables excepted)."""
    whole, split = (budget(llama_8b(), plan(tensor_parallel_size=t), h100(8), V33) for t in (1, 8))
    assert whole.kv_bytes_per_token / 8 == split.kv_bytes_per_token
    assert 1 / 8 == pytest.approx(split.weights / whole.weights, rel=0.02)


def spread(spec: ModelSpec, tp: int = 1, pp: int = 1, ranks: int = 1, online: str | None = None) -> tuple[int, ...]:
    return weights.per_stage(Identity(spec), weights.Sharding(tp, pp, ranks, online, expert_split=tp))


def test_kv_projections_are_repeated_beyond_the_kv_heads():
    """4 KV heads at TP8: a quarter of K and V on each rank, an eighth of the queries."""
    spec = llama_8b(weights=(group("attention", 800, "kv", (0,), kv_heads=4), group("attention", 800, "column", (0,))))
    assert (1600 // 4 + 1600 // 8,) == spread(spec, tp=8)


def test_the_vocabulary_is_padded_to_64():
    """32,001 rows become 32,064."""
    spec = llama_8b(vocab=32_001, weights=(group("embedding", 32_001 * 4096, "vocab"),))
    assert (32_064 * 4096 * 2,) == spread(spec)


def test_experts_under_ep_are_whole_and_over_all_ranks():
    """128 experts over 32 ranks are 4 each; under TP8 each rank has an eighth of all."""
    spec = replace(big_moe(), weights=tuple(g for g in big_moe().weights if g.role == "experts"))
    total = spec.weights[0].bytes
    assert (total // 32,) == spread(spec, tp=8, ranks=32)
    assert (total // 8,) == spread(spec, tp=8)


def test_experts_without_ep_are_sliced_over_all_data_parallel_ranks():
    """TP2 × DP4 without EP: each rank has an eighth of each expert (fused_moe/config.py), and all of the rest."""
    wish = plan(tensor_parallel_size=2, data_parallel_size=4)
    held = weights.sharding(big_moe(), wish, h100(8).gpu, V33)
    assert (8, 1) == (held.expert_split, held.expert_ranks)
    experts = next(g.bytes for g in big_moe().weights if g.role == "experts")
    alone = weights.per_stage(Identity(big_moe()), held._replace(expert_split=2))
    assert (alone[0] - experts // 2 + experts // 8,) == weights.per_stage(Identity(big_moe()), held)


def test_experts_that_do_not_divide_are_rounded_up():
    """128 experts over 48 ranks: some hold 3."""
    spec = replace(big_moe(), weights=tuple(g for g in big_moe().weights if g.role == "experts"))
    assert (spec.weights[0].bytes * 3 // 128,) == spread(spec, ranks=48)


def test_pipeline_stages_differ_at_both_ends():
    """The embedding lies in the first stage, the head in the last; a tied one in both."""
    first, middle, last = spread(llama_8b(num_layers=32), pp=3)
    table = 128_256 * 4096 * 2
    layer = (llama_8b().weight_bytes - 2 * table) / 32
    assert [10, 11, 11] == [len(s) for s in stages(32, 3)] or [11, 11, 10] == [len(s) for s in stages(32, 3)]
    assert table + len(stages(32, 3)[0]) * layer == pytest.approx(first)
    assert len(stages(32, 3)[1]) * layer == pytest.approx(middle)
    assert table + len(stages(32, 3)[2]) * layer == pytest.approx(last)
    tied = llama_8b(tied_embeddings=True, weights=tuple(g for g in llama_8b().weights if g.role != "lm_head"))
    assert last == pytest.approx(spread(tied, pp=3)[2])


def test_mtp_drafts_are_not_loaded():
    """vLLM loads them for speculative decoding only."""
    spec = llama_8b(weights=(*llama_8b().weights, group("mtp", 10**9, "column")))
    assert spread(llama_8b()) == spread(spec)


def test_online_quantization_converts_linear_weights_only():
    """FP8 halves attention and MLP; embedding, head and norms stay at 16 bits."""
    spec = llama_8b()
    converted = sum(g.bytes for g in spec.weights if g.quantizable)
    assert (spec.weight_bytes - converted // 2,) == spread(spec, online="fp8_per_tensor")


def test_online_int8_converts_experts_only():
    """int8_per_channel_weight_only has no `linear` field (config/quantization.py)."""
    spec = big_moe()
    experts = next(g.bytes for g in spec.weights if g.role == "experts")
    assert (spec.weight_bytes - experts // 2,) == pytest.approx(spread(spec, online="int8_per_channel_weight_only"))


def test_a_quantized_group_is_not_converted_again():
    """A checkpoint's 8-bit weights stay as stored."""
    spec = llama_8b(weights=(WeightGroup("mlp", 1000, 1010, "column", (0,), bits=8, quantizable=True),))
    assert (1010,) == spread(spec, online="fp8_per_tensor")


def test_mxfp4_experts_are_padded_to_the_kernels_tiles():
    """gpt-oss: 2880 is padded to 3072 wide and 1440 (TP2) to 1536 for Marlin: 1.138 times the bytes."""
    layers = (0,)
    experts = WeightGroup("experts", 1000, 544_000, "expert", layers, bits=4)
    spec = llama_8b(hidden_size=2880, weights=(experts,), moe=Moe(128, 4, 0, 2880, layers))
    padded = weights.per_stage(Identity(spec), weights.Sharding(2, expert_split=2, tile=(256, 128)))
    assert (int(544_000 / 2 * 3072 / 2880 * 1536 / 1440),) == padded


def test_a_400b_moe_in_fp8_does_not_fit_four_80_gb_cards_and_says_so():
    """390 GiB over four ranks are 98 GiB each; the limit names weights and what may be used."""
    b = budget(big_moe(), plan(tensor_parallel_size=4, quantization="fp8_per_tensor"), h100(4), V33)
    assert "does not fit" == b.verdict
    assert b.limits[0].startswith("weights 9")
    assert "72.8 GiB a device may be used" in b.limits[0]
    assert (0, 0, 0.0, 0) == (b.num_blocks, b.kv_tokens, b.max_concurrency, b.max_context)


def test_a_context_that_one_card_cannot_hold_is_named_with_its_size():
    """One request of 131,072 tokens needs 16 GiB where less is left."""
    b = budget(llama_8b(), plan(max_model_len=131_072), gpus.node("RTX 4090"), V33)
    assert "does not fit" == b.verdict
    assert b.limits[0].startswith("one request of 131,072 tokens needs 16.0 GiB of KV cache, ")
    assert 0 < b.max_context < 131_072


def test_the_longest_context_really_starts():
    """With max_model_len set to `max_context` the plan fits; with 16 tokens more it does not."""
    node = gpus.node("RTX 4090")
    longest = budget(llama_8b(), plan(max_model_len=131_072), node, V33).max_context
    assert budget(llama_8b(), plan(max_model_len=longest), node, V33).fits
    assert not budget(llama_8b(), plan(max_model_len=longest + 16), node, V33).fits


def test_memory_that_others_use_is_said():
    """vLLM refuses to start when less is free than it would take."""
    busy = replace(h100().gpu, free_bytes=40 * GIB)
    b = budget(llama_8b(), plan(), Node((busy,)), V33)
    assert b.limits == ("40.0 GiB of 79.2 GiB are free, vLLM asks for 72.8 GiB at start",)


def test_free_memory_that_is_not_known_is_no_limit():
    """Unknown is not zero."""
    assert isinstance(h100().gpu.free_bytes, Unknown)
    assert budget(llama_8b(), plan(), h100(), V33).fits


def test_what_cannot_be_told_is_not_guessed():
    """A model with an unknown layer kind is neither said to fit nor not to."""
    b = budget(llama_8b(unknowns=("layer kind 'foo'",)), plan(), h100(), V33)
    assert ("cannot tell", "cannot tell: layer kind 'foo'") == (b.verdict, b.limits[-1])


def qwen_hybrid() -> ModelSpec:
    """A hybrid: each fourth layer keeps K and V, the others a state."""
    state = CacheGroup(
        "state", tuple(i for i in range(32) if i % 4 != 3), state_shapes=((24_576, 2, True), (524_288, 4, True))
    )
    return llama_8b(caches=(state, CacheGroup("full", tuple(range(3, 32, 4)), 32, 8, 128, 128)))


def test_more_sequences_than_state_blocks_do_not_start():
    """A graph of a full batch needs a state block a request (config/compilation.py), eager does not."""
    small = plan(gpu_memory_utilization=0.3)
    b = budget(qwen_hybrid(), small, h100(), V33)
    assert b.num_blocks < 1024
    assert b.limits[-1] == f"max_num_seqs 1,024 exceeds the {b.num_blocks} blocks that states can take"
    assert budget(qwen_hybrid(), replace(small, enforce_eager=True), h100(), V33).fits


def test_newer_versions_keep_two_states_and_two_batches():
    """0.33 caches states for prefixes and lets two batches be in flight; 0.24 does neither."""
    old, new = (budget(qwen_hybrid(), plan(max_num_seqs=64), h100(), v) for v in (V24, V33))
    assert new.max_concurrency / new.num_blocks < old.max_concurrency / old.num_blocks


def test_graphs_are_charged_on_cuda_and_later_on_rocm():
    """gpu_worker.py: 0.24 leaves ROCm out, 0.19 charges nobody; all capture them, eager captures none."""
    nodes, versions = (h100(), gpus.node("MI300X")), (surface_for("0.19.1"), V24, V33)
    budgets = [budget(llama_8b(), plan(), n, v) for n in nodes for v in versions]
    assert [False, True, True, False, False, True] == [b.graphs.mid > 0 for b in budgets]
    assert all(b.captured is not None and b.captured.mid > 0 for b in budgets)
    assert 0 == graphs.graphs(llama_8b(), plan(enforce_eager=True), h100().gpu).mid


def test_captured_sizes_follow_vllms_default_list():
    """1, 2, 4, by 8 below 256, by 16 up to twice max_num_seqs or the ceiling (config/vllm.py)."""
    assert (1, 2, 4, 8) == graphs.capture_sizes(4, 8192, 512)
    assert (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)) == graphs.capture_sizes(1024, 8192, 512)
    assert 1024 == graphs.largest(gpus.node("B200").gpu)


def test_more_batched_tokens_or_sequences_leave_less():
    """The profile run is larger."""
    base = budget(llama_8b(), plan(), h100(), V33).kv_cache.mid
    assert budget(llama_8b(), plan(max_num_batched_tokens=65_536), h100(), V33).kv_cache.mid < base
    assert budget(llama_8b(), plan(max_num_seqs=4096), h100(), V33).kv_cache.mid < base


def cpu(memory: int = 64 * GIB) -> Node:
    """A CPU as vLLM's device."""
    device = replace(h100().gpu, name="CPU", vendor=Vendor.CPU, arch="cpu-x86_64", memory_bytes=memory)
    return Node((device,), host=Host(memory_bytes=memory))


def test_on_a_cpu_the_kv_space_is_what_the_variable_says():
    """A KV cache of 4 GiB given in bytes: 4 GiB in blocks of 128 tokens, whatever weights take."""
    b = budget(llama_8b(), plan(kv_cache_memory_bytes=4 * GIB), cpu(), V33)
    assert (4 * GIB, 128, 4 * GIB // (128 * 131_072)) == (b.kv_cache.mid, b.block_size, b.num_blocks)


def test_on_a_cpu_weights_and_kv_space_share_the_host():
    """15 GiB of weights and 4 GiB of KV do not fit 16 GiB."""
    b = budget(llama_8b(), plan(kv_cache_memory_bytes=4 * GIB), cpu(16 * GIB), V33)
    assert b.limits[0].startswith("weights 15.0 GiB and a KV cache of 4.0 GiB exceed 16.0 GiB of host memory")


def test_a_given_cache_larger_than_the_device_does_not_fit():
    """15 GiB of weights and 70 GiB of cache are more than an H100's 79.2 GiB; 60 GiB go, whatever the utilization."""
    b = budget(llama_8b(), plan(kv_cache_memory_bytes=70 * GIB), h100(), V33)
    assert "does not fit" == b.verdict
    assert b.limits[0].startswith("a KV cache of 70.0 GiB beside ")
    assert b.limits[0].endswith("exceeds the device's 79.2 GiB")
    assert "fits" == budget(llama_8b(), plan(kv_cache_memory_bytes=60 * GIB), h100(), V33).verdict


def test_each_remedy_fits_by_its_own_budget():
    """Fewer tokens, an FP8 cache, a quantized load and more cards are all proved by computing again."""
    node, wish = gpus.node("RTX 4090"), plan(max_model_len=131_072, max_num_seqs=256, max_num_batched_tokens=2048)
    found = remedies(llama_8b(), wish, node, V33, budget(llama_8b(), wish, node, V33))
    assert all(r.budget.fits for r in found)
    words = [r.change for r in found]
    assert any(w.startswith("at most ") for w in words)
    assert any(w.startswith("an FP8 KV cache") for w in words)
    assert "tensor_parallel_size 2, which needs 1 more NVIDIA RTX 4090" in words


def test_a_remedy_may_be_another_checkpoint():
    """A sibling in 8 bits fits where BF16 does not."""
    small = tuple(replace(g, bytes=g.bytes // 4, bits=4) for g in big_moe().weights)
    sibling = replace(big_moe(), name="big/moe-w4", weights=small)
    wish = plan(tensor_parallel_size=4, max_num_seqs=256)
    found = remedies(big_moe(), wish, h100(4), V33, budget(big_moe(), wish, h100(4), V33), (sibling,))
    assert "big/moe-w4" in [r.plan.checkpoint for r in found]


def test_a_plan_that_fits_needs_no_remedy():
    """Nothing to change."""
    assert () == remedies(llama_8b(), plan(), h100(), V33, budget(llama_8b(), plan(), h100(), V33))


@pytest.mark.parametrize(("told", "factor"), [(1.01, 1.01), (0.97, 0.97), (2.0, 1.0)])
def test_the_files_own_index_is_exact(told, factor):
    """An index within a tenth of our sum replaces it; float32 files, twice as large, are loaded in 16 bits anyway."""
    spec = llama_8b()
    known = replace(spec, exact_weight_bytes=int(told * sum(g.bytes for g in spec.weights)))
    ours, theirs = (budget(model, plan(), h100(), V33).weights for model in (spec, known))

    assert theirs / ours == pytest.approx(factor, rel=1e-3)
