"""Partition modes: one Instinct card as several devices, and whose memory is whose.

AMD's GPU partitioning guide (MI300X, overview): the compute modes SPX, DPX, TPX, QPX and CPX cut a card into 1, 2, 3,
4 or as many devices as it has compute dies; the memory modes NPS1, NPS2, NPS4 cut its memory. The kernel driver divides
a memory partition evenly between its devices or, set otherwise, shows all of it to each of them (amdgpu_amdkfd.c,
amdgpu_amdkfd_xcp_memory_size): then the figure is shared, and the sum over the devices is more than the card has.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.hardware import Unknown


if TYPE_CHECKING:
    from vllm_advisor.probe.amdsmi_driver import Driver


_PARTS = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}
_MEMORY = re.compile(r"NPS([1-8])")


class Partition(NamedTuple):
    """The modes of a device's card, "" where not known, and into how many devices they cut it."""

    compute: str
    memory: str
    parts: int

    @property
    def label(self) -> str:
        """`CPX/NPS4`; "" for a whole card."""
        return "" if self.parts == 1 else "/".join(mode for mode in (self.compute, self.memory) if mode)

    def sharers(self, reported: int, card: int | None) -> int:
        """How many devices share the memory that the driver reports for one of them.

        `reported` and `card` in bytes, `card` the whole card's where the catalog knows it; else every device of a
        memory partition is taken to share it, which never counts memory twice.
        """
        if self.parts == 1:
            return 1
        if card:
            return min(self.parts, max(1, round(self.parts * reported / card)))
        found = _MEMORY.fullmatch(self.memory)
        return max(1, self.parts // int(found[1])) if found else self.parts


def read(driver: Driver, handle: Any, neighbours: int) -> Partition:
    """The modes of one device; `neighbours` is how many devices of this machine sit on its card, itself included."""
    compute = _mode(driver.ask("amdsmi_get_gpu_compute_partition", handle), r"[SDTQC]PX")
    memory = _mode(driver.ask("amdsmi_get_gpu_memory_partition", handle), r"NPS[1-8]")
    if not compute:
        return Partition("", memory, neighbours)
    return Partition(compute, memory, _PARTS.get(compute) or _profile(driver, handle) or neighbours)


def _mode(answer: Any, form: str) -> str:
    return answer if isinstance(answer, str) and re.fullmatch(form, answer) else ""


def _profile(driver: Driver, handle: Any) -> int:
    """The number of devices that the card's profile names; 0 where it does not say (every device but the first)."""
    answer = driver.ask("amdsmi_get_gpu_accelerator_partition_profile", handle)
    profile = {} if isinstance(answer, Unknown) else answer.get("partition_profile", {})
    parts = profile.get("num_partitions")
    return parts if isinstance(parts, int) and 1 < parts <= 64 else 0
