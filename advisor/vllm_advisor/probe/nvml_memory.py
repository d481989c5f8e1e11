"""How much memory a device has for CUDA, and who uses it.

vLLM multiplies what cudaMemGetInfo calls total. NVML's total is larger by what driver and firmware keep, and only its
second version tells that part (nvmlMemory_v2_t.reserved): total less reserved is CUDA's figure to good approximation.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.catalog import gpus
from vllm_advisor.hardware import Unknown
from vllm_advisor.units import gib


if TYPE_CHECKING:
    from vllm_advisor.hardware import Gpu
    from vllm_advisor.probe.notes import Subject


_IN_USE = 0.01  # of the memory: less than that an idle driver and a display keep for themselves


class Memory(NamedTuple):
    """Bytes. `exact`: `total` is already without what the driver keeps. `unified`: it is the host's."""

    total: int | Unknown
    free: int | Unknown
    used: int | Unknown
    exact: bool
    unified: bool = False


class Size(NamedTuple):
    """The memory of a device in bytes, and ("memory_bytes",) where the source of the figure is weak."""

    bytes: int
    unverified: tuple[str, ...] = ()


def read(device: Subject) -> Memory:
    """Memory by the newest question that the driver answers; `total` is a Refused where it answers none."""
    version = device.driver.constant("nvmlMemory_v2")
    second = device.ask("nvmlDeviceGetMemoryInfo", version) if version else Unknown("not offered")
    if not isinstance(second, Unknown) and second.total:
        return Memory(second.total - second.reserved, second.free, second.used, exact=True)
    first = device.ask("nvmlDeviceGetMemoryInfo")
    if isinstance(first, Unknown):
        return Memory(first, Unknown(first.why), Unknown(first.why), exact=False)
    if not first.total:
        nothing = Unknown("the driver reports no memory")
        return Memory(nothing, nothing, nothing, exact=False)
    # the first version counts what the driver keeps as used
    return Memory(first.total, first.free, Unknown("the driver does not tell its own part"), exact=False)


def shared_with_host(host_bytes: int | Unknown, available_bytes: int | Unknown) -> Memory:
    """A device that lives in the host's memory: free is what the host has available.

    vLLM takes the same figure there, since CUDA's own leaves out what the file cache would give back
    (utils/mem_utils.py:154 in 0.24, :151 in 0.33).
    """
    free = available_bytes
    if isinstance(free, Unknown):
        free = Unknown(f"shared with the processor, whose free memory is not known: {free.why}")
    elif isinstance(host_bytes, int):
        free = min(free, host_bytes)
    return Memory(host_bytes, free, Unknown("shared"), exact=True, unified=True)


def size(memory: Memory, known: Gpu | None, device: Subject) -> Size | Unknown:
    """The device's memory for CUDA: the driver's figure, else the catalog's, else the driver's gross total."""
    if isinstance(memory.total, int) and memory.exact:
        return Size(memory.total)
    catalog = gpus.find(known.name).memory_bytes if known else None
    if catalog is not None:
        why = memory.total.why if isinstance(memory.total, Unknown) else "the driver does not tell what it keeps"
        device.note(f"its memory is the catalog's {gib(catalog)}, not a reading: {why}")
        return Size(catalog if isinstance(memory.total, Unknown) else min(catalog, memory.total), ("memory_bytes",))
    if isinstance(memory.total, Unknown):
        return Unknown(memory.total.why)
    device.note("its memory includes what the driver keeps for itself, which this driver does not tell")
    return Size(memory.total, ("memory_bytes",))


def slice_size(device: Subject, memory: Memory) -> Size | Unknown:
    """A MIG slice's memory: the driver's figure, else the size of its profile."""
    if isinstance(memory.total, int):
        return Size(memory.total, () if memory.exact else ("memory_bytes",))
    attributes = device.ask("nvmlDeviceGetAttributes")
    if isinstance(attributes, Unknown) or not attributes.memorySizeMB:
        return Unknown(memory.total.why)
    return Size(attributes.memorySizeMB << 20, ("memory_bytes",))


def others(device: Subject, memory: Memory, total: int) -> int:
    """Bytes that other processes hold, as far as the driver tells; a container often hides who they are."""
    running = device.first("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
    if isinstance(running, Unknown):
        device.note(f"who else uses it is not known: {running.why}")
        running = ()
    theirs = [process for process in running if process.pid != os.getpid()]
    listed = sum(process.usedGpuMemory or 0 for process in theirs)
    used = memory.used if isinstance(memory.used, int) else 0
    most = max(listed, used)
    if theirs:
        who = f"{len(theirs)} other process{'es' if len(theirs) > 1 else ''}"
        device.note(f"{gib(most)} in use, {who} run{'s' if len(theirs) == 1 else ''} on it")
    elif most > _IN_USE * total:
        device.note(f"{gib(most)} in use by processes that cannot be seen from here")
    return most
