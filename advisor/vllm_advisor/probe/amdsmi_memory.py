"""Which memory counts as an AMD device's: its VRAM, its share of it, or the host's where it has next to none.

vLLM budgets from HIP's total, through torch (utils/mem_utils.py:143). HIP has it from the kernel's KFD, AMD SMI has the
driver's VRAM total: the same memory for a device with its own. An integrated device whose VRAM is smaller than what it
may use of the host's memory (GTT) is given that instead by the kernel (amdgpu_ttm.c, apu_prefer_gtt; amdgpu_amdkfd.c
reports it to HIP); MI300A is not, its HBM is VRAM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.hardware import Gpu, Unknown
from vllm_advisor.units import gib


if TYPE_CHECKING:
    from vllm_advisor.probe.amdsmi_driver import Driver
    from vllm_advisor.probe.amdsmi_partition import Partition
    from vllm_advisor.probe.notes import Notes


_MIB = 1 << 20


class Memory(NamedTuple):
    """Bytes: what counts as this device's, and what of that is free; `unverified` names a figure of the catalog."""

    total: int
    free: int | Unknown
    unverified: tuple[str, ...] = ()


class Source(NamedTuple):
    """The device under question and where to write what is odd about it."""

    driver: Driver
    handle: Any
    label: str
    notes: Notes

    def amount(self, which: str, kind: str) -> int | Unknown:
        """Bytes, `which` is total or usage."""
        answer = self.driver.memory(f"amdsmi_get_gpu_memory_{which}", self.handle, kind)
        return answer if isinstance(answer, (int, Unknown)) else Unknown("the AMD driver reports no number")

    def note(self, text: str) -> None:
        self.notes.add(self.label, text)


def read(source: Source, partition: Partition, card: Gpu | None) -> Memory | Unknown:
    """The memory to plan with; `card` is the catalog's whole device, where it has one."""
    total = _total(source)
    if isinstance(total, Unknown):
        return _assumed(source, total, partition, card)
    host = _host_memory(source, card)
    if host > total:
        source.note(f"integrated: {gib(host)} of the host's memory count as its own, its VRAM is {gib(total)}")
        return Memory(host, _free(source, host, "GTT"))
    return _share(source, partition, Memory(total, _free(source, total, "VRAM")), card)


def _total(source: Source) -> int | Unknown:
    """Bytes of VRAM, from the first of the driver's two figures that is one."""
    total = source.amount("total", "VRAM")
    if isinstance(total, int) and total > 0:
        return total
    info = source.driver.ask("amdsmi_get_gpu_vram_info", source.handle)
    size = 0 if isinstance(info, Unknown) else info.get("vram_size")
    if isinstance(size, int) and size > 0:
        return size * _MIB
    return total if isinstance(total, Unknown) else Unknown("the AMD driver reports no memory")


def _host_memory(source: Source, card: Gpu | None) -> int:
    """Bytes of the host's memory that an integrated device may use; 0 for any other."""
    if card is None or not card.unified_memory or card.arch.startswith("gfx9"):
        return 0
    total = source.amount("total", "GTT")
    return 0 if isinstance(total, Unknown) else total


def _free(source: Source, total: int, kind: str) -> int | Unknown:
    used = source.amount("usage", kind)
    return used if isinstance(used, Unknown) else max(0, total - used)


def _share(source: Source, partition: Partition, memory: Memory, card: Gpu | None) -> Memory:
    """What is left for one of the devices that share it."""
    sharers = partition.sharers(memory.total, card.memory_bytes if card else None)
    if sharers == 1:
        return memory
    share = memory.total // sharers
    shared = f"{partition.label}: {sharers} partitions share {gib(memory.total)} of memory"
    source.note(f"{shared}, {gib(share)} counts for each")
    return Memory(share, memory.free if isinstance(memory.free, Unknown) else memory.free // sharers)


def _assumed(source: Source, why: Unknown, partition: Partition, card: Gpu | None) -> Memory | Unknown:
    """The catalog's memory where the driver says nothing; a device of unknown memory cannot be planned for."""
    if card is None:
        return Unknown(f"its memory is not known: {why.why}")
    share = card.memory_bytes // partition.parts
    source.note(f"its memory is not known ({why.why}): the catalog's {gib(share)} stand in")
    return Memory(share, why, ("memory_bytes",))
