"""The NVIDIA probe, through the real Python bindings, against stand-in driver libraries compiled here."""

import ctypes
import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

import vllm_advisor
from vllm_advisor import testing
from vllm_advisor.hardware import Link, Node, Topology, Unknown
from vllm_advisor.probe import detect, nvml_driver, recorded
from vllm_advisor.probe.reading import Reading
from vllm_advisor.throughput import traits


DATA = Path(__file__).parents[1] / "data" / "probe" / "nvml"
MIB = 1 << 20
HOST_BYTES = 127600748 * 1024  # MemTotal of a DGX Spark, XuehaiPan/nvitop#208
PROBE = """
import pathlib, pickle, sys
from vllm_advisor.hardware import Unknown
from vllm_advisor.probe import nvml
host = (int(text) if text != "?" else Unknown("not probed") for text in sys.argv[2:])
pathlib.Path(sys.argv[1]).write_bytes(pickle.dumps(nvml.probe(*host)))
"""
# lines before a100_mig.txt: one board cut into two equal slices that nobody uses
TWO_SLICES = (
    "count=1",
    "gpu.0.mig.most=2",
    *(f"gpu.0.mig.{k}.name=NVIDIA A100-SXM4-80GB MIG 3g.40gb" for k in range(2)),
    *(f"gpu.0.mig.{k}.uuid=MIG-0000000{k}-1111-2222-3333-444444444444" for k in range(2)),
    *(f"gpu.0.mig.{k}.memory_mib=40192" for k in range(2)),
    *(f"gpu.0.mig.{k}.used_mib=0" for k in range(2)),
    *(f"gpu.0.mig.{k}.processes=error:3" for k in range(2)),
)
VARIANTS = {
    "new": [],
    "old": ["-DWITHOUT_MEMORY_V2", "-DWITHOUT_PROCESSES_V3", "-DWITHOUT_EVENT_REASONS", "-DWITHOUT_CUDA_VERSION_V2"],
}


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """Two drivers, a new one and one without the newer functions, and a folder with a broken library."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is needed to compile the stand-in driver")
    folder = tmp_path_factory.mktemp("nvml")
    for name, flags in VARIANTS.items():
        (folder / name).mkdir()
        target = folder / name / "libnvidia-ml.so.1"
        subprocess.run(["gcc", "-shared", "-fPIC", *flags, "-o", target, DATA / "standin.c"], check=True)
    (folder / "none").mkdir()
    (folder / "none" / "libnvidia-ml.so.1").write_text("no library, so that a real driver is not found either")
    return folder


@pytest.fixture
def probe(libraries, tmp_path):
    """Probes a scenario in a process of its own; `lines` come before the file's, `env` as variables."""

    def run(scenario, *lines, driver="new", host=1 << 37, available="?", **env):
        told = tmp_path / "scenario.txt"
        told.write_text("\n".join([*lines, (DATA / f"{scenario}.txt").read_text() if scenario else ""]))
        outer = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        ours = {
            "LD_LIBRARY_PATH": str(libraries / driver),
            "NVML_SCENARIO": str(told),
            "PYTHONPATH": str(Path(vllm_advisor.__file__).parents[1]),
        }
        answer = tmp_path / "answer"
        command = [sys.executable, "-W", "error", "-c", PROBE, answer, str(host), str(available)]
        done = subprocess.run(command, env=outer | ours | env, capture_output=True, text=True, check=False)
        assert ("", "", 0) == (done.stdout, done.stderr, done.returncode)
        return pickle.loads(answer.read_bytes())  # noqa: S301  # our own process wrote it

    return run


def test_structures_have_the_size_of_the_vendor_bindings(libraries):
    """The stand-in fills the structures that the real bindings hand over, so their sizes must agree."""
    theirs = [
        pynvml.c_nvmlMemory_t,
        pynvml.c_nvmlMemory_v2_t,
        pynvml.nvmlPciInfo_t,
        pynvml.c_nvmlProcessInfo_t,
        pynvml.c_nvmlFieldValue_t,
        pynvml.c_nvmlDeviceAttributes,
    ]
    standin = ctypes.CDLL(str(libraries / "new" / "libnvidia-ml.so.1"))
    ours = (ctypes.c_uint * len(theirs)).in_dll(standin, "standin_sizes")
    assert [ctypes.sizeof(struct) for struct in theirs] == list(ours)


def test_eight_h100_with_nvswitch(probe):
    """Eight boards on a switch reach each other all to all at 450 GB/s, with CUDA's memory and the catalog's rates."""
    reading = probe("h100x8")
    gpu = reading.gpus[0]
    assert ["NVIDIA H100 80GB HBM3"] * 8 == [g.name for g in reading.gpus]
    assert ("sm90", 81080 * MIB, 81080 * MIB) == (gpu.arch, gpu.memory_bytes, gpu.free_bytes)
    assert (3350e9, 989, 1979, ()) == (gpu.bandwidth, gpu.tflops_bf16, gpu.tflops_fp8, gpu.unverified)
    assert (700.0, True, "00000000:19:00.0", "") == (gpu.power_cap_watts, gpu.ecc, gpu.pci_bus_id, gpu.partition)
    assert ("580.95.05", "CUDA 13.0", ()) == (reading.driver, reading.runtime, reading.warnings)
    assert 28 == len(reading.topology.links)
    assert {("nvlink", 450.0)} == {(link.kind, link.gb_s) for link in reading.topology.links}
    assert ((0, 1, 2, 3, 4, 5, 6, 7),) == reading.topology.islands(8)


def test_four_l40s_on_pcie(probe):
    """Boards without NVLink reach each other over PCIe, at the rate of the end with fewer lanes, and that is said."""
    reading = probe("l40sx4")
    assert 6 == len(reading.topology.links)
    assert Link(0, 1, "pcie", 31.5) == reading.topology.links[0]
    assert Link(0, 3, "pcie", 15.8) == reading.topology.links[2]
    assert 45466 * MIB == reading.gpus[0].memory_bytes
    assert "CUDA 12.8" == reading.runtime
    assert ("GPU 3: runs on 8 of its 16 PCIe lanes",) == reading.warnings


def test_two_3090_with_a_bridge(probe):
    """Four bridge links of 14.0625 GB/s make 56.25 one way; GeForce has no ECC, and that is no warning."""
    reading = probe("rtx3090x2")
    assert (Link(0, 1, "nvlink", 56.25),) == reading.topology.links
    assert (None, 24146 * MIB) == (reading.gpus[0].ecc, reading.gpus[0].memory_bytes)
    assert () == reading.warnings


def test_two_3090_without_a_bridge_go_through_the_host(probe):
    """Where the driver denies peer-to-peer, the path is the host's, with the driver's reason."""
    reading = probe("rtx3090x2", "gpu.*.nvlink.*.up=0")
    assert (Link(0, 1, "host", 31.5),) == reading.topology.links
    expected = (
        "GPUs 0-1: no peer-to-peer over PCIe (the chipset does not support it): traffic goes through the host's memory"
    )
    assert (expected,) == reading.warnings


def test_mig_slices_are_devices(probe):
    """Each slice is a device with its own memory, users and profile; the board beside them stays whole."""
    reading = probe("a100_mig")
    large, small, unnamed, whole = reading.gpus
    assert ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "3g.40gb", 40192 * MIB) == (
        large.name,
        large.partition,
        large.memory_bytes,
    )
    assert (1024 * MIB, 39168 * MIB) == (large.other_processes_bytes, large.free_bytes)
    assert ("2g.20gb", 19968 * MIB, 0) == (small.partition, small.memory_bytes, small.other_processes_bytes)
    assert ("", 81039 * MIB, 2039e9) == (whole.partition, whole.memory_bytes, whole.bandwidth)
    assert pytest.approx(312 * 3 / 7) == large.tflops_bf16
    assert 2039e9 / 2 == large.bandwidth
    assert ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 9728 * MIB) == (unnamed.name, unnamed.memory_bytes)
    assert "memory_bytes" in unnamed.unverified
    assert "memory_bytes" not in large.unverified


def test_mig_slices_have_no_links(probe):
    """Slices reach nobody, and a reader learns that one process uses one of them."""
    reading = probe(
        "a100_mig", "gpu.1.mig=1", "gpu.1.mig.most=7", "gpu.1.mig.0.uuid=MIG-x", "gpu.1.mig.0.memory_mib=9728"
    )
    assert () == reading.topology.links
    assert "GPUs 0, 1: MIG is on: one process can use one slice, and slices reach no other device" in reading.warnings


def test_the_recorded_slices_are_this_reading(probe):
    """tests/scenarios/a100_mig.json is what the probe makes of one board with two slices, and a note that says so."""
    recorded_node = recorded.load(DATA.parents[2] / "scenarios" / "a100_mig.json")
    read = detect.chosen(probe("a100_mig", *TWO_SLICES), Unknown("none"), testing.HOST)
    assert ["3g.40gb"] * 2 == [gpu.partition for gpu in recorded_node.gpus]
    assert "a stand-in driver's" in recorded_node.warnings[0]
    assert replace(recorded_node, origin="probe", warnings=recorded_node.warnings[1:]) == read


def test_a_compute_instance_gets_its_share(probe):
    """`1c.3g.40gb` is one of three compute slices with all of the instance's memory."""
    gpu = probe("a100_mig", "gpu.0.mig.0.name=NVIDIA A100-SXM4-80GB MIG 1c.3g.40gb").gpus[0]
    assert ("1c.3g.40gb", 40192 * MIB) == (gpu.partition, gpu.memory_bytes)
    assert pytest.approx(312 / 7) == gpu.tflops_bf16


def test_mig_mode_without_slices(probe):
    """A board in MIG mode with no slice cannot be used, and the warning says how to make one."""
    reading = probe("h100x8", "gpu.0.mig=1", "gpu.0.mig.most=7", "gpu.1.mig.pending=1")
    assert 7 == len(reading.gpus)
    assert "GPU 0: left out: MIG is on and no slice has been made (nvidia-smi mig -cgi)" in reading.warnings
    assert "GPU 1: MIG is to be switched on at the next reset" in reading.warnings


def test_gb10_takes_the_host_memory(probe):
    """A unified-memory machine has no memory figure in NVML: the host's counts, also of what is free."""
    reading = probe("gb10", host=HOST_BYTES, available=HOST_BYTES - 9000 * MIB)
    gpu = reading.gpus[0]
    assert ("NVIDIA GB10", "sm121", HOST_BYTES, True) == (gpu.name, gpu.arch, gpu.memory_bytes, gpu.unified_memory)
    assert HOST_BYTES - 9000 * MIB == gpu.free_bytes
    assert 43 * MIB == gpu.other_processes_bytes
    assert "GPU 0: shares its memory with the processor, so the host's memory counts as its own" in reading.warnings


def test_gb10_without_a_host_reading(probe):
    """With no host figure either, the catalog's stands in, marked unverified."""
    reading = probe("gb10", host="?")
    assert (124611 * MIB, True) == (reading.gpus[0].memory_bytes, reading.gpus[0].unified_memory)
    assert "memory_bytes" in reading.gpus[0].unverified
    assert "GPU 0: its memory is the catalog's 121.7 GiB, not a reading: not probed" in reading.warnings
    why = "shared with the processor, whose free memory is not known: not probed"
    assert Unknown(why) == reading.gpus[0].free_bytes


def test_the_hosts_free_memory_is_no_discrete_boards(probe):
    """What the host has available counts for devices that share it only, and never for more than all of it."""
    assert 45466 * MIB == probe("l40sx4", available=1 << 30).gpus[0].free_bytes
    assert HOST_BYTES == probe("gb10", host=HOST_BYTES, available=HOST_BYTES + 1).gpus[0].free_bytes


def test_thor_is_known_by_its_capability(probe):
    """Drivers give integrated parts generic names; the only unified device of that capability is meant."""
    gpu = probe("gb10", "gpu.0.name=NVIDIA Thor", "gpu.0.capability=110", host=HOST_BYTES).gpus[0]
    assert ("NVIDIA Thor", "sm110", HOST_BYTES, 273e9) == (gpu.name, gpu.arch, gpu.memory_bytes, gpu.bandwidth)


@pytest.mark.parametrize("how", ["handle", "error"])
def test_a_lost_gpu_is_left_out(probe, how):
    """A GPU off the bus is left out and named, whether the handle or the first reading fails; the others stay."""
    reading = probe("l40sx4", f"gpu.2.{how}=15")
    assert 3 == len(reading.gpus)
    assert ["00000000:01:00.0", "00000000:21:00.0", "00000000:61:00.0"] == [gpu.pci_bus_id for gpu in reading.gpus]
    assert "GPU 2: left out: the GPU has fallen off the bus" in reading.warnings
    assert [(0, 1), (0, 2), (1, 2)] == [(link.a, link.b) for link in reading.topology.links]


def test_all_gpus_lost(probe):
    """With no device left, the answer is why."""
    reading = probe("gb10", "gpu.0.error=15")
    assert Unknown("no NVIDIA GPU can be used; GPU 0: left out: the GPU has fallen off the bus") == reading


def test_an_old_driver_degrades(probe):
    """Without the newer functions the catalog's memory stands in, and all else is still read."""
    reading = probe("h100x8", "gpu.0.processes=4242:2048", "gpu.1.throttle=4", driver="old")
    gpu = reading.gpus[0]
    assert (81080 * MIB, ("memory_bytes",)) == (gpu.memory_bytes, gpu.unverified)
    assert 2048 * MIB == gpu.other_processes_bytes
    assert "CUDA 13.0" == reading.runtime
    assert "GPU 1: throttled now by the power cap: slower than its data sheet" in reading.warnings
    said = "GPUs 0, 1, 2, 3, 4, 5, 6, 7: its memory is the catalog's 79.2 GiB, not a reading: "
    assert said + "the driver does not tell what it keeps" in reading.warnings


def test_an_old_driver_with_an_unknown_board(probe):
    """Where neither driver nor catalog tells the net figure, the gross one is taken as unverified."""
    reading = probe("unknown_gpu", driver="old")
    assert 100000 * MIB == reading.gpus[0].memory_bytes
    assert "memory_bytes" in reading.gpus[0].unverified


def test_an_unknown_board(probe):
    """A device without a catalog entry has rates of zero, named as unverified, and a warning."""
    reading = probe("unknown_gpu")
    gpu = reading.gpus[0]
    assert ("sm107", 99500 * MIB, 0.0, 0.0) == (gpu.arch, gpu.memory_bytes, gpu.bandwidth, gpu.tflops_bf16)
    assert ("bandwidth", "tflops_bf16", "tflops_fp8", "tflops_fp4") == gpu.unverified
    said = "GPU 0: NVIDIA R9000 Prototype has no catalog entry: its bandwidth and compute rates are not known"
    assert said in reading.warnings


def test_an_unknown_board_that_hides_everything(probe):
    """Neither catalog entry nor capability: nothing can be judged, so the device is left out, with why."""
    reading = probe("unknown_gpu", "gpu.0.capability=error:999")
    assert isinstance(reading, Unknown)
    assert "R9000 Prototype has no catalog entry and its compute capability is not known" in reading.why


def test_throttling_and_a_lowered_cap(probe):
    """Active throttling and a power cap below the default are said in words, equal ones in one line."""
    reading = probe("h100x8", "gpu.0.throttle=0x24", "gpu.1.throttle=0x48", "gpu.2.throttle=8", "gpu.*.power_mw=500000")
    assert 500.0 == reading.gpus[0].power_cap_watts
    throttled = [line for line in reading.warnings if "throttled" in line]
    assert [
        "GPU 0: throttled now by the power cap and temperature (software limit): slower than its data sheet",
        "GPU 1: throttled now by temperature (hardware limit): slower than its data sheet",
        "GPU 2: throttled now by a hardware slowdown: slower than its data sheet",
    ] == throttled
    assert "GPUs 0, 1, 2, 3, 4, 5, 6, 7: the power cap is 500 W, its default is 700 W" in reading.warnings


def test_other_processes(probe):
    """Memory of other processes is counted; what a container hides shows as used by nobody in sight."""
    lines = ("gpu.0.processes=4242:20480,4243:1024", "gpu.0.used_mib=21600", "gpu.1.used_mib=30720", "gpu.2.used_mib=4")
    reading = probe("h100x8", *lines)
    assert [21600 * MIB, 30720 * MIB, 4 * MIB, 0] == [gpu.other_processes_bytes for gpu in reading.gpus[:4]]
    assert (81080 - 21600) * MIB == reading.gpus[0].free_bytes
    assert (
        "GPU 0: 21.1 GiB in use, 2 other processes run on it",
        "GPU 1: 30.0 GiB in use by processes that cannot be seen from here",
    ) == reading.warnings


def test_a_process_whose_size_is_hidden(probe):
    """A process whose memory the driver hides counts through what the device has in use."""
    reading = probe("gb10", "gpu.0.processes=7:?,8:100", host=HOST_BYTES)
    assert 100 * MIB == reading.gpus[0].other_processes_bytes


def test_a_driver_that_denies_everything_optional(probe):
    """No permission for clocks, power, ECC and processes: the device stands, and each gap is said."""
    gaps = ("throttle", "power_mw", "ecc", "processes")
    reading = probe("h100x8", *(f"gpu.0.{key}=error:4" for key in gaps))
    assert (None, None, 0) == (
        reading.gpus[0].power_cap_watts,
        reading.gpus[0].ecc,
        reading.gpus[0].other_processes_bytes,
    )
    assert 4 == len([line for line in reading.warnings if "this user has no permission to read it" in line])


def test_memory_that_cannot_be_read(probe):
    """A known board whose memory is denied takes the catalog's, with the reason."""
    reading = probe("h100x8", "gpu.0.memory_mib=error:4")
    assert (81080 * MIB, ("memory_bytes",)) == (reading.gpus[0].memory_bytes, reading.gpus[0].unverified)
    assert Unknown("this user has no permission to read it") == reading.gpus[0].free_bytes
    assert not reading.gpus[0].unified_memory


def test_broken_nvlinks(probe):
    """A board with fewer links up than its equals is slower to all, and named."""
    reading = probe("h100x8", "gpu.7.nvlink.0.up=0", "gpu.7.nvlink.1.up=0")
    rates = {(link.a, link.b): link.gb_s for link in reading.topology.links}
    assert (450.0, 400.0) == (rates[0, 1], rates[0, 7])
    assert ("GPU 7: 16 NVLinks are up, its equals have 18",) == reading.warnings


def test_nvlinks_that_the_driver_refuses(probe):
    """Links that are up and not usable (no Fabric Manager) leave PCIe, and the warning asks the right question."""
    reading = probe("h100x8", "p2p.*.*.2=5")
    assert {("pcie", 63.0)} == {(link.kind, link.gb_s) for link in reading.topology.links}
    assert 1 == len(reading.warnings)
    assert "is Fabric Manager running?" in reading.warnings[0]
    assert "(28 in all)" in reading.warnings[0]


HIDDEN = {"nothing": ("type=error:999", "far=error:999"), "an unknown bus": ("type=255", "far=00000000:FE:00.0")}


@pytest.mark.parametrize("how", HIDDEN)
def test_nvlinks_with_a_hidden_far_end(probe, how):
    """In a virtual machine links are up and lead nobody knows where: the driver's word on the pair makes them count."""
    reading = probe("h100x8", *(f"gpu.*.nvlink.*.{line}" for line in HIDDEN[how]))
    assert {("nvlink", 450.0)} == {(link.kind, link.gb_s) for link in reading.topology.links}
    boards, pairs = reading.warnings
    assert "GPUs 0, 1, 2, 3, 4, 5, 6, 7: where 18 of its NVLinks lead cannot be told" == boards
    joined = "the driver says that NVLink joins them: all their links count, as through a switch"
    assert f"GPUs 0-1 … 6-7 (28 in all): {joined}" == pairs


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("5", "NVLinks are up, the driver refuses to use them: it is not supported"),
        ("error:999", "NVLinks that lead nobody knows where are not counted between them: the driver reports"),
    ],
)
def test_hidden_nvlinks_without_the_drivers_word(probe, status, said):
    """They do not count, and that is said: once for the boards, once for the pairs."""
    reading = probe("h100x8", *(f"gpu.*.nvlink.*.{line}" for line in HIDDEN["nothing"]), f"p2p.*.*.2={status}")
    assert {("pcie", 63.0)} == {(link.kind, link.gb_s) for link in reading.topology.links}
    boards, pairs = reading.warnings
    assert "where 18 of its NVLinks lead cannot be told" in boards
    assert f"(28 in all): {said}" in pairs
    assert "Fabric Manager" not in pairs


def test_one_hidden_link_beside_seventeen(probe):
    """Links that are read and links that are not add up where the driver vouches, else the read ones stand."""
    hidden = ("gpu.3.nvlink.0.type=error:999", "gpu.3.nvlink.0.far=error:999")
    vouched, silent = probe("h100x8", *hidden), probe("h100x8", *hidden, "p2p.*.*.2=error:999")
    assert Link(0, 3, "nvlink", 450.0) == vouched.topology.links[2]
    assert (Link(0, 1, "nvlink", 450.0), Link(0, 3, "nvlink", 425.0)) == silent.topology.links[0:3:2]
    assert "GPU 3: where 1 of its NVLinks lead cannot be told" in vouched.warnings


def test_links_to_a_processor_or_to_an_invisible_board_are_not_hidden(probe):
    """Their far end is known; they join no two devices that are seen, and there is nothing to warn of."""
    power9 = probe("rtx3090x2", "gpu.*.nvlink.*.type=1")
    assert {"host"} == {link.kind for link in power9.topology.links}
    bridged = ("count=3", "gpu.2.bus=00000000:81:00.0", "gpu.2.nvlink.*.up=0")
    seen = probe("rtx3090x2", *bridged, CUDA_VISIBLE_DEVICES="0,2")
    assert (Link(0, 1, "host", 31.5),) == seen.topology.links
    assert not [line for reading in (power9, seen) for line in reading.warnings if "cannot be told" in line]


def test_through_the_host_is_half_of_the_slot(probe):
    """Such a link has the slot's rate, which a copy pays twice; it stays the slowest beside a better one."""
    two = probe("rtx3090x2", "gpu.*.nvlink.*.up=0", "p2p.*.*.0=0")
    host = probe("rtx3090x2", "gpu.*.nvlink.*.up=0")
    peers, through = (traits.wire(Node(reading.gpus, reading.topology), 2) for reading in (two, host))
    assert ("pcie", 31.5e9) == (peers.kind, peers.bandwidth)
    assert ("host", 31.5e9 / 2) == (through.kind, through.bandwidth)
    mixed = Topology((Link(0, 1, "pcie", 31.5), Link(0, 2, "host", 31.5), Link(1, 2, "pcie", 20.0)))
    assert through == traits.wire(Node((*host.gpus, host.gpus[0]), mixed), 3)


def test_a_gpu_lost_while_its_links_are_read(probe):
    """A device that falls off after its first reading has no links, and the warning names it."""
    reading = probe("h100x8", "gpu.5.nvlinks=error:15", "p2p.0.1.2=error:15")
    ends = {place for link in reading.topology.links for place in (link.a, link.b)}
    assert {0, 1, 2, 3, 4, 6, 7} == ends
    assert ("GPU 5: its links cannot be read: the GPU has fallen off the bus",) == reading.warnings


def test_idle_and_application_clocks_are_no_throttling(probe):
    """Clocks that are low because nobody works, or as the board comes, are no warning."""
    assert () == probe("h100x8", "gpu.0.throttle=0x3").warnings


def test_the_speed_of_an_unknown_link_version(probe):
    """A link version newer than the table takes the driver's own speed, and without one it is not counted."""
    newer = probe("h100x8", "gpu.*.nvlink.*.version=9", "gpu.*.nvlink.*.speed_mbps=100000")
    silent = probe("h100x8", "gpu.*.nvlink.*.version=9")
    assert Link(0, 1, "nvlink", 1800.0) == newer.topology.links[0]
    assert Link(0, 1, "pcie", 63.0) == silent.topology.links[0]
    assert any("the rate of its NVLinks is not known" in line for line in silent.warnings)


def test_unreadable_pcie(probe):
    """A pair whose path cannot be read has no link, and why is said."""
    reading = probe("l40sx4", "gpu.0.pcie.generation=error:13", "p2p.1.2.0=error:999")
    assert [(1, 2), (1, 3), (2, 3)] == [(link.a, link.b) for link in reading.topology.links]
    assert "GPU 0: its PCIe rate is not known: this driver is too old to know the question" in reading.warnings
    said = "GPUs 1-2: whether they reach each other over PCIe is not known: the driver reports an unknown error"
    assert said in reading.warnings


@pytest.mark.parametrize(
    ("value", "buses", "said"),
    [
        ("2,0", ["41", "01"], "2 of 4 devices are visible"),
        ("GPU-40000003", ["61"], "1 of 4 devices are visible"),
        ("1,-1,2", ["21"], "'-1' names no further device, CUDA ignores it and what follows"),
        ("0,9", ["01"], "'9' names no further device"),
    ],
)
def test_cuda_visible_devices(probe, value, buses, said):
    """Indices and abbreviated UUIDs choose and order the devices as in CUDA, and a warning says so."""
    reading = probe("l40sx4", CUDA_VISIBLE_DEVICES=value)
    assert buses == [gpu.pci_bus_id[9:11] for gpu in reading.gpus]
    assert any(f"CUDA_VISIBLE_DEVICES={value}: " in line and said in line for line in reading.warnings)


def test_links_follow_the_visible_order(probe):
    """Link ends are places among the visible devices, not numbers of boards."""
    reading = probe("l40sx4", CUDA_VISIBLE_DEVICES="3,1")
    assert (Link(0, 1, "pcie", 15.8),) == reading.topology.links


def test_no_visible_device(probe):
    """An empty variable hides all devices."""
    reading = probe("l40sx4", CUDA_VISIBLE_DEVICES="")
    assert isinstance(reading, Unknown)
    assert "CUDA_VISIBLE_DEVICES=: 0 of 4 devices are visible" in reading.why


def test_a_visible_slice(probe):
    """A slice is chosen by its UUID, and a board's index means its first slice."""
    by_uuid = probe("a100_mig", CUDA_VISIBLE_DEVICES="MIG-00000002-1111-2222-3333-444444444444")
    by_index = probe("a100_mig", CUDA_VISIBLE_DEVICES="0")
    assert ["2g.20gb"] == [gpu.partition for gpu in by_uuid.gpus]
    assert ["3g.40gb"] == [gpu.partition for gpu in by_index.gpus]


def test_mixed_devices_by_index(probe):
    """CUDA counts the fastest device first, NVML by bus: with mixed boards an index asks for CUDA_DEVICE_ORDER."""
    mixed = ("gpu.0.name=NVIDIA L4",)
    loose = probe("l40sx4", *mixed, CUDA_VISIBLE_DEVICES="0")
    fixed = probe("l40sx4", *mixed, CUDA_VISIBLE_DEVICES="0", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert any("set CUDA_DEVICE_ORDER=PCI_BUS_ID" in line for line in loose.warnings)
    assert not any("CUDA_DEVICE_ORDER" in line for line in fixed.warnings)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("init=9", "the NVIDIA kernel driver is not loaded"),
        ("init=18", "the driver library and the kernel driver have different versions (reload the driver, or reboot)"),
        ("init=15", "the GPU has fallen off the bus"),
        ("count=0", "the NVIDIA driver is loaded and reports no GPU"),
        ("count=error:999", "the driver reports an unknown error"),
    ],
)
def test_no_usable_driver(probe, line, why):
    """A driver that does not start, or has no GPU, is an answer in words."""
    assert Unknown(why) == probe(None, line)


def test_no_library(probe):
    """A machine without the driver library gets one sentence, no error."""
    why = "the NVIDIA driver library (libnvidia-ml) is not installed or cannot be loaded"
    assert Unknown(why) == probe(None, driver="none")


def test_missing_versions(probe):
    """Unreadable driver and CUDA versions are empty, with a warning each."""
    reading = probe("gb10", "driver=error:999", "cuda=error:999", host=HOST_BYTES)
    assert isinstance(reading, Reading)
    assert ("", "") == (reading.driver, reading.runtime)
    assert "the driver's version is not known: the driver reports an unknown error" in reading.warnings


@pytest.mark.parametrize("line", ["driver=error:15", "cuda=error:15", "shutdown=15", "shutdown=999"])
def test_a_late_error_costs_only_its_own_answer(probe, line):
    """A GPU that falls off after all devices were read must not take them along."""
    whole, late = probe("h100x8"), probe("h100x8", line)
    assert (whole.gpus, whole.topology) == (late.gpus, late.topology)
    versions = ("" if "driver" in line else "580.95.05", "" if "cuda" in line else "CUDA 13.0")
    assert versions == (late.driver, late.runtime)
    assert ("" in versions) == any("is not known: the GPU has fallen off the bus" in text for text in late.warnings)


def test_every_vendor_error_has_words():
    """Each error class of the bindings maps to a sentence of its own, and a new number is named."""
    classes = [value for name, value in vars(pynvml).items() if name.startswith("NVMLError_")]
    sentences = [nvml_driver.sentence(cls()) for cls in classes]
    assert 31 <= len(classes)
    assert len(classes) == len(set(sentences))
    assert not [words for words in sentences if "reports error" in words]
    assert "the driver reports error 777" == nvml_driver.sentence(pynvml.NVMLError(777))


def test_importing_the_probe_loads_no_vendor_library():
    """The bindings load when a machine is probed, not before."""
    code = "import sys; import vllm_advisor.probe.nvml; print('pynvml' in sys.modules)"
    env = {"PYTHONPATH": str(Path(vllm_advisor.__file__).parents[1])}
    assert (
        "False\n"
        == subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    )


def test_the_command_line_on_a_gpu_machine(libraries, tmp_path):
    """`advisor recommend` without --gpu plans for what the driver says, and a saved machine gives the same plans."""
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(libraries / "new"),
        "NVML_SCENARIO": str(DATA / "h100x8.txt"),
        "PYTHONPATH": str(Path(vllm_advisor.__file__).parents[1]),
    }

    def advisor(*args):
        argv = [sys.executable, "-m", "vllm_advisor", *map(str, args)]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
        return json.loads(done.stdout) if "--json" in args else done.stdout

    here = advisor("recommend", "openai/gpt-oss-120b", "--json")
    assert (8, "probe", "sm90") == tuple(here["node"][key] for key in ("devices", "origin", "arch"))
    assert "H100" in advisor("probe", "--save", "box.json")
    there = advisor("recommend", "openai/gpt-oss-120b", "--node", "box.json", "--json")
    assert ("recorded", here["plans"]) == (there["node"]["origin"], there["plans"])
