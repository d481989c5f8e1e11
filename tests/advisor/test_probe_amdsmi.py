"""The AMD probe, through the real Python package, against a stand-in libamd_smi.so compiled here."""

import ctypes
import importlib.util
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import vllm_advisor
from vllm_advisor.hardware import Link, Unknown
from vllm_advisor.probe import amdsmi, amdsmi_driver
from vllm_advisor.probe.amdsmi_partition import Partition
from vllm_advisor.probe.reading import Reading


DATA = Path(__file__).parents[1] / "data" / "probe" / "amdsmi"
FOUND = importlib.util.find_spec("amdsmi")
# our package, and the vendor's from where this process finds it, so that PYTHONPATH can choose another release
PATHS = os.pathsep.join(
    str(Path(place).parents[1]) for place in (vllm_advisor.__file__, FOUND and FOUND.origin) if place
)
MIB = 1 << 20
MI300X_BYTES = 196588 * MIB  # catalog/gpus.toml, mi300x
MI355X_BYTES = 294892 * MIB  # catalog/gpus.toml, mi355x
R9700_BYTES = 32625 * MIB  # catalog/gpus.toml, r9700
PROBE = """
import pathlib, pickle, sys
from vllm_advisor.probe import amdsmi
pathlib.Path(sys.argv[1]).write_bytes(pickle.dumps(amdsmi.probe(pathlib.Path(sys.argv[2]))))
"""
# the vendor's structures that the stand-in fills: a short name, the ctypes class or an array in it for its elements
STRUCTURES = {
    "asic": "struct_amdsmi_asic_info_t",
    "board": "struct_amdsmi_board_info_t",
    "driver": "struct_amdsmi_driver_info_t",
    "enumeration": "struct_amdsmi_enumeration_info_t",
    "metrics": "struct_amdsmi_link_metrics_t",
    "pcie": "struct_amdsmi_pcie_info_t",
    "port": "struct_amdsmi_link_metrics_t.links",
    "power": "struct_amdsmi_power_cap_info_t",
    "process": "struct_amdsmi_proc_info_t",
    "profile": "struct_amdsmi_accelerator_partition_profile_t",
    "slot": "struct_pcie_static_",
    "usage": "struct_memory_usage_",
    "vram": "struct_amdsmi_vram_info_t",
}
# prints the layout of those structures; the wrapper looks up every function on import, so it gets a library of anything
LAYOUT = """
import ctypes, json, sys
class Anything:
    def __init__(self, *_, **__): pass
    def __getattr__(self, name): return Anything()
ctypes.CDLL = Anything
from amdsmi import amdsmi_wrapper
for short, name in json.loads(sys.argv[1]).items():
    name, _, array = name.partition(".")
    kind = getattr(amdsmi_wrapper, name, None)
    if kind and array:
        kind = {field[0]: field[1] for field in kind._fields_}[array]._type_
    if kind:
        print(f"#define SIZEOF_{short} {ctypes.sizeof(kind)}")
    for field in kind._fields_ if kind else ():
        where = getattr(kind, field[0])
        print(f"#define OFFSET_{short}_{field[0]} {where.offset}")
        print(f"#define SIZE_{short}_{field[0]} {where.size}")
"""
EXCEPTIONS = """
import json, sys
import amdsmi
from amdsmi import amdsmi_exception as vendor, amdsmi_wrapper
from vllm_advisor.probe.amdsmi_driver import sentence
made = {
    "AmdSmiException": lambda kind: kind("x"),
    "AmdSmiLibraryException": lambda kind: kind(10),
    "AmdSmiParameterException": lambda kind: kind(1, str),
    "AmdSmiKeyException": lambda kind: kind("k"),
    "AmdSmiBdfFormatException": lambda kind: kind("b"),
}
classes = [c for c in vars(vendor).values() if isinstance(c, type) and issubclass(c, vendor.AmdSmiException)]
said = {c.__name__: sentence(made.get(c.__name__, lambda kind: kind())(c)) for c in classes}
codes = {c: sentence(vendor.AmdSmiLibraryException(c)) for c in amdsmi_wrapper.amdsmi_status_t__enumvalues if c}
json.dump([said, codes], sys.stdout)
"""

pytestmark = pytest.mark.skipif(FOUND is None, reason="the package amdsmi is not installed")


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """A folder with `lib/libamd_smi.so`, built for the installed release of the package."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is needed to compile the stand-in library")
    folder = tmp_path_factory.mktemp("amdsmi")
    (folder / "lib").mkdir()
    (folder / "layout.h").write_text(_layout())
    (folder / "stubs.c").write_text(_stubs())
    sources = [DATA / "standin.c", folder / "stubs.c"]
    target = folder / "lib" / "libamd_smi.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-I", folder, "-o", target, *sources], check=True)
    return folder


def _layout():
    names = "{" + ", ".join(f'"{short}": "{name}"' for short, name in STRUCTURES.items()) + "}"
    return subprocess.run([sys.executable, "-c", LAYOUT, names], check=True, capture_output=True, text=True).stdout


def _stubs():
    """Functions that the package looks up when it is imported and that the stand-in does not have."""
    wrapper = (Path(FOUND.origin).parent / "amdsmi_wrapper.py").read_text()
    wanted = set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper))
    present = set(re.findall(r"^int (\w+)\(", (DATA / "standin.c").read_text(), re.MULTILINE))
    return "".join(f"int {name}(void) {{ return 2; }}\n" for name in sorted(wanted - present))


def _needs(folder, name):
    if f"#define {name} " not in (folder / "layout.h").read_text():
        pytest.skip(f"this release of the package has no {name}")


def _with_rocm(folder):
    """Variables by which the package finds a library: the first since release 6.4, the second before."""
    return {"ROCM_HOME": str(folder), "ROCM_PATH": str(folder)}


def _without_rocm(folder):
    """Variables that hide a real ROCm of this machine: nothing where it is, no library where the linker looks."""
    (folder / "broken").mkdir(exist_ok=True)
    (folder / "broken" / "libamd_smi.so").write_text("no library, so that a real one is not found either")
    return _with_rocm(folder / "none") | {"LD_LIBRARY_PATH": str(folder / "broken")}


class Run:
    """What a probe in a process of its own answered, and what it printed."""

    def __init__(self, answer, outputs, closed):
        self.answer, self.outputs, self.closed = answer, outputs, closed


@pytest.fixture
def run(library, tmp_path):
    """Probes a scenario; `lines` come before the file's, `env` as variables; `root` stands for /."""

    def go(scenario, *lines, prelude="", root=tmp_path, **env):
        told, answer, closed = tmp_path / "scenario.txt", tmp_path / "answer", tmp_path / "closed"
        told.write_text("\n".join([*lines, (DATA / f"{scenario}.txt").read_text() if scenario else ""]))
        outer = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        ours = {
            "PYTHONPATH": PATHS,
            **(_without_rocm(tmp_path) if not scenario and not lines else _with_rocm(library)),
            "AMDSMI_SCENARIO": str(told),
            "AMDSMI_CLOSED": str(closed),
        }
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", prelude + PROBE, answer, root],
            env=outer | ours | env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert 0 == done.returncode, done.stderr
        return Run(pickle.loads(answer.read_bytes()), done.stdout + done.stderr, closed.exists())  # noqa: S301

    return go


@pytest.fixture
def probe(run):
    """Only what the probe answered; it never prints."""

    def go(*arguments, **options):
        done = run(*arguments, **options)
        assert "" == done.outputs
        return done.answer

    return go


def test_eight_mi300x(probe):
    """Identity, memory and state of a whole board, with the catalog's rates under the driver's name."""
    reading = probe("mi300x_x8")
    gpu = reading.gpus[0]
    assert isinstance(reading, Reading)
    assert 8 == len(reading.gpus)
    assert ("AMD Instinct MI300X OAM", "amd", "gfx942") == (gpu.name, gpu.vendor, gpu.arch)
    assert (MI300X_BYTES, MI300X_BYTES - 288 * MIB) == (gpu.memory_bytes, gpu.free_bytes)
    assert (5.3e12, 1307, 2615, None) == (gpu.bandwidth, gpu.tflops_bf16, gpu.tflops_fp8, gpu.tflops_fp4)
    assert (750.0, True, "0000:05:00.0", "") == (gpu.power_cap_watts, gpu.ecc, gpu.pci_bus_id, gpu.partition)
    assert ("6.14.14", ()) == (reading.driver, reading.warnings)


def test_every_pair_of_mi300x_has_its_own_xgmi_link(probe):
    """28 pairs at 64 GB/s one way, one island."""
    topology = probe("mi300x_x8").topology
    assert 28 == len(topology.links)
    assert {("xgmi", 64.0)} == {(link.kind, link.gb_s) for link in topology.links}
    assert (tuple(range(8)),) == topology.islands(8)


def test_other_processes_hold_memory(probe):
    """The process on device 3 shows in its free memory and by itself; the others have none."""
    gpus = probe("mi300x_x8").gpus
    assert MI300X_BYTES - 64424509440 == gpus[3].free_bytes
    assert [0, 0, 0, 64122519552, 0, 0, 0, 0] == [gpu.other_processes_bytes for gpu in gpus]


def test_eight_mi355x_take_the_catalogs_link_rate(probe):
    """A driver without link rates: the catalog's figure for a peer stands in, and a warning says so once."""
    reading = probe("mi355x_x8")
    gpu = reading.gpus[7]
    assert ("gfx950", MI355X_BYTES, 10066) == (gpu.arch, gpu.memory_bytes, gpu.tflops_fp4)
    assert 1400.0 == gpu.power_cap_watts
    assert {("xgmi", 76.8)} == {(link.kind, link.gb_s) for link in reading.topology.links}
    assert 1 == len(reading.warnings)
    assert "the rate of their xGMI link is not reported: the catalog's 76.8 GB/s stand in" in reading.warnings[0]


def test_cpx_with_nps4_divides_card_and_rates(probe):
    """Eight devices, each with an eighth of the memory and of the rates, which are unverified then."""
    reading = probe("mi300x_cpx_nps4")
    gpu = reading.gpus[5]
    assert 8 == len(reading.gpus)
    assert ("CPX/NPS4", "0000:05:00.5") == (gpu.partition, gpu.pci_bus_id)
    assert (MI300X_BYTES // 8, MI300X_BYTES // 8 - 36 * MIB) == (gpu.memory_bytes, gpu.free_bytes)
    assert (5.3e12 / 8, 1307 / 8) == (gpu.bandwidth, gpu.tflops_bf16)
    assert {"bandwidth", "tflops_bf16"} <= set(gpu.unverified)
    assert [750.0] + [None] * 7 == [each.power_cap_watts for each in reading.gpus]
    assert not any("share" in line for line in reading.warnings)


def test_cpx_with_nps1_counts_the_share(probe):
    """Each device is shown all of the memory; the eight share it, so an eighth counts, of the free part too."""
    reading = probe("mi300x_cpx_nps1")
    assert {MI300X_BYTES // 8} == {gpu.memory_bytes for gpu in reading.gpus}
    assert {(MI300X_BYTES - 8589934592) // 8} == {gpu.free_bytes for gpu in reading.gpus}
    assert {"CPX/NPS1"} == {gpu.partition for gpu in reading.gpus}
    assert {1307 / 8} == {gpu.tflops_bf16 for gpu in reading.gpus}
    text = "CPX/NPS1: 8 partitions share 192.0 GiB of memory, 24.0 GiB counts for each"
    assert f"GPUs 0, 1, 2, 3, 4, 5, 6, 7: {text}" in reading.warnings


def test_cpx_shown_a_quarter_counts_half_of_it(probe):
    """CPX over NPS4 with whole memory parts: two devices share each quarter."""
    reading = probe("mi300x_cpx_nps4", f"vram_total={MI300X_BYTES // 4}")
    assert {MI300X_BYTES // 8} == {gpu.memory_bytes for gpu in reading.gpus}


def test_partitions_of_a_card_are_linked(probe):
    """Two partitions of one card are asked for once and linked by xGMI, also where the driver calls it internal."""
    links = probe("mi300x_cpx_nps4", "link_type=0").topology.links
    assert 28 == len(links)
    assert {"xgmi"} == {link.kind for link in links}


@pytest.mark.parametrize(
    ("partition", "reported", "card", "expected"),
    [
        (Partition("SPX", "NPS1", 1), 192, 192, 1),
        (Partition("DPX", "NPS2", 2), 96, 192, 1),
        (Partition("DPX", "NPS1", 2), 192, 192, 2),
        (Partition("CPX", "NPS4", 8), 24, 192, 1),
        (Partition("CPX", "NPS4", 8), 48, None, 2),
        (Partition("CPX", "NPS1", 8), 192, None, 8),
        (Partition("CPX", "", 8), 192, None, 8),
    ],
)
def test_sharers(partition, reported, card, expected):
    """How many devices share what the driver reports; without a catalog entry, all of a memory part."""
    assert expected == partition.sharers(reported, card)


def test_radeons_without_xgmi(probe):
    """Two R9700 reach each other over PCIe at the rate of their slots; they have no partition and no ECC reading."""
    reading = probe("r9700_x2")
    gpu = reading.gpus[0]
    assert ("gfx1201", R9700_BYTES, "", None) == (gpu.arch, gpu.memory_bytes, gpu.partition, gpu.ecc)
    assert (Link(0, 1, "pcie", 64.0),) == reading.topology.links
    assert ((0,), (1,)) == reading.topology.islands(2)
    assert () == reading.warnings


def test_a_device_without_pcie_reading_takes_the_catalogs(probe):
    """No slot rate: the catalog's PCIe figure stands in."""
    reading = probe("r9700_x2", "pcie_width.1=0")
    assert (Link(0, 1, "pcie", 64.0),) == reading.topology.links
    assert "GPUs 0-1: the rate of their PCIe link is not reported: the catalog's 64 GB/s stand in" in reading.warnings


def test_hidden_peers_go_through_the_host(probe):
    """No peer access: the link is called host, and a warning says why."""
    reading = probe("r9700_x2", "p2p.0.1=0")
    assert (Link(0, 1, "host", 64.0),) == reading.topology.links
    assert "GPUs 0-1: no peer-to-peer over PCIe: traffic goes through the host's memory" in reading.warnings


@pytest.mark.parametrize(
    ("scenario", "lines", "expected"),
    [
        ("mi300x_x8", ["max_bandwidth=50000", "port_rate=512", "port_lane=32"], 64.0),
        ("mi300x_x8", ["devices=4", "max_bandwidth=100000", "port_rate=512", "port_lane=32", "ports=2"], 128.0),
        ("mi300x_x8", ["port_rate=400", "port_lane=25"], 64.0),
        ("mi300x_x8", ["max_bandwidth=50000", "port_rate=4294967295", "port_lane=32"], 50.0),
        ("mi300x_x8", ["max_bandwidth=50000", "port_rate=512", "port_lane=32", "port_unnamed=1"], 50.0),
        ("mi355x_x8", ["port_rate=608", "port_lane=38"], 76.0),
        ("mi355x_x8", ["port_rate=16", "port_lane=38"], 76.8),
    ],
)
def test_xgmi_ports_count_where_they_say_more(probe, library, scenario, lines, expected):
    """The ports' Gb/s over all links of a pair beat a smaller or missing figure of the kernel; nonsense counts not."""
    _needs(library, "SIZEOF_port")
    assert {("xgmi", expected)} == {(link.kind, link.gb_s) for link in probe(scenario, *lines).topology.links}


def test_xgmi_ports_reported_by_one_end_only(probe, library):
    """A card that does not say is reached at the rate that its peer gives."""
    _needs(library, "SIZEOF_port")
    lines = ["max_bandwidth=50000", "port_rate=512", "port_lane=32", "status.amdsmi_get_link_metrics.0=2"]
    assert {64.0} == {link.gb_s for link in probe("mi300x_x8", *lines).topology.links}


def test_xgmi_over_two_hops_takes_no_port_rate(probe, library):
    """Ports are those of direct links: a longer way keeps the kernel's least rate."""
    _needs(library, "SIZEOF_port")
    lines = ["hops.0.1=2", "min_bandwidth.0.1=32000", "port_rate=512", "port_lane=32"]
    assert Link(0, 1, "xgmi", 32.0) == probe("mi300x_x8", *lines).topology.links[0]


def test_xgmi_over_two_hops(probe):
    """A pair two hops apart has the least rate on the way and a warning."""
    reading = probe("mi300x_x8", "hops.0.1=2", "min_bandwidth.0.1=32000")
    assert Link(0, 1, "xgmi", 32.0) == reading.topology.links[0]
    assert any(line.startswith("GPUs 0-1: xGMI takes 2 hops") for line in reading.warnings)


def test_unreadable_links(probe):
    """A pair whose link cannot be read, or is none that counts, has no link and a warning."""
    reading = probe("r9700_x2", "status.amdsmi_topo_get_link_type.0=12")
    text = "GPUs 0-1: how they reach each other is not known: the AMD driver reported an input/output error"
    assert ((), True) == (reading.topology.links, text in reading.warnings)
    other = probe("r9700_x2", "link_type.0.1=4")
    assert ((), True) == (other.topology.links, any("names no link" in line for line in other.warnings))


def test_one_device_fails(probe):
    """The device that cannot be read is left out and named; the other seven stay, and their links."""
    reading = probe("mi300x_x8", "status.amdsmi_get_gpu_asic_info.5=12")
    assert (7, 21) == (len(reading.gpus), len(reading.topology.links))
    assert "0000:a6:00.0" not in [gpu.pci_bus_id for gpu in reading.gpus]
    assert ("GPU 5: left out: the AMD driver reported an input/output error",) == reading.warnings


def test_all_devices_fail(probe):
    """Devices that all fail are no machine to plan for; the reasons are in the answer."""
    answer = probe("mi300x_x8", "status.amdsmi_get_gpu_asic_info=10")
    assert isinstance(answer, Unknown)
    assert answer.why.startswith("no AMD GPU can be used; GPUs 0, 1, 2, 3, 4, 5, 6, 7: left out: no permission")


def test_memory_of_the_second_source(probe):
    """Where the total fails, the VRAM description (MiB) counts."""
    reading = probe("r9700_x2", "status.amdsmi_get_gpu_memory_total.1=2", "vram_mib.1=32000")
    assert 32000 * MIB == reading.gpus[1].memory_bytes


def test_memory_of_the_catalog(probe):
    """Where no figure can be read, the catalog's stands in, unverified, and free memory stays unknown."""
    reading = probe("mi300x_x8", "status.amdsmi_get_gpu_memory_total.1=12")
    gpu = reading.gpus[1]
    assert (MI300X_BYTES, True) == (gpu.memory_bytes, "memory_bytes" in gpu.unverified)
    assert Unknown("the AMD driver reported an input/output error") == gpu.free_bytes
    assert any(line.startswith("GPU 1: its memory is not known") for line in reading.warnings)


def test_an_integrated_device_uses_the_hosts_memory(probe):
    """Where the host's part is larger than the VRAM, it counts, as the kernel has it for HIP."""
    reading = probe("strix_halo")
    gpu = reading.gpus[0]
    assert ("gfx1151", True) == (gpu.arch, gpu.unified_memory)
    assert (62 << 30, 61 << 30) == (gpu.memory_bytes, gpu.free_bytes)
    text = "GPU 0: integrated: 62.0 GiB of the host's memory count as its own, its VRAM is 0.5 GiB"
    assert (text,) == reading.warnings


def test_an_integrated_device_with_large_vram_uses_that(probe):
    """A large carve-out stays what counts; so does the VRAM of a device with its own memory."""
    assert 96 << 30 == probe("strix_halo", f"vram_total={96 << 30}").gpus[0].memory_bytes
    assert R9700_BYTES == probe("r9700_x2", f"gtt_total={96 << 30}").gpus[0].memory_bytes


def test_use_cannot_be_read(probe):
    """Free memory is unknown with the reason, never the total."""
    gpu = probe("mi300x_x8", "status.amdsmi_get_gpu_memory_usage.0=10").gpus[0]
    assert isinstance(gpu.free_bytes, Unknown)
    assert gpu.free_bytes.why.startswith("no permission")


def test_a_device_without_catalog_entry(probe):
    """Rates are zero and unverified, which a warning says; the memory is the driver's."""
    reading = probe("r9700_x2", "name.1=AMD Instinct MI999Z", "gfx.1=0x955")
    gpu = reading.gpus[1]
    assert ("AMD Instinct MI999Z", "gfx955", R9700_BYTES) == (gpu.name, gpu.arch, gpu.memory_bytes)
    assert (0.0, 0.0, None) == (gpu.bandwidth, gpu.tflops_bf16, gpu.tflops_fp8)
    assert {"bandwidth", "tflops_bf16"} <= set(gpu.unverified)
    text = "GPU 1: AMD Instinct MI999Z has no catalog entry: its bandwidth and compute rates are not known"
    assert text in reading.warnings


SMALL = (
    "left out: AMD Radeon Graphics (gfx1036) has no catalog entry and 0.5 GiB of memory, less than 4.0 GiB; "
    "HIP_VISIBLE_DEVICES can hide it from vLLM too"
)


def test_a_small_integrated_device_beside_a_card_is_left_out(probe):
    """Only the card is planned for; the warning names the other one, and says nothing of its rates."""
    reading = probe("desktop")
    assert ["AMD Radeon AI PRO R9700"] == [gpu.name for gpu in reading.gpus]
    assert ((), (f"GPU 1: {SMALL}",)) == (reading.topology.links, reading.warnings)


def test_a_small_integrated_device_alone_is_no_gpu(probe):
    """The answer says why, so that the processor is planned for."""
    answer = probe("desktop", "devices=1", "name.0=AMD Radeon Graphics", "gfx.0=0x1036", "vram_total.0=536870912")
    assert Unknown(f"no AMD GPU can be used; GPU 0: {SMALL}") == answer


def test_a_small_integrated_device_counts_for_hips_numbers(probe):
    """It is left out after the visible devices are chosen: the card behind it keeps its index."""
    first = ["name.0=AMD Radeon Graphics", "gfx.0=0x1036", "vram_total.0=536870912"]
    card = ["name.1=AMD Radeon AI PRO R9700", "gfx.1=0x1201", f"vram_total.1={R9700_BYTES}"]
    reading = probe("desktop", *first, *card, HIP_VISIBLE_DEVICES="1")
    assert ["0000:0e:00.0"] == [gpu.pci_bus_id for gpu in reading.gpus]
    assert ("HIP_VISIBLE_DEVICES=1: 1 of 2 devices are visible",) == reading.warnings


@pytest.mark.parametrize(("mib", "expected"), [(4095, 1), (4096, 2)])
def test_the_least_memory_of_a_device_without_catalog_entry(probe, mib, expected):
    """4 GiB are enough to stay, less is not."""
    assert expected == len(probe("desktop", f"vram_total.1={mib * MIB}").gpus)


def test_a_nameless_device_of_no_target_is_left_out(probe):
    """Neither a name nor a gfx target: nothing can be planned for it."""
    reading = probe("r9700_x2", "name.1=N/A", "gfx.1=0")
    assert 1 == len(reading.gpus)
    assert ("GPU 1: left out: AMD GPU has no catalog entry and its gfx target is not known",) == reading.warnings


def test_the_boards_name_stands_in(probe):
    """Without a market name, the board's product name is looked up."""
    reading = probe("r9700_x2", "name.1=N/A", "board.1=AMD Radeon AI PRO R9700")
    assert ("AMD Radeon AI PRO R9700", 191) == (reading.gpus[1].name, reading.gpus[1].tflops_bf16)


def test_a_decimal_stepping_is_gfx90a(probe):
    """`gfx9010`, as older tools write MI210's target, is gfx90a."""
    gpu = probe("r9700_x2", "name.0=AMD Instinct MI210", "gfx.0=0x9010", f"vram_total.0={64 << 30}").gpus[0]
    assert ("gfx90a", 181) == (gpu.arch, gpu.tflops_bf16)


@pytest.mark.parametrize(
    ("variables", "expected", "said"),
    [
        ({"HIP_VISIBLE_DEVICES": "2,0"}, ["46", "05"], "HIP_VISIBLE_DEVICES=2,0: 2 of 8 devices are visible"),
        ({"CUDA_VISIBLE_DEVICES": "7"}, ["e5"], "CUDA_VISIBLE_DEVICES=7: 1 of 8 devices are visible"),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "7"}, ["26"], "HIP_VISIBLE_DEVICES=1: 1 of 8"),
        ({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "1"}, ["a6"], "HIP_VISIBLE_DEVICES=1: 1 of 2"),
        ({"ROCR_VISIBLE_DEVICES": "GPU-c0ffee0000000003"}, ["65"], "1 of 8 devices are visible"),
        ({"HIP_VISIBLE_DEVICES": "0,9,1"}, ["05"], "'9' names no further device"),
        ({"HIP_VISIBLE_DEVICES": "0,0"}, ["05"], "'0' names no further device"),
    ],
)
def test_visible_devices(probe, variables, expected, said):
    """The variables choose and order the devices, as ROCm reads them, and a warning says so."""
    reading = probe("mi300x_x8", **variables)
    assert expected == [gpu.pci_bus_id[5:7] for gpu in reading.gpus]
    assert any(said in line for line in reading.warnings)


def test_an_empty_hip_list_hides_nothing_an_empty_rocr_list_all(probe):
    """HIP takes an empty variable for none; ROCr takes it for a list of nothing."""
    assert 8 == len(probe("mi300x_x8", HIP_VISIBLE_DEVICES="").gpus)
    answer = probe("mi300x_x8", ROCR_VISIBLE_DEVICES="")
    assert Unknown("no AMD GPU can be used; ROCR_VISIBLE_DEVICES=: 0 of 8 devices are visible") == answer


def test_hips_order_counts(probe, library):
    """Where HIP counts otherwise than amd-smi, the index is HIP's."""
    _needs(library, "OFFSET_enumeration_hip_id")
    reading = probe("r9700_x2", "hip.0=1", "hip.1=0", HIP_VISIBLE_DEVICES="0")
    assert ["0000:83:00.0"] == [gpu.pci_bus_id for gpu in reading.gpus]


def test_rocm_version(probe, library, tmp_path):
    """The version file of the installation gives the runtime; without one it is empty."""
    assert "" == probe("r9700_x2").runtime
    folder = tmp_path / str(library).lstrip("/") / ".info"
    folder.mkdir(parents=True)
    (folder / "version").write_text("7.0.2-56\n")
    assert "ROCm 7.0.2" == probe("r9700_x2").runtime


def test_rocm_is_looked_for_in_its_usual_place(tmp_path, monkeypatch):
    """/opt/rocm where no variable says otherwise; a file without a version says nothing."""
    monkeypatch.delenv("ROCM_PATH", raising=False)
    (tmp_path / "opt/rocm/.info").mkdir(parents=True)
    (tmp_path / "opt/rocm/.info/version").write_text("6.4.1\n")
    assert "ROCm 6.4.1" == amdsmi._rocm_version(tmp_path)
    (tmp_path / "opt/rocm/.info/version").write_bytes(b"\xff\xfe")
    assert "" == amdsmi._rocm_version(tmp_path)


def test_unknown_driver_version(probe):
    """A driver that does not say its version: empty, with a warning."""
    reading = probe("r9700_x2", "status.amdsmi_get_gpu_driver_info=2")
    assert ("", ("the driver's version is not known: this device does not offer it",)) == (
        reading.driver,
        reading.warnings,
    )


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("6.8.5", "6.8.5"),
        ("6.12.12.60402-2125197.24.04", "6.12.12.60402-2125197"),
        ("Linux version 6.8.0-45-generic (jo@10.1.2.3) (gcc 13.2.0)", "6.8.0-45"),
    ],
)
def test_only_the_number_of_the_driver_version(probe, told, expected):
    """What stands around it, such as who built the kernel and where, is dropped."""
    reading = probe("r9700_x2", f"driver={told}")
    assert (expected, ()) == (reading.driver, reading.warnings)


@pytest.mark.parametrize("told", ["built by jo@10.1.2.3", "N/A", "7"])
def test_a_driver_version_without_a_number(probe, told):
    """Empty, and the warning repeats nothing of the text."""
    reading = probe("r9700_x2", f"driver={told}")
    text = "the driver's version is not known: the AMD driver gives no version number"
    assert ("", (text,)) == (reading.driver, reading.warnings)


@pytest.mark.parametrize("unit", [1, 10**6])
def test_a_lowered_power_cap(probe, unit):
    """A cap under the default is a warning, whichever unit the library uses; the cap itself is what counts."""
    reading = probe("mi300x_x8", f"power_cap.2={550 * unit}", f"default_power_cap={750 * unit}")
    assert [750.0, 550.0] == [gpu.power_cap_watts for gpu in reading.gpus[1:3]]
    assert ("GPU 2: the power cap is 550 W, its default is 750 W",) == reading.warnings


@pytest.mark.parametrize("default", [0, 700000000, 4294967295, 18446744073709551615])
def test_no_lowered_power_cap(probe, default):
    """No default, one that is below the cap, and the library's mark for no figure say nothing."""
    assert () == probe("mi300x_x8", f"default_power_cap={default}").warnings


def test_a_cap_in_watts(probe):
    """Some guests give the cap in watts."""
    assert 750.0 == probe("mi300x_x8", "power_cap.0=750").gpus[0].power_cap_watts


def test_the_library_is_closed_and_its_noise_kept_away(run):
    """What the C library prints, flushed or not, never shows; and the library is shut down."""
    done = run("mi300x_x8", "noise=1")
    assert ("", True, 8) == (done.outputs, done.closed, len(done.answer.gpus))


def test_outputs_work_again_after_a_probe(run):
    """Both outputs of the process are what they were before."""
    after = "import atexit; atexit.register(lambda: print('still here'))\n"
    assert "still here\n" == run("r9700_x2", "noise=1", prelude=after).outputs


def test_closed_outputs_do_no_harm(run):
    """A process without outputs can probe too."""
    assert 2 == len(run("r9700_x2", prelude="import os; os.close(1); os.close(2)\n").answer.gpus)


def test_no_library(run):
    """Without ROCm the vendor's package prints and raises KeyError; the user sees neither."""
    done = run("")
    assert ("", Unknown("ROCm's library libamd_smi.so cannot be loaded")) == (done.outputs, done.answer)


def test_no_library_though_a_driver_is_loaded(probe, tmp_path):
    """/dev/kfd without the library: the answer says what to install."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    why = probe("").why
    assert "an AMD GPU driver is loaded (/dev/kfd), but ROCm's library libamd_smi.so cannot be loaded" in why
    assert why.endswith("install amd-smi-lib of your ROCm")


def test_no_package(run, tmp_path):
    """Without the package there is nothing to say, unless a driver is loaded: then how to get it."""
    hidden = "import sys; sys.modules['amdsmi'] = None\n"
    assert Unknown("the Python package amdsmi is not installed") == run("", prelude=hidden).answer
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    why = run("", prelude=hidden).answer.why
    assert why.endswith("the Python package amdsmi is not installed: pip install 'vllm-advisor[amd]'")


def test_a_library_of_another_release(probe, tmp_path):
    """A library that lacks functions of the package: said as what it is."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "one.c").write_text("int amdsmi_init(void) { return 0; }\n")
    target = tmp_path / "lib" / "libamd_smi.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", target, tmp_path / "one.c"], check=True)
    why = probe("", **_with_rocm(tmp_path)).why
    assert "the package amdsmi and ROCm's libamd_smi.so are of different releases" == why
    folder = tmp_path / str(tmp_path).lstrip("/") / ".info"
    folder.mkdir(parents=True)
    (folder / "version").write_text("6.4.1-83")
    assert probe("", **_with_rocm(tmp_path)).why.endswith("of different releases: pip install amdsmi==6.4.1")


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["status.amdsmi_init=34"], "AMD SMI did not start: the AMD driver (amdgpu) is not loaded"),
        (["status.amdsmi_get_socket_handles=9"], "AMD SMI cannot list devices: the device is busy, ask again"),
        (["devices=0"], "the AMD driver is loaded and reports no GPU"),
    ],
)
def test_no_devices(probe, lines, why):
    """A driver that does not start, or has nothing to show, is an answer."""
    assert Unknown(why) == probe("", *lines)


@pytest.fixture(scope="session")
def said(library):
    """Our sentence for every exception class of the vendor, and for every status code."""
    env = os.environ | {"PYTHONPATH": PATHS} | _with_rocm(library)
    done = subprocess.run([sys.executable, "-c", EXCEPTIONS], env=env, check=True, capture_output=True, text=True)
    import json

    return json.loads(done.stdout)


def test_every_exception_class_has_a_sentence(said):
    """The vendor's classes, all of them, in plain words of ours."""
    classes, _ = said
    assert {"AmdSmiException", "AmdSmiLibraryException", "AmdSmiRetryException", "AmdSmiTimeoutException"} <= set(
        classes
    )
    assert "no permission (add the user to the groups render and video)" == classes["AmdSmiLibraryException"]
    assert "the AMD driver did not answer in time" == classes["AmdSmiTimeoutException"]
    assert [] == [name for name, text in classes.items() if not text or "AmdSmi" in text or "\n" in text]


def test_every_status_has_a_sentence(said):
    """No code of the library shows its constant or several lines."""
    _, codes = said
    assert len(codes) > 40
    assert [] == [text for text in codes.values() if not text or "AMD_SMI" in text or "AMDSMI" in text or "\n" in text]
    assert "this device does not offer it" == codes["2"]


def test_any_other_exception_has_a_sentence():
    """What the package's own parsing may raise names its class."""
    assert "the package amdsmi failed (KeyError)" == amdsmi_driver.sentence(KeyError("x"))


def test_layout_is_the_packages(library):
    """The stand-in was built with the structures of the installed package, not with a copy of ours."""
    header = (library / "layout.h").read_text()
    assert "#define OFFSET_asic_market_name 0\n" in header
    assert ctypes.CDLL(str(library / "lib" / "libamd_smi.so")).amdsmi_get_lib_version() == 2
