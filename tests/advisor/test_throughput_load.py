"""Continuous batching: what a step costs in which regime, and what arrives, waits, and is seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vllm_advisor.catalog import gpus
from vllm_advisor.model import CacheGroup, ModelSpec, Moe, Quantization, WeightGroup
from vllm_advisor.plan import Plan
from vllm_advisor.throughput import priors, spread
from vllm_advisor.throughput.fitted import FITTED, TABLE
from vllm_advisor.throughput.load import Load, Speed, serve
from vllm_advisor.throughput.parameters import Parameters
from vllm_advisor.throughput.spreads import SPREADS
from vllm_advisor.throughput.step import machine, step
from vllm_advisor.throughput.traits import EMULATED, WEIGHT_ONLY, Traits, traits
from vllm_advisor.vllm.surface import load as surface


V33 = surface("0.33.0")
LAYERS = tuple(range(32))


def model(*, experts: bool = False) -> ModelSpec:
    """An 8-billion dense model, or the same attention with 128 experts of which a token takes 8."""
    table = WeightGroup("embedding", 128_256 * 4096, 2 * 128_256 * 4096, "vocab")
    params = 32 * (128 * 3 * 4096 * 1024 if experts else 2 * 4096 * 5120 + 3 * 4096 * 14_336)
    body = WeightGroup(
        "experts" if experts else "mlp", params, 2 * params, "expert" if experts else "column", LAYERS, quantizable=True
    )
    return ModelSpec(
        "m/dense", "LlamaForCausalLM", "llama", "bfloat16", 4096, 32, 128_256, 131_072, 32, 8,
        (CacheGroup("full", LAYERS, 32, 8, 128, 128),), (table, replace(table, role="lm_head"), body),
        intermediate_size=14_336, moe=Moe(128, 8, 0, 1024, LAYERS) if experts else None,
    )  # fmt: skip


def read(spec: ModelSpec | None = None, node: str = "8xH100", draft: int = 0, **changes: object) -> Traits:
    plan = replace(Plan("m", max_model_len=8192, max_num_seqs=256, max_num_batched_tokens=8192), **changes)
    return traits(spec or model(), plan, gpus.node(node), V33, draft)


def served(given: Load, seats: float = 256.0, **changes: object) -> Speed:
    return serve(machine(read(**changes), FITTED), given, seats, FITTED)


def test_every_parameter_has_its_prior_and_stays_in_bounds():
    """The table that the script wrote is the one that the model knows."""
    assert [row.name for row in priors.TABLE] == [row[0] for row in TABLE] == list(Parameters._fields)
    assert all(low <= value <= high for _, value, _, low, high, _ in TABLE)
    assert len([row for row in priors.TABLE if row.sureness]) <= 36


def test_a_step_waits_for_the_larger_of_memory_and_compute():
    """One token reads the weights; eight thousand compute: more than either alone, less than both."""
    m = machine(read(), FITTED)
    few, many = step(m, 1, 1000), step(m, 0, 0, 8192, 4096)
    assert "weights" == few.bound
    assert "compute" == many.bound
    assert m.dense_read < few.seconds
    assert many.seconds > 10 * few.seconds


def test_expert_parallelism_waits_for_the_fullest_rank():
    """By chance more with few tokens, and by routing always."""
    spec = model(experts=True)
    plain, spread_out = (
        machine(read(spec, tensor_parallel_size=8, enable_expert_parallel=ep), FITTED) for ep in (0, 1)
    )
    few, many = (step(spread_out, n, 1000).weights / step(plain, n, 1000).weights for n in (4, 256))
    prompts = step(spread_out, 0, 0, 8192, 4096).seconds / step(plain, 0, 0, 8192, 4096).seconds
    assert few > many > 1
    assert prompts > 1.1


def test_lower_precision_is_not_always_faster():
    """Weights unpacked on the way are read faster and computed slower: 4 bits win alone and lose in a crowd."""
    packed = replace(
        model(),
        quantization=Quantization("gptq", "int4", 4, 16, 128),
        weights=tuple(replace(g, bytes=g.params // 2, bits=4) if g.quantizable else g for g in model().weights),
    )
    plain, four = (machine(read(spec, "A100-80GB"), FITTED) for spec in (model(), packed))
    assert WEIGHT_ONLY == four.traits.dense.kind
    assert step(four, 1, 500).seconds < step(plain, 1, 500).seconds
    assert step(four, 0, 0, 2048, 500).seconds > step(plain, 0, 0, 2048, 500).seconds


def test_bitsandbytes_unpacks_before_it_multiplies():
    """It is no kernel of its own: slower than any other 4 bits."""
    spec = replace(
        model(),
        quantization=Quantization("bitsandbytes", "int4", 4, 16),
        weights=tuple(replace(g, bytes=g.params // 2, bits=4) if g.quantizable else g for g in model().weights),
    )
    assert EMULATED == read(spec, "A100-80GB").dense.kind


def test_a_burst_pays_its_prompts_first():
    """Two hundred prompts at once: the first token waits for half of them, far longer than under as many steady."""
    burst = served(Load(1000, 200, prompts=200))
    steady = served(Load(1000, 200, concurrency=200, prompts=20_000))
    assert burst.ttft > 3 * steady.ttft


def test_unlike_lengths_leave_a_tail():
    """The longest answers decode nearly alone: fewer tokens a second over the whole run."""
    even, uneven = (served(Load(200, 200, prompts=32, spread=s)).output for s in (0.0, 1.0))
    assert uneven < 0.9 * even


def test_prompts_feed_what_decodes():
    """Steps of 2,048 tokens cannot keep more running than prompts come in: 32,000 tokens in for 100 out are six."""
    m = machine(read(max_num_batched_tokens=2048), FITTED)
    assert serve(m, Load(32_000, 100, prompts=100), 256, FITTED).running == pytest.approx(2048 * 100 / 32_100)


def test_fewer_requests_than_replicas_leave_some_idle():
    """One request on eight replicas is one request."""
    one, eight = (served(Load(500, 200, concurrency=1), data_parallel_size=n) for n in (1, 8))
    assert 1 == eight.running
    assert one.output == pytest.approx(eight.output, rel=0.01)


def test_guesses_make_tokens_of_a_step():
    """Two guesses at 3 in 4 right: more than twice the tokens for a little more than a step."""
    plain, drafted = (served(Load(500, 500, concurrency=1), draft=n) for n in (0, 2))
    assert 0.4 * plain.tpot < drafted.tpot < 0.6 * plain.tpot


def test_eager_costs_only_what_the_device_leaves_idle():
    """Launching from Python overlaps with the device: it shows at one request and hardly under a long prompt."""
    eager, graphs = (machine(read(enforce_eager=e), FITTED) for e in (True, False))
    assert step(eager, 1, 500).seconds > 1.1 * step(graphs, 1, 500).seconds
    assert step(eager, 0, 0, 8192, 4096).seconds < 1.05 * step(graphs, 0, 0, 8192, 4096).seconds


def test_stages_do_not_send_more_than_one_server_can():
    """Pipeline stages share one front end: tokens a second stay below what it sends."""
    out = served(Load(100, 1000, concurrency=256), pipeline_parallel_size=8).output
    assert out < 1e6 / FITTED.stream_us


def test_intervals_widen_where_few_have_measured():
    """A kind with no campaign takes what holds of all, widened; one that many measured speaks for itself."""
    t = read()
    known = max((k for f, k in SPREADS if f == 0 and k), key=lambda k: SPREADS[0, k][1])
    assert SPREADS[0, known][0] == pytest.approx(spread.factor(SPREADS, 0, known))
    assert spread.factor(SPREADS, 0, "unheard of") > SPREADS[0, ""][0]
    assert "burst" == spread.cell(t, Load(100, 100, prompts=10), 256)
    assert "queue prompts" == spread.cell(t, Load(1000, 100, concurrency=300), 256)
    assert "rate" == spread.cell(t, Load(100, 100, request_rate=1.0), 256)


def test_ranks_that_share_a_sequence_pay_for_it_when_it_is_short():
    """Decode context parallelism reads less cache a rank and sends more: it wins with long contexts only."""
    one, eight = (machine(read(tensor_parallel_size=8, decode_context_parallel_size=n), FITTED) for n in (1, 8))
    assert step(eight, 1, 1000).seconds > step(one, 1, 1000).seconds
    assert step(eight, 64, 100_000).seconds < step(one, 64, 100_000).seconds


def test_emulated_experts_are_all_unpacked_each_step():
    """MXFP4 experts on MI355X before 0.17 without AITER: an order slower than 0.18, as one public pair was."""
    spec = replace(
        model(experts=True),
        quantization=Quantization("mxfp4", "mxfp4", 4, 16, 32),
        weights=tuple(
            replace(g, bytes=int(g.params * 4.25 / 8), bits=4) if g.quantizable else g
            for g in model(experts=True).weights
        ),
    )
    plan = Plan("m", max_model_len=8192, tensor_parallel_size=8)
    old, new = (
        machine(traits(spec, plan, gpus.node("8xMI355X"), V33._replace(release=release)), FITTED)
        for release in ((0, 16, 0), (0, 18, 0))
    )
    assert EMULATED == old.traits.experts.kind
    assert step(old, 4, 1000).weights > 5 * step(new, 4, 1000).weights
