"""What one vendor's probe found: devices, links, versions, and in words what could not be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from vllm_advisor.hardware import Gpu, Topology


class Reading(NamedTuple):
    """Devices of one vendor. `runtime` is the newest CUDA or ROCm that the driver serves, "" where not known."""

    gpus: tuple[Gpu, ...]
    topology: Topology
    driver: str
    runtime: str
    warnings: tuple[str, ...] = ()
