"""The device that a stand-in plays: the few facts that vLLM asks of a driver, from a Node of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from vllm_advisor.hardware import Node

# Streaming multiprocessors or compute units, from the vendors' data sheets (the largest board of each architecture).
# Kernels size their grids by it when they run; no selection of a backend asks.
_COMPUTE_UNITS = {
    "sm75": 40, "sm80": 108, "sm86": 84, "sm89": 142, "sm90": 132, "sm100": 148, "sm103": 148, "sm120": 188,
    "sm121": 48, "gfx90a": 104, "gfx942": 304, "gfx950": 256,
}  # fmt: skip
_UNKNOWN_UNITS = 64


class StandIn(NamedTuple):
    """A device to play, and how many of them one machine holds. `aiter`: AMD's library counts as installed."""

    name: str
    vendor: str
    arch: str
    memory_bytes: int
    compute_units: int
    devices: int
    aiter: bool = True
    connected: bool = True


def stand_in(node: Node, *, world: int | None = None) -> StandIn:
    """The device that limits, as often as the node has it (`world`: as often as a command needs, if that is more).

    AITER counts as installed on AMD: vLLM's ROCm images carry it (docs/getting_started/installation/gpu.rocm.inc.md).
    """
    gpu = node.gpu
    fast = ("nvlink", "xgmi")
    connected = bool(node.topology.links) and all(link.kind in fast for link in node.topology.links)
    return StandIn(
        gpu.name,
        gpu.vendor.value,
        gpu.arch,
        gpu.memory_bytes,
        _COMPUTE_UNITS.get(gpu.arch, _UNKNOWN_UNITS),
        max(len(node.gpus), world or 0),
        aiter=gpu.vendor.value == "amd",
        connected=connected,
    )
