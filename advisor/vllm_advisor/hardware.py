"""The machine, as facts without I/O: what a probe, a file or the catalog says of GPUs, links and host.

`memory_bytes` is what the driver reports as total (that is what vLLM multiplies by its utilization),
never the marketed size.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Vendor(StrEnum):
    """Who made the device."""

    NVIDIA = "nvidia"
    AMD = "amd"
    CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Unknown:
    """A reading that could not be taken, and why; never 0, never None in arithmetic."""

    why: str

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device. `arch` is `sm75`…`sm121`, `gfx90a`…`gfx1201`, or `cpu-` and one of x86_64, avx512, amx, aarch64.

    Rates are dense (no sparsity): `bandwidth` in bytes/s, `tflops_*` in 10^12 operations/s; None: no such unit.
    `free_bytes` is what nobody else uses now. `unverified` names the fields whose source is weak.
    Only a probe fills the last five; `partition` is the MIG profile or the AMD partition mode, "" for a whole device.
    """

    name: str
    vendor: Vendor
    arch: str
    memory_bytes: int
    bandwidth: float
    tflops_bf16: float
    tflops_fp8: float | None = None
    tflops_fp4: float | None = None
    free_bytes: int | Unknown = Unknown("not probed")
    unified_memory: bool = False
    unverified: tuple[str, ...] = ()
    source: str = ""
    other_processes_bytes: int = 0
    power_cap_watts: float | None = None
    pci_bus_id: str = ""
    ecc: bool | None = None
    partition: str = ""

    @property
    def capability(self) -> int:
        """NVIDIA compute capability times ten (90 for sm90), 0 elsewhere."""
        return int(self.arch[2:]) if self.arch.startswith("sm") else 0


@dataclass(frozen=True, slots=True)
class Link:
    """The fastest path between two devices of a node: `kind` is nvlink, xgmi, pcie, c2c or host; `gb_s` one way."""

    a: int
    b: int
    kind: str
    gb_s: float


@dataclass(frozen=True, slots=True)
class Topology:
    """Who reaches whom. No link listed means through the host."""

    links: tuple[Link, ...] = ()

    def islands(self, n: int) -> tuple[tuple[int, ...], ...]:
        """The devices 0…n-1 grouped by fast links (nvlink, xgmi), the largest group first."""
        group = list(range(n))
        for link in self.links:
            if link.kind in ("nvlink", "xgmi") and link.a < n and link.b < n:
                old, new = group[link.b], group[link.a]
                group = [new if g == old else g for g in group]
        found = {g: tuple(i for i in range(n) if group[i] == g) for g in group}
        return tuple(sorted(found.values(), key=lambda ids: (-len(ids), ids)))

    def slowest(self, devices: tuple[int, ...]) -> Link | None:
        """The slowest link inside a group of devices, None where it is not known or there is one device."""
        inside = [link for link in self.links if link.a in devices and link.b in devices]
        return min(inside, key=lambda link: link.gb_s, default=None)


@dataclass(frozen=True, slots=True)
class Host:
    """The computer around the devices. Bytes; `shm_bytes` is the size of /dev/shm."""

    cpu: str = ""
    cores: int | Unknown = Unknown("not probed")
    memory_bytes: int | Unknown = Unknown("not probed")
    shm_bytes: int | Unknown = Unknown("not probed")
    numa_nodes: int | Unknown = Unknown("not probed")
    cpu_flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """One machine, or `count` equal ones joined by a network of `network_gb_s` a device, one way."""

    gpus: tuple[Gpu, ...]
    topology: Topology = Topology()
    host: Host = Host()
    driver: str = ""
    runtime: str = ""
    count: int = 1
    network_gb_s: float = 50.0
    origin: str = "catalog"
    warnings: tuple[str, ...] = ()

    @property
    def gpu(self) -> Gpu:
        """The device that limits: the one with the least memory."""
        return min(self.gpus, key=lambda g: g.memory_bytes)

    @property
    def world(self) -> int:
        """All devices of all nodes."""
        return len(self.gpus) * self.count

    @property
    def label(self) -> str:
        """`8xNVIDIA H100 SXM`, `2x8x…` for several nodes, `2xNVIDIA L40S+2xNVIDIA A10` for a mixed one."""
        nodes = f"{self.count}x" if self.count > 1 else ""
        kinds = [gpu.name for gpu in self.gpus]
        return nodes + "+".join(f"{kinds.count(kind)}x{kind}" for kind in dict.fromkeys(kinds))
