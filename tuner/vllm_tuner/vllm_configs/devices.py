"""What vLLM will call a device in a file's name: the driver's name, which is not what people call it.

An H100 is `NVIDIA_H100_80GB_HBM3`, and a file for `NVIDIA_H100` is found on none of the common boards. On AMD vLLM
names some chips by their PCI id (platforms/rocm.py:77-93) and takes the market name of the rest, so more than one name
is possible until the machine itself has been asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.hardware import Vendor
from vllm_tuner.vllm_configs.names import device_part


if TYPE_CHECKING:
    from vllm_advisor.hardware import Gpu

# Catalog name → vLLM's own name for the PCI ids of that chip (the same map in every release from 0.24.0 to 0.33.0).
_BY_PCI_ID = {
    "AMD Instinct MI300A": ("AMD_Instinct_MI300A",),
    "AMD Instinct MI300X": ("AMD_Instinct_MI300X", "AMD_Instinct_MI300X_HF"),
    "AMD Instinct MI308X": ("AMD_Instinct_MI308X",),
    "AMD Instinct MI325X": ("AMD_Instinct_MI325X",),
    "AMD Radeon RX 7900 XTX": ("AMD_Radeon_RX7900XTX",),
    "AMD Strix Halo": ("AMD_Radeon_8060S",),
    "AMD Radeon RX 9070 XT": ("AMD_Radeon_RX9070XT",),
    "AMD Radeon AI PRO R9700": ("AMD_Radeon_R9700",),
}


def device_names(gpu: Gpu, release: tuple[int, int, int], *, told: str = "") -> tuple[str, ...]:
    """The device as it may stand in a file's name, the likeliest first.

    `told`: the name that the driver or vLLM was heard to say, which then is the only one.
    """
    if told:
        return (device_part(told, release),)
    if gpu.vendor is Vendor.CPU:
        return ("cpu",)
    names = _drivers(gpu)
    return tuple(dict.fromkeys(device_part(name, release) for name in names))


def _drivers(gpu: Gpu) -> tuple[str, ...]:
    """Every name that the catalog knows a driver to use; a probed device has its driver's name already."""
    from vllm_advisor.catalog import gpus_file

    found = gpus_file.matching(gpu.name)
    table = gpus_file.entry(found[0]) if len(found) == 1 else {}
    drivers = gpus_file.strings(table, "driver")
    if gpu.name in drivers and gpu.name != table.get("name"):
        drivers = [gpu.name]
    by_id = _BY_PCI_ID.get(str(table.get("name", gpu.name)), ())
    return (*by_id, *(drivers or [gpu.name]))
