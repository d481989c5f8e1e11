"""What holds an AMD device back now: other processes on it, its power cap, error correction."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from vllm_advisor.hardware import Unknown


if TYPE_CHECKING:
    from vllm_advisor.probe.amdsmi_driver import Driver


_MICRO = 10**6
_UMC = 1  # amdsmi_gpu_block_t: the memory controller's bit among the blocks that correct errors


def other_processes(driver: Driver, handle: Any) -> int:
    """Bytes of this device's memory that processes other than this one hold, as far as the driver lists them."""
    listed = driver.ask("amdsmi_get_gpu_process_list", handle)
    if isinstance(listed, Unknown):
        return 0
    ours = os.getpid()
    return sum(entry.get("memory_usage", {}).get("vram_mem", 0) for entry in listed if entry.get("pid") != ours)


def power_cap(driver: Driver, handle: Any) -> float | None:
    """Watts; None where there is none, as for the further partitions of a card.

    The library gives microwatts on bare metal and watts in some guests; no device has a cap of a million watts.
    """
    told = driver.ask("amdsmi_get_power_cap_info", handle)
    cap = None if isinstance(told, Unknown) else told.get("power_cap")
    if not isinstance(cap, int) or cap <= 0:
        return None
    return cap / _MICRO if cap >= _MICRO else float(cap)


def ecc(driver: Driver, handle: Any) -> bool | None:
    """Whether the memory controller corrects errors; None where the driver does not say."""
    blocks = driver.ask("amdsmi_get_gpu_ecc_enabled", handle)
    return bool(blocks & _UMC) if isinstance(blocks, int) else None
