"""The space that is searched: which cache formats stand beside the default."""

from __future__ import annotations

import pytest

from vllm_advisor.candidates import Restrictions, candidates
from vllm_advisor.catalog import gpus, models
from vllm_advisor.facts import Facts
from vllm_advisor.recommend import recommend
from vllm_advisor.vllm import surface
from vllm_advisor.workload import Workload


def facts(gpu, name, version="0.33.0"):
    """One device and a model of the catalog."""
    return Facts(gpus.node(gpu), models.find(name), Workload(), surface.load(version))


def cache_dtypes(asked):
    """The cache formats of all candidates, in order of first sight."""
    found = candidates(asked, (asked.model,), Restrictions())
    return tuple(dict.fromkeys(plan.kv_cache_dtype for plan, _ in found))


@pytest.mark.parametrize(
    ("gpu", "name", "expected"),
    [
        ("A100 80GB SXM", "nvidia/Gemma-4-26B-A4B-NVFP4", ("auto", "fp8", "bfloat16")),
        ("H100 SXM", "nvidia/Gemma-4-26B-A4B-NVFP4", ("auto", "fp8")),
        ("A100 80GB SXM", "google/gemma-4-26B-A4B-it", ("auto", "fp8")),
    ],
)
def test_16_bits_stand_beside_a_cache_that_the_checkpoint_wants_and_the_device_has_no_unit_for(gpu, name, expected):
    """`auto` follows the checkpoint: without FP8 units the model's own dtype is worth a look as well."""
    assert expected == cache_dtypes(facts(gpu, name))


@pytest.mark.parametrize("version", ["0.24.0", "0.28.0", "0.33.0"])
def test_a_checkpoint_with_an_fp8_cache_and_image_attention_is_served_in_16_bits_on_ampere(version):
    """Triton alone takes such attention there, and it refuses FP8: the command says so."""
    best = recommend(facts("A100 80GB SXM", "nvidia/Gemma-4-26B-A4B-NVFP4", version), (), Restrictions()).plans[0]
    argv = best.command.argv
    assert "bfloat16" == argv[argv.index("--kv-cache-dtype") + 1]
