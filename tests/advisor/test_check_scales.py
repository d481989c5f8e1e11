"""KV scales: who brings them, what vLLM takes without, and what the device makes of it."""

from __future__ import annotations

import pytest

from vllm_advisor.catalog import gpus, models
from vllm_advisor.check import judge
from vllm_advisor.check.invocation import Invocation
from vllm_advisor.check.parse import parse
from vllm_advisor.vllm.surface import load


def found(line, gpu="", version="0.33.0"):
    """Findings about scales, by id."""
    surface = load(version)
    reading = parse(Invocation(tuple(line.split())), surface)
    node, model = gpus.node(gpu) if gpu else None, models.find(reading.model or "")
    said = judge.findings(reading, surface, node, model)
    return {f.id: f for f in said if f.id.startswith(("KV-05", "KVS-"))}


def test_an_unquantized_checkpoint_has_none_and_vllm_takes_one():
    """Certain, so a warning; warming up is no remedy."""
    said = found("vllm serve Qwen/Qwen3-0.6B --kv-cache-dtype fp8", "1xH100")["KV-05"]

    assert "warning" == said.level
    assert "vLLM takes 1.0 and warns; warming up changes nothing" in said.text
    assert "--kv-cache-dtype fp8_per_token_head" in said.hint


def test_on_fnuz_the_scale_is_doubled():
    """gfx942 has another FP8; gfx950 has not."""
    line = "vllm serve Qwen/Qwen3-0.6B --kv-cache-dtype fp8"

    assert "doubled to 2.0" in found(line, "1xMI300X")["KV-05"].text
    assert "doubled" not in found(line, "1xMI355X")["KV-05"].text


def test_where_the_configuration_cannot_say_it_is_a_note():
    """A checkpoint of method fp8 may carry k_scale tensors of which its config says nothing."""
    assert ["KVS-01"] == list(found("vllm serve Qwen/Qwen3-0.6B-FP8 --kv-cache-dtype fp8", "1xH100"))


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve Qwen/Qwen3-0.6B",
        "vllm serve Qwen/Qwen3-0.6B --kv-cache-dtype fp8_per_token_head",
        "vllm serve Qwen/Qwen3-0.6B --kv-cache-dtype int8_per_token_head",
        "vllm serve amd/Llama-3.1-405B-Instruct-FP8-KV --kv-cache-dtype fp8 -tp 8",
    ],
)
def test_formats_that_scale_themselves_and_calibrated_checkpoints_are_silent(line):
    """Nothing is missing there."""
    assert {} == found(line, "8xH100")


def test_nothing_is_said_of_scales_where_the_cache_is_refused():
    """No backend takes fp8 with sinks below sm89: its scales do not matter."""
    assert {} == found("vllm serve openai/gpt-oss-20b --kv-cache-dtype fp8", "1xA100")


def test_calculated_scales_are_the_first_batch_s():
    """0.24 has the option, deprecated; 0.33 does not."""
    line = "vllm serve Qwen/Qwen3-0.6B --kv-cache-dtype fp8 --calculate-kv-scales"

    assert "first batch only" in found(line, "1xH100", "0.24.0")["KVS-02"].text
    assert "KVS-02" not in found(line, "1xH100", "0.33.0")


def test_calculated_scales_are_switched_off_for_hybrids():
    """0.24 models/config.py:276-289: the option is dropped, and so is it here."""
    line = "vllm serve nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 --kv-cache-dtype fp8 --calculate-kv-scales"
    said = found(line, "1xH100", "0.24.0")["KVS-03"]

    assert "hybrid" in said.text
    assert (5, 6, ()) == said.change[:3]
