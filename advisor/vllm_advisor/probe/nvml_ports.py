"""The ports of one board: NVLinks that are up and where they lead, and the PCIe slot.

A virtual machine often hides the far end of a link, or shows the bus id that it has outside: such a link is up and
leads to no device that is known here. It is kept apart and said, never dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.hardware import Unknown
from vllm_advisor.probe.nvml_driver import INVALID_ARGUMENT, NOT_SUPPORTED, Refused, bus_id


if TYPE_CHECKING:
    from vllm_advisor.probe.notes import Subject


MAX_LINKS = 36  # NVML_NVLINK_MAX_LINKS of nvml.h; a device answers "invalid argument" beyond its own

# GB/s one way of one link, by nvmlNvlinkVersion_t (an enumeration, not the number on the box: an A100 and an RTX 3090
# answer 5, "3.1"; open-mpi/hwloc#658, Syllo/nvtop#469). Sums of both ways on the data sheets: P100 4 x 40, V100 6 x 50,
# A100 12 x 50, H100 18 x 50, B200 18 x 100.
_LINK_GB_S = {1: 20.0, 2: 25.0, 3: 25.0, 4: 25.0, 5: 25.0, 6: 25.0, 7: 50.0}
_GA102_LINK_GB_S = 14.0625  # the RTX 3090, A6000, A40 bridge: 112.5 both ways over 4 links
_SPEED_FIELD = 164  # NVML_FI_DEV_NVLINK_GET_SPEED, MB/s, scope: the link
_TO_PROCESSOR, _TO_SWITCH = 1, 2  # nvmlIntNvLinkDeviceType_t
_PROCESSOR, _SWITCH, _HIDDEN = "processor", "switch", "hidden"  # no bus id reads like these

# GB/s one way of one lane: PCI Express base specification, line coding taken off (8b/10b, 128b/130b, from 6 on flits)
_LANE_GB_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


class Ports(NamedTuple):
    """GB/s one way to each board by bus id (`direct`), into the switch, and to nobody knows whom (`hidden`).

    `up` and `total` are how many links are up, and exist.
    """

    direct: dict[str, float]
    switched: float
    up: int
    total: int
    hidden: float = 0.0


def read(board: Subject, arch: str, known: frozenset[str]) -> Ports:
    """The NVLinks of a board; `known` are the bus ids of all boards of the machine. Raises GpuLost."""
    ends: list[tuple[str, float]] = []
    total = 0
    for link in range(MAX_LINKS):
        state = board.ask("nvmlDeviceGetNvLinkState", link)
        if isinstance(state, Refused):
            _note_end(state, board)
            break
        total += 1
        if state:
            ends.append((_far_end(board, link, known), _rate(board, arch, link)))
    _note_hidden(board, sum(end == _HIDDEN for end, _ in ends))
    direct = {peer: _sum(ends, peer) for peer, _ in ends if peer in known}
    return Ports(direct, _sum(ends, _SWITCH), len(ends), total, _sum(ends, _HIDDEN))


def note_missing(boards: list[tuple[Subject, str, Ports]]) -> None:
    """A board with fewer links up than its equals has a broken one."""
    for board, name, ports in boards:
        most = max(other.up for _, equal, other in boards if equal == name)
        if 0 < ports.up < most:
            board.note(f"{ports.up} NVLinks are up, its equals have {most}")


def pcie(board: Subject) -> float | Unknown:
    """GB/s one way of the slot: generation and lanes that board and slot both can. Raises GpuLost.

    The current generation falls when a GPU idles, so only the largest counts; lanes are what was negotiated.
    """
    generation = board.ask("nvmlDeviceGetMaxPcieLinkGeneration")
    lanes = board.ask("nvmlDeviceGetMaxPcieLinkWidth")
    for gap in (generation, lanes):
        if isinstance(gap, Unknown):
            board.note(f"its PCIe rate is not known: {gap.why}")
            return Unknown(gap.why)
    current = board.ask("nvmlDeviceGetCurrPcieLinkWidth")
    if not isinstance(current, Unknown) and 0 < current < lanes:
        board.note(f"runs on {current} of its {lanes} PCIe lanes")
        lanes = current
    if generation not in _LANE_GB_S:
        board.note(f"its PCIe rate is not known: generation {generation}")
        return Unknown(f"PCIe generation {generation}")
    rate: float = round(_LANE_GB_S[generation] * lanes, 1)
    return rate


def _note_end(state: Refused, board: Subject) -> None:
    if state.code not in (INVALID_ARGUMENT, NOT_SUPPORTED):
        board.note(f"its NVLinks cannot be read: {state.why}")


def _rate(board: Subject, arch: str, link: int) -> float:
    version = board.ask("nvmlDeviceGetNvLinkVersion", link)
    if not isinstance(version, Unknown) and version in _LINK_GB_S:
        return _GA102_LINK_GB_S if arch == "sm86" else _LINK_GB_S[version]
    fields = board.ask("nvmlDeviceGetFieldValues", [(_SPEED_FIELD, link)])
    if not isinstance(fields, Unknown) and fields[0].nvmlReturn == 0:
        return float(fields[0].value.uiVal) / 1000
    board.note("the rate of its NVLinks is not known, so they are not counted")
    return 0.0


def _far_end(board: Subject, link: int, known: frozenset[str]) -> str:
    """The bus id of the board at the other end, or what else is there."""
    kind = board.ask("nvmlDeviceGetNvLinkRemoteDeviceType", link)
    if kind == _TO_SWITCH:
        return _SWITCH
    if kind == _TO_PROCESSOR:
        return _PROCESSOR
    pci = board.ask("nvmlDeviceGetNvLinkRemotePciInfo", link)
    bus = "" if isinstance(pci, Unknown) else bus_id(pci)
    return bus if bus in known else _HIDDEN


def _note_hidden(board: Subject, links: int) -> None:
    if links:
        board.note(f"where {links} of its NVLinks lead cannot be told")


def _sum(ends: list[tuple[str, float]], which: str) -> float:
    return sum(rate for end, rate in ends if end == which)
