"""Which machine this is: NVIDIA first, then AMD, else the processor with a warning that says why; and how it reads.

Decision: finding no GPU is no error, vLLM has a CPU build; but nobody may take such a plan for a GPU's, so the warning
says that none was found and what each driver answered.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_advisor.hardware import Host, Node, Unknown
from vllm_advisor.probe import host, host_cgroup
from vllm_advisor.units import gib, significant


if TYPE_CHECKING:
    from vllm_advisor.hardware import Gpu, Link
    from vllm_advisor.probe.reading import Reading


_HERE = Path("/")


def detect() -> Node:
    """The machine that this runs on. Raises ProbeError where not even the processor can be read."""
    from vllm_advisor.probe import amdsmi, nvml  # noqa: PLC0415  # who asks for the processor needs neither

    return chosen(nvml.probe(host.system_memory_bytes(), available_bytes()), amdsmi.probe(), host.read())


def available_bytes(root: Path = _HERE) -> int | Unknown:
    """What the kernel says that programs can still have: memory that is free, and file cache that it would give back.

    Limits of cgroups do not count: they do not bind what a device allocates.
    """
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", host_cgroup.text(root / "proc/meminfo"), re.MULTILINE)
    return int(found[1]) * 1024 if found else Unknown("/proc/meminfo has no MemAvailable")


def chosen(nvidia: Reading | Unknown, amd: Reading | Unknown, computer: Host) -> Node:
    """The machine that both answers make; the processor is read only where neither has a device."""
    if not isinstance(nvidia, Unknown):
        more = () if isinstance(amd, Unknown) else (_left_out(amd),)
        return _node(nvidia, computer, more)
    if not isinstance(amd, Unknown):
        return _node(amd, computer, ())
    why = (f"no GPU was found, so this is the processor. NVIDIA: {nvidia.why}. AMD: {amd.why}",)
    return _processor(computer, why)


def cpu_node() -> Node:
    """The processor of this machine as vLLM's only device, whatever GPUs there are."""
    return _processor(host.read(), ())


def _node(reading: Reading, computer: Host, more: tuple[str, ...]) -> Node:
    return Node(
        gpus=reading.gpus,
        topology=reading.topology,
        host=computer,
        driver=_version(reading.driver),
        runtime=reading.runtime,
        origin="probe",
        warnings=more + reading.warnings,
    )


def _version(driver: str) -> str:
    """The version number alone: a driver of the kernel's own answers with /proc/version, which names who built it."""
    number = re.search(r"(?<!\w)\d+(?:\.\d+)+(?:-\d+)?", driver)
    if number:
        return number[0]
    return "" if "@" in driver or len(driver.split()) != 1 else driver


def _processor(computer: Host, why: tuple[str, ...]) -> Node:
    return Node((host.cpu_gpu(),), host=computer, origin="probe", warnings=why + host.cpu_warnings())


def _left_out(amd: Reading) -> str:
    names = ", ".join(dict.fromkeys(gpu.name for gpu in amd.gpus))
    return f"AMD devices are left out ({len(amd.gpus)}: {names}): one vLLM runs on one maker's devices"


# --- how it reads


def describe(node: Node) -> tuple[tuple[str, str], ...]:
    """Rows (label, value of one or more lines) for a reader; rows without a value are left out."""
    rows = (
        ("machine", f"{node.label} ({_ORIGIN.get(node.origin, node.origin)})"),
        ("devices", _devices(node.gpus)),
        ("links", _matrix(node)),
        ("network", f"{_gb_s(node.network_gb_s)} a device, one way" if node.count > 1 else ""),
        ("driver", ", ".join(filter(None, (node.driver, node.runtime)))),
        ("host", _host(node.host)),
        ("unverified", _unverified(node.gpus)),
        ("warnings", "\n".join(node.warnings)),
    )
    return tuple(row for row in rows if row[1])


_ORIGIN = {
    "probe": "read from this machine",
    "recorded": "from a file",
    "catalog": "from the catalog, nothing was read",
}
_SHORT = {"nvlink": "NV", "xgmi": "XGMI", "pcie": "PCIe", "c2c": "C2C", "host": "SYS"}
_LONG = {"nvlink": "NVLink", "xgmi": "xGMI", "pcie": "PCI Express", "c2c": "chip to chip", "host": "through the host"}
_NOT_ASKED = Host().cores
_MATRIX_AT_MOST = 16  # columns; a wider one does not fit a terminal and is told by kind


def _devices(gpus: tuple[Gpu, ...]) -> str:
    rows = [(str(i), gpu.name, gpu.arch, *_columns(gpu)) for i, gpu in enumerate(gpus)]
    return _table([("#", "name", "arch", "free", "memory", "others use", "power cap", "partition"), *rows])


def _columns(gpu: Gpu) -> tuple[str, ...]:
    free = _free(gpu.free_bytes)
    others = gib(gpu.other_processes_bytes) if gpu.other_processes_bytes else "-"
    cap = "-" if gpu.power_cap_watts is None else f"{significant(gpu.power_cap_watts)} W"
    return free, gib(gpu.memory_bytes), others, cap, gpu.partition or "-"


def _free(size: int | Unknown) -> str:
    """`-` where nobody asked (a catalog machine), `unknown` where the driver would not tell."""
    if isinstance(size, Unknown):
        return "-" if size == _NOT_ASKED else "unknown"
    return gib(size)


def _table(rows: list[tuple[str, ...]]) -> str:
    """Columns aligned, those that hold only `-` left out."""
    kept = [column for column in zip(*rows, strict=True) if set(column[1:]) != {"-"}]
    widths = [max(map(len, column)) for column in kept]
    lines = zip(*kept, strict=True)
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _matrix(node: Node) -> str:
    devices = len(node.gpus)
    if devices < 2:
        return ""
    links = {frozenset((link.a, link.b)): link for link in node.topology.links}
    if not links:
        return "none known: through the host"
    legend = _legend(list(links.values()))
    if devices > _MATRIX_AT_MOST:
        return legend
    words = _words(links)
    head = ("", *(f"GPU{j}" for j in range(devices)))
    rows = [
        (f"GPU{i}", *("X" if i == j else words.get(frozenset((i, j)), "SYS") for j in range(devices)))
        for i in range(devices)
    ]
    return f"{_table([head, *rows])}\n{legend}"


def _words(links: dict[frozenset[int], Link]) -> dict[frozenset[int], str]:
    """What stands in a cell: the kind, and its rate where links of that kind differ."""
    rates: dict[str, set[float]] = {}
    for link in links.values():
        rates.setdefault(link.kind, set()).add(link.gb_s)
    return {
        pair: _short(link) if len(rates[link.kind]) == 1 else f"{_short(link)} {significant(link.gb_s)}"
        for pair, link in links.items()
    }


def _legend(links: list[Link]) -> str:
    kinds = [f"{_short(link)}: {_LONG.get(link.kind, link.kind)}, {_gb_s(link.gb_s)} one way" for link in links]
    return "\n".join(
        f"{kind} ({kinds.count(kind)} {'pair' if kinds.count(kind) == 1 else 'pairs'})" for kind in dict.fromkeys(kinds)
    )


def _short(link: Link) -> str:
    return _SHORT.get(link.kind, link.kind)


def _gb_s(rate: float) -> str:
    return f"{significant(rate)} GB/s"


def _host(computer: Host) -> str:
    cores = "" if isinstance(computer.cores, Unknown) else f"{computer.cores} cores"
    memory = [
        f"{label} {gib(size)}"
        for label, size in (("RAM", computer.memory_bytes), ("shm", computer.shm_bytes))
        if not isinstance(size, Unknown)
    ]
    nodes = computer.numa_nodes
    numa = "" if isinstance(nodes, Unknown) else f"{nodes} NUMA node{'s' if nodes > 1 else ''}"
    lines = ((computer.cpu, cores), (*memory, numa), computer.cpu_flags)
    return "\n".join(filter(None, (", ".join(filter(None, line)) for line in lines)))


def _unverified(gpus: tuple[Gpu, ...]) -> str:
    """Fields whose source is weak, by kind of device, in one line each."""
    fields = {gpu.name: gpu.unverified for gpu in gpus if gpu.unverified}
    return "\n".join(f"{name}: {', '.join(known)}" for name, known in fields.items())
