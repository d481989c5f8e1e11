"""The second file of each surface: quantization methods, defaults by card, log lines and metrics."""

from __future__ import annotations

import pytest

from vllm_advisor.vllm import surface as surfaces
from vllm_advisor.vllm.surface import BatchTier, load, surface_of, versions


def test_the_second_file_is_read_only_when_it_is_asked_for():
    """A recommendation that asks for none of it does not pay for it."""
    surfaces._read.cache_clear()
    surfaces._read_more.cache_clear()
    assert load("0.33.0").flags
    assert 0 == surfaces._read_more.cache_info().currsize
    assert load("0.33.0").metrics
    assert 1 == surfaces._read_more.cache_info().currsize


@pytest.mark.parametrize("version", versions())
def test_every_shipped_version_has_all_of_it(version):
    """Nothing of the second file is empty, and what was not read is said."""
    surface = load(version)
    assert all((surface.quantization_methods, surface.platform_quantizations, surface.batch_defaults,
                surface.log_lines, surface.metrics, surface.kernels))  # fmt: skip
    assert not [text for text in surface.not_read if text.startswith("nothing read")]


@pytest.mark.parametrize("version", versions())
def test_every_quantization_that_the_parser_takes_is_described(version):
    """The names of the parser and of the table of methods are the same."""
    surface = load(version)
    assert set(surface.quantizations) == set(surface.quantization_methods)
    assert set(surface.online_quantizations) == {
        name for name, m in surface.quantization_methods.items() if m.online_parts
    }


@pytest.mark.parametrize(
    ("version", "name", "capability", "online", "checkpoint", "moe", "linear"),
    [
        ("0.24.0", "mxfp4", 80, False, True, True, False),
        ("0.33.0", "mxfp4", 80, True, True, True, False),
        ("0.24.0", "fp8", 75, True, True, True, True),
        ("0.33.0", "fp8", 75, True, True, True, True),
        ("0.24.0", "modelopt", 89, False, True, True, True),
        ("0.33.0", "modelopt", 80, False, True, True, True),
        ("0.33.0", "experts_int8", 80, True, True, True, False),
        ("0.33.0", "fp_quant", 100, False, True, False, True),
        ("0.33.0", "moe_wna16", 70, False, True, True, None),
        ("0.33.0", "inc", 60, False, True, None, True),
        ("0.33.0", "int8_per_channel_weight_only", 75, True, False, True, False),
    ],
)
def test_what_a_method_says_of_itself(  # noqa: PLR0917  a row of a table
    version, name, capability, online, checkpoint, moe, linear
):
    """Least capability, online or checkpoint, and which layers get its kernels; None is left to another class."""
    found = load(version).quantization_methods[name]
    assert (capability, online, checkpoint, moe, linear) == (
        found.min_capability, found.online, found.checkpoint, found.moe, found.linear,
    )  # fmt: skip


def test_activations_and_parts_of_a_method():
    """NVFP4 takes FP8 activations too; online MXFP4 quantizes linear layers and experts."""
    methods = load("0.33.0").quantization_methods
    assert ("bfloat16", "half", "float8_e4m3fn") == methods["modelopt_fp4"].activations
    assert ("linear", "moe") == methods["mxfp4"].online_parts
    assert ("moe",) == methods["nvfp4_per_token"].online_parts


def test_what_amd_allows():
    """ROCm has a list: gptq_marlin left it with 0.25.1, inc came with 0.28.0; CUDA has none."""
    allowed = {v: load(v).platform_quantizations["rocm"] for v in versions()}
    assert ["0.24.0"] == [v for v in versions() if "gptq_marlin" in allowed[v]]
    assert "0.28.0" == next(v for v in versions() if "inc" in allowed[v])
    assert "experts_int8" not in allowed["0.33.0"]
    assert "cuda" not in load("0.33.0").platform_quantizations


def test_tiers_of_the_batch():
    """Two tiers by memory in 0.24.0, three since 0.28.0; a CPU's are an expression."""
    old, new = load("0.24.0").batch_defaults, load("0.28.0").batch_defaults
    assert [70, None] == [t.memory_gib for t in old[:2]]
    assert [160, 70, None] == [t.memory_gib for t in new[:3]]
    assert BatchTier(
        "device_memory >= 160 * GiB_bytes", 160, {"llm": 16384, "server": 16384}, {"llm": 1024, "server": 1024}
    ) == new[0]  # fmt: skip
    assert "2048 * world_size" == new[-1].tokens["server"]


@pytest.mark.parametrize(
    ("version", "formats"),
    [
        ("0.27.1", {"GPU KV cache size: %s tokens"}),
        ("0.28.0", {"GPU KV cache size: %s tokens, Maximum concurrency for %s tokens per request: %.2fx"}),
        ("0.30.0", {"%s KV cache size: %s tokens, Maximum concurrency for %s tokens per request: %.2fx"}),
    ],
)
def test_the_line_of_the_cache_size(version, formats):
    """Two lines until 0.27, one since 0.28."""
    lines = [line for line in load(version).log_lines if line.event == "kv_size" and line.level == "info"]
    assert formats == {line.format for line in lines}
    assert ("concurrency" in {line.event for line in load(version).log_lines}) is (version == "0.27.1")


def test_a_text_that_is_raised_is_told_from_one_that_is_logged():
    """The message of a cache that is too small is an exception's."""
    found = [line for line in load("0.33.0").log_lines if line.event == "no_blocks"]
    assert ["raise"] == [line.level for line in found]
    assert "v1/core/kv_cache_planning.py" == found[0].path


def test_names_and_kinds_of_metrics():
    """As registered: a counter without `_total`."""
    metrics = load("0.33.0").metrics
    assert ("gauge", "counter", "histogram") == tuple(
        metrics[f"vllm:{n}"] for n in ("num_requests_running", "generation_tokens", "time_to_first_token_seconds")
    )
    assert "vllm:admission_rejections" in set(metrics) - set(load("0.24.0").metrics)
    assert set() == set(load("0.24.0").metrics) - set(metrics)


def test_a_surface_in_memory_carries_its_own():
    """What `extract` returns is one document, and needs no second file."""
    raw = {
        **{name: {} for name in ("flags", "env", "architectures", "removed_architectures", "deprecated_flags")},
        **{name: [] for name in surfaces.Surface._fields if name.endswith(("s", "d")) and name != "flags"},
        "version": "9.9.9", "build": "cuda", "architectures": {}, "removed_architectures": {}, "deprecated_flags": {},
        "metrics": {"vllm:x": "gauge"}, "unread_more": ["y"],
    }  # fmt: skip
    surface = surface_of(raw)
    assert ({"vllm:x": "gauge"}, {}, ("y",)) == (surface.metrics, surface.kernels, surface.not_read)
