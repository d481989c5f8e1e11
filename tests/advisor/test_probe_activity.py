"""What devices do now: AMD's files of sysfs, and NVML through a driver that a test speaks for."""

import pytest

from vllm_advisor.hardware import Unknown
from vllm_advisor.probe import activity
from vllm_advisor.probe.activity import Activity
from vllm_advisor.probe.nvml_driver import Driver


def card(root, number, address, **files):
    """One device of AMD's, as the kernel shows it."""
    device = root / f"sys/devices/pci0/{address}"
    sensors = device / "hwmon/hwmon3"
    sensors.mkdir(parents=True)
    (device / "vendor").write_text("0x1002\n")
    for name, text in files.items():
        (sensors if name.startswith(("temp", "power")) else device).joinpath(name).write_text(f"{text}\n")
    link = root / f"sys/class/drm/card{number}"
    link.mkdir(parents=True)
    (link / "device").symlink_to(device)


def test_amd_is_read_from_files(tmp_path):
    """Share, bytes, degrees and watts, in the order of the bus; a figure that is missing or odd is unknown."""
    files = {
        "gpu_busy_percent": 37, "mem_info_vram_used": 5 << 30, "temp2_input": 61_500, "power1_average": 310_000_000,
             "power1_cap": 700_000_000, "power1_cap_default": 750_000_000}  # fmt: skip
    card(tmp_path, 1, "0000:0c:00.0", gpu_busy_percent="odd", temp1_input=40_000)
    card(tmp_path, 0, "0000:0b:00.0", **files)
    first, second = activity.amd(tmp_path)
    nothing = Unknown("not read")
    assert Activity(0, 0.37, 5 << 30, nothing, 61.5, 310.0, 700.0, 750.0) == first
    assert (Unknown("gpu_busy_percent says 'odd'"), 40.0, 1) == (second.busy, second.celsius, second.number)
    assert isinstance(second.watts, Unknown)


def test_other_cards_are_none(tmp_path):
    """A display adapter of somebody else, or no folder at all."""
    device = tmp_path / "sys/class/drm/card0/device"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x1a03\n")
    assert () == activity.amd(tmp_path)
    assert () == activity.amd(tmp_path / "nowhere")


class NVMLError(Exception):
    """As pynvml's, with its code."""

    def __init__(self, value):
        super().__init__(value)
        self.value = value


class Figures:
    """An answer with fields."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


def refuses(code):
    """A question that the driver answers with an error."""

    def ask(*_):
        raise NVMLError(code)

    return ask


def vendor(lost=()):
    """A pynvml with two devices, of which one may be lost."""
    processes = [Figures(pid=7, usedGpuMemory=2 << 30), Figures(pid=8, usedGpuMemory=None)]
    return Figures(
        NVMLError=NVMLError,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda number: refuses(15)() if number in lost else number,
        nvmlDeviceGetUtilizationRates=lambda _: Figures(gpu=42),
        nvmlDeviceGetMemoryInfo=lambda _: Figures(used=3 << 30),
        nvmlDeviceGetComputeRunningProcesses=lambda _: processes,
        nvmlDeviceGetTemperature=lambda _, sensor: 55 + sensor,
        nvmlDeviceGetPowerUsage=lambda _: 250_000,
        nvmlDeviceGetEnforcedPowerLimit=lambda _: 600_000,
        nvmlDeviceGetPowerManagementDefaultLimit=refuses(3),
    )


def test_nvidia_is_asked_through_nvml():
    """Milliwatts become watts, per cent a share, and a refusal is unknown with its reason."""
    first, _ = activity.of_nvml(Driver(vendor()))
    assert (0.42, 3 << 30, ((7, 2 << 30), (8, 0)), 55, 250.0, 600.0) == first[1:7]
    assert "this device does not offer it" == first.usual_cap_watts.why


def test_a_lost_device_is_one_with_nothing_known():
    """It does not end the others, and it is not taken for idle."""
    first, second = activity.of_nvml(Driver(vendor(lost=(0,))))
    assert {"the GPU has fallen off the bus"} == {value.why for value in first[1:]}
    assert (0, 0.42) == (first.number, second.busy)


@pytest.mark.gpu
def test_the_devices_of_this_machine():
    """On a real driver every figure is one."""
    found = activity.read()
    assert found
    assert all(0 <= device.busy <= 1 and device.used_bytes > 0 and device.celsius > 0 for device in found)
