"""Which AMD devices a HIP program started here would see, and in which order.

ROCm's guide to GPU isolation: ROCR_VISIBLE_DEVICES filters below HIP, so HIP_VISIBLE_DEVICES counts within what it
leaves. HIP takes CUDA_VISIBLE_DEVICES for its own where that is not set (vLLM too, platforms/rocm.py:139). Both lists
hold indices or UUIDs, end at the first entry that is no device, and an empty HIP list is no list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.probe.amdsmi_device import Device
    from vllm_advisor.probe.notes import Notes


_HIP = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_ROCR = "ROCR_VISIBLE_DEVICES"


def select(found: tuple[Device, ...], environment: Mapping[str, str], notes: Notes) -> tuple[Device, ...]:
    """The devices that are left, in HIP's order."""
    seen = _in_hip_order(found)
    if _ROCR in environment:
        seen = _listed(_ROCR, environment[_ROCR], seen, notes)
    hip = next((name for name in _HIP if environment.get(name)), None)
    return _listed(hip, environment[hip], seen, notes) if hip else seen


def _in_hip_order(found: tuple[Device, ...]) -> tuple[Device, ...]:
    """As HIP counts them, where the driver says so of every device; else as amd-smi counts them."""
    ids = {device.hip for device in found}
    if None in ids or len(ids) < len(found):
        return found
    return tuple(sorted(found, key=lambda device: device.hip or 0))


def _listed(variable: str, value: str, found: tuple[Device, ...], notes: Notes) -> tuple[Device, ...]:
    chosen: list[Device] = []
    for entry in (part.strip() for part in value.split(",")):
        device = _named(entry, found)
        if device is None or device in chosen:
            _say_where_it_ends(variable, value, entry, notes)
            break
        chosen.append(device)
    notes.add("", f"{variable}={value}: {len(chosen)} of {len(found)} devices are visible")
    return tuple(chosen)


def _named(entry: str, found: tuple[Device, ...]) -> Device | None:
    if entry.isdecimal():
        return found[int(entry)] if int(entry) < len(found) else None
    matching = [device for device in found if device.uuid and device.uuid.lower() == entry.lower()]
    return matching[0] if len(matching) == 1 else None


def _say_where_it_ends(variable: str, value: str, entry: str, notes: Notes) -> None:
    if value.strip():
        notes.add("", f"{variable}={value}: {entry!r} names no further device, ROCm ignores it and what follows")
