"""What people and drivers write, and the device and machine that it means."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_advisor.catalog import gpus
from vllm_advisor.errors import AdvisorError, UnknownGpu, UsageError
from vllm_advisor.hardware import Vendor


GIB = 1 << 30

SPELLINGS = {
    "h100": "NVIDIA H100 SXM",
    "H100-SXM": "NVIDIA H100 SXM",
    "H100_SXM5": "NVIDIA H100 SXM",
    "h100sxm5": "NVIDIA H100 SXM",
    "H100 80GB": "NVIDIA H100 SXM",
    "H100-80GB": "NVIDIA H100 SXM",
    "H100 80GB HBM3": "NVIDIA H100 SXM",
    "nvidia h100 pcie": "NVIDIA H100 PCIe",
    "H100NVL": "NVIDIA H100 NVL",
    "h200": "NVIDIA H200 SXM",
    "H200 NVL": "NVIDIA H200 NVL",
    "a100": "NVIDIA A100 80GB SXM",
    "A100-80": "NVIDIA A100 80GB SXM",
    "A100-SXM-80GB": "NVIDIA A100 80GB SXM",
    "a100 40g": "NVIDIA A100 40GB SXM",
    "A100 80GB PCIe": "NVIDIA A100 80GB PCIe",
    "A100 (size not stated)": "NVIDIA A100 80GB SXM",
    "v100": "NVIDIA V100 SXM2 32GB",
    "RTX-4090": "NVIDIA RTX 4090",
    "geforce rtx 4090": "NVIDIA RTX 4090",
    "4090": "NVIDIA RTX 4090",
    "rtx3090ti": "NVIDIA RTX 3090 Ti",
    "rtx pro 6000": "NVIDIA RTX PRO 6000 Blackwell Server",
    "RTX-PRO-6000-Blackwell": "NVIDIA RTX PRO 6000 Blackwell Server",
    "RTX 6000 Ada": "NVIDIA RTX 6000 Ada",
    "a6000": "NVIDIA RTX A6000",
    "GB10": "NVIDIA GB10",
    "spark": "NVIDIA GB10",
    "GB10 (DGX Spark)": "NVIDIA GB10",
    "B200-SXM": "NVIDIA B200 SXM",
    "gb300": "NVIDIA GB300",
    "MI300X": "AMD Instinct MI300X",
    "AMD Instinct MI300X": "AMD Instinct MI300X",
    "mi-355x": "AMD Instinct MI355X",
    "7900xtx": "AMD Radeon RX 7900 XTX",
    "RX 7900 XT": "AMD Radeon RX 7900 XT",
    "R9700": "AMD Radeon AI PRO R9700",
    "Strix Halo (gfx1151)": "AMD Strix Halo",
    "Azure Standard_NC80adis_H100_v5": "NVIDIA H100 NVL",
    "L4 24GB": "NVIDIA L4",
    "MI325X-256GB": "AMD Instinct MI325X",
    "cpu": "CPU x86-64",
}

# As NVML prints them (the names of vLLM's tuned MoE files, vllm/model_executor/layers/fused_moe/configs, and public
# nvidia-smi output) and as amdsmi does (vllm/platforms/rocm.py, _ROCM_DEVICE_ID_NAME_MAP, and the same files).
DRIVER_NAMES = {
    "NVIDIA H100 80GB HBM3": ("sm90", "NVIDIA H100 SXM"),
    "NVIDIA H200": ("sm90", "NVIDIA H200 SXM"),
    "NVIDIA H20-3e": ("sm90", "NVIDIA H20 141GB"),
    "NVIDIA A100-SXM4-80GB": ("sm80", "NVIDIA A100 80GB SXM"),
    "NVIDIA A100-SXM4-40GB": ("sm80", "NVIDIA A100 40GB SXM"),
    "NVIDIA A800-SXM4-80GB": ("sm80", "NVIDIA A800 80GB SXM"),
    "NVIDIA L40S": ("sm89", "NVIDIA L40S"),
    "NVIDIA B300 SXM6 AC": ("sm103", "NVIDIA B300 SXM"),
    "NVIDIA GeForce RTX 4090": ("sm89", "NVIDIA RTX 4090"),
    "NVIDIA GeForce RTX 3070 Laptop GPU": ("sm86", "NVIDIA RTX 3070 Laptop"),
    "NVIDIA RTX 5000 Ada Generation": ("sm89", "NVIDIA RTX 5000 Ada"),
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": ("sm120", "NVIDIA RTX PRO 6000 Blackwell Workstation"),
    "NVIDIA GB10": ("sm121", "NVIDIA GB10"),
    "NVIDIA GH200 480GB": ("sm90", "NVIDIA GH200 96GB"),
    "Tesla T4": ("sm75", "NVIDIA T4"),
    "Quadro RTX 6000": ("sm75", "NVIDIA Quadro RTX 6000"),
    "AMD Instinct MI300X": ("gfx942", "AMD Instinct MI300X"),
    "AMD_Instinct_MI300X_HF": ("gfx942", "AMD Instinct MI300X"),
    "AMD Instinct MI350 OAM": ("gfx950", "AMD Instinct MI350X"),
    "AMD Instinct MI325X VF": ("gfx942", "AMD Instinct MI325X"),
    "AMD Radeon R9700": ("gfx1201", "AMD Radeon AI PRO R9700"),
    "AMD Radeon 8060S Graphics": ("gfx1151", "AMD Strix Halo"),
}


# Every NVIDIA and AMD device that public vLLM start-up logs and benchmark rows name, as they spell it.
REPORTED = {
    "sm75": "T4",
    "sm80": "A100, A100-80GB, A100-PCIE-40GB, A800, A800-SXM4-80GB",
    "sm86": "RTX 3070 Laptop, RTX-3090, RTX A6000",
    "sm89": "L4, L20, L40S, L40S 48GB, RTX-4090, RTX 5000 Ada, RTX-5000-Ada",
    "sm90": "GH200 96GB, H100, H100-SXM, H20, H200, H200 (recipe), H200 NVL, H200-SXM",
    "sm100": "B200, B200-SXM, GB200",
    "sm103": "B300, B300-SXM",
    "sm120": "RTX 5070 Ti 16GB, RTX 5080 16GB, RTX 5090 D 32GB, RTX-5090, RTX PRO 6000 Blackwell",
    "sm121": "GB10 (DGX Spark class)",
    "gfx942": "AMD Instinct MI300A, MI300X, MI325X",
    "gfx950": "MI350X, MI355X",
    "gfx1100": "RX 7900 XT",
    "gfx1151": "Strix Halo (gfx1151)",
    "gfx1201": "R9700, AMD Radeon AI PRO R9700",
}


def kinds(node):
    return {(link.kind, link.gb_s) for link in node.topology.links}


@pytest.mark.parametrize(("written", "name"), SPELLINGS.items())
def test_a_usual_spelling_finds_its_device(written, name):
    """Letter case, blanks, dashes, makers and word order do not matter; bare names have their documented default."""
    assert name == gpus.find(written).name


@pytest.mark.parametrize(("written", "expected"), DRIVER_NAMES.items())
def test_a_driver_name_finds_the_rates_of_its_device(written, expected):
    """The probe's own memory is kept, the catalog's rates are given."""
    arch, name = expected
    found = gpus.match_probed(written, arch, 0)
    assert (name, arch) == (found.name, found.arch)
    assert gpus.find(name).bandwidth == found.bandwidth


@pytest.mark.parametrize(("arch", "written"), REPORTED.items())
def test_devices_of_public_reports_are_known(arch, written):
    """Each is found, and is of the architecture that vLLM sees."""
    assert {arch} == {gpus.find(name).arch for name in written.split(", ")}


def test_the_figures_of_an_h100():
    """Values and units as the rest of the program reads them (aiconfigurator h100_sxm.yaml; llm-d-benchmark memory)."""
    gpu = gpus.find("h100")
    assert ("sm90", 90, Vendor.NVIDIA) == (gpu.arch, gpu.capability, gpu.vendor)
    assert (3.35e12, 989, 1979, None) == (gpu.bandwidth, gpu.tflops_bf16, gpu.tflops_fp8, gpu.tflops_fp4)
    assert 79.18 == round(gpu.memory_bytes / GIB, 2)
    assert () == gpu.unverified
    assert "bandwidth: A" in gpu.source


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("A100-PCIE-40GB", 39.38),
        ("H200", 139.72),
        ("RTX 3090", 23.58),
        ("L40S", 44.4),
        ("RTX A6000", 44.55),
        ("GB10", 121.69),
        ("MI300X", 191.98),
        ("B200", 178.35),
        ("MI355X", 287.98),
    ],
)
def test_memory_is_what_start_up_logs_print(name, gib):
    """The total of public vLLM and PyTorch logs, by device (sources in the catalog)."""
    assert gib == round(gpus.find(name).memory_bytes / GIB, 2)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("MI308X", ("memory_bytes", "bandwidth", "tflops_bf16", "tflops_fp8")),
        ("A10G", ("arch", "memory_bytes", "bandwidth", "tflops_bf16")),
        ("RTX 3090", ("bandwidth", "tflops_bf16")),
        ("RTX PRO 6000 WS", ("memory_bytes", "bandwidth", "tflops_bf16", "tflops_fp8", "tflops_fp4")),
        ("GB10", ("tflops_bf16", "tflops_fp8", "tflops_fp4")),
        ("MI355X", ("bandwidth", "tflops_bf16", "tflops_fp8")),
        ("B200", ()),
    ],
)
def test_unverified_marks_stay_with_the_device(name, fields):
    """The marks of the collected datasheet table reach the program's own type."""
    assert fields == gpus.find(name).unverified


@pytest.mark.parametrize(("name", "arch"), [("V100", "sm70"), ("P100", "sm60"), ("MI100", "gfx908")])
def test_devices_too_old_for_vllm_are_known(name, arch):
    """They are found, so that the answer can be that this vLLM does not support them."""
    assert arch == gpus.find(name).arch


@pytest.mark.parametrize("name", ["Intel Arc Pro B60", "Gaudi 3", "TPU v5e", "M3 Ultra", "Ascend 910B", "trn2"])
def test_other_makers_are_not_supported(name):
    """The answer says so, and what is."""
    with pytest.raises(UnknownGpu, match="not supported") as caught:
        gpus.find(name)
    assert "NVIDIA and AMD" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "near"), [("H1000", "NVIDIA H100 SXM"), ("RTX 3095", "NVIDIA RTX 3090"), ("MI300Y", "AMD Instinct MI300X")]
)
def test_an_unknown_name_gets_the_three_nearest(name, near):
    """The device that was meant is among three names."""
    with pytest.raises(UnknownGpu) as caught:
        gpus.find(name)
    listed = caught.value.hint.removeprefix("the nearest names are: ").split(", ")
    assert 3 == len(listed)
    assert near in listed


def test_another_memory_size_is_another_device():
    """A rebuilt RTX 4090 with 48 GB is not the catalog's."""
    with pytest.raises(UnknownGpu, match="RTX 4090 48GB"):
        gpus.find("RTX 4090 48GB")


def test_an_ambiguous_name_is_not_guessed():
    """`RTX 6000` was sold twice."""
    with pytest.raises(UnknownGpu, match="could be NVIDIA Quadro RTX 6000 or NVIDIA RTX 6000 Ada"):
        gpus.find("RTX 6000")


@pytest.mark.parametrize(
    ("text", "machines", "devices", "name"),
    [
        ("h100", 1, 1, "NVIDIA H100 SXM"),
        ("8xH100", 1, 8, "NVIDIA H100 SXM"),
        ("8 x h100", 1, 8, "NVIDIA H100 SXM"),
        ("8×MI300X", 1, 8, "AMD Instinct MI300X"),
        ("2x8xH100", 2, 8, "NVIDIA H100 SXM"),
        ("2x3090", 1, 2, "NVIDIA RTX 3090"),
        ("7900xtx", 1, 1, "AMD Radeon RX 7900 XTX"),
        ("2x1xGB10", 2, 1, "NVIDIA GB10"),
        ("16xMI250X", 1, 16, "AMD Instinct MI250X GCD"),
        ("72xGB200", 1, 72, "NVIDIA GB200"),
        ("Standard_NC80adis_H100_v5", 1, 2, "NVIDIA H100 NVL"),
        ("p4d.24xlarge", 1, 8, "NVIDIA A100 40GB SXM"),
    ],
)
def test_a_machine_is_read_as_written(text, machines, devices, name):
    """Machines, devices in each, and the device."""
    node = gpus.node(text)
    assert (machines, devices, name) == (node.count, len(node.gpus), node.gpu.name)
    assert machines * devices == node.world


@pytest.mark.parametrize("text", ["0xH100", "16xH100", "0x8xH100", "2xGB10", "9xMI300X", "2xL40S,MI300X", "cpu,cpu"])
def test_impossible_machines_are_refused(text):
    """Counts that no machine holds, and mixes that no vLLM runs on."""
    with pytest.raises(UsageError):
        gpus.node(text)


def test_a_count_behind_the_name_is_explained():
    """`h100x8` is not read, and the hint says how to write it."""
    with pytest.raises(UnknownGpu) as caught:
        gpus.node("h100x8")
    assert "as in 8xH100" in caught.value.hint


def test_a_machine_that_is_too_large_gets_a_way_to_write_it():
    """The hint is text that works."""
    with pytest.raises(UsageError) as caught:
        gpus.node("16xH100")
    written = caught.value.hint.removeprefix("several machines are written as ")
    assert "2x8xNVIDIA H100 SXM" == gpus.node(written).label


def test_the_number_of_machines_is_given_once():
    """As text or as an argument; the same number twice is no quarrel."""
    assert 16 == gpus.node("8xH100", count=2).world
    assert 16 == gpus.node("2x8xH100", count=2).world
    with pytest.raises(UsageError):
        gpus.node("2x8xH100", count=3)
    with pytest.raises(UsageError):
        gpus.node("8xH100", count=0)


def test_eight_h100_are_joined_all_to_all():
    """28 pairs of NVLink, 450 GB/s one way: one island."""
    node = gpus.node("8xH100")
    assert 28 == len(node.topology.links)
    assert {("nvlink", 450.0)} == kinds(node)
    assert ((0, 1, 2, 3, 4, 5, 6, 7),) == node.topology.islands(8)


def test_two_rtx_3090_have_no_bridge():
    """A bridge is an option that a name does not show: PCIe 4.0 x16, one way, and no island."""
    node = gpus.node("2xRTX 3090")
    assert {("pcie", 32.0)} == kinds(node)
    assert ((0,), (1,)) == node.topology.islands(2)


def test_mi300x_peers_have_one_link_each():
    """128 GB/s both ways for a pair, not the 896 GB/s of all seven links."""
    node = gpus.node("8xMI300X")
    assert 28 == len(node.topology.links)
    assert {("xgmi", 64.0)} == kinds(node)
    assert 64.0 == node.topology.slowest((0, 1)).gb_s


def test_the_two_halves_of_an_mi250x_board_are_nearer():
    """Devices 0 and 1 are one board, 1 and 2 are not."""
    links = {(link.a, link.b): link.gb_s for link in gpus.node("4xMI250X").topology.links}
    assert (200.0, 50.0, 200.0) == (links[0, 1], links[1, 2], links[2, 3])


def test_a_mixed_machine_is_joined_by_its_slowest_slot():
    """PCIe of the older card, a label of both, and a warning."""
    node = gpus.node("2xL40S,2xA10")
    assert "2xNVIDIA L40S+2xNVIDIA A10" == node.label
    assert {("pcie", 32.0)} == kinds(node)
    assert any("least memory limits" in warning for warning in node.warnings)
    assert "NVIDIA A10" == node.gpu.name


def test_mixed_cards_may_be_joined_by_a_plus():
    """As people write a pair of different cards."""
    assert "1xNVIDIA RTX 5080+1xNVIDIA RTX 5070 Ti" == gpus.node("RTX 5080 + RTX 5070 Ti").label


def test_the_network_is_an_assumption_that_is_said():
    """400 Gb/s a device between machines; a box with its own port has that."""
    two = gpus.node("2x8xH100")
    assert (50.0, True) == (two.network_gb_s, "assumed" in two.warnings[0])
    assert (25.0, ()) == (gpus.node("2x1xGB10").network_gb_s, gpus.node("2x1xGB10").warnings)
    assert () == gpus.node("8xH100").warnings


def test_a_processor_is_a_target_with_the_memory_that_is_given():
    """The assumption is said, and replaced where the caller knows better."""
    node = gpus.node("cpu", memory_bytes=16 * GIB)
    assert (Vendor.CPU, "cpu-x86_64", 16 * GIB) == (node.gpu.vendor, node.gpu.arch, node.gpu.memory_bytes)
    assert "memory_bytes" not in node.gpu.unverified
    assert 64 * GIB == gpus.node("cpu").gpu.memory_bytes
    assert "assumed" in gpus.node("cpu").warnings[0]


def test_a_probed_device_keeps_its_own_memory():
    """An H100 that reports 79.1 GiB has 79.1 GiB."""
    found = gpus.match_probed("NVIDIA H100 80GB HBM3", "sm90", int(79.1 * GIB))
    assert (int(79.1 * GIB), 3.35e12) == (found.memory_bytes, found.bandwidth)


def test_memory_decides_between_devices_of_one_name():
    """The PCI database has one name for two Radeons."""
    shared = "Navi 31 [Radeon RX 7900 XT/7900 XTX/7900M]"
    assert "AMD Radeon RX 7900 XTX" == gpus.match_probed(shared, "gfx1100", 24 * GIB).name
    assert "AMD Radeon RX 7900 XT" == gpus.match_probed(shared, "gfx1100", 20 * GIB).name


def test_a_mig_instance_gets_its_share():
    """2g.20gb of an A100 80GB: two sevenths of the compute, two eighths of the bandwidth, none of it promised."""
    found = gpus.match_probed("NVIDIA A100-SXM4-80GB MIG 2g.20gb", "sm80", int(19.5 * GIB))
    assert 312 * 2 / 7 == pytest.approx(found.tflops_bf16)
    assert 2.039e12 / 4 == pytest.approx(found.bandwidth)
    assert {"bandwidth", "tflops_bf16"} <= set(found.unverified)


def test_a_partition_of_an_mi300x_gets_its_share():
    """CPX with NPS4: 24 GiB, an eighth of everything."""
    found = gpus.match_probed("AMD Instinct MI300X", "gfx942", 24 * GIB)
    assert 1307 / 8 == pytest.approx(found.tflops_bf16)
    assert 5.3e12 / 8 == pytest.approx(found.bandwidth)


def test_integrated_parts_are_known_by_their_arch():
    """amdsmi calls them only `AMD Radeon Graphics`; their rates are then a guess, and marked."""
    found = gpus.match_probed("AMD Radeon Graphics", "gfx1151", 96 * GIB)
    assert ("AMD Strix Halo", 256e9) == (found.name, found.bandwidth)
    assert "bandwidth" in found.unverified


@pytest.mark.parametrize(
    ("name", "arch"),
    [("NVIDIA X9000", "sm90"), ("NVIDIA H100 80GB HBM3", "sm120"), ("AMD Radeon Graphics", "gfx1036"), ("", "")],
)
def test_an_unknown_device_has_no_rates(name, arch):
    """None, so that the probe says that it does not know them."""
    assert None is gpus.match_probed(name, arch, 80 * GIB)


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.text(max_size=40), st.from_regex(r"[0-9]{0,5} ?[x×,+(] ?[0-9]{0,6}x?(h100|mi300x|rtx|gb)?", fullmatch=True)
    )
)
def test_no_text_gives_a_traceback(text):
    """Whatever is written, the answer is a machine or one expected error with a hint."""
    try:
        outcome = gpus.node(text).gpus
    except AdvisorError as error:
        outcome = error.message and error.hint
    assert outcome


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=30), st.sampled_from(["", "sm90", "gfx942", "gfx1151"]), st.integers(-1, 1 << 50))
def test_no_driver_name_gives_a_traceback(name, arch, memory_bytes):
    """A probe gets a device with positive rates, or None."""
    found = gpus.match_probed(name, arch, memory_bytes)
    assert found is None or (found.bandwidth > 0 and found.tflops_bf16 > 0 and found.memory_bytes > 0)
