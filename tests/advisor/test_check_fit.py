"""Whether a command fits: the figures that are said, the changes that are offered, and what withholds them."""

from __future__ import annotations

import shlex

import pytest

from vllm_advisor.catalog import gpus, models
from vllm_advisor.check import configuration, fit, judge, report
from vllm_advisor.check.invocation import Invocation
from vllm_advisor.check.parse import parse
from vllm_advisor.vllm.surface import load


V33 = load("0.33.0")


def reading(line, surface=V33):
    """A command as that version reads it; variables in front."""
    words, env = shlex.split(line), []
    while "=" in words[0]:
        env.append(tuple(words.pop(0).split("=", 1)))
    return parse(Invocation(tuple(words), tuple(env)), surface)


def judged(line, gpu, surface=V33):
    """The plan that a command comes to."""
    read = reading(line, surface)
    return configuration.judged(configuration.asked(read, surface), gpus.node(gpu), models.find(read.model))


def one(finding, line, gpu, surface=V33):
    """The only finding of that id."""
    read = reading(line, surface)
    found = judge.findings(read, surface, gpus.node(gpu), models.find(read.model or ""))
    (only,) = [f for f in found if f.id == finding]
    return only


def test_what_does_not_fit_is_said_with_both_numbers_and_what_would_fit():
    """70.6 billion BF16 parameters on one H100; fewer bits are named, and not taken without asking."""
    found = one("MEM-01", "vllm serve meta-llama/Llama-3.3-70B-Instruct", "1xH100")

    assert "error" == found.level
    assert "131.4 GiB" in found.text
    assert "72.8 GiB" in found.text
    assert found.hint.startswith("it fits with quantization fp8_per_tensor")
    assert "NVIDIA H100 SXM" in found.hint
    assert found.change is None


def test_a_context_that_is_too_long_is_shortened_to_what_fits():
    """The change writes the remedy in the user's own option, and the changed command fits."""
    line = "vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 2 --max-model-len=131072"
    found = one("MEM-02", line, "2xH100")

    assert "one request of 131,072 needs more" in found.text
    assert (5, 6) == (found.change.word, found.change.end)
    shorter = int(found.change.words[0].removeprefix("--max-model-len="))
    assert 2048 <= shorter < 131_072
    assert judged(f"{line} --max-model-len {shorter}", "2xH100").case.budget.fits


def test_what_fits_only_on_average_is_a_warning():
    """The cache holds the request at the middle of the estimate, and not at its low end."""
    found = one("MEM-04", "vllm serve Qwen/Qwen3-32B --max-model-len 39000", "1xH100")

    assert "warning" == found.level
    assert "--max-model-len" in found.hint


def test_another_limit_is_said_as_the_memory_model_has_it():
    """Neither weights nor one request: whatever else it found."""
    found = judged("vllm serve Qwen/Qwen3-0.6B", "1xH100")
    budget = found.case.budget._replace(verdict="does not fit", limits=("the host has too little memory",))

    (said,) = fit.findings(found._replace(case=found.case._replace(budget=budget)))

    assert ("MEM-08", "it does not fit: the host has too little memory") == (said.id, said.text)


def test_more_sequences_than_state_blocks_are_cut_to_the_blocks():
    """The default of 1024 on an H100 is more than this hybrid's states leave; memory is not blamed twice."""
    found = one("BAT-01", "vllm serve nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "1xH100")

    blocks = int(found.change.words[1])
    assert 900 < blocks < 1024
    assert ("--max-num-seqs", str(blocks)) == found.change.words
    assert f"{blocks} state blocks" in found.text


def test_offloaded_weights_make_the_verdict_a_warning():
    """The memory model counts all weights on the device."""
    line = "vllm serve meta-llama/Llama-3.3-70B-Instruct --cpu-offload-gb 80"

    assert "warning" == one("MEM-01", line, "1xH100").level


def test_memory_is_mended_last():
    """Leaving the switch out makes the windowed layers small again: the context need not be cut for it."""
    line = "vllm serve google/gemma-3-27b-it --disable-hybrid-kv-cache-manager --max-model-len 65536"

    assert one("MEM-02", line, "1xA100").change is None
    command = reading(line).invocation
    model = models.find("google/gemma-3-27b-it")
    after = report.mended(report.judge(command, V33, gpus.node("A100"), model), gpus.node("A100"), model)
    assert ("vllm", "serve", "google/gemma-3-27b-it", "--max-model-len", "65536") == after.invocation.argv


@pytest.mark.parametrize(
    ("line", "devices"),
    [
        ("vllm serve m -tp 4", 4),
        ("vllm serve m -tp 4 -dp 2 -pp 2", 16),
        ("vllm serve m -tp 2 -pcp 2", 4),
        ("vllm serve m -tp 8 -dp 4 --data-parallel-size-local 2", 16),
        ("vllm serve m -tp 8 -dp 4 --data-parallel-rank 1", 8),
        ("vllm serve m -tp 8 -pp 2 --nnodes 2", 8),
        ("vllm serve m -tp 8 -pp 2 --distributed-executor-backend ray", 0),
    ],
)
def test_devices_of_this_machine_follow_replicas_nodes_and_ray(line, devices):
    """Local replicas and the share of a node count; Ray may place ranks anywhere."""
    assert devices == configuration.asked(reading(line), V33).devices


def test_more_ranks_than_devices_do_not_hide_what_else_is_wrong():
    """Memory and heads are judged on as many devices as are asked for."""
    found = {f.id for f in judge.findings(reading("vllm serve Qwen/Qwen3-0.6B -tp 3"), V33, gpus.node("L40S"), models.find("Qwen/Qwen3-0.6B"))}  # fmt: skip  # noqa: E501

    assert {"PAR-18", "PAR-01", "MEM-10"} <= found
    assert "PAR-20" not in found


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        ("--max-model-len 32k", "max_model_len", 32_000),
        ("--max-model-len 32K", "max_model_len", 32_768),
        ("--kv-cache-memory-bytes 10G", "kv_cache_memory_bytes", 10 << 30),
        ("--performance-mode throughput", "max_num_seqs", 2048),
        ("--performance-mode throughput", "max_num_batched_tokens", 16_384),
        ("--block-size 32", "block_size", 32),
        ("-O0", "enforce_eager", True),
        ("--compilation-config.cudagraph_mode none", "enforce_eager", True),
        ("--enforce-eager", "enforce_eager", True),
        ("--attention-backend flashinfer", "attention_backend", "FLASHINFER"),
        ("--kv-cache-dtype no_such", "kv_cache_dtype", "auto"),
        ("--gpu-memory-utilization 7", "gpu_memory_utilization", 0.92),
    ],
)
def test_a_command_comes_to_a_plan(line, field, expected):
    """Human-readable numbers, levels, aliases; what cannot be is taken as not given."""
    plan = judged(f"vllm serve Qwen/Qwen3-0.6B {line}", "1xH100").case.plan

    assert expected == getattr(plan, field)


def test_the_length_of_auto_is_what_fits():
    """`auto` and -1 are one: the longest context that the cache holds."""
    plans = [
        judged(f"vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 2 --max-model-len {word}", "2xH100")
        for word in ("auto", "-1")
    ]

    assert 1 == len({p.case.plan.max_model_len for p in plans})
    assert 10_000 < plans[0].case.plan.max_model_len < 131_072
    assert plans[0].case.budget.fits


def test_float32_doubles_the_weights():
    """16-bit tensors take 32."""
    plain, wide = (judged(f"vllm serve Qwen/Qwen3-0.6B --dtype {d}", "1xH100").case for d in ("auto", "float32"))

    assert 2 * plain.budget.weights == pytest.approx(wide.budget.weights, rel=0.02)


def test_a_draft_of_the_checkpoint_is_counted():
    """MTP layers of DeepSeek are loaded with speculation only."""
    line = "vllm serve deepseek-ai/DeepSeek-V3.1 -tp 8"
    plain = judged(line, "8xB200").case.budget.weights
    drafted = judged(f"{line} --spec-method mtp --spec-tokens 1", "8xB200").case.budget.weights

    assert drafted > plain


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("vllm serve Qwen/Qwen3-0.6B --max-model-len 65536", "error"),
        ("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve Qwen/Qwen3-0.6B --max-model-len 65536", "warning"),
        ("""vllm serve Qwen/Qwen3-0.6B --max-model-len 65536 --hf-overrides '{"rope_scaling":{}}'""", "warning"),
    ],
)
def test_a_length_beyond_the_model_is_an_error_unless_its_owner_allows_it(line, level):
    """config/model.py:2655-2690."""
    found = one("LNG-01", line, "1xH100")

    assert level == found.level
    assert (level == "error") == (found.change is not None)


def test_a_refusal_of_another_kind_does_not_hide_what_would_fit():
    """e5m2 with fp8 weights is refused on its own; a larger machine still fits the weights."""
    line = "vllm serve MiniMaxAI/MiniMax-M3 --quantization fp8 --kv-cache-dtype fp8_e5m2 --max-model-len 32768 -tp 4"

    assert "NVIDIA H100 SXM" in one("MEM-01", line, "4xH100", load("0.24.0")).hint


def test_redundant_experts_are_loaded_once_more():
    """32 of 256 more: an eighth of the experts' share of a rank."""
    line = "vllm serve deepseek-ai/DeepSeek-V3.1 -dp 8 -ep --enable-eplb"
    plain = judged(line, "8xB200").case.budget.weights
    more = judged(f"{line} --eplb-config.num_redundant_experts 32", "8xB200").case.budget.weights

    assert 8.0 < (more - plain) / (1 << 30) < 12.0
