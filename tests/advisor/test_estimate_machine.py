"""What reports call their hardware, and which device of the catalog is meant."""

from __future__ import annotations

import pytest

from vllm_advisor.errors import UnknownGpu
from vllm_advisor.estimate.machine import machine
from vllm_advisor.units import GIB


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("H100-80GB", "NVIDIA H100 SXM"),
        ("A100-80", "NVIDIA A100 80GB SXM"),
        ("AMD Radeon AI PRO R9700 (gfx1201, 32GB)", "AMD Radeon AI PRO R9700"),
        ("MI355X (gfx950, 288 GiB/card as stated)", "AMD Instinct MI355X"),
        ("gfx950 (MI350X/MI355X)", "AMD Instinct MI350X"),
        ("Blackwell sm_121 (GB10)", "NVIDIA GB10"),
        ("GB10 (DGX Spark class)", "NVIDIA GB10"),
        ("L40S (host name says l40s)", "NVIDIA L40S"),
        ("H200 (recipe)", "NVIDIA H200 SXM"),
    ],
)
def test_asides_and_architectures_name_one_device(name, expected):
    """Parentheses are dropped, or read where the name before them is only an architecture."""
    assert expected == machine(name, 1, None).node.gpu.name


@pytest.mark.parametrize("name", ["Hopper (H100/H200 not stated)", "A100 (size not stated)"])
def test_a_name_that_leaves_the_memory_open_is_not_guessed(name):
    """Where the candidates differ in memory the answer names them."""
    with pytest.raises(UnknownGpu, match="could be"):
        machine(name, 1, None)


def test_the_memory_that_was_printed_settles_an_open_name():
    """With 39.38 GiB stated, the size that the name leaves open no longer matters."""
    found = machine("A100 (size not stated)", 1, int(39.38 * GIB))

    assert int(39.38 * GIB) == found.node.gpu.memory_bytes


def test_a_mixed_pair_is_limited_by_the_smaller():
    """RTX 5080 and RTX 5070 Ti: two devices, the smaller one's memory."""
    node = machine("RTX 5080 + RTX 5070 Ti", 2, None).node

    assert ["NVIDIA RTX 5080", "NVIDIA RTX 5070 Ti"] == [gpu.name for gpu in node.gpus]
    assert min(gpu.memory_bytes for gpu in node.gpus) == node.gpu.memory_bytes


def test_a_cloud_machine_has_its_own_number_of_devices():
    """NC80adis is two H100 NVL."""
    assert "2xNVIDIA H100 NVL" == machine("Azure Standard_NC80adis_H100_v5", 0, None).node.label


def test_a_processor_takes_the_memory_that_is_given():
    """`CPU backend` with 16 GiB."""
    assert 16 * GIB == machine("CPU backend", 0, 16 * GIB).node.gpu.memory_bytes


def test_other_makers_are_refused():
    """A TPU is no device of ours."""
    with pytest.raises(UnknownGpu, match="TPU"):
        machine("TPU v5e", 1, None)


def test_what_a_short_name_is_taken_for_is_said():
    """H100 alone is the SXM one, and the answer says so; a full name needs no words."""
    assert ("H100: taken as NVIDIA H100 SXM",) == machine("H100", 1, None).assumed
    assert () == machine("NVIDIA L4", 1, None).assumed
