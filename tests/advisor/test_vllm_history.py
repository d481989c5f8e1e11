"""What changed between vLLM's versions in their use of memory; every value was read in that version's wheel."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_advisor.errors import UnknownVllm
from vllm_advisor.hardware import Gpu, Vendor
from vllm_advisor.units import GIB
from vllm_advisor.vllm import history
from vllm_advisor.vllm.history import Era, era, era_of, on_v0, parse, surface_for, version_at
from vllm_advisor.vllm.surface import load


TABLE = json.loads((Path(history.__file__).parent / "defaults_before_0_24.json").read_bytes())

H100 = Gpu("NVIDIA H100 80GB HBM3", Vendor.NVIDIA, "sm90", int(79.6 * GIB), 3e12, 100.0)
B200 = Gpu("NVIDIA B200", Vendor.NVIDIA, "sm100", int(178.4 * GIB), 8e12, 100.0)
L40S = Gpu("NVIDIA L40S", Vendor.NVIDIA, "sm89", int(44.4 * GIB), 9e11, 100.0)
T4 = Gpu("Tesla T4", Vendor.NVIDIA, "sm75", int(14.6 * GIB), 3e11, 100.0)
MI300X = Gpu("AMD Instinct MI300X", Vendor.AMD, "gfx942", int(191.7 * GIB), 5e12, 100.0)
EPYC = Gpu("EPYC", Vendor.CPU, "cpu-x86_64", 900 * GIB, 2e11, 2.0)


@pytest.mark.parametrize(
    ("fact", "last", "before", "first", "after"),
    [
        ("engine", (0, 7, 3), "V0", (0, 8, 0), "V1"),
        ("v0_is_left", (0, 10, 2), True, (0, 11, 0), False),
        ("gpu_memory_utilization", (0, 19, 1), 0.9, (0, 20, 0), 0.92),
        ("charges_graphs_nvidia", (0, 19, 1), False, (0, 20, 0), True),
        ("charges_graphs_amd", (0, 25, 1), False, (0, 26, 0), True),
        ("batches_in_flight", (0, 25, 1), 1, (0, 26, 0), 2),
        ("tokens_line", (0, 7, 3), "none", (0, 8, 0), "blocks over groups"),
        ("tokens_line", (0, 20, 0), "blocks over groups", (0, 20, 1), "concurrency"),
        ("concurrency_line", (0, 6, 2), "none", (0, 6, 3), "tokens over length"),
        ("concurrency_line", (0, 9, 0), "tokens over length", (0, 9, 1), "blocks over need"),
        ("sliding_beside_full", (0, 9, 0), "full", (0, 9, 1), "window"),
        ("chunked_local", (0, 10, 0), "window", (0, 10, 1), "full"),
        ("chunked_local", (0, 13, 0), "full", (0, 14, 0), "window"),
        ("group_slack", (0, 11, 2), 1.0, (0, 12, 0), 1.25),
        ("group_slack", (0, 17, 1), 1.25, (0, 18, 0), 1.5),
        ("unequal_pages", (0, 11, 2), "refused", (0, 12, 0), "multiples"),
        ("unequal_pages", (0, 23, 0), "multiples", (0, 24, 0), "padded"),
        ("accounting", (0, 6, 3), "reserved", (0, 6, 4), "device"),
        ("accounting", (0, 6, 4), "device", (0, 6, 5), "increase"),
        ("accounting", (0, 9, 0), "device", (0, 9, 1), "increase"),
        ("accounting", (0, 26, 0), "increase", (0, 27, 0), "consumed"),
        ("captures_follow_seqs", (0, 11, 0), False, (0, 11, 1), True),
        ("capture_step", (0, 11, 0), 8, (0, 11, 1), 16),
        ("graph_modes", (0, 10, 2), 1, (0, 11, 0), 2),
        ("largest_capture_blackwell", (0, 27, 1), 512, (0, 28, 0), 1024),
        ("sampler", (0, 16, 0), "sort", (0, 17, 0), "triton"),
        ("sampler", (0, 20, 2), "triton", (0, 21, 0), "flashinfer"),
        ("async_scheduling", (0, 13, 0), False, (0, 14, 0), True),
        ("prefix_caching_hybrids", (0, 25, 1), False, (0, 26, 0), True),
        ("state_blocks", (0, 25, 1), 1, (0, 26, 0), 2),
        ("spare_blocks", (0, 28, 0), 0, (0, 29, 0), 1),
        ("checkpoint_blocks_mamba2", (0, 31, 0), 0, (0, 32, 0), 1),
        ("checkpoint_blocks_gdn", (0, 32, 0), 0, (0, 33, 0), 1),
        ("seqs_within_tokens", (0, 10, 0), False, (0, 10, 1), True),
        ("tokens_within_seqs", (0, 11, 0), False, (0, 11, 1), True),
        ("largest_capture_gpt_oss", (0, 10, 2), 1024, (0, 11, 0), 992),
        ("latent_cache", (0, 7, 0), False, (0, 7, 1), True),
        ("latent_block_hopper", (0, 17, 1), 64, (0, 18, 0), 16),
        ("latent_block_blackwell", (0, 17, 1), 128, (0, 18, 0), 32),
        ("batch_tiers", (0, 27, 1), "by memory, A100 small", (0, 28, 0), "three tiers"),
    ],
)
def test_each_change_has_its_release(fact, last, before, first, after):
    """The last release with the old value and the first with the new one lie side by side."""
    assert (before, after) == (getattr(era(last), fact), getattr(era(first), fact))


def test_the_table_and_the_era_name_the_same_facts():
    """Every field of an Era has rows in the table, and every row a field."""
    assert set(Era._fields) == {row["fact"] for row in TABLE["changes"]}


def test_each_row_has_a_source_and_a_new_value():
    """A row names its source; a fact's rows are in order of release and each one changes the value."""
    for fact in Era._fields:
        rows = [row for row in TABLE["changes"] if row["fact"] == fact]
        since = [history._numbers(row["since"]) for row in rows]
        assert since == sorted(set(since))
        assert all(a["value"] != b["value"] for a, b in itertools.pairwise(rows))
        assert all(".py" in row["source"] for row in rows)


@given(st.tuples(st.just(0), st.integers(0, 60), st.integers(0, 9)))
def test_every_release_has_an_era(release):
    """No release is missing, and a fact holds until the row that changes it."""
    found = era(release)
    assert (0.92 if release >= (0, 20, 0) else 0.9) == found.gpu_memory_utilization
    assert ("V1" if release >= (0, 8, 0) else "V0") == found.engine


def test_the_ends_of_the_table_go_on():
    """A version older than 0.5 is taken like 0.5.0, a newer one than 0.33 like 0.33.0."""
    assert era((0, 5, 0)) == era((0, 4, 3))
    assert era((0, 33, 0)) == era((0, 41, 2)) == era((1, 0, 0))


def test_shipped_surfaces_agree_on_the_utilization():
    """The table says of a release what its own flag's default says."""
    for version in ("0.24.0", "0.32.0", "0.33.0"):
        surface = load(version)
        flag = surface.flags["--gpu-memory-utilization"]
        assert flag.default == era(surface.release).gpu_memory_utilization


@pytest.mark.parametrize(
    ("release", "gpu", "wanted", "engine"),
    [
        ((0, 7, 3), H100, {}, "V0"),
        ((0, 8, 0), H100, {}, "V1"),
        ((0, 8, 1), T4, {}, "V0"),
        ((0, 10, 1), T4, {}, "V0"),
        ((0, 10, 2), T4, {}, "V1"),
        ((0, 8, 5), MI300X, {}, "V0"),
        ((0, 9, 1), MI300X, {}, "V0"),
        ((0, 9, 2), MI300X, {}, "V1"),
        ((0, 9, 0), H100, {"pipeline_parallel_size": 2}, "V0"),
        ((0, 9, 1), H100, {"pipeline_parallel_size": 2}, "V1"),
        ((0, 10, 1), H100, {"has_states": True}, "V0"),
        ((0, 10, 2), H100, {"has_states": True}, "V1"),
        ((0, 8, 1), H100, {"kv_cache_dtype": "fp8"}, "V0"),
        ((0, 8, 2), H100, {"kv_cache_dtype": "fp8"}, "V1"),
        ((0, 10, 2), L40S, {"kv_cache_dtype": "fp8"}, "V0"),
        ((0, 9, 2), B200, {"kv_cache_dtype": "fp8"}, "V0"),
        ((0, 10, 0), B200, {"kv_cache_dtype": "fp8"}, "V1"),
        ((0, 11, 0), L40S, {"kv_cache_dtype": "fp8"}, "V1"),
        ((0, 8, 5), H100, {"quantization": "gguf"}, "V0"),
        ((0, 8, 5), H100, {"quantization": "bitsandbytes"}, "V1"),
        ((0, 9, 1), EPYC, {}, "V0"),
        ((0, 9, 2), EPYC, {}, "V1"),
    ],
)
def test_what_v1_lacked_fell_back(release, gpu, wanted, engine):
    """From 0.8.0 to 0.10.2 the card, PP, states, the KV dtype and the quantization decide between V1 and V0."""
    assert engine == era_of(release, gpu, **wanted).engine


def test_v0_beside_v1_measures_as_0_7_did():
    """V0 in 0.8.5 keeps its own profiling and log, while V1 counts the CUDA context."""
    beside = on_v0((0, 8, 5))
    assert ("increase", "none", 0.9) == (beside.accounting, beside.tokens_line, beside.gpu_memory_utilization)
    assert "device" == era((0, 8, 5)).accounting


def test_graphs_are_charged_by_vendor():
    """NVIDIA since 0.20, AMD since 0.26, a CPU never."""
    vendors = (Vendor.NVIDIA, Vendor.AMD, Vendor.CPU)
    assert [False, False, False] == [era((0, 19, 1)).charges_graphs(v) for v in vendors]
    assert [True, False, False] == [era((0, 24, 0)).charges_graphs(v) for v in vendors]
    assert [True, True, False] == [era((0, 26, 0)).charges_graphs(v) for v in vendors]


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.11.0", (0, 11, 0)),
        ("v0.19.1+", (0, 19, 1)),
        ("0.6.3.post1", (0, 6, 3)),
        ("0.24", (0, 24, 0)),
        ("0.13.0+faa43dbf", (0, 13, 0)),
        ("0.13.0 (nvcr.io/nvidia/vllm:26.01-py3)", (0, 13, 0)),
        ("0.24.0-class (kv_cache_utils.py:2146)", (0, 24, 0)),
        ("0.13.0rc1", (0, 13, 0)),
        # development builds
        ("0.8.5.dev22", (0, 8, 4)),
        ("0.8.5.dev274+gabc", (0, 8, 5)),
        ("0.7.4.dev382", (0, 8, 0)),
        ("0.6.6.post2.dev274", (0, 7, 0)),
        ("0.8.0rc3.dev5", (0, 8, 0)),
        ("0.13.0rc2.dev112+g763963aa7.d20251213", (0, 13, 0)),
        ("0.17.1rc1.dev126", (0, 18, 0)),
        ("0.17.1rc1.dev12", (0, 17, 0)),
        ("0.20.1.dev0+g101584af0.d20260424", (0, 20, 0)),
        ("0.11.2.dev690+g67475a6e8.d20251209", (0, 12, 0)),
        ("0.34.1rc1.dev500", (0, 34, 1)),
    ],
)
def test_parse_reads_what_people_write(text, release):
    """Suffixes fall away; a development build is taken for the release it is nearest to on the main line."""
    assert release == parse(text)


@pytest.mark.parametrize("text", ["", "main", "nightly", "latest", "v1", "commit 67475a6e8"])
def test_parse_finds_no_version(text):
    """Where no number with a point stands there is no version."""
    assert None is parse(text)


@given(st.text(max_size=40))
def test_parse_never_fails(text):
    """Any text gives a release or None."""
    found = parse(text)
    assert found is None or len(found) == 3


@pytest.mark.parametrize(
    ("date", "version"),
    [
        ("2024-08-26", "0.5.5"),
        ("2024-12-02", "0.6.4.post1"),
        ("2025-10-31", "0.11.0"),
        ("2026-02-26", "0.16.0"),
        ("2026-06", "0.22.0"),
        ("2026", "0.13.0"),
        ("2023-01-01", "0.5.0"),
        ("2030-01-01", "0.33.0"),
    ],
)
def test_a_date_has_its_newest_release(date, version):
    """A date without a day means its first one; before the first release the oldest holds."""
    assert version == version_at(date)


def test_dates_go_up_with_the_releases():
    """Within the table a later minor version is a later day, and every day is an ISO date."""
    days = list(TABLE["releases"].values())
    minors = [day for version, day in TABLE["releases"].items() if version.count(".") == 2 and version.endswith(".0")]
    assert minors == sorted(minors)
    assert all(len(day) == 10 and day[4] == day[7] == "-" for day in days)


def test_a_shipped_surface_is_the_surface():
    """A version that was read whole keeps its flags."""
    assert load("0.33.0") is surface_for("0.33.0")
    assert load("0.24.0") is surface_for("v0.24.0+cu130")


def test_an_old_version_has_a_light_surface():
    """A version without a surface knows its release and nothing of flags, and can be asked everything."""
    light = surface_for("0.8.5.post1")
    assert ("0.8.5", (0, 8, 5), "history") == (light.version, light.release, light.build)
    assert (True, False) == (light.at_least(0, 8), light.at_least(0, 9))
    assert (False, False) == (light.has_flag("--max-model-len"), light.has_architecture("LlamaForCausalLM"))
    assert 1 == len({light, surface_for("0.8.5")})


def test_no_version_is_said_so():
    """Text without a version raises, with the versions that are known."""
    with pytest.raises(UnknownVllm, match="nightly"):
        surface_for("nightly")
