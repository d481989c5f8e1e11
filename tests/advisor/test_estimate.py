"""One configuration: which plan it comes to, what is said of it, and what would make it fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from vllm_advisor.catalog import gpus, models
from vllm_advisor.errors import UnknownVllm, UsageError
from vllm_advisor.estimate import Configuration, estimate, fixes, objections, plan_of
from vllm_advisor.estimate.release import named, of_row
from vllm_advisor.units import GIB
from vllm_advisor.vllm.surface import load


if TYPE_CHECKING:
    from vllm_advisor.model import ModelSpec


V24, V33 = load("0.24.0"), load("0.33.0")


def model(name: str) -> ModelSpec:
    """A model of the catalog."""
    found = models.find(name)
    assert found is not None
    return found


LLAMA = model("meta-llama/Llama-3.1-8B-Instruct")  # 32 layers, 8 KV heads of 128: 128 KiB of 16-bit KV a token


@pytest.mark.parametrize(
    ("gpu", "version", "expected"),
    [
        # engine/arg_utils.py get_batch_defaults, 0.24.0:2375-2451: from 70 GiB on 8192 and 1024, below 2048 and 256
        ("H100", "0.24.0", (8192, 1024, 0.92)),
        ("L4", "0.24.0", (2048, 256, 0.92)),
        ("A100", "0.24.0", (2048, 256, 0.92)),
        # 0.8 to 0.19: config/cache.py said 0.9
        ("H100", "0.11.0", (8192, 1024, 0.9)),
        # V0: a batch holds one whole prompt, 256 sequences (0.6.3 config.py SchedulerConfig)
        ("L4", "0.6.3", (16384, 256, 0.9)),
    ],
)
def test_what_is_not_given_is_that_versions_default_on_that_device(gpu, version, expected):
    """Batched tokens, sequences and utilization follow version and memory."""
    plan, _ = plan_of(LLAMA, gpus.node(gpu), named(version).surface, Configuration(max_model_len=16384))

    assert expected == (plan.max_num_batched_tokens, plan.max_num_seqs, plan.gpu_memory_utilization)


def test_every_default_is_said():
    """Four values were not given, so four sentences name them."""
    _, assumed = plan_of(LLAMA, gpus.node("H100"), V24, Configuration())

    assert (
        "max_model_len 131,072: the model's own",
        "gpu_memory_utilization 0.92: default of vLLM 0.24.0",
        "max_num_seqs 1,024: default of vLLM 0.24.0 on this device",
        "max_num_batched_tokens 8,192: default of vLLM 0.24.0 on this device",
    ) == assumed


def test_what_is_given_is_not_said_to_be_assumed():
    """A configuration that leaves nothing open assumes nothing."""
    given = Configuration(max_model_len=4096, gpu_memory_utilization=0.9, max_num_seqs=8, max_num_batched_tokens=2048)

    assert () == plan_of(LLAMA, gpus.node("H100"), V24, given)[1]


def test_default_batches_shrink_to_what_the_other_limit_allows():
    """Two sequences of 512 tokens make no batch of 8192 (0.24.0 engine/arg_utils.py:2638)."""
    plan, _ = plan_of(LLAMA, gpus.node("H100"), V24, Configuration(max_model_len=512, max_num_seqs=2))

    assert (1024, 2) == (plan.max_num_batched_tokens, plan.max_num_seqs)


def test_a_given_kv_cache_holds_what_arithmetic_says():
    """4 GiB over 16 tokens × 128 KiB are 2048 blocks: 32,768 tokens, two requests of 16,384."""
    given = Configuration(max_model_len=16384, kv_cache_memory_bytes=4 * GIB)
    budget = estimate(LLAMA, gpus.node("H100"), V24, given).budget

    assert (2048, 32768, 2.0) == (budget.num_blocks, budget.kv_tokens, budget.max_concurrency)


def test_a_version_that_falls_back_to_v0_is_planned_as_v0():
    """0.8.5 runs Mamba hybrids on V0 (engine/arg_utils.py _is_v1_supported_oracle), and the plan says so."""
    found = estimate(
        model("ai21labs/AI21-Jamba-1.5-Mini"), gpus.node("8xH100"), named("0.8.5").surface, Configuration(tp=8)
    )

    assert (("VLLM_USE_V1", "0"),) == found.plan.env
    assert "engine V0: what vLLM 0.8.5 falls back to for this configuration" in found.assumed


def test_an_engine_that_is_asked_for_is_taken():
    """VLLM_USE_V1=0 on 0.8.5 brings V0's 256 sequences to an H100, where V1 had 1024."""
    surface = named("0.8.5").surface
    seqs = [
        plan_of(LLAMA, gpus.node("H100"), surface, Configuration(env=env))[0].max_num_seqs
        for env in ((("VLLM_USE_V1", "0"),), ())
    ]

    assert [256, 1024] == seqs


def test_more_ranks_than_devices_is_a_usage_error():
    """TP 4 on one device cannot be, and the message has the numbers."""
    with pytest.raises(UsageError, match="need 4 devices, 1xNVIDIA L4 has 1"):
        plan_of(LLAMA, gpus.node("L4"), V24, Configuration(tp=4))


def test_a_kv_dtype_that_never_was_is_a_usage_error():
    """A misspelt dtype is not estimated as 16 bits."""
    with pytest.raises(UsageError, match="'int3' is no KV cache dtype"):
        plan_of(LLAMA, gpus.node("L4"), V24, Configuration(kv_cache_dtype="int3"))


def test_a_flag_that_converts_nothing_is_a_usage_error():
    """AWQ needs a checkpoint in AWQ: vLLM does not make one while loading."""
    with pytest.raises(UsageError, match="--quantization awq converts no weights"):
        plan_of(LLAMA, gpus.node("L4"), V24, Configuration(quantization="awq"))


def test_naming_the_method_that_the_checkpoint_has_changes_nothing():
    """--quantization awq_marlin on an AWQ checkpoint is what vLLM picks by itself."""
    plan, _ = plan_of(model("Qwen/Qwen3-8B-AWQ"), gpus.node("L4"), V24, Configuration(quantization="awq_marlin"))

    assert plan.quantization is None


def test_fixes_are_computed_again_and_fit():
    """Qwen3-8B at its own length does not fit an L4; each remedy's own budget does."""
    found = estimate(model("Qwen/Qwen3-8B"), gpus.node("L4"), V33, Configuration())
    remedies = fixes(found)

    assert not found.budget.fits
    assert len(remedies) >= 3
    assert all(r.budget.fits for r in remedies)


def test_a_fix_that_the_device_refuses_is_not_offered():
    """An FP8 KV cache for gpt-oss on an A100 is refused (attention sinks leave Triton, which wants sm89)."""
    given = Configuration(max_model_len=131_072, gpu_memory_utilization=0.2)
    found = estimate(model("openai/gpt-oss-20b"), gpus.node("A100"), V33, given)

    assert not found.budget.fits
    assert not any("FP8 KV" in r.change for r in fixes(found))


def test_what_vllm_refuses_for_another_reason_is_a_veto():
    """32 heads do not split three ways."""
    found = estimate(model("Qwen/Qwen3-8B"), gpus.node("8xH100"), V33, Configuration(tp=3))
    vetoes = objections(found.model, found.plan, found.node, found.surface, found.budget)

    assert ["PAR-01", "PAR-02"] == [f.rule for f in vetoes]


def test_a_version_that_was_not_read_has_no_vetoes():
    """The decision matrix is read from 0.24 on: of 0.11 it says nothing."""
    found = estimate(model("Qwen/Qwen3-8B"), gpus.node("8xH100"), named("0.11.0").surface, Configuration(tp=3))

    assert () == objections(found.model, found.plan, found.node, found.surface, found.budget)


@pytest.mark.parametrize(
    ("version", "date", "expected", "said"),
    [
        ("0.24.0", None, "0.24.0", ""),
        ("v0.6.3.post1", None, "0.6.3", "vLLM 0.6.3: 0.6.3.post1"),
        # 0.11.0 was published on 2025-10-02 and 0.11.1 in November
        (None, "2025-10-20", "0.11.0", "vLLM 0.11.0: the newest on 2025-10-20"),
        ("nightly", "2025-10-20", "0.11.0", "vLLM 0.11.0: the newest on 2025-10-20"),
        (None, None, "0.33.0", "vLLM 0.33.0: neither version nor date is given"),
        ("0.99.1", None, "0.99.1", "newer than 0.33.0"),
        ("0.2.0", None, "0.2.0", "older than 0.5.0"),
    ],
)
def test_a_row_has_a_version_a_date_or_neither(version, date, expected, said):
    """The version that is stated, else the newest of the day, else the newest known; what is assumed is said."""
    found = of_row(version, date)

    assert expected == found.surface.version
    assert said in " ".join(found.assumed)


def test_a_word_is_no_version():
    """`--vllm banana` is an error with a hint, not the newest version."""
    with pytest.raises(UnknownVllm, match="'banana' is not a vLLM version"):
        named("banana")
