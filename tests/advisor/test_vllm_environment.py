"""The variables that are set, and those that only the host's owner can decide on."""

from __future__ import annotations

import pytest

from vllm_advisor.hardware import Gpu, Link, Node, Topology, Vendor
from vllm_advisor.model import ModelSpec, WeightGroup
from vllm_advisor.plan import Plan
from vllm_advisor.units import GIB
from vllm_advisor.vllm.environment import environment, notes
from vllm_advisor.vllm.images import image, verified
from vllm_advisor.vllm.surface import load, versions


VERSIONS = versions()
NVIDIA, AMD, CPU = Vendor.NVIDIA, Vendor.AMD, Vendor.CPU
CARDS = [
    ("NVIDIA H100 80GB HBM3", NVIDIA, "sm90"), ("NVIDIA B200", NVIDIA, "sm100"), ("NVIDIA L4", NVIDIA, "sm89"),
    ("AMD Instinct MI300X", AMD, "gfx942"), ("AMD Instinct MI355X", AMD, "gfx950"), ("AMD MI250X", AMD, "gfx90a"),
    ("AMD Radeon RX 9070", AMD, "gfx1201"), ("EPYC", CPU, "cpu-x86_64"), ("Grace", CPU, "cpu-aarch64"),
]  # fmt: skip


def node(name, vendor, arch, count=1, links=()):
    return Node((Gpu(name, vendor, arch, 80 * GIB, 1e12, 100.0),) * count, Topology(links))


def model(gib=16.0):
    weights = (WeightGroup("mlp", int(gib * GIB / 2), int(gib * GIB), "column"),)
    return ModelSpec("a/b", "LlamaForCausalLM", "llama", "bfloat16", 4096, 32, 128256, 131072, 32, 8, (), weights)


PLAN = Plan("a/b", tensor_parallel_size=2)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("arch", "expected"), [("gfx942", True), ("gfx950", True), ("gfx90a", False), ("gfx1201", False)]
)
def test_aiter_is_switched_on_where_it_has_kernels(version, arch, expected):
    """CDNA3 and CDNA4 get AITER, which is off by default; CDNA2 and RDNA have none to switch on."""
    found = environment(PLAN, model(), node("AMD", AMD, arch), load(version))
    assert ((("VLLM_ROCM_USE_AITER", "1"),) if expected else ()) == tuple((s.name, s.value) for s in found)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("card", CARDS, ids=lambda c: c[2])
def test_what_is_set_exists_and_restates_nothing(version, card):
    """Every variable is registered by that version, differs from its default, and says why and where."""
    surface = load(version)
    for setting in environment(PLAN, model(), node(*card), surface):
        assert setting.name in surface.env
        assert str(int(surface.env[setting.name].default)) != setting.value
        assert "" not in (setting.why, setting.source)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("card", [c for c in CARDS if c[1] is not AMD], ids=lambda c: c[2])
def test_other_vendors_need_nothing(version, card):
    """vLLM's defaults are right on NVIDIA cards and CPUs."""
    assert () == environment(PLAN, model(), node(*card), load(version))


def names(found):
    return [n.name for n in found]


@pytest.mark.parametrize(("arch", "expected"), [("sm100", True), ("sm103", True), ("sm90", False), ("sm120", False)])
def test_flashinfer_on_a_host_without_internet(arch, expected):
    """TRT-LLM attention, which SM100 has, is lost where NVIDIA's server cannot be reached: a note, not a setting."""
    found = notes(PLAN, model(), node("NVIDIA", NVIDIA, arch), load("0.33.0"))
    assert expected == ("VLLM_HAS_FLASHINFER_CUBIN" in names(found))


def test_geforce_cards_have_no_peer_access():
    """Two GeForce cards over PCIe get the NCCL note; one card, linked cards and data-centre cards do not."""
    surface, card = load("0.33.0"), ("NVIDIA GeForce RTX 4090", NVIDIA, "sm89")
    assert ["NCCL_P2P_DISABLE"] == names(notes(PLAN, model(), node(*card, 2), surface))
    assert [] == names(notes(Plan("a/b"), model(), node(*card, 2), surface))
    assert [] == names(notes(PLAN, model(), node(*card, 2, (Link(0, 1, "nvlink", 50.0),)), surface))
    assert [] == names(notes(PLAN, model(), node("NVIDIA L40S", NVIDIA, "sm89", 2), surface))


@pytest.mark.parametrize(("gib", "expected"), [(16.0, []), (199.0, []), (640.0, ["VLLM_ENGINE_READY_TIMEOUT_S"])])
def test_large_weights_may_outlast_the_timeout(gib, expected):
    """From 200 GiB of weights on, ten minutes may not be enough to load them."""
    assert expected == names(notes(PLAN, model(gib), node("NVIDIA H100", NVIDIA, "sm90"), load("0.24.0")))


@pytest.mark.parametrize(
    ("card", "repository"),
    [(CARDS[0], "vllm/vllm-openai"), (CARDS[3], "vllm/vllm-openai-rocm"), (CARDS[7], "vllm/vllm-openai-cpu")],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_image_is_pinned_to_version_and_vendor(version, card, repository):
    """One repository a vendor, the version as its tag."""
    assert f"{repository}:v{version}" == image(load(version), node(*card))


def test_an_image_that_was_not_seen_is_said_to_be_unverified():
    """Only tags that a public source shows are called verified."""
    assert verified("vllm/vllm-openai-rocm:v0.24.0")
    assert not verified("vllm/vllm-openai:v0.33.0")
