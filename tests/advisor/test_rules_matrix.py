"""The printed matrix is computed, the seed is answered, and the generated documents are in sync."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vllm_advisor.hardware import Gpu, Vendor
from vllm_advisor.model.spec import CacheGroup
from vllm_advisor.rules import document
from vllm_advisor.rules.matrix import matrix
from vllm_advisor.rules.seed import SEED_CLAIMS, SEED_ROWS
from vllm_advisor.rules.table import RULES
from vllm_advisor.units import GIB
from vllm_advisor.vllm import backends, surface


DOCS = Path(__file__).parents[2] / "docs"
OLD, NEW = surface.load("0.24.0"), surface.load("0.33.0")
GQA = CacheGroup("full", (0,), 32, 8, 128, 128)
ARCHS = [
    "sm75",
    "sm80",
    "sm86",
    "sm89",
    "sm90",
    "sm100",
    "sm103",
    "sm110",
    "sm120",
    "sm121",
    "gfx90a",
    "gfx942",
    "gfx950",
    "gfx1100",
    "gfx1201",
    "cpu-x86_64",
    "cpu-amx",
]


def rows(arch, vllm=NEW):
    """Situation → row, for a device of that architecture."""
    vendor = Vendor.NVIDIA if arch.startswith("sm") else Vendor.AMD if arch.startswith("gfx") else Vendor.CPU
    device = Gpu("device", vendor, arch, 80 * GIB, 3e12, 900.0)
    return {row.situation: row for row in matrix(device, vllm)}


@pytest.mark.parametrize("vllm", [OLD, NEW], ids=lambda s: s.version)
@pytest.mark.parametrize("arch", ARCHS)
def test_every_device_and_version_has_every_situation(arch, vllm):
    """Eight situations, each with an answer and a source."""
    found = rows(arch, vllm)
    assert len(found) == 8
    assert all(row.quantization and row.why and row.source for row in found.values())


def test_accuracy_first_is_sixteen_bits_everywhere():
    """No device makes us trade accuracy where accuracy was asked for."""
    assert {rows(arch)["accuracy first"].quantization for arch in ARCHS} == {"BF16", "FP16 (the device has no BF16)"}


@pytest.mark.parametrize(
    ("arch", "expected"),
    [("sm80", "INT8 (W8A8)"), ("sm90", "FP8"), ("sm100", "NVFP4"), ("gfx942", "FP8"), ("gfx950", "MXFP4")],
)
def test_throughput_takes_what_the_device_multiplies_fastest(arch, expected):
    """The format whose unit is the fastest, when the weights are dense."""
    assert rows(arch)["throughput"].quantization.startswith(expected)


def test_four_bits_are_not_for_code_and_maths():
    """Whatever the device could multiply faster."""
    for arch in ARCHS:
        assert not re.match("INT4|NVFP4|MXFP4", rows(arch)["code and maths"].quantization)


def test_retrieval_keeps_the_cache_in_sixteen_bits():
    """And long chat does not, where the device computes in FP8."""
    assert rows("sm90")["retrieval in a long context"].kv_cache.startswith("16 bits")
    assert rows("sm90")["long context (> 64k)"].kv_cache == "fp8 (e4m3) through FLASH_ATTN"


def test_versions_differ_where_their_kernels_do():
    """Online mxfp4 layers on MI355X exist in 0.33 only."""
    assert rows("gfx950", OLD)["throughput"].quantization.startswith("FP8 per channel")
    assert rows("gfx950", NEW)["throughput"].quantization == "MXFP4 checkpoint"


def test_an_old_device_is_told_so():
    """One row, with the source."""
    found = rows("sm70")
    assert list(found) == ["any"]
    assert "compute capability 7.5" in found["any"].why


def test_the_seed_has_its_six_rows_in_its_order():
    """None is left out because it is inconvenient."""
    starts = ["H100 or A100", "H100 SXM", "Blackwell", "AMD MI300X", "long context", "sensitive"]
    assert [row.situation[: len(start)] for row, start in zip(SEED_ROWS, starts, strict=True)] == starts


@pytest.mark.parametrize("row", SEED_ROWS, ids=lambda r: r.situation)
def test_every_row_has_a_verdict_a_reason_and_a_source_for_both_versions(row):
    """An answer without a ground would be an opinion against an opinion."""
    for vllm in (OLD, NEW):
        answer = row.answer(vllm)
        assert answer.verdict in ("agree", "agree in part", "differ")
        assert answer.advice
        assert answer.why
        assert answer.source


def test_the_versions_get_their_own_answer():
    """0.24 has no online mxfp4, 0.33 has."""
    blackwell = SEED_ROWS[2]
    assert blackwell.answer(OLD).verdict == "differ"
    assert blackwell.answer(NEW).verdict == "agree in part"


def test_all_that_the_seed_claims_is_answered():
    """Its comparison, its three pitfalls, both commands and its limits."""
    topics = {claim.topic for claim in SEED_CLAIMS}
    wanted = (
        "memory comparison|pitfall 1|pitfall 2|pitfall 3|MiniMax-M3 command 1|MiniMax-M3 command 2|limits: hardware"
    )
    wanted += "|limits: retrieval|limits: rare experts|format|cache size"
    assert all(any(topic.startswith(start) for topic in topics) for start in wanted.split("|"))


def test_rules_that_answers_name_exist():
    """A rule id in an answer is one of the table."""
    texts = [a.source for row in SEED_ROWS for a in (row.old, row.new)] + [c.source for c in SEED_CLAIMS]
    named = {i for text in texts for i in re.findall(r"[A-Z]{2,3}-\d\d", text)}
    assert named <= {rule.id for rule in RULES}
    assert len(named) > 15


def test_what_the_answers_say_of_kernels_is_what_the_tables_say():
    """The seed's row for long contexts, for A100 and for emulation, against our own tables."""
    assert backends.attention(NEW, "sm90", GQA, "fp8")[0] == "FLASH_ATTN"
    assert backends.attention(NEW, "sm90", GQA, "fp8_e5m2")[0] == "FLASHINFER"
    assert backends.arithmetic(NEW, "sm80", "fp8_channel", moe=False) == (16, False, False, "MarlinFP8")
    assert backends.arithmetic(OLD, "sm80", "mxfp4", moe=True) == (16, False, False, "MARLIN")
    assert backends.arithmetic(NEW, "sm90", "mxfp4", moe=True).emulated is False
    assert "mxfp4" not in OLD.online_quantizations
    assert "mxfp4" in NEW.online_quantizations


@pytest.mark.parametrize("vllm", [OLD, NEW], ids=lambda s: s.version)
def test_what_the_answers_say_of_variables_and_flags_is_what_the_versions_have(vllm):
    """The dead variable, the default one, the real switch, and the flag that left."""
    assert not vllm.has_env("VLLM_USE_TRITON_FLASH_ATTN")
    assert vllm.env["VLLM_ROCM_FP8_PADDING"].default
    assert vllm.has_env("VLLM_ROCM_USE_AITER")
    assert vllm.has_flag("--calculate-kv-scales") is (vllm is OLD)


@pytest.mark.parametrize("name", ["rules", "seed"])
def test_documents_are_in_sync(name):
    """docs/ holds what the tables say now: `python -m vllm_advisor.rules.document docs` writes it."""
    assert getattr(document, name)() == (DOCS / f"{name}.md").read_text(encoding="utf-8")


def test_documents_name_every_rule_and_row():
    """Nothing falls out between the table and the page."""
    assert all(f"| {rule.id} |" in document.rules() for rule in RULES)
    assert all(f"### {row.situation}" in document.seed() for row in SEED_ROWS)
