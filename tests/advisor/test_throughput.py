"""The speed model: what it must get right by arithmetic, and which way things must move."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from vllm_advisor.catalog import gpus
from vllm_advisor.memory.budget import budget
from vllm_advisor.memory.identity import Identity
from vllm_advisor.memory.weights import Sharding
from vllm_advisor.model import CacheGroup, ModelSpec, Moe, WeightGroup
from vllm_advisor.plan import Plan
from vllm_advisor.throughput.estimate import estimate
from vllm_advisor.throughput.traits import EIGHT, PLAIN, WEIGHT_ONLY, kernel, wire
from vllm_advisor.throughput.work import work
from vllm_advisor.vllm.surface import load
from vllm_advisor.workload import Workload


if TYPE_CHECKING:
    from vllm_advisor.facts import Estimate

V33 = load("0.33.0")
LAYERS = tuple(range(32))


def dense(*, tied: bool = False) -> ModelSpec:
    """An 8-billion dense model: 32 layers, 4096 wide, 8 KV heads of 128."""
    table = WeightGroup("embedding", 128_256 * 4096, 2 * 128_256 * 4096, "vocab")
    head = () if tied else (replace(table, role="lm_head"),)
    params = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14_336)
    body = WeightGroup("mlp", params, 2 * params, "column", LAYERS, quantizable=True)
    return ModelSpec(
        "m/dense", "LlamaForCausalLM", "llama", "bfloat16", 4096, 32, 128_256, 131_072, 32, 8,
        (CacheGroup("full", LAYERS, 32, 8, 128, 128),), (table, *head, body), intermediate_size=14_336,
        tied_embeddings=tied,
    )  # fmt: skip


def moe() -> ModelSpec:
    """The same attention with 128 experts of which a token takes 8."""
    params = 32 * 128 * 3 * 4096 * 1024
    experts = WeightGroup("experts", params, 2 * params, "expert", LAYERS, quantizable=True)
    spec = dense()
    return replace(spec, weights=(*spec.weights, experts), moe=Moe(128, 8, 0, 1024, LAYERS))


def plan(**changes: object) -> Plan:
    return replace(Plan("m", max_model_len=8192, max_num_seqs=256, max_num_batched_tokens=8192), **changes)


def speed(spec: ModelSpec, wish: Plan, machine: str = "8xH100", **load_: object) -> Estimate:
    node = gpus.node(machine)
    return estimate(spec, wish, budget(spec, wish, node, V33), node, V33, Workload(**load_))  # type: ignore[arg-type]


def test_one_request_decodes_no_faster_than_weights_can_be_read():
    """15 GB less the embedding over 3.35 TB/s are 4.2 ms; a real H100 needs 1.2 to 2 times that."""
    tpot = speed(dense(), plan(), concurrency=1).tpot_ms.mid
    floor = 1000 * (dense().weight_bytes - 2 * 128_256 * 4096) / 3.35e12
    assert 1.2 * floor < tpot < 2 * floor


def test_output_follows_from_latency_and_what_runs():
    """Little's law: what runs, over the time of one request, times its tokens."""
    e = speed(dense(), plan(), concurrency=16, input_tokens=512, output_tokens=256)
    assert e.total_tok_s.mid == pytest.approx(e.output_tok_s.mid * 3)
    assert e.output_tok_s.mid * e.tpot_ms.mid / 1000 == pytest.approx(16, rel=0.05)


def test_more_load_gives_more_throughput_and_longer_tokens():
    """Batching trades latency for throughput, monotonically."""
    runs = [speed(dense(), plan(), concurrency=c) for c in (1, 8, 64, 256)]
    assert sorted(r.output_tok_s.mid for r in runs) == [r.output_tok_s.mid for r in runs]
    assert sorted(r.tpot_ms.mid for r in runs) == [r.tpot_ms.mid for r in runs]


def test_what_does_not_run_waits():
    """Four times the seats: hardly more throughput, and a time to the first token of whole requests."""
    full, over = (speed(dense(), plan(max_num_seqs=16), concurrency=c) for c in (16, 64))
    assert (16, 16) == (full.running, over.running)
    assert full.output_tok_s.mid < over.output_tok_s.mid < 1.1 * full.output_tok_s.mid
    assert over.ttft_ms.mid > full.ttft_ms.mid + 2 * 512 * full.tpot_ms.mid
    assert "64 requests in flight, 16 run at once" == over.notes[0]


def test_the_kv_cache_bounds_what_runs():
    """A small share of memory holds fewer long requests than are asked for."""
    e = speed(dense(), plan(gpu_memory_utilization=0.30), concurrency=256, input_tokens=7000, output_tokens=1000)
    assert e.running < 64


def test_replicas_share_the_load():
    """DP8 runs each replica at an eighth of the concurrency."""
    one, eight = (speed(dense(), plan(data_parallel_size=n), concurrency=256) for n in (1, 8))
    assert eight.tpot_ms.mid < one.tpot_ms.mid
    assert 256 == eight.running
    assert one.output_tok_s.mid < eight.output_tok_s.mid < 8 * one.output_tok_s.mid


def test_tensor_parallelism_over_pcie_costs_more_than_over_nvlink():
    """The same step, with all-reduces over the slower link."""
    h100 = gpus.node("4xH100")
    fast, slow = wire(h100, 4), wire(gpus.node("4xL40S"), 4)
    assert fast.bandwidth > 5 * slow.bandwidth
    assert ("nvlink", "pcie") == (fast.kind, slow.kind)
    four = {m: speed(dense(), plan(tensor_parallel_size=4), m).ttft_ms.mid for m in ("4xH100", "4xL40S")}
    assert four["4xH100"] < four["4xL40S"]


def test_xgmi_collectives_use_all_links():
    """MI300X: seven links of 64 GB/s to seven peers, one to a single peer."""
    node = gpus.node("8xMI300X")
    assert 7 == pytest.approx(wire(node, 8).bandwidth / wire(node, 2).bandwidth)


def test_ranks_beyond_a_node_meet_over_the_network():
    """16 ranks on two nodes of eight."""
    assert wire(gpus.node("2x8xH100"), 16).bandwidth < wire(gpus.node("8xH100"), 8).bandwidth


def test_more_gpus_decode_one_request_faster_but_not_linearly():
    """TP8 reads an eighth of the weights and pays 64 all-reduces."""
    one, eight = (speed(dense(), plan(tensor_parallel_size=n), concurrency=1).tpot_ms.mid for n in (1, 8))
    assert one / 8 < eight < one


def test_a_moe_reads_the_experts_that_its_batch_touches():
    """One token reads 8 of 128 experts, a large batch all of them: 1 - (1 - 8/128)^n."""
    w = work(Identity(moe()), Sharding(1), "bfloat16", 1)
    assert 2 * 32 * 128 * 3 * 4096 * 1024 == w.expert_bytes
    few, many = (speed(moe(), plan(tensor_parallel_size=4), concurrency=c).tpot_ms.mid for c in (1, 64))
    assert 2 < many / few < 10


def test_windows_bound_what_is_read():
    """A window of 128 reads 128 tokens at any context."""
    spec = replace(dense(), caches=(CacheGroup("sliding", LAYERS, 32, 8, 128, 128, window=128),))
    w = work(Identity(spec), Sharding(1), "bfloat16", 1)
    assert 128 * 131_072 == w.context_bytes(10_000)
    assert 64 * 131_072 == w.context_bytes(64)


def test_a_tied_head_is_read_though_it_is_stored_once():
    """The embedding is looked up, the head is multiplied."""
    tied, untied = (work(Identity(dense(tied=t)), Sharding(1), "bfloat16", 1) for t in (True, False))
    assert untied.dense_bytes == tied.dense_bytes
    assert untied.dense_params == tied.dense_params


def test_fp8_computes_twice_as_fast_where_the_device_can():
    """H100 multiplies FP8, A100 unpacks it and multiplies 16 bits."""
    online = plan(quantization="fp8_per_tensor")
    h100, a100 = gpus.node("H100").gpu, gpus.node("A100-80GB").gpu
    assert (1979e12, EIGHT) == kernel(dense(), online, h100, V33, moe=False)
    assert (989e12, PLAIN) == kernel(dense(), plan(), h100, V33, moe=False)
    assert (312e12, WEIGHT_ONLY) == kernel(dense(), online, a100, V33, moe=False)


def test_an_fp8_cache_halves_what_is_read():
    """131,072 bytes a token become 65,536."""
    halves = [work(Identity(dense()), Sharding(1), d, 1).kv_bytes for d in ("bfloat16", "fp8")]
    assert [131_072, 65_536] == halves


def test_eager_decodes_slower():
    """Each kernel is launched from Python."""
    assert (
        speed(dense(), plan(enforce_eager=True), concurrency=1).tpot_ms.mid
        > speed(dense(), plan(), concurrency=1).tpot_ms.mid + 1
    )


def test_a_low_rate_is_served_as_it_comes():
    """One request a second of 512 tokens is 512 tokens a second."""
    e = speed(dense(), plan(), request_rate=1.0, output_tokens=512)
    assert 512 == pytest.approx(e.output_tok_s.mid)
    assert e.running < 8


def test_a_rate_beyond_capacity_fills_all_seats():
    """A thousand requests a second run at max_num_seqs, and wait."""
    e = speed(dense(), plan(max_num_seqs=64), request_rate=1000.0)
    assert 64 == e.running
    assert e.output_tok_s.mid < 1000 * 512


def test_a_shared_prefix_is_not_computed_again():
    """Prefix caching leaves the rest of the prompt."""
    cold, warm = (speed(dense(), plan(), input_tokens=8000, shared_prefix_tokens=n).ttft_ms.mid for n in (0, 7000))
    assert warm < cold / 2


@pytest.mark.parametrize("machine", ["L4", "8xMI300X", "8xB200", "cpu"])
def test_every_kind_of_device_has_an_answer(machine):
    """Positive, ordered intervals, on one device of each maker."""
    e = speed(dense(), plan(max_num_seqs=16), machine, concurrency=4)
    for interval in (e.output_tok_s, e.total_tok_s, e.ttft_ms, e.tpot_ms):
        assert 0 < interval.low < interval.mid < interval.high


def test_a_plan_without_room_still_gets_a_number():
    """The engine estimates what it does not veto; nothing divides by zero."""
    assert 0 < speed(dense(), plan(gpu_memory_utilization=0.1), "L4").output_tok_s.mid


def test_the_same_question_gets_the_same_answer():
    """No clock, no order of sets."""
    wish = plan(tensor_parallel_size=4, enable_expert_parallel=True)
    assert repr(speed(moe(), wish)) == repr(speed(moe(), wish))
