"""Which machine is taken, and how it reads."""

from dataclasses import replace

import pytest

from vllm_advisor import testing
from vllm_advisor.catalog import gpus
from vllm_advisor.hardware import Host, Link, Node, Topology, Unknown, Vendor
from vllm_advisor.probe import amdsmi, detect, host, nvml
from vllm_advisor.units import GIB


NO_NVIDIA = Unknown("no driver is loaded")
NO_AMD = Unknown("the Python package amdsmi is not installed")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A machine of two NUMA nodes stands for the one that the tests run on."""
    root = testing.write_tree(tmp_path, testing.machine_files())
    for name in ("read", "cpu_gpu", "cpu_warnings", "system_memory_bytes"):
        real = getattr(host, name)
        monkeypatch.setattr(host, name, lambda real=real: real(root))
    real_available = detect.available_bytes
    monkeypatch.setattr(detect, "available_bytes", lambda: real_available(root))
    return root


@pytest.fixture
def answers(monkeypatch, tree):  # noqa: ARG001  # the tree is used through its patches
    """What the two vendor libraries say, and what NVIDIA's was told of the host's memory (all, and available)."""
    told = []

    def say(nvidia, amd):
        monkeypatch.setattr(nvml, "probe", lambda *memory: (told.append(memory), nvidia)[1])
        monkeypatch.setattr(amdsmi, "probe", lambda: amd)
        return told

    return say


def row(node, label):
    return dict(detect.describe(node))[label]


def test_nvidia_devices_are_taken(answers):
    """Devices, links, versions and warnings of the reading, with the host around them."""
    reading = testing.reading("2xL40S", "GPU 0: throttled")
    told = answers(reading, NO_AMD)
    found = detect.detect()

    assert (reading.gpus, reading.topology, "580.95", "CUDA 13.0") == (
        found.gpus, found.topology, found.driver, found.runtime,
    )  # fmt: skip
    assert ("probe", ("GPU 0: throttled",), 4) == (found.origin, found.warnings, found.host.cores)
    assert [(128 * GIB, 64 * GIB)] == told


def test_no_available_memory_is_no_number(tmp_path):
    """A kernel without the line, or no /proc at all, gives no figure."""
    root = testing.write_tree(tmp_path, {"proc/meminfo": "MemTotal: 8 kB\nMemFree: 4 kB\n"})

    assert Unknown("/proc/meminfo has no MemAvailable") == detect.available_bytes(root)
    assert Unknown("/proc/meminfo has no MemAvailable") == detect.available_bytes(tmp_path / "none")


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Linux version 6.8.0-45-generic (buildd@lcy02-amd64-075) (gcc 13.2.0) #45-Ubuntu SMP", "6.8.0-45"),
        ("Linux version 5.14.0-alices-desk (alice@desk)", "5.14.0"),
        ("580.95.05", "580.95.05"),
        ("550.54.15 for alice@desk", "550.54.15"),
        ("6.14.14", "6.14.14"),
        ("20250612", "20250612"),
        ("v7", "v7"),
        ("", ""),
        ("alice@desk", ""),
        ("built by alice", ""),
    ],
)
def test_of_a_driver_only_the_version_is_kept(answers, said, kept):
    """A driver that answers with /proc/version names who built the kernel, and where."""
    answers(NO_NVIDIA, testing.reading("8xMI300X")._replace(driver=said))

    assert kept == detect.detect().driver


def test_amd_devices_are_taken_where_nvidia_has_none(answers):
    """No warning of the vendor that is not there."""
    answers(NO_NVIDIA, testing.reading("8xMI300X"))
    found = detect.detect()

    assert (8, Vendor.AMD, ()) == (len(found.gpus), found.gpu.vendor, found.warnings)


def test_of_both_vendors_nvidia_is_taken(answers):
    """What is left out is said first, with number and name."""
    answers(testing.reading("2xL40S", "second"), testing.reading("2xMI210"))
    found = detect.detect()

    assert Vendor.NVIDIA == found.gpu.vendor
    assert "AMD devices are left out (2: AMD Instinct MI210)" in found.warnings[0]
    assert "second" == found.warnings[1]


def test_without_a_gpu_it_is_the_processor_and_says_why(answers):
    """Each vendor's reason stands in the first warning; nobody takes the plan for a GPU's."""
    answers(NO_NVIDIA, NO_AMD)
    found = detect.detect()

    assert ("cpu-avx512", "probe", 64 * GIB) == (found.gpu.arch, found.origin, found.gpu.memory_bytes)
    assert found.warnings[0].startswith("no GPU was found")
    assert NO_NVIDIA.why in found.warnings[0]
    assert NO_AMD.why in found.warnings[0]


def test_the_processor_on_request_asks_no_vendor(tree, monkeypatch):  # noqa: ARG001  # the tree as above
    """`--gpu cpu` needs no driver and warns of no missing GPU."""
    monkeypatch.setattr(nvml, "probe", None)
    monkeypatch.setattr(amdsmi, "probe", None)
    found = detect.cpu_node()

    assert (1, Vendor.CPU) == (len(found.gpus), found.gpu.vendor)
    assert not any("no GPU" in line for line in found.warnings)


def test_this_machine_is_some_machine():
    """The real thing, wherever the tests run: devices, a host, an origin."""
    found = detect.detect()

    assert found.gpus
    assert "probe" == found.origin
    assert found.gpu.memory_bytes > 0


def test_the_label_says_where_it_comes_from():
    """A reader sees whether anything was read."""
    assert "8xNVIDIA H100 SXM (from the catalog, nothing was read)" == row(gpus.node("8xH100"), "machine")
    assert "2xNVIDIA L40S (read from this machine)" == row(testing.probed("2xL40S"), "machine")


def test_a_device_is_a_line():
    """Free and total memory, what others use, the power cap and the partition; absent things have no column."""
    device = testing.gpu(
        "H100", memory_bytes=80 * GIB, free_bytes=60 * GIB, other_processes_bytes=19 * GIB, power_cap_watts=500.0
    )
    head, line = row(Node((device,)), "devices").split("\n")

    assert ["#", "name", "arch", "free", "memory", "others use", "power cap"] == [
        part.strip() for part in head.split("  ") if part
    ]
    assert "0  NVIDIA H100 SXM  sm90  60.0 GiB  80.0 GiB  19.0 GiB    500 W" == line


def test_partitions_and_mixed_devices_keep_their_columns():
    """A slice is named beside a whole device, which has a dash."""
    whole = testing.gpu("H100")
    lines = row(Node((whole, replace(whole, partition="1g.10gb"))), "devices").split("\n")

    assert [True, True, True] == [
        line.endswith(end) for line, end in zip(lines, ("partition", "-", "1g.10gb"), strict=True)
    ]


def test_memory_that_the_driver_hides_is_unknown():
    """Not a dash, which means that nobody asked."""
    read = replace(testing.gpu("H100"), free_bytes=Unknown("no permission"))

    assert "unknown" in row(Node((read,)), "devices")
    assert "free" not in row(gpus.node("H100"), "devices")


def test_equal_links_are_a_matrix_of_kinds():
    """As nvidia-smi draws it; the one rate stands below."""
    lines = row(gpus.node("2xH100"), "links").split("\n")

    assert ["      GPU0  GPU1", "GPU0  X     NV", "GPU1  NV    X"] == lines[:3]
    assert ["NV: NVLink, 450 GB/s one way (1 pair)"] == lines[3:]


def test_links_of_one_kind_and_many_rates_show_them():
    """Bridged pairs beside slower ones; no link is through the host."""
    links = Topology((Link(0, 1, "nvlink", 112.5), Link(1, 2, "nvlink", 28.1), Link(0, 2, "pcie", 32.0)))
    four = Node((testing.gpu("RTX 3090"),) * 4, links)
    lines = row(four, "links").split("\n")

    assert ["GPU0", "X", "NV 112", "PCIe", "SYS"] == [part.strip() for part in lines[1].split("  ") if part]
    assert "PCIe: PCI Express, 32.0 GB/s one way (1 pair)" in lines


@pytest.mark.parametrize(("devices", "says"), [(1, None), (2, "none known: through the host")])
def test_no_links(devices, says):
    """One device has no row, several without a link say so."""
    assert says == dict(detect.describe(Node((testing.gpu("L4"),) * devices))).get("links")


def test_many_devices_are_told_by_kind():
    """A matrix of 32 columns helps nobody."""
    pairs = tuple(Link(a, b, "nvlink", 900.0) for b in range(32) for a in range(b))

    assert "NV: NVLink, 900 GB/s one way (496 pairs)" == row(
        Node((testing.gpu("B200"),) * 32, Topology(pairs)), "links"
    )


def test_the_network_only_between_machines():
    """One machine has no network row."""
    assert "50.0 GB/s a device, one way" == row(gpus.node("2x8xH100"), "network")
    assert "network" not in dict(detect.describe(gpus.node("8xH100")))


def test_versions_and_host():
    """Driver and runtime in one line; processor, memory and flags in three."""
    node = testing.probed("L4")

    assert "580.95, CUDA 13.0" == row(node, "driver")
    assert "Example CPU, 64 cores\nRAM 1,024.0 GiB, shm 512.0 GiB, 2 NUMA nodes\navx2" == row(node, "host")


def test_an_unknown_host_has_no_row():
    """What is not known is left out, never printed as 0."""
    assert "host" not in dict(detect.describe(Node((testing.gpu("L4"),), host=Host())))


def test_weak_figures_are_named_once_a_kind():
    """Eight equal devices, one line."""
    assert "AMD Instinct MI300X: bandwidth, tflops_bf16, tflops_fp8" == row(gpus.node("8xMI300X"), "unverified")


def test_warnings_are_lines():
    """In the order in which they were found."""
    assert "one\ntwo" == row(testing.probed("L4", warnings=("one", "two")), "warnings")
