"""What changed between two versions is what is known of them, each in its group; the page says all of it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from vllm_advisor.vllm.changes_behaviour import BEHAVIOURS
from vllm_advisor.vllm.diff import Difference, diff
from vllm_advisor.vllm.surface import load, release_of, versions
from vllm_advisor.vllm.versions_page import page


DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def whole():
    return diff(load("0.24.0"), load("0.33.0"))


def of(rows, group, kind=None):
    return {r.name: r for r in rows if r.group == group and kind in (None, r.kind)}


@pytest.mark.parametrize("version", versions())
def test_a_version_does_not_differ_from_itself(version):
    """No rows at all."""
    assert () == diff(load(version), load(version))


def test_the_same_versions_give_the_same_rows(whole):
    """No order of a set or of a hash shows."""
    assert whole == diff(load("0.24.0"), load("0.33.0"))


def test_flags_that_went_and_came(whole):
    """Four went, each with what is known of it; 58 came with their defaults."""
    gone, came = of(whole, "flags", "removed"), of(whole, "flags", "added")
    assert {
        "--calculate-kv-scales", "--max-num-partial-prefills", "--max-long-partial-prefills",
        "--override-attention-dtype",
    } == set(gone)  # fmt: skip
    assert "fp8_per_token_head" in gone["--calculate-kv-scales"].note
    assert (58, 16) == (len(came), came["--dp-sync-interval"].after)


def test_a_flag_that_was_renamed():
    """A release's only rename: the note says the successor."""
    rows = of(diff(load("0.30.0"), load("0.31.0")), "flags")
    found = rows["--enable-mamba-fine-grained-prefix-cache"]
    assert ("renamed", "--enable-mamba-shared-prefix-checkpoint") == (found.kind, found.after)


def test_choices_that_changed(whole):
    """Lost and new values of a flag, and a flag whose parser stopped checking."""
    rows = of(whole, "choices")
    assert (["all"], []) == (rows["--mamba-cache-mode"].before, rows["--mamba-cache-mode"].after)
    assert ([], ["moonep"]) == (rows["--all2all-backend"].before, rows["--all2all-backend"].after)
    assert "any value passes the parser now" == rows["--kv-cache-dtype"].note


def test_defaults_of_flags_variables_and_cards(whole):
    """Browsers' origins, AITER's products, and the tier of 160 GiB."""
    assert (["*"], []) == (
        of(whole, "defaults")["--allowed-origins"].before, of(whole, "defaults")["--allowed-origins"].after,
    )  # fmt: skip
    assert Difference("environment", "changed", "VLLM_ROCM_USE_AITER_FP8BMM", True, False, "default") in whole
    tier = of(whole, "defaults by card")["device_memory >= 160 * GiB_bytes"]
    assert ("added", 16384) == (tier.kind, tier.after["tokens"]["server"])


def test_variables_that_went_and_were_renamed(whole):
    """Six of the 21 that went have a successor."""
    renamed, gone = of(whole, "environment", "renamed"), of(whole, "environment", "removed")
    assert 21 == len(renamed) + len(gone)
    assert "VLLM_TRITON_USE_TD=VALUE" == renamed["VLLM_TRITON_ATTN_USE_TD"].after
    assert "--prefix-cache-retention-interval VALUE" == renamed["VLLM_PREFIX_CACHE_RETENTION_INTERVAL"].after


@pytest.mark.parametrize(
    ("group", "kind", "name"),
    [
        ("quantization methods", "removed", "bitsandbytes"),
        ("online quantizations", "added", "mxfp4"),
        ("quantizations allowed on rocm", "removed", "gptq_marlin"),
        ("KV-cache dtypes", "added", "nvfp4_ds_mla"),
        ("attention backends", "added", "ROCM_SEGMENTED_ATTN"),
        ("MoE backends", "added", "rdna3"),
        ("linear backends", "added", "humming"),
        ("architectures", "removed", "GritLM"),
        ("architectures", "added", "KimiK3ForConditionalGeneration"),
        ("metrics", "added", "vllm:admission_rejections"),
        ("deprecations", "added", "--mamba-cache-mode"),
        ("log lines", "changed", "kv_size"),
    ],
)
def test_a_row_of_each_group(whole, group, kind, name):
    """Every group of a surface is compared."""
    assert kind == of(whole, group)[name].kind


def test_a_method_that_says_otherwise():
    """ModelOpt's FP8 takes cards from 8.0 on since 0.27."""
    rows = diff(load("0.26.0"), load("0.27.1"))
    assert Difference("quantization methods", "changed", "modelopt", 89, 80, "min_capability") in rows


def test_going_back_is_the_same_change_the_other_way_round(whole):
    """What was added is removed, and the reverse, group by group of plain names."""
    back = diff(load("0.33.0"), load("0.24.0"))
    for group in ("KV-cache dtypes", "metrics", "architectures"):
        assert set(of(whole, group, "added")) == set(of(back, group, "removed"))
        assert set(of(whole, group, "removed")) == set(of(back, group, "added"))


def test_the_committed_page_is_what_the_generator_makes():
    """docs/vllm-versions.md is never edited by hand."""
    assert page() == (DOCS / "vllm-versions.md").read_text("utf-8")


def test_the_page_has_a_section_for_each_step():
    """Neighbouring versions, oldest first."""
    text = page()
    known = versions()
    places = [text.index(f"## {a} → {b}") for a, b in pairwise(known)]
    assert sorted(places) == places


def test_behaviours_are_dated_inside_the_versions_that_we_know():
    """Ids are unique, in the order of their releases, each with a source."""
    assert len(BEHAVIOURS) == len({b.id for b in BEHAVIOURS})
    assert sorted(b.release for b in BEHAVIOURS) == [b.release for b in BEHAVIOURS]
    oldest, newest = release_of(versions()[0]), release_of(versions()[-1])
    assert [] == [b.id for b in BEHAVIOURS if not oldest < b.release <= newest or not b.source]
