"""Speed of a given configuration: truth's field names in, figures with low and high out, and what is assumed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vllm_advisor.catalog import gpus, models
from vllm_advisor.errors import BadInput
from vllm_advisor.estimate.asked import as_memory_row, asked, guesses, names_a_load
from vllm_advisor.estimate.checkpoint import Shelf
from vllm_advisor.estimate.rows import predict, server
from vllm_advisor.estimate.speed import linked, stored_as
from vllm_advisor.hardware import Node, Topology
from vllm_advisor.memory.identity import Identity


ROW = {"id": "a", "model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "H100", "tp": 1, "vllm_version": "0.12.0",
       "max_model_len": 16384, "isl": 1024, "osl": 1024, "concurrency": 32}  # fmt: skip
FIGURES = ("output_tok_s", "total_tok_s", "mean_ttft_ms", "mean_tpot_ms")


def answer(**changes: object) -> dict[str, Any]:
    """A row as the batch answers it; None takes a field away."""
    row = {**ROW, **changes}
    return predict({k: v for k, v in row.items() if v is not None}, Shelf(None))


def test_a_row_with_a_load_has_speed_with_low_and_high():
    """Every figure under truth's name, between its low and its high, beside the memory."""
    found = answer()
    assert all(0 < found[f"{f}_low"] < found[f] < found[f"{f}_high"] for f in FIGURES)
    assert found["total_tok_s"] == pytest.approx(2 * found["output_tok_s"], rel=1e-5)
    assert "ok" == found["outcome"]


def test_a_row_without_a_load_has_none():
    """Rows about memory answer as before."""
    found = answer(isl=None, osl=None, concurrency=None)
    assert "weights_gib" in found
    assert "output_tok_s" not in found


def test_measured_lengths_go_before_nominal_ones():
    """`mean_isl_actual` is what was sent."""
    load = asked({**ROW, "mean_isl_actual": 900.0, "mean_osl_actual": 800.0}).load
    assert (900, 800, 32) == (load.input_tokens, load.output_tokens, load.concurrency)


@pytest.mark.parametrize("rate", ["inf", "Infinity", float("inf"), None, 0])
def test_an_unlimited_rate_is_none(rate):
    """Load generators write it in several ways."""
    assert asked({**ROW, "request_rate": rate}).load.request_rate is None


def test_conversations_have_lengths_of_their_own():
    """ShareGPT without lengths takes what public runs of it print, says so, and spreads."""
    found = asked({"dataset": "sharegpt", "num_prompts": 1000})
    assert (215, 200, 1000, 1.0) == (
        found.load.input_tokens,
        found.load.output_tokens,
        found.load.prompts,
        found.load.spread,
    )
    assert ("isl 215: not given", "osl 200: not given") == found.assumed


def test_nothing_named_is_a_burst_that_is_said():
    """Lengths without any load."""
    found = asked({"isl": 100, "osl": 100})
    assert 1000 == found.load.prompts
    assert "1000 prompts at once: no load is given" in found.assumed


@pytest.mark.parametrize("value", ["many", -1, True, float("nan")])
def test_a_load_that_is_no_number_is_an_error_of_its_row(value):
    """The field is named."""
    with pytest.raises(BadInput, match="concurrency"):
        asked({**ROW, "concurrency": value})
    assert "concurrency" in answer(concurrency=value)["error"]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('{"method":"mtp","num_speculative_tokens":2}', 2),
        ("mtp k=5", 5),
        ("none", 0),
        ("off", 0),
        (None, 0),
        ("mtp", 1),
    ],
)
def test_guesses_are_read_as_people_write_them(text, count):
    """A JSON object, a word, or nothing."""
    assert count == guesses({"spec_decode": text})


def test_a_version_or_commit_is_the_version():
    """Truth names it so; placeholders of flags are no values."""
    plain = as_memory_row({"vllm_version_or_commit": "v0.11.0", "other_flags": "max-num-batched-tokens default x"})
    assert "v0.11.0" == plain["vllm_version"]
    assert "default" not in plain["other_flags"]


def test_a_load_is_named_by_any_of_its_fields():
    """Lengths alone will do; null is not named."""
    assert names_a_load({"isl": 5})
    assert not names_a_load({"isl": None, "tp": 1})


def test_a_measured_server_on_uncounted_devices_had_enough():
    """Llama-3.3-70B in BF16 does not fit one H100: two to eight were used, and that is said."""
    found = answer(model="meta-llama/Llama-3.3-70B-Instruct", tp=None)
    assert "ok" == found["outcome"]
    assert any(text.startswith("tensor_parallel_size 4") for text in found["assumed"])


def test_devices_in_a_row_have_their_usual_links():
    """A report names eight H100 and no NVLink: they have it."""
    bare = replace(gpus.node("8xH100"), topology=Topology())
    assert "nvlink" == linked(bare).topology.links[0].kind
    assert linked(Node(gpus=bare.gpus[:1])).topology.links == ()


def test_a_checkpoint_in_another_format_is_read_in_that_one():
    """A row that says NVFP4 of a model whose own configuration is FP8: four and a half bits a weight."""
    spec = models.find("Qwen/Qwen3-30B-A3B-FP8")
    assert spec is not None
    four = stored_as(Identity(spec), "nvfp4")
    assert "nvfp4" == four.quantization.scheme
    assert four.weight_bytes < 0.65 * spec.weight_bytes
    assert spec is stored_as(Identity(spec), "fp8")


def test_what_a_speed_is_computed_from_can_be_asked():
    """The fit reads the same traits, load and seats that the answer comes from."""
    found = server(dict(ROW), Shelf(None))
    assert 1024 == found.load.input_tokens
    assert 32 < found.seats <= 1024
    assert "plain" == found.traits.dense.kind
