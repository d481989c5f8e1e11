"""What the NVIDIA driver says of this machine, through NVML: the one door to `pynvml`, which is imported inside.

A machine without a driver or without a GPU is an answer (`Unknown`), not a failure; a device that cannot be read is
left out with a warning that names it; a missing reading stays unknown and is never a number.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vllm_advisor.hardware import Unknown
from vllm_advisor.probe.notes import Notes
from vllm_advisor.probe.nvml_driver import Driver
from vllm_advisor.probe.reading import Reading


if TYPE_CHECKING:
    from collections.abc import Iterator

_NOT_ASKED = Unknown("not probed")


def probe(host_memory_bytes: int | Unknown, host_available_bytes: int | Unknown = _NOT_ASKED) -> Reading | Unknown:
    """The NVIDIA devices that a CUDA program started here would see, or why there are none; never raises for that.

    `host_memory_bytes` is the memory of devices that share it with the processor (GB10, Thor), and
    `host_available_bytes` what of it is free (MemAvailable): NVML has no figures for them. CUDA_VISIBLE_DEVICES is
    honoured, as CUDA does, and a warning says so.
    """
    try:
        import pynvml  # noqa: PLC0415  # only a machine that is probed pays for it
    except ImportError:
        return Unknown("the Python package nvidia-ml-py is not installed")
    driver = Driver(pynvml)
    started = driver.ask_system("nvmlInit")
    if isinstance(started, Unknown):
        return Unknown(started.why)
    try:
        return _read(driver, host_memory_bytes, host_available_bytes)
    finally:
        driver.ask_system("nvmlShutdown")


def _read(driver: Driver, host_bytes: int | Unknown, available_bytes: int | Unknown) -> Reading | Unknown:
    from vllm_advisor.probe import nvml_device, nvml_links, nvml_memory, nvml_visible  # noqa: PLC0415  # with a driver

    count = driver.ask_system("nvmlDeviceGetCount")
    if isinstance(count, Unknown):
        return Unknown(count.why)
    if not count:
        return Unknown("the NVIDIA driver is loaded and reports no GPU")
    notes = Notes()
    shared = nvml_memory.shared_with_host(host_bytes, available_bytes)
    found = nvml_device.read_all(driver, count, shared, notes)
    seen = nvml_visible.select(found, os.environ, notes)
    if not seen:
        return Unknown("; ".join(("no NVIDIA GPU can be used", *notes.lines())))
    return Reading(
        gpus=tuple(device.gpu for device in seen),
        topology=nvml_links.topology(driver, seen, frozenset(device.gpu.pci_bus_id for device in found), notes),
        driver=_driver_version(driver, notes),
        runtime=_cuda_version(driver, notes),
        warnings=notes.lines(),
    )


def _driver_version(driver: Driver, notes: Notes) -> str:
    version = driver.ask_system("nvmlSystemGetDriverVersion")
    if isinstance(version, Unknown):
        notes.add("", f"the driver's version is not known: {version.why}")
        return ""
    return str(version)


def _cuda_version(driver: Driver, notes: Notes) -> str:
    """`CUDA 13.0`; the driver encodes it as 1000 × major + 10 × minor."""
    version = driver.first("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion")
    if isinstance(version, Unknown):
        notes.add("", f"the newest CUDA of the driver is not known: {version.why}")
        return ""
    return f"CUDA {version // 1000}.{version % 1000 // 10}"


@contextmanager
def started() -> Iterator[Driver | None]:
    """NVML for as long as the block lasts, None where there is none; never raises for that."""
    try:
        import pynvml  # noqa: PLC0415  # only a machine that is probed pays for it
    except ImportError:
        yield None
        return
    driver = Driver(pynvml)
    if isinstance(driver.ask_system("nvmlInit"), Unknown):
        yield None
        return
    try:
        yield driver
    finally:
        driver.ask_system("nvmlShutdown")
