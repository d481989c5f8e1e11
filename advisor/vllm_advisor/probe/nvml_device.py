"""One NVIDIA device: identity, memory, who uses it, and what holds it back; a MIG slice is a device of its own.

A board is read first (architecture, bus, power, ECC, clocks); what CUDA can use is then the board, or its slices.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.catalog import gpus
from vllm_advisor.hardware import Gpu, Unknown, Vendor
from vllm_advisor.probe import nvml_memory, nvml_state
from vllm_advisor.probe.notes import Notes, Subject
from vllm_advisor.probe.nvml_driver import NOT_FOUND, NOT_SUPPORTED, Driver, GpuLost, Refused, bus_id


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.probe.nvml_memory import Memory, Size


_SLICE_OF_SLICE = re.compile(r"MIG (\d+)c\.\d+g\.")  # a compute instance of a GPU instance: 1c.3g.40gb
_PROFILE = re.compile(r"MIG (\S+)")
_RATES = ("bandwidth", "tflops_bf16", "tflops_fp8", "tflops_fp4")


class Board(NamedTuple):
    """One physical GPU. `bus` is its PCI address as nvidia-smi prints it, "" where it is not known."""

    number: int
    subject: Subject
    name: str
    arch: str
    bus: str
    state: nvml_state.State


class Device(NamedTuple):
    """What CUDA would see: `gpu`, and where it is. `handle` is the board's: links and power belong to boards."""

    gpu: Gpu
    handle: Any
    board: int
    uuid: str


def read_all(driver: Driver, count: int, shared: Memory, notes: Notes) -> tuple[Device, ...]:
    """The devices of boards 0…count-1; a board that cannot be read is left out with a note.

    `shared` is the host's memory, for devices that have none of their own.
    """
    return tuple(device for i in range(count) for device in _of_board(driver, i, shared, notes))


def _of_board(driver: Driver, number: int, shared: Memory, notes: Notes) -> list[Device]:
    try:
        handle = driver.ask("nvmlDeviceGetHandleByIndex", number)
        if not isinstance(handle, Unknown):
            board = _board(number, Subject(driver, handle, str(number), notes))
            return list(_devices(board, shared))
        why = handle.why
    except GpuLost as lost:
        why = str(lost)
    notes.add(str(number), f"left out: {why}")
    return []


def _board(number: int, subject: Subject) -> Board:
    name = subject.ask("nvmlDeviceGetName")
    if isinstance(name, Unknown):
        subject.note(f"its name is not known: {name.why}")
        name = "NVIDIA GPU"
    pci = subject.ask("nvmlDeviceGetPciInfo")
    bus = "" if isinstance(pci, Unknown) else bus_id(pci)
    return Board(number, subject, name, _arch(subject), bus, nvml_state.read(subject))


def _arch(board: Subject) -> str:
    """`sm90`, or "" where it could not be read."""
    capability = board.ask("nvmlDeviceGetCudaComputeCapability")
    return "" if isinstance(capability, Unknown) else f"sm{capability[0]}{capability[1]}"


def _devices(board: Board, shared: Memory) -> Iterator[Device]:
    mode = board.subject.ask("nvmlDeviceGetMigMode")
    current, pending = (0, 0) if isinstance(mode, Unknown) else mode
    if current != pending:
        board.subject.note(f"MIG is to be switched {'on' if pending else 'off'} at the next reset")
    yield from _slices(board) if current else _whole(board, shared)


def _whole(board: Board, shared: Memory) -> Iterator[Device]:
    """The board as one device; nothing where nobody says how large it is or what it is."""
    subject = board.subject
    memory = nvml_memory.read(subject)
    known = gpus.match_probed(board.name, board.arch, memory.total if isinstance(memory.total, int) else 0)
    if _is_unified(known, memory):
        memory = shared
        subject.note("shares its memory with the processor, so the host's memory counts as its own")
    size = nvml_memory.size(memory, known, subject)
    gpu = size if isinstance(size, Unknown) else _gpu(known, board.name, board.arch, size, subject)
    if isinstance(gpu, Unknown):
        subject.note(f"left out: {gpu.why}")
    else:
        yield _device(board, subject, gpu, memory)


def _is_unified(known: Gpu | None, memory: Memory) -> bool:
    """As the catalog says; a device that it does not know is integrated where the driver offers no memory figure."""
    if known is not None:
        return known.unified_memory
    return isinstance(memory.total, Refused) and memory.total.code == NOT_SUPPORTED


def _slices(board: Board) -> Iterator[Device]:
    """The MIG instances of a board; a board in MIG mode without one cannot run CUDA programs."""
    most = board.subject.ask("nvmlDeviceGetMaxMigDeviceCount")
    if isinstance(most, Unknown):
        board.subject.note(f"left out: MIG is on, its slices cannot be listed: {most.why}")
        return
    found = [handle for k in range(most) if (handle := _slice_handle(board, k)) is not None]
    if found:
        board.subject.note("MIG is on: one process can use one slice, and slices reach no other device")
    else:
        board.subject.note("left out: MIG is on and no slice has been made (nvidia-smi mig -cgi)")
    for k, handle in enumerate(found):
        yield from _slice(board, board.subject._replace(handle=handle, label=f"{board.number}.{k}"))


def _slice_handle(board: Board, k: int) -> Any | None:
    handle = board.subject.ask("nvmlDeviceGetMigDeviceHandleByIndex", k)
    if not isinstance(handle, Refused):
        return handle
    if handle.code != NOT_FOUND:
        board.subject.note(f"MIG slice {k} cannot be read: {handle.why}")
    return None


def _slice(board: Board, subject: Subject) -> Iterator[Device]:
    memory = nvml_memory.read(subject)
    size = nvml_memory.slice_size(subject, memory)
    name = _slice_name(board, subject)
    gpu = size if isinstance(size, Unknown) else _slice_gpu(board, name, size, subject)
    if isinstance(gpu, Unknown):
        subject.note(f"left out: {gpu.why}")
        return
    profile = _PROFILE.search(name)
    yield _device(board, subject, replace(gpu, partition=profile[1] if profile else "MIG"), memory)


def _slice_gpu(board: Board, name: str, size: Size, subject: Subject) -> Gpu | Unknown:
    known = gpus.match_probed(_SLICE_OF_SLICE.sub(r"MIG \1g.", name), board.arch, size.bytes)
    return _gpu(known, name, board.arch, size, subject)


def _slice_name(board: Board, subject: Subject) -> str:
    """`NVIDIA A100-SXM4-80GB MIG 3g.40gb`, from the slice's attributes where the driver's name does not say it."""
    name = subject.ask("nvmlDeviceGetName")
    if not isinstance(name, Unknown) and " MIG " in name:
        return str(name)
    attributes = subject.ask("nvmlDeviceGetAttributes")
    if isinstance(attributes, Unknown):
        return f"{board.name} MIG slice"
    return f"{board.name} MIG {attributes.gpuInstanceSliceCount}g.{round(attributes.memorySizeMB / 1024)}gb"


def _gpu(known: Gpu | None, name: str, arch: str, size: Size, subject: Subject) -> Gpu | Unknown:
    """The catalog's device under the driver's name, or one whose rates are zero and unverified."""
    if known is not None:
        weak = tuple(dict.fromkeys((*known.unverified, *size.unverified)))
        return replace(known, name=name, memory_bytes=size.bytes, unverified=weak)
    if not arch:
        return Unknown(f"{name} has no catalog entry and its compute capability is not known")
    subject.note(f"{name} has no catalog entry: its bandwidth and compute rates are not known")
    weak = (*_RATES, *size.unverified)
    return Gpu(name, Vendor.NVIDIA, arch, size.bytes, bandwidth=0.0, tflops_bf16=0.0, unverified=weak)


def _device(board: Board, subject: Subject, gpu: Gpu, memory: Memory) -> Device:
    uuid = subject.ask("nvmlDeviceGetUUID")
    probed = replace(
        gpu,
        free_bytes=memory.free,
        unified_memory=gpu.unified_memory or memory.unified,
        other_processes_bytes=nvml_memory.others(subject, memory, gpu.memory_bytes),
        power_cap_watts=board.state.power_cap_watts,
        ecc=board.state.ecc,
        pci_bus_id=board.bus,
    )
    return Device(probed, board.subject.handle, board.number, "" if isinstance(uuid, Unknown) else str(uuid))
