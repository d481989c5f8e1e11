"""The defaults that a server or `LLM()` takes, by version and card (engine/arg_utils.py get_batch_defaults)."""

from __future__ import annotations

import pytest

from vllm_advisor.hardware import Gpu, Node, Vendor
from vllm_advisor.units import GIB
from vllm_advisor.vllm.defaults import Prompts, serve_defaults
from vllm_advisor.vllm.history import era_of, surface_for
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
    """Memory, the name A100 and, since 0.33, GB10 decide the batch; from 160 GiB on it is larger since 0.28."""
    found = tuple(serve_defaults(load(v), node(card))[:2] for v in ("0.24.0", "0.32.0", "0.33.0"))
    assert (v24, v32, v33) == found


@pytest.mark.parametrize(
    ("version", "h100", "a100", "b200", "l40s"),
    [
        # by name, 1024 sequences everywhere (0.8.3 engine/arg_utils.py _set_default_args_v1)
        ("0.8.0", (8192, 1024), (2048, 1024), (2048, 1024), (2048, 1024)),
        ("0.8.3", (8192, 1024), (2048, 1024), (2048, 1024), (2048, 1024)),
        # by name, 256 sequences on other cards (0.8.4)
        ("0.8.4", (8192, 1024), (2048, 256), (2048, 256), (2048, 256)),
        # by memory, A100 too (0.8.5), then without it (0.9.0)
        ("0.8.5", (8192, 1024), (8192, 1024), (8192, 1024), (2048, 256)),
        ("0.9.0", (8192, 1024), (2048, 256), (8192, 1024), (2048, 256)),
        ("0.20.0", (8192, 1024), (2048, 256), (8192, 1024), (2048, 256)),
        ("0.27.1", (8192, 1024), (2048, 256), (8192, 1024), (2048, 256)),
        # a tier of its own from 160 GiB on (0.28.0)
        ("0.28.0", (8192, 1024), (2048, 256), (16384, 1024), (2048, 256)),
        ("0.31.0", (8192, 1024), (2048, 256), (16384, 1024), (2048, 256)),
    ],
)
def test_a_server_on_v1_in_versions_without_a_surface(version, h100, a100, b200, l40s):
    """What decided the batch moved from the card's name to its memory between 0.8.0 and 0.9.0."""
    surface = surface_for(version)
    found = tuple(serve_defaults(surface, node(card))[:2] for card in ("H100", "A100-80", "B200", "L40S"))
    assert (h100, a100, b200, l40s) == found


@pytest.mark.parametrize(
    ("version", "prompts", "expected"),
    [
        # 256 sequences and a batch for one whole prompt
        ("0.5.0", Prompts(4096), (4096, 256)),
        ("0.5.0", Prompts(1024), (2048, 256)),
        ("0.5.2", Prompts(131072), (131072, 256)),
        # chunks from 32K on
        ("0.5.5", Prompts(32768), (32768, 256)),
        ("0.5.5", Prompts(32769), (512, 256)),
        ("0.6.3", Prompts(131072), (512, 256)),
        ("0.6.5", Prompts(131072), (2048, 256)),
        ("0.7.3", Prompts(131072, windowed=True), (131072, 256)),
        ("0.7.3", Prompts(131072, adapted=True), (131072, 256)),
        # a floor for images, and no chunks
        ("0.6.0", Prompts(2048, multimodal=True), (4096, 256)),
        ("0.6.3", Prompts(4096, multimodal=True), (5120, 256)),
        ("0.6.3", Prompts(65536, multimodal=True), (65536, 256)),
        # MLA was sized for chunks until 0.7.3
        ("0.7.3", Prompts(65536, latent=True), (2048, 256)),
    ],
)
def test_v0_sizes_the_batch_by_the_prompt(version, prompts, expected):
    """Before 0.8 the longest prompt decides, unless V0 turns chunked prefill on by itself."""
    assert expected == serve_defaults(surface_for(version), node("H100"), prompts=prompts)[:2]


def test_what_fell_back_to_v0_has_its_defaults():
    """0.8.5 takes V0 for GGUF and for AMD cards; there it chunks on NVIDIA only."""
    surface, long = surface_for("0.8.5"), Prompts(131072)
    gguf = era_of((0, 8, 5), node("H100").gpu, quantization="gguf")
    assert (2048, 256, 0.9, 16, False, True) == serve_defaults(surface, node("H100"), prompts=long, era=gguf)
    assert (131072, 256, 0.9, 16, False, False) == serve_defaults(surface, node("MI300X"), prompts=long)
    assert (65536, 256) == serve_defaults(surface, node("H100"), prompts=Prompts(65536, latent=True), era=gguf)[:2]


def test_prompts_do_not_matter_to_v1():
    """V1 chunks every prompt, so that the batch is the card's."""
    surface = surface_for("0.12.0")
    assert serve_defaults(surface, node("H100")) == serve_defaults(surface, node("H100"), prompts=Prompts(131072, True))


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.6.3", (4096, 256, 0.9, 16, False, False)), ("0.9.1", (4096, 256, 0.9, 16, False, False)),
     ("0.9.2", (2048, 128, 0.9, 128, True, True)), ("0.20.0", (2048, 128, 0.92, 128, True, True))],
)  # fmt: skip
def test_a_cpu_took_v0_until_0_9_1(version, expected):
    """The rule by ranks came with V1 on CPUs."""
    assert expected == serve_defaults(surface_for(version), CPU, prompts=Prompts(4096))


@pytest.mark.parametrize(("version", "utilization"), [("0.7.3", 0.9), ("0.19.1", 0.9), ("0.20.0", 0.92)])
def test_the_utilization_by_version(version, utilization):
    """0.9 until 0.19.1, 0.92 from 0.20.0 on."""
    assert utilization == serve_defaults(surface_for(version), node("H100")).gpu_memory_utilization


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
