"""The defaults that a server or `LLM()` takes, by version and card (engine/arg_utils.py get_batch_defaults)."""

from __future__ import annotations

import pytest

from vllm_advisor.hardware import Gpu, Node, Vendor
from vllm_advisor.units import GIB
from vllm_advisor.vllm.defaults import serve_defaults
from vllm_advisor.vllm.surface import load


# Name as the driver gives it, vendor, architecture, GiB as the driver gives them (rounded).
CARDS = {
    "H100": ("NVIDIA H100 80GB HBM3", Vendor.NVIDIA, "sm90", 79.6),
    "H200": ("NVIDIA H200", Vendor.NVIDIA, "sm90", 139.8),
    "A100-80": ("NVIDIA A100-SXM4-80GB", Vendor.NVIDIA, "sm80", 79.3),
    "B200": ("NVIDIA B200", Vendor.NVIDIA, "sm100", 178.4),
    "GB10": ("NVIDIA GB10", Vendor.NVIDIA, "sm121", 119.7),
    "L4": ("NVIDIA L4", Vendor.NVIDIA, "sm89", 22.0),
    "L40S": ("NVIDIA L40S", Vendor.NVIDIA, "sm89", 44.4),
    "RTX PRO 6000": ("NVIDIA RTX PRO 6000 Blackwell", Vendor.NVIDIA, "sm120", 94.9),
    "MI300X": ("AMD Instinct MI300X", Vendor.AMD, "gfx942", 191.7),
    "MI250": ("AMD Instinct MI250X", Vendor.AMD, "gfx90a", 64.0),
    "MI300X CPX": ("AMD Instinct MI300X", Vendor.AMD, "gfx942", 23.9),
}


def node(card, count=1):
    name, vendor, arch, gib = CARDS[card]
    return Node((Gpu(name, vendor, arch, int(gib * GIB), 1e12, 100.0),) * count)


CPU = Node((Gpu("EPYC", Vendor.CPU, "cpu-x86_64", 900 * GIB, 2e11, 2.0),))


@pytest.mark.parametrize(
    ("card", "v24", "v32", "v33"),
    [
        ("H100", (8192, 1024), (8192, 1024), (8192, 1024)),
        ("H200", (8192, 1024), (8192, 1024), (8192, 1024)),
        ("A100-80", (2048, 256), (2048, 256), (2048, 256)),
        ("B200", (8192, 1024), (16384, 1024), (16384, 1024)),
        ("GB10", (8192, 1024), (8192, 1024), (2048, 256)),
        ("L4", (2048, 256), (2048, 256), (2048, 256)),
        ("L40S", (2048, 256), (2048, 256), (2048, 256)),
        ("RTX PRO 6000", (8192, 1024), (8192, 1024), (8192, 1024)),
        ("MI300X", (8192, 1024), (16384, 1024), (16384, 1024)),
        ("MI250", (2048, 256), (2048, 256), (2048, 256)),
        ("MI300X CPX", (2048, 256), (2048, 256), (2048, 256)),
    ],
)
def test_a_server_by_card_and_version(card, v24, v32, v33):
    """Memory, the name A100 and, since 0.33, GB10 decide the batch; from 160 GiB on it is larger since 0.32."""
    found = tuple(serve_defaults(load(v), node(card))[:2] for v in ("0.24.0", "0.32.0", "0.33.0"))
    assert (v24, v32, v33) == found


@pytest.mark.parametrize(
    ("card", "expected"),
    [("H100", (16384, 1024)), ("B200", (16384, 1024)), ("L40S", (8192, 256)), ("A100-80", (8192, 256))],
)
@pytest.mark.parametrize("version", ["0.24.0", "0.33.0"])
def test_llm_in_python_has_its_own(version, card, expected):
    """`LLM()` batches more tokens than a server on the same card."""
    assert expected == serve_defaults(load(version), node(card), offline_llm=True)[:2]


@pytest.mark.parametrize(("ranks", "served", "offline"), [(1, (2048, 128), (4096, 256)), (2, (4096, 256), (8192, 512))])
@pytest.mark.parametrize("version", ["0.24.0", "0.32.0", "0.33.0"])
def test_a_cpu_grows_with_its_ranks(version, ranks, served, offline):
    """On a CPU both limits are multiplied by TP × PP, however much memory there is."""
    surface = load(version)
    assert served == serve_defaults(surface, CPU, world_size=ranks)[:2]
    assert offline == serve_defaults(surface, CPU, world_size=ranks, offline_llm=True)[:2]


def test_ranks_do_not_matter_on_a_gpu():
    """Only a CPU's defaults depend on the world size."""
    surface = load("0.33.0")
    assert serve_defaults(surface, node("H100", 8)) == serve_defaults(surface, node("H100", 8), world_size=8)


def test_throughput_mode_doubles_both():
    """`--performance-mode throughput` doubles tokens and sequences, the other modes neither."""
    surface = load("0.33.0")
    assert (16384, 2048) == serve_defaults(surface, node("H100"), performance_mode="throughput")[:2]
    assert (8192, 1024) == serve_defaults(surface, node("H100"), performance_mode="interactivity")[:2]


def test_the_card_with_the_least_memory_decides():
    """On a mixed machine the smallest card is the one that limits."""
    mixed = Node((*node("H100").gpus, *node("L4").gpus))
    assert (2048, 256) == serve_defaults(load("0.33.0"), mixed)[:2]


@pytest.mark.parametrize("version", ["0.24.0", "0.32.0", "0.33.0"])
def test_utilization_and_block_size(version):
    """0.92 of the memory and blocks of 16 tokens, 128 on a CPU; the utilization is the flag's own default."""
    surface = load(version)
    assert (0.92, 16) == serve_defaults(surface, node("H100"))[2:4]
    assert 128 == serve_defaults(surface, CPU).block_size
    assert surface.flags["--gpu-memory-utilization"].default == serve_defaults(surface, CPU).gpu_memory_utilization
