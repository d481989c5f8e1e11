"""A batch: a row out for each row in, in order, whatever the rows hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_advisor.estimate.checkpoint import Shelf
from vllm_advisor.estimate.flags import draft, flags, variables
from vllm_advisor.estimate.rows import answers, predict


ROW = {"id": "a", "model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "RTX 3090", "tp": 1, "vllm_version": "0.12.0",
       "max_model_len": 16384, "gpu_memory_utilization": 0.95}  # fmt: skip
FIGURES = ["id", "weights_gib", "kv_cache_gib", "kv_cache_gib_low", "kv_cache_gib_high", "kv_tokens",
           "max_concurrency", "cuda_graph_gib", "activation_gib", "non_torch_gib", "outcome", "reasons"]  # fmt: skip
# A small dense decoder of our own: 4 layers, 16 heads of 64, 8 KV heads.
TINY = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 4,
    "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 4096, "vocab_size": 32_768,
    "max_position_embeddings": 2048, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
VOCABULARY = 2 * 32_768 * 1024  # parameters of embedding and head
LINEAR = 4 * (2 * 1024 * 1024 + 2 * 1024 * 512 + 3 * 1024 * 4096)  # of attention and feed-forward layers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of configurations with one good and two broken ones."""
    (tmp_path / "me--tiny.json").write_text(json.dumps(TINY))
    (tmp_path / "me--cut.json").write_text('{"architectures": [')
    (tmp_path / "me--list.json").write_text("[]")
    return tmp_path


def answered(*rows: object, shelf: Shelf | None = None, given_kv: bool = False) -> list[dict[str, Any]]:
    """Rows as the batch answers them."""
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    return [json.loads(line) for line in answers(lines, shelf or Shelf(None), given_kv=given_kv)]


def test_a_row_has_every_figure_under_its_documented_name():
    """The names that a scorer reads, in one order."""
    assert FIGURES == list(predict(dict(ROW), Shelf(None)))[: len(FIGURES)]


def test_weights_are_what_vllm_printed():
    """0.12.0 on an RTX 3090 printed 14.9889 GiB for Llama-3.1-8B (a public log of 2025-12-10)."""
    assert pytest.approx(14.9889, rel=0.002) == predict(dict(ROW), Shelf(None))["weights_gib"]


def test_tokens_of_a_given_cache_are_what_vllm_printed():
    """6.95 GiB were printed with 56,880 tokens: 128 KiB a token, and two decimals of GiB are 80 tokens wide."""
    found = predict({**ROW, "kv_mem_gib": 6.95}, Shelf(None), given_kv=True)

    assert pytest.approx(56_880, abs=80) == found["kv_tokens"]
    assert pytest.approx(6.95, abs=0.001) == found["kv_cache_gib"]


def test_answers_keep_the_order_and_blank_lines_have_none():
    """Three rows and two blank lines are three answers."""
    found = answered({**ROW, "id": 1}, b"\n", {**ROW, "id": "b"}, b"  \r\n", {**ROW, "id": None})

    assert [1, "b", None] == [row["id"] for row in found]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (b'{"id": "cut", "model": ', "cut"),
        (b'{"model": "x", "id": 12, "gpu" "L4"}', 12),
        (b'{"id": "nan", "tp": NaN}', "nan"),
        (b"\xff\xfe", None),
        (b"[1, 2]", None),
        (b"[" * 100_000, None),
    ],
)
def test_a_broken_line_is_an_error_and_the_next_row_is_answered(line, name):
    """The id is given back where it can be read."""
    broken, good = answered(line, ROW)

    assert name == broken["id"]
    assert broken["error"].startswith("line 1 is no JSON")
    assert "weights_gib" in good


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tp", -1), ("tp", 1.5), ("tp", True), ("tp", [1]), ("max_model_len", 1e30), ("gpu", 7),
        ("gpu_memory_utilization", 1.5), ("max_num_seqs", "many"), ("enforce_eager", "perhaps"), ("dtype", "int3"),
        ("kv_cache_dtype", "fp8; rm"), ("kv_cache_dtype", "int3"), ("gpu_mem_gib", 0), ("vllm_version", {}),
    ],
)  # fmt: skip
def test_a_field_of_the_wrong_kind_is_that_rows_error(field, value):
    """The message names the field or its value."""
    wrong, good = answered({**ROW, field: value}, ROW)

    assert "a" == wrong["id"]
    assert any(word in wrong["error"] for word in (field, str(value)))
    assert "weights_gib" in good


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"gpu": None}, "no GPU named"),
        ({"model": None}, "no model named"),
        ({"model": "nobody/nothing"}, "no configuration of 'nobody/nothing'"),
        ({"gpu": "Hopper (H100/H200 not stated)"}, "could be NVIDIA H100 SXM (79 GiB) or NVIDIA H200 SXM (139 GiB)"),
        ({"gpu": "TPU v5e"}, "Google TPU"),
        ({"dtype": "float32"}, "float32 weights are not modelled"),
        ({"config": "../../secret.json"}, "no configuration '../../secret.json'"),
    ],
)
def test_what_cannot_be_told_is_unsupported_with_its_reason(change, why):
    """An honest no is no error."""
    assert why in answered({**ROW, **change})[0]["unsupported"]


def test_a_row_reads_its_configuration_from_the_folder(folder):
    """By the file that it names, else by the model's name with two dashes."""
    shelf = Shelf(folder)
    by_file = answered({**ROW, "model": "anything", "config": "me--tiny.json", "max_model_len": 512}, shelf=shelf)
    by_name = answered({**ROW, "model": "me/tiny", "max_model_len": 512}, shelf=shelf)

    assert pytest.approx((VOCABULARY + LINEAR) * 2 / 2**30, rel=0.002) == by_file[0]["weights_gib"]
    assert by_file[0]["weights_gib"] == by_name[0]["weights_gib"]


@pytest.mark.parametrize("file", ["me--cut.json", "me--list.json"])
def test_a_broken_configuration_is_that_rows_error(folder, file):
    """A file that is no JSON object is named."""
    assert file in answered({**ROW, "config": file}, shelf=Shelf(folder))[0]["error"]


def test_a_quantization_that_the_configuration_lacks_is_derived_and_said(folder):
    """AWQ on a 16-bit configuration: 4 bits and scales for linear layers, vocabulary as it was."""
    row = {**ROW, "model": "me/tiny", "max_model_len": 512, "quantization": "awq_marlin"}
    found = answered(row, shelf=Shelf(folder))[0]

    assert "the usual recipe of awq" in " ".join(found["assumed"])
    assert pytest.approx((VOCABULARY * 2 + LINEAR * 4.16 / 8) / 2**30, rel=0.005) == found["weights_gib"]


@pytest.mark.parametrize(
    ("name", "quantization", "bits"),
    [
        ("me/Tiny-W4A16", "compressed-tensors", 4.16),
        ("me/Tiny-NVFP4", "modelopt", 4.5),
        ("me/Tiny-FP8", "compressed-tensors", 8),
        ("me/tiny", "bf16", 16),
    ],
)
def test_a_format_of_files_takes_its_bits_from_the_name(folder, name, quantization, bits):
    """compressed-tensors holds anything: the model's name says what."""
    row = {**ROW, "model": name, "config": "me--tiny.json", "max_model_len": 512, "quantization": quantization}
    linear = answered(row, shelf=Shelf(folder))[0]["weights_gib"] * 2**30 - 2 * VOCABULARY

    assert pytest.approx(LINEAR * bits / 8, rel=0.02) == linear


def test_a_format_that_the_name_does_not_explain_is_unsupported(folder):
    """Nothing says how many bits these weights have."""
    row = {**ROW, "model": "me/tiny", "quantization": "compressed-tensors"}

    assert "no known recipe" in answered(row, shelf=Shelf(folder))[0]["unsupported"]


def test_lengths_and_dtypes_are_read_as_people_write_them():
    """28k tokens in bf16."""
    short = answered({**ROW, "max_model_len": "28k", "kv_cache_dtype": "bf16"})[0]
    plain = answered({**ROW, "max_model_len": 28_000, "kv_cache_dtype": "bfloat16"})[0]

    assert plain == short


def test_fp8_on_a_16_bit_configuration_is_converted_while_loading():
    """8 bits for the 6.98 billion linear parameters of Llama-8B, 16 for its vocabulary: 6.50 + 1.96 GiB."""
    found = answered({**ROW, "quantization": "fp8"})[0]

    assert pytest.approx(6.98e9 / 2**30 + 2 * 2 * 128_256 * 4096 / 2**30, rel=0.01) == found["weights_gib"]
    assert "converted while loading" in " ".join(found["assumed"])


def test_tensor_parallel_size_comes_from_the_devices_where_it_is_not_given():
    """Two devices and no TP: both are used, and it is said."""
    found = answered({**ROW, "tp": None, "gpu_count": 2})[0]

    assert "tensor_parallel_size 2: all devices that are named" in found["assumed"]
    assert pytest.approx(14.99 / 2, rel=0.01) == found["weights_gib"]


def test_an_eagle_draft_adds_a_layer_to_the_cache():
    """132 instead of 128 KiB a token: 4 GiB hold 31,775 tokens, in blocks of 16."""
    row = {**ROW, "kv_mem_gib": 4, "other_flags": "EAGLE speculative decoding", "vllm_version": "0.24.0"}
    found = answered(row, given_kv=True)[0]

    assert pytest.approx(4 * 2**20 / 132, abs=32) == found["kv_tokens"]


def test_the_memory_that_was_printed_replaces_the_catalogs():
    """Half a GiB less in the driver's total is 0.475 GiB less for the cache at 0.95."""
    full, less = answered({**ROW, "gpu_mem_gib": 23.5}, {**ROW, "gpu_mem_gib": 23.0})

    assert pytest.approx(0.475, abs=0.01) == full["kv_cache_gib"] - less["kv_cache_gib"]


def test_the_interval_holds_the_estimate():
    """Low, middle and high are in order."""
    found = answered(ROW)[0]

    assert found["kv_cache_gib_low"] < found["kv_cache_gib"] < found["kv_cache_gib_high"]


def test_what_does_not_fit_fails_with_its_numbers():
    """131,072 tokens of Llama-8B need 16 GiB of cache, a 24 GB card has no such room."""
    found = answered({**ROW, "max_model_len": 131_072})[0]

    assert "fail" == found["outcome"]
    assert "131,072 tokens needs 16.0 GiB" in found["reasons"][0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--enable-prefix-caching --block-size=128", {"block_size": "128"}),
        ("block_size=256 enable_prefix_caching", {"block_size": "256"}),
        ("--decode-context-parallel-size 8", {"decode_context_parallel_size": "8"}),
        ("--kv-cache-memory-bytes 15032385536, instanttensor", {"kv_cache_memory_bytes": "15032385536"}),
        ("padding_layers=3; attention_block_size=992", {}),
        ("--enable-expert-parallel --enforce-eager", {"enable_expert_parallel": "1", "enforce_eager": "1"}),
    ],
)
def test_flags_in_free_text_are_read_and_printed_figures_are_not(text, expected):
    """What vLLM printed (its own block size, its padding) is no configuration."""
    assert expected == flags(text)


def test_variables_and_engines_are_read():
    """`V0` is how reports say VLLM_USE_V1=0; variables come sorted."""
    assert (("VLLM_ROCM_USE_AITER", "1"), ("VLLM_USE_V1", "0")) == variables("V0, VLLM_ROCM_USE_AITER=1 ray")
    assert (("VLLM_PP_LAYER_PARTITION", "16,32"),) == variables("VLLM_PP_LAYER_PARTITION=16,32, ray")


@pytest.mark.parametrize(("text", "kind"), [("EAGLE", "eagle"), ("mtp 3", "mtp"), ("DFlash2 k=7", "dflash"), ("", "")])
def test_drafts_are_told_apart(text, kind):
    """Each kind loads something else."""
    assert kind == draft(text)


@pytest.mark.slow
def test_ten_thousand_rows_take_at_most_ten_seconds_of_one_core():
    """A fifth of them, by the benchmark that keeps the bar."""
    root = Path(__file__).resolve().parents[2]
    argv = [sys.executable, str(root / "benchmarks" / "estimate_speed.py"), "--rows", "2000", "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stdout
    assert "'error': 0" in done.stdout
