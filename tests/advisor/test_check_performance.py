"""Settings that cost speed: said with the mechanism and the version's own numbers, and never with a percentage."""

from __future__ import annotations

import re

import pytest

from vllm_advisor.catalog import gpus, models
from vllm_advisor.check import judge
from vllm_advisor.check.ids_judged import JUDGED
from vllm_advisor.check.invocation import Invocation
from vllm_advisor.check.parse import parse
from vllm_advisor.vllm.surface import load


def found(line, gpu="", version="0.33.0", env=()):
    """Findings by id."""
    surface = load(version)
    reading = parse(Invocation(tuple(line.split()), tuple(env)), surface)
    node, model = gpus.node(gpu) if gpu else None, models.find(reading.model or "")
    return {f.id: f for f in judge.findings(reading, surface, node, model)}


@pytest.mark.parametrize(
    ("version", "gpu", "tokens", "said"),
    [
        # engine/arg_utils.py get_batch_defaults: 0.24.0 8192 on an H200, 0.33.0 16384 from 160 GiB on
        ("0.24.0", "MI300X", 8192, False),
        ("0.33.0", "MI300X", 8192, True),
        ("0.33.0", "H100", 8192, False),
        ("0.33.0", "L40S", 2048, False),
        ("0.33.0", "L40S", 1024, True),
    ],
)
def test_fewer_tokens_than_the_default_follow_version_and_device(version, gpu, tokens, said):
    """The tier decides, not a number of ours."""
    assert said == ("PRF-04" in found(f"vllm serve m --max-num-batched-tokens {tokens}", gpu, version))


def test_throughput_mode_says_both_numbers():
    """8192 and 1024 on an H100 become twice that."""
    text = found("vllm serve m --performance-mode throughput", "1xH100")["PRF-05"].text

    assert "8,192 → 16,384" in text
    assert "1,024 → 2,048" in text


def test_fp8_weights_on_ampere_are_weight_only():
    """Marlin multiplies in BF16 below sm89."""
    text = found("vllm serve Qwen/Qwen3-14B-FP8", "1xA100")["PRF-03"].text

    assert "multiplies it in BF16 on sm80" in text
    assert "PRF-03" not in found("vllm serve Qwen/Qwen3-14B-FP8", "1xH100")


@pytest.mark.parametrize(("gpu", "said"), [("H100", True), ("B200", True), ("A100", False), ("MI300X", False)])
def test_deep_gemm_off_matters_where_it_would_run(gpu, said):
    """Hopper and Blackwell, with block-FP8 linear layers."""
    line, env = "vllm serve Qwen/Qwen3-14B-FP8", [("VLLM_USE_DEEP_GEMM", "0")]

    assert said == ("PRF-02" in found(line, gpu, env=env))
    assert "PRF-02" not in found("vllm serve Qwen/Qwen3-0.6B", gpu, env=env)


def test_aiter_is_turned_on_with_what_its_experts_need():
    """0.24 has no AITER kernel for MiniMax-M3's activation, so the experts' switch goes off beside it."""
    change = found("vllm serve MiniMaxAI/MiniMax-M3 -tp 8", "8xMI300X", "0.24.0")["ENV-01"].change

    assert (("VLLM_ROCM_USE_AITER", "1"), ("VLLM_ROCM_USE_AITER_MOE", "0")) == change.env


@pytest.mark.parametrize("value", ["1", "true", "True"])
def test_aiter_is_on_in_every_spelling_that_vllm_reads(value):
    """envs.py reads `1` and `true`."""
    assert "ENV-01" not in found("vllm serve m", "1xMI300X", env=[("VLLM_ROCM_USE_AITER", value)])


def test_no_percentage_is_claimed():
    """Mechanisms only: the sources of this product have no number for the user's own server."""
    lines = ("--enforce-eager --no-enable-prefix-caching --no-async-scheduling --cpu-offload-gb 4", "-O0", "-tp 2")
    texts = [f.text for line in lines for f in found(f"vllm serve Qwen/Qwen3-14B-FP8 {line}", "2xL40S").values()]

    assert [] == [t for t in texts if re.search(r"\d\s*%|times (slower|faster)", t)]


def test_every_row_of_the_catalogue_has_a_title_and_a_source():
    """Documents and SARIF are made of them; ids are told once."""
    assert all(title and source for _, _, title, source in JUDGED)
    assert len({row[0] for row in JUDGED}) == len(JUDGED)
