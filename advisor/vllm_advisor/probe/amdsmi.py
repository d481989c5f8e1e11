"""What the AMD driver says of this machine, through AMD SMI: the one door to the package `amdsmi`, imported inside.

That package prints and raises KeyError where there is no ROCm; neither reaches the user. A machine without a driver or
without a GPU is an answer (`Unknown`), not a failure; a device that cannot be read is left out with a warning.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from vllm_advisor.hardware import Unknown
from vllm_advisor.probe.amdsmi_driver import Driver, silence
from vllm_advisor.probe.notes import Notes
from vllm_advisor.probe.reading import Reading


_ROOT = Path("/")
_ROCM = "/opt/rocm"
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
# what a driver of its own (DKMS) says, or the kernel's text from /proc/version, which goes on with user@host
_DRIVER = re.compile(r"(?:Linux version )?([0-9]+(?:\.[0-9]+)+(?:-[0-9]+)?)")
_LOADED = "an AMD GPU driver is loaded (/dev/kfd), but "


def probe(root: Path = _ROOT) -> Reading | Unknown:
    """The AMD devices that a HIP program started here would see, or why there are none; never raises for that.

    `root` is where /dev/kfd and ROCm's version file are looked for. ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES are
    honoured, as ROCm does, and a warning says so. While it runs, nothing else can print: it holds the outputs closed.
    """
    with silence():
        driver = _driver(root)
        if isinstance(driver, Unknown):
            return driver
        started = driver.ask("amdsmi_init")
        if isinstance(started, Unknown):
            return Unknown(f"AMD SMI did not start: {started.why}")
        try:
            return _read(driver, root)
        finally:
            driver.ask("amdsmi_shut_down")


def _driver(root: Path) -> Driver | Unknown:
    """The vendor's package; without ROCm its import raises KeyError, OSError or AttributeError, by release."""
    loaded = _LOADED if (root / "dev/kfd").exists() else ""
    try:
        import amdsmi  # noqa: PLC0415  # only a machine that is probed pays for it
    except ModuleNotFoundError:
        hint = ": pip install 'vllm-advisor[amd]'" if loaded else ""
        return Unknown(f"{loaded}the Python package amdsmi is not installed{hint}")
    except AttributeError:  # the library lacks a function that the package looks up
        release = _rocm_version(root).removeprefix("ROCm ")  # the package is released under ROCm's number
        hint = f": pip install amdsmi=={release}" if release else ""
        return Unknown(f"{loaded}the package amdsmi and ROCm's libamd_smi.so are of different releases{hint}")
    except (Exception, SystemExit):  # noqa: BLE001  # whatever it is, there is no library behind it
        hint = ": install amd-smi-lib of your ROCm" if loaded else ""
        return Unknown(f"{loaded}ROCm's library libamd_smi.so cannot be loaded{hint}")
    return Driver(amdsmi)


def _read(driver: Driver, root: Path) -> Reading | Unknown:
    from vllm_advisor.probe import amdsmi_device, amdsmi_links, amdsmi_visible  # noqa: PLC0415  # only with a driver

    handles = driver.ask("amdsmi_get_processor_handles")
    if isinstance(handles, Unknown):
        return Unknown(f"AMD SMI cannot list devices: {handles.why}")
    if not handles:
        return Unknown("the AMD driver is loaded and reports no GPU")
    notes = Notes()
    found = amdsmi_device.read_all(driver, handles, notes)
    seen = amdsmi_device.worth_planning(amdsmi_visible.select(found, os.environ, notes), notes)
    if not seen:
        return Unknown("; ".join(("no AMD GPU can be used", *notes.lines())))
    return Reading(
        gpus=tuple(device.gpu for device in seen),
        topology=amdsmi_links.topology(driver, seen, notes),
        driver=_driver_version(driver, seen[0].slot.handle, notes),
        runtime=_rocm_version(root),
        warnings=notes.lines(),
    )


def _driver_version(driver: Driver, handle: object, notes: Notes) -> str:
    """`6.14.14`, and nothing else of the text around it; "" where there is no such number."""
    told = driver.ask("amdsmi_get_gpu_driver_info", handle)
    found = None if isinstance(told, Unknown) else _DRIVER.match(str(told.get("driver_version", "")))
    if found is None:
        why = told.why if isinstance(told, Unknown) else "the AMD driver gives no version number"
        notes.add("", f"the driver's version is not known: {why}")
        return ""
    return found[1]


def _rocm_version(root: Path) -> str:
    """`ROCm 7.0.2`, from the version file of the installation; "" where there is none (a wheel brings its own)."""
    home = os.environ.get("ROCM_PATH") or _ROCM
    try:
        text = (root / home.lstrip("/") / ".info/version").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
    found = _VERSION.match(text.strip())
    return f"ROCm {found[0]}" if found else ""
