"""What the devices do right now: load, memory in use, who is on them, heat and power. Cheap questions, often asked.

NVIDIA answers through NVML, which is opened and closed each time, so that nobody who waits keeps a driver from being
replaced. AMD's driver says the same in files of sysfs (kernel.org, gpu/amdgpu/thermal and driver-misc); its library is
left alone, because it prints. Whatever cannot be read is Unknown, and a device that is gone is one with nothing known.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.hardware import Unknown


if TYPE_CHECKING:
    from vllm_advisor.probe.nvml_driver import Driver

_NOT_READ = Unknown("not read")
_ROOT = Path("/")
_AMD = "0x1002"  # PCI vendor number


class Activity(NamedTuple):
    """One device. `busy`: share of time; `used_bytes` of its memory; `processes`: (number, bytes) of those listed."""

    number: int
    busy: float | Unknown = _NOT_READ
    used_bytes: int | Unknown = _NOT_READ
    processes: tuple[tuple[int, int], ...] | Unknown = _NOT_READ
    celsius: float | Unknown = _NOT_READ
    watts: float | Unknown = _NOT_READ
    cap_watts: float | Unknown = _NOT_READ
    usual_cap_watts: float | Unknown = _NOT_READ


def read(root: Path = _ROOT) -> tuple[Activity, ...]:
    """Every device of this machine, () where there is none."""
    from vllm_advisor.probe import nvml  # noqa: PLC0415 - who asks only for AMD's files needs it not

    with nvml.started() as driver:
        found = of_nvml(driver) if driver else ()
    return found or amd(root)


def of_nvml(driver: Driver) -> tuple[Activity, ...]:
    """What NVML says, started already."""
    count = driver.ask_system("nvmlDeviceGetCount")
    return () if isinstance(count, Unknown) else tuple(_nvidia(driver, number) for number in range(count))


def _nvidia(driver: Driver, number: int) -> Activity:
    handle = driver.ask_system("nvmlDeviceGetHandleByIndex", number)
    if isinstance(handle, Unknown):
        return Activity(number, *(Unknown(handle.why) for _ in Activity._fields[1:]))

    def ask(question: str, *more: Any) -> Any:
        return driver.ask_system(question, handle, *more)

    load, memory = ask("nvmlDeviceGetUtilizationRates"), ask("nvmlDeviceGetMemoryInfo")
    running = ask("nvmlDeviceGetComputeRunningProcesses")
    return Activity(
        number,
        load if isinstance(load, Unknown) else load.gpu / 100,
        memory if isinstance(memory, Unknown) else int(memory.used),
        running if isinstance(running, Unknown) else tuple((p.pid, int(p.usedGpuMemory or 0)) for p in running),
        ask("nvmlDeviceGetTemperature", 0),  # NVML_TEMPERATURE_GPU
        _watts(ask("nvmlDeviceGetPowerUsage")),
        _watts(ask("nvmlDeviceGetEnforcedPowerLimit")),
        _watts(ask("nvmlDeviceGetPowerManagementDefaultLimit")),
    )


def _watts(milliwatts: Any) -> float | Unknown:
    return milliwatts if isinstance(milliwatts, Unknown) else milliwatts / 1000


def amd(root: Path = _ROOT) -> tuple[Activity, ...]:
    """AMD's devices, in the order of their addresses on the bus."""
    cards = [card for card in (root / "sys/class/drm").glob("card*/device") if _text(card / "vendor") == _AMD]
    busy = [card for card in cards if (card / "gpu_busy_percent").exists()]
    ordered = sorted(busy, key=lambda card: card.resolve().name)
    return tuple(_amd(number, card) for number, card in enumerate(ordered))


def _amd(number: int, card: Path) -> Activity:
    sensors = next(iter(sorted(card.glob("hwmon/hwmon*"))), card)
    used = _figure(card / "mem_info_vram_used")
    power = _figure(sensors / "power1_average", 1e6)
    return Activity(
        number,
        _figure(card / "gpu_busy_percent", 100),
        used if isinstance(used, Unknown) else int(used),
        _NOT_READ,
        _figure(sensors / "temp2_input" if (sensors / "temp2_input").exists() else sensors / "temp1_input", 1000),
        _figure(sensors / "power1_input", 1e6) if isinstance(power, Unknown) else power,
        _figure(sensors / "power1_cap", 1e6),
        _figure(sensors / "power1_cap_default", 1e6),
    )


def _figure(path: Path, divisor: float = 1.0) -> float | Unknown:
    text = _text(path)
    return int(text) / divisor if re.fullmatch(r"\d{1,15}", text) else Unknown(f"{path.name} says {text[:40]!r}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
