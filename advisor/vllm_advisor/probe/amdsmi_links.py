"""Who reaches whom, and how fast: xGMI between Instinct cards, else PCIe, through the host where peers are hidden.

Rates are one way, decimal GB/s. The driver's are the kernel's (KFD topology, io_links: max_bandwidth in MB/s), for xGMI
what the ports of the card say where that is more: before 2025 the kernel wrote 16 lanes at 25 Gb/s for every xGMI link
(amdgpu_amdkfd.c, amdgpu_amdkfd_get_xgmi_bandwidth_mbytes), the rate of MI200. Without either, the catalog's stands in.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.catalog import gpus
from vllm_advisor.errors import AdvisorError
from vllm_advisor.hardware import Link, Topology, Unknown


if TYPE_CHECKING:
    from vllm_advisor.probe.amdsmi_device import Device
    from vllm_advisor.probe.amdsmi_driver import Driver
    from vllm_advisor.probe.notes import Notes


# amdsmi_link_type_t; the values of the io_link type of ROCm SMI before it (vLLM, platforms/rocm.py:1054, takes 2 too)
_INTERNAL, _PCIE, _XGMI = 0, 1, 2
_MB_PER_GB, _BITS = 1000, 8
_NO_FIGURE = 2**32 - 1  # what the library fills in for a port of unknown rate
_WORDS = {"xgmi": "xGMI", "pcie": "PCIe"}


class _Path(NamedTuple):
    """How two cards reach each other."""

    kind: str
    gb_s: float


class _Ports:
    """What the xGMI ports of each card say of their rate; each card is asked once."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._rates: dict[str, dict[str, float]] = {}

    def between(self, one: Device, other: Device) -> float:
        """GB/s over all links that join two cards directly, 0.0 where neither of them says."""
        return self._of(one).get(other.slot.card) or self._of(other).get(one.slot.card) or 0.0

    def _of(self, device: Device) -> dict[str, float]:
        card = device.slot.card
        if card not in self._rates:
            self._rates[card] = _port_rates(self._driver, device)
        return self._rates[card]


class _Pair(NamedTuple):
    """Two devices under question."""

    driver: Driver
    one: Device
    other: Device
    ports: _Ports
    notes: Notes

    def ask(self, question: str) -> Any:
        return self.driver.ask(question, self.one.slot.handle, self.other.slot.handle)

    def note(self, text: str) -> None:
        self.notes.add(f"{self.one.slot.number}-{self.other.slot.number}", text)


def topology(driver: Driver, devices: tuple[Device, ...], notes: Notes) -> Topology:
    """The path of every pair; a pair whose path cannot be read has none and goes through the host.

    Partitions of the same two cards share one path, which is asked for once: 64 of them make 2,016 pairs.
    """
    ports = _Ports(driver)
    paths: dict[frozenset[str], _Path | None] = {}
    links = []
    for (a, one), (b, other) in combinations(enumerate(devices), 2):
        cards = frozenset((one.slot.card, other.slot.card))
        if cards not in paths:
            paths[cards] = _path(_Pair(driver, one, other, ports, notes))
        path = paths[cards]
        links += [Link(a, b, path.kind, path.gb_s)] if path else []
    return Topology(tuple(links))


def _path(pair: _Pair) -> _Path | None:
    told = pair.ask("amdsmi_topo_get_link_type")
    if isinstance(told, Unknown):
        pair.note(f"how they reach each other is not known: {told.why}")
        return None
    kind, hops = told.get("type"), told.get("hops", 1)
    same_card = pair.one.slot.card == pair.other.slot.card
    if kind == _XGMI or (kind == _INTERNAL and same_card):
        return _xgmi(pair, hops)
    if kind == _PCIE:
        return _pcie(pair)
    pair.note("the AMD driver names no link between them")
    return None


def _xgmi(pair: _Pair, hops: int) -> _Path | None:
    if hops > 1:
        pair.note(f"xGMI takes {hops} hops: vLLM's own all-reduce needs one (platforms/rocm.py, is_fully_connected)")
        return _rated(pair, "xgmi", _reported(pair, "min_bandwidth"))
    return _rated(pair, "xgmi", max(_reported(pair, "max_bandwidth"), pair.ports.between(pair.one, pair.other)))


def _pcie(pair: _Pair) -> _Path | None:
    slots = [_slot_rate(pair.driver, device) for device in (pair.one, pair.other)]
    path = _rated(pair, "pcie", _reported(pair, "max_bandwidth") or min(slots))
    if path and pair.ask("amdsmi_is_P2P_accessible") is False:
        pair.note("no peer-to-peer over PCIe: traffic goes through the host's memory")
        return path._replace(kind="host")
    return path


def _reported(pair: _Pair, which: str) -> float:
    """GB/s, 0.0 where the driver has no figure (it has one for direct xGMI links only)."""
    told = pair.ask("amdsmi_get_minmax_bandwidth_between_processors")
    rate = 0 if isinstance(told, Unknown) else told.get(which)
    return rate / _MB_PER_GB if isinstance(rate, int) else 0.0


def _port_rates(driver: Driver, device: Device) -> dict[str, float]:
    """GB/s by the card at the other end.

    amdsmi.h, amdsmi_link_metrics_t: an entry a link, `max_bandwidth` (lanes times `bit_rate`) in Gb/s, `bdf` its other
    end. ROCm 6.2 put the number of lanes there, which is less than the rate of one, and gave no other end.
    """
    told = driver.ask("amdsmi_get_link_metrics", device.slot.handle)
    rates: dict[str, float] = {}
    for link in () if isinstance(told, Unknown) else told.get("links", ()):
        lane, rate = link.get("bit_rate"), link.get("max_bandwidth")
        if isinstance(lane, int) and isinstance(rate, int) and 0 < lane < rate < _NO_FIGURE:
            card = str(link.get("bdf")).rpartition(".")[0]
            rates[card] = rates.get(card, 0.0) + rate / _BITS
    return rates


def _slot_rate(driver: Driver, device: Device) -> float:
    """GB/s of the slot at its best, as data sheets count (transfers × lanes / 8); 0.0 where it is not known."""
    told = driver.ask("amdsmi_get_pcie_info", device.slot.handle)
    static = {} if isinstance(told, Unknown) else told.get("pcie_static", {})
    lanes, speed = static.get("max_pcie_width"), static.get("max_pcie_speed")
    if not (isinstance(lanes, int) and isinstance(speed, int)):
        return 0.0
    return lanes * (speed / 1000 if speed >= 1000 else speed) / 8  # GT/s, in some releases MT/s


def _rated(pair: _Pair, kind: str, gb_s: float) -> _Path | None:
    if gb_s > 0:
        return _Path(kind, gb_s)
    gb_s = _catalog(pair, kind)
    if gb_s > 0:
        pair.note(f"the rate of their {_WORDS[kind]} link is not reported: the catalog's {gb_s:g} GB/s stand in")
        return _Path(kind, gb_s)
    pair.note(f"the rate of their {_WORDS[kind]} link is not known, so it does not count")
    return None


def _catalog(pair: _Pair, kind: str) -> float:
    """GB/s between two such devices on the maker's board; 0.0 where the catalog has no such link."""
    names = (pair.one.catalog, pair.other.catalog)
    try:
        link = gpus.node(",".join(f"1x{name}" for name in names)).topology.links[0] if all(names) else None
    except AdvisorError:  # a board that holds one of them only
        return 0.0
    return link.gb_s if link and link.kind == kind else 0.0
