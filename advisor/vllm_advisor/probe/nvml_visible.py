"""CUDA_VISIBLE_DEVICES: which of the devices a CUDA program started here would see, and in which order.

The CUDA C++ Programming Guide (environment variables) sets the rules: indices or UUIDs, the latter abbreviated at will;
at the first entry that is no device the list ends; an empty list hides all. With MIG, an index means the first slice of
that board, and one process can use one slice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.probe.notes import Notes
    from vllm_advisor.probe.nvml_device import Device


VARIABLE = "CUDA_VISIBLE_DEVICES"


def select(found: tuple[Device, ...], environment: Mapping[str, str], notes: Notes) -> tuple[Device, ...]:
    """The devices that are left, in the variable's order; all of them where it is not set."""
    value = environment.get(VARIABLE)
    if value is None:
        return found
    chosen: list[Device] = []
    for entry in (part.strip() for part in value.split(",")):
        device = _named(entry, found)
        if device is None or device in chosen:
            _say_where_it_ends(entry, value, notes)
            break
        chosen.append(device)
    notes.add("", f"{VARIABLE}={value}: {len(chosen)} of {len(found)} devices are visible")
    _say_order(found, value, environment, notes)
    return tuple(chosen)


def _named(entry: str, found: tuple[Device, ...]) -> Device | None:
    if entry.isdecimal():
        return next((device for device in found if device.board == int(entry)), None)
    if not entry.upper().startswith(("GPU-", "MIG-")):
        return None
    matching = [device for device in found if device.uuid.lower().startswith(entry.lower())]
    return matching[0] if len(matching) == 1 else None


def _say_where_it_ends(entry: str, value: str, notes: Notes) -> None:
    if value.strip():
        notes.add("", f"{VARIABLE}={value}: {entry!r} names no further device, CUDA ignores it and what follows")


def _say_order(found: tuple[Device, ...], value: str, environment: Mapping[str, str], notes: Notes) -> None:
    """CUDA counts the fastest device first unless told otherwise, NVML counts by bus: they differ on mixed boards."""
    mixed = len({device.gpu.name for device in found if not device.gpu.partition}) > 1
    indexed = any(part.strip().isdecimal() for part in value.split(","))
    if mixed and indexed and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        notes.add("", "mixed devices: set CUDA_DEVICE_ORDER=PCI_BUS_ID, else CUDA may count them in another order")
