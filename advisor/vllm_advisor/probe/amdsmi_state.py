"""What holds an AMD device back now: other processes on it, its power cap, error correction."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from vllm_advisor.hardware import Unknown


if TYPE_CHECKING:
    from vllm_advisor.probe.amdsmi_driver import Driver
    from vllm_advisor.probe.amdsmi_memory import Source


_MICRO = 10**6
_NO_FIGURE = (2**32 - 1, 2**64 - 1)  # what the library fills in where it has none
_UMC = 1  # amdsmi_gpu_block_t: the memory controller's bit among the blocks that correct errors


def other_processes(driver: Driver, handle: Any) -> int:
    """Bytes of this device's memory that processes other than this one hold, as far as the driver lists them."""
    listed = driver.ask("amdsmi_get_gpu_process_list", handle)
    if isinstance(listed, Unknown):
        return 0
    ours = os.getpid()
    return sum(entry.get("memory_usage", {}).get("vram_mem", 0) for entry in listed if entry.get("pid") != ours)


def power_cap(source: Source) -> float | None:
    """Watts; None where there is none, as for the further partitions of a card; a note on a lowered one."""
    told = source.driver.ask("amdsmi_get_power_cap_info", source.handle)
    if isinstance(told, Unknown):
        return None
    cap, usual = _watts(told.get("power_cap")), _watts(told.get("default_power_cap"))
    if cap and usual and cap < usual:
        source.note(f"the power cap is {cap:g} W, its default is {usual:g} W")
    return cap


def _watts(value: object) -> float | None:
    """The library gives microwatts on bare metal and watts in some guests; no device has a cap of a million watts."""
    if not isinstance(value, int) or value <= 0 or value in _NO_FIGURE:
        return None
    return value / _MICRO if value >= _MICRO else float(value)


def ecc(driver: Driver, handle: Any) -> bool | None:
    """Whether the memory controller corrects errors; None where the driver does not say."""
    blocks = driver.ask("amdsmi_get_gpu_ecc_enabled", handle)
    return bool(blocks & _UMC) if isinstance(blocks, int) else None
