"""From catalog tables to a machine: how many devices one holds, and the path between every two of them.

A catalog node is the maker's own design (an 8-way baseboard, boards in PCIe slots). Bridges are an option that nobody
can see from a name, so they are not assumed; a probe sees them.
"""

from __future__ import annotations

from itertools import combinations

from vllm_advisor.catalog import gpus_file
from vllm_advisor.errors import UsageError
from vllm_advisor.hardware import Link, Topology


NETWORK_GB_S = 50.0  # 400 Gb/s a device, as 8-way machines are sold; an assumption, and said so


def check_count(index: int, devices: int) -> None:
    """Raises UsageError where one machine cannot hold that many of them."""
    table = gpus_file.entry(index)
    most = int(gpus_file.number(table, "max_per_node") or 1)
    if 1 <= devices <= most:
        return
    name = str(table["name"])
    if devices < 1:
        raise UsageError(f"{devices} devices of {name} are no machine", f"write 1x to {most}x, as in {most}x{name}")
    machines = -(-devices // most)
    hint = f"several machines are written as {machines}x{most}x{name}"
    raise UsageError(f"one machine holds at most {most} of {name}, {devices} were asked for", hint)


def topology(members: list[int]) -> Topology:
    """All pairs of a machine whose i-th device is the table `members[i]`; bandwidth one way, in GB/s."""
    pairs = combinations(range(len(members)), 2)
    return Topology(tuple(_link(a, b, members[a], members[b]) for a, b in pairs))


def _link(a: int, b: int, first: int, second: int) -> Link:
    table, other = gpus_file.entry(first), gpus_file.entry(second)
    if first == second and "link" in table:
        near = gpus_file.number(table, "near_gb_s") if a // 2 == b // 2 else None
        return Link(a, b, str(table["link"]), near or gpus_file.number(table, "peer_gb_s") or 0.0)
    slowest = min(gpus_file.number(table, "pcie_gb_s") or 0.0, gpus_file.number(other, "pcie_gb_s") or 0.0)
    return Link(a, b, "pcie" if slowest else "host", slowest)


def network(index: int) -> float:
    """GB/s one way between two machines, for each device."""
    return gpus_file.number(gpus_file.entry(index), "network_gb_s") or NETWORK_GB_S


def warnings(members: list[int], machines: int) -> tuple[str, ...]:
    """What a reader must know of a catalog machine: what is assumed, and what limits a mixed one."""
    kinds = list(dict.fromkeys(members))
    tables = [gpus_file.entry(index) for index in kinds]
    said = [f"{table['name']}: {table['warning']}" for table in tables if "warning" in table]
    if len(kinds) > 1:
        said.append("mixed devices: the one with the least memory limits every rank, the slowest one sets the pace")
    if machines > 1 and "network_gb_s" not in tables[0]:
        gigabits = NETWORK_GB_S * 8
        said.append(f"a network of {NETWORK_GB_S:g} GB/s ({gigabits:g} Gb/s) a device, one way, is assumed")
    return tuple(said)
