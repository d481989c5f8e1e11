"""One AMD device as HIP would see it: identity, memory, partition, who uses it, power."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.catalog import gpus
from vllm_advisor.hardware import Gpu, Unknown, Vendor
from vllm_advisor.probe import amdsmi_memory, amdsmi_partition, amdsmi_state
from vllm_advisor.probe.amdsmi_memory import Source
from vllm_advisor.units import gib


if TYPE_CHECKING:
    from vllm_advisor.probe.amdsmi_driver import Driver
    from vllm_advisor.probe.amdsmi_memory import Memory
    from vllm_advisor.probe.notes import Notes


_RATES = ("bandwidth", "tflops_bf16", "tflops_fp8", "tflops_fp4")
# An estimate of ours, between what firmware usually sets aside for an integrated GPU (512 MiB) and the smallest device
# of the catalog (7578 MiB).
_LEAST_BYTES = 4 << 30
_ARCH = re.compile(r"gfx[0-9a-f]{3,4}")
_DECIMAL = {"gfx9010": "gfx90a"}  # ROCm's older tools print the stepping of gfx90a in decimal


class Slot(NamedTuple):
    """A handle of the driver: its number as amd-smi counts, its PCI address and that of its card ("" not known)."""

    number: int
    handle: Any
    bus: str
    card: str


class Identity(NamedTuple):
    """What it is: the driver's name, `gfx942` ("" not known), its UUID as HIP writes it ("" not known)."""

    name: str
    arch: str
    uuid: str


class Device(NamedTuple):
    """A device and where it is. `hip` is HIP's number for it; `catalog` its name there, "" where it is not in it."""

    gpu: Gpu
    slot: Slot
    hip: int | None
    uuid: str
    catalog: str


def read_all(driver: Driver, handles: list[Any], notes: Notes) -> tuple[Device, ...]:
    """The devices behind these handles; one that cannot be read is left out with a note."""
    slots = [_slot(driver, number, handle) for number, handle in enumerate(handles)]
    cards = [slot.card for slot in slots]
    found = [_device(driver, slot, cards.count(slot.card), notes) for slot in slots]
    return tuple(device for device in found if device is not None)


def worth_planning(devices: tuple[Device, ...], notes: Notes) -> tuple[Device, ...]:
    """Without the devices that are neither in the catalog nor large; a note on each of these and each without rates.

    To be asked after the visible ones are chosen: HIP counts a small integrated GPU like any other.
    """
    for device in devices:
        if not device.catalog:
            notes.add(str(device.slot.number), _without_entry(device.gpu))
    return tuple(device for device in devices if device.catalog or device.gpu.memory_bytes >= _LEAST_BYTES)


def _without_entry(gpu: Gpu) -> str:
    if gpu.memory_bytes >= _LEAST_BYTES:
        return f"{gpu.name} has no catalog entry: its bandwidth and compute rates are not known"
    small = f"{gpu.name} ({gpu.arch}) has no catalog entry and {gib(gpu.memory_bytes)} of memory"
    return f"left out: {small}, less than {gib(_LEAST_BYTES)}; HIP_VISIBLE_DEVICES can hide it from vLLM too"


def _slot(driver: Driver, number: int, handle: Any) -> Slot:
    """Partitions of one card differ in the PCI function only."""
    bus = driver.ask("amdsmi_get_gpu_device_bdf", handle)
    if not isinstance(bus, str):
        return Slot(number, handle, "", f"#{number}")
    return Slot(number, handle, bus, bus.rpartition(".")[0])


def _device(driver: Driver, slot: Slot, neighbours: int, notes: Notes) -> Device | None:
    identity = _identity(driver, slot)
    read = identity if isinstance(identity, Unknown) else _probed(driver, slot, neighbours, identity, notes)
    if isinstance(read, Unknown):
        notes.add(str(slot.number), f"left out: {read.why}")
        return None
    return read


def _identity(driver: Driver, slot: Slot) -> Identity | Unknown:
    asic = driver.ask("amdsmi_get_gpu_asic_info", slot.handle)
    if isinstance(asic, Unknown):
        return asic
    arch = str(asic.get("target_graphics_version", ""))
    arch = _DECIMAL.get(arch, arch)
    name = _said(asic.get("market_name")) or _board_name(driver, slot) or "AMD GPU"
    serial = _said(asic.get("asic_serial")).removeprefix("0x").lower()
    return Identity(name, arch if _ARCH.fullmatch(arch) else "", f"GPU-{serial}" if serial else "")


def _board_name(driver: Driver, slot: Slot) -> str:
    board = driver.ask("amdsmi_get_gpu_board_info", slot.handle)
    return "" if isinstance(board, Unknown) else _said(board.get("product_name"))


def _said(value: object) -> str:
    """The package writes N/A for what it does not know."""
    return value.strip() if isinstance(value, str) and value.strip() not in ("", "N/A") else ""


def _probed(driver: Driver, slot: Slot, neighbours: int, identity: Identity, notes: Notes) -> Device | Unknown:
    partition = amdsmi_partition.read(driver, slot.handle, neighbours)
    card = gpus.match_probed(identity.name, identity.arch, 0)
    source = Source(driver, slot.handle, str(slot.number), notes)
    memory = amdsmi_memory.read(source, partition, card)
    gpu = memory if isinstance(memory, Unknown) else _gpu(identity, memory)
    if isinstance(gpu, Unknown):
        return gpu
    hip, uuid = _hip(driver, slot)
    gpu = replace(
        gpu,
        partition=partition.label,
        pci_bus_id=slot.bus,
        other_processes_bytes=amdsmi_state.other_processes(driver, slot.handle),
        power_cap_watts=amdsmi_state.power_cap(source),
        ecc=amdsmi_state.ecc(driver, slot.handle),
    )
    return Device(gpu, slot, hip, uuid or identity.uuid, card.name if card else "")


def _gpu(identity: Identity, memory: Memory) -> Gpu | Unknown:
    """The catalog's device under the driver's name, or one whose rates are zero and unverified."""
    known = gpus.match_probed(identity.name, identity.arch, memory.total)
    if known is not None:
        weak = tuple(dict.fromkeys((*known.unverified, *memory.unverified)))
        return replace(known, name=identity.name, memory_bytes=memory.total, free_bytes=memory.free, unverified=weak)
    if not identity.arch:
        return Unknown(f"{identity.name} has no catalog entry and its gfx target is not known")
    return Gpu(
        identity.name,
        Vendor.AMD,
        identity.arch,
        memory.total,
        bandwidth=0.0,
        tflops_bf16=0.0,
        free_bytes=memory.free,
        unverified=_RATES,
    )


def _hip(driver: Driver, slot: Slot) -> tuple[int | None, str]:
    """HIP's number and UUID of the device."""
    told = driver.ask("amdsmi_get_gpu_enumeration_info", slot.handle)
    if isinstance(told, Unknown):
        return None, ""
    number = told.get("hip_id")
    return (number if isinstance(number, int) else None), _said(told.get("hip_uuid"))
