"""Who reaches whom, and how fast: NVLink where it is up, else PCIe, through the host where peers cannot see each other.

Rates are one way, decimal GB/s, as data sheets give them (half of the sheet's sum of both ways).
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.hardware import Link, Topology, Unknown
from vllm_advisor.probe import nvml_ports
from vllm_advisor.probe.notes import Subject
from vllm_advisor.probe.nvml_driver import GpuLost


if TYPE_CHECKING:
    from vllm_advisor.probe.notes import Notes
    from vllm_advisor.probe.nvml_device import Device
    from vllm_advisor.probe.nvml_driver import Driver


# nvmlGpuP2PCapsIndex_t and nvmlGpuP2PStatus_t of nvml.h; pynvml's own name for READ is the tuple (0,), by a stray comma
_READ, _NVLINK = 0, 2
_P2P_OK = 0
_P2P_REASONS = {
    1: "the chipset does not support it",
    2: "these GPUs do not support it",
    3: "the I/O hubs between them do not support it",
    4: "a driver setting turns it off",
    5: "it is not supported",
}


class _End(NamedTuple):
    """One end of a path: its place among the visible devices, its NVLinks that are up, its PCIe rate (GB/s one way)."""

    place: int
    device: Device
    board: Subject
    ports: nvml_ports.Ports
    pcie: float | Unknown


def topology(driver: Driver, devices: tuple[Device, ...], known: frozenset[str], notes: Notes) -> Topology:
    """The fastest path of every pair; a pair whose path cannot be read has none and goes through the host.

    `known` are the bus ids of all boards, visible or not. MIG slices have no path to any other device (NVIDIA MIG user
    guide: no peer-to-peer), so they get none.
    """
    boards = [(i, device) for i, device in enumerate(devices) if not device.gpu.partition]
    if len(boards) < 2:
        return Topology()
    ends = [_end(driver, i, device, known, notes) for i, device in boards]
    nvml_ports.note_missing([(end.board, end.device.gpu.name, end.ports) for end in ends])
    links = [_link(one, other) for one, other in combinations(ends, 2)]
    return Topology(tuple(link for link in links if link is not None))


def _end(driver: Driver, place: int, device: Device, known: frozenset[str], notes: Notes) -> _End:
    board = Subject(driver, device.handle, str(device.board), notes)
    try:
        ports = nvml_ports.read(board, device.gpu.arch, known)
        return _End(place, device, board, ports, nvml_ports.pcie(board))
    except GpuLost as lost:
        board.note(f"its links cannot be read: {lost}")
        return _End(place, device, board, nvml_ports.Ports({}, 0.0, 0, 0), Unknown(str(lost)))


def _link(one: _End, other: _End) -> Link | None:
    nvlink = _nvlink(one, other)
    if nvlink:
        return Link(one.place, other.place, "nvlink", nvlink)
    if isinstance(one.pcie, Unknown) or isinstance(other.pcie, Unknown):
        return None
    return Link(one.place, other.place, _pcie_kind(one, other), min(one.pcie, other.pcie))


def _nvlink(one: _End, other: _End) -> float:
    """GB/s one way: the direct links of the pair, else what both have into the switch; 0.0: no way by NVLink.

    Links whose far end is hidden count as links into a switch, where the driver says that NVLink joins the two.
    """
    direct = max(
        one.ports.direct.get(other.device.gpu.pci_bus_id, 0.0), other.ports.direct.get(one.device.gpu.pci_bus_id, 0.0)
    )
    sure = direct or min(one.ports.switched, other.ports.switched)
    most = direct or min(end.ports.switched + end.ports.hidden for end in (one, other))
    if not most:
        return 0.0
    status = _p2p(one, other, _NVLINK)
    _note_nvlink(one, other, status, sure, most)
    if isinstance(status, Unknown):
        return sure
    return most if status == _P2P_OK else 0.0


def _note_nvlink(one: _End, other: _End, status: int | Unknown, sure: float, most: float) -> None:
    if isinstance(status, Unknown):
        if most > sure:
            _note(one, other, f"NVLinks that lead nobody knows where are not counted between them: {status.why}")
    elif status == _P2P_OK:
        if most > sure:
            _note(one, other, "the driver says that NVLink joins them: all their links count, as through a switch")
    else:
        why = _P2P_REASONS.get(status, "no reason given")
        ask = " (is Fabric Manager running?)" if sure else ""
        _note(one, other, f"NVLinks are up, the driver refuses to use them: {why}{ask}")


def _pcie_kind(one: _End, other: _End) -> str:
    """`pcie` where the devices reach each other's memory, else `host`: the copy goes through the host's memory."""
    status = _p2p(one, other, _READ)
    if isinstance(status, Unknown):
        _note(one, other, f"whether they reach each other over PCIe is not known: {status.why}")
        return "pcie"
    if status == _P2P_OK:
        return "pcie"
    why = _P2P_REASONS.get(status, "no reason given")
    _note(one, other, f"no peer-to-peer over PCIe ({why}): traffic goes through the host's memory")
    return "host"


def _p2p(one: _End, other: _End, capability: int) -> int | Unknown:
    try:
        status: int | Unknown = one.board.ask("nvmlDeviceGetP2PStatus", other.device.handle, capability)
    except GpuLost as lost:
        return Unknown(str(lost))
    return status


def _note(one: _End, other: _End, text: str) -> None:
    one.board.notes.add(f"{one.device.board}-{other.device.board}", text)
