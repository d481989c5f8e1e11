"""The computer around the devices, and the processor as a device of its own, read from /proc and /sys.

Decision: the processor's memory is what vLLM's CPU worker counts (utils/cpu_resource_utils.py:189, the same in 0.24 and
0.33): the NUMA node of the first CPU that this process may use, clamped by the memory limit at the root of the cgroup
mount. The host's memory and cores are what the kernel really grants: every limit on the way up from the process's own
cgroup counts. Every path hangs below `root`, so that a directory tree can stand for a machine.
"""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_advisor.errors import ProbeError
from vllm_advisor.hardware import Gpu, Host, Unknown
from vllm_advisor.probe import host_cgroup as cgroup
from vllm_advisor.probe.host_cgroup import Memory


if TYPE_CHECKING:
    from collections.abc import Iterator


_HERE = Path("/")
_NODES = "sys/devices/system/node"
# What the CPU kernels of vLLM and oneDNN choose by; the rest of a hundred flags decides nothing here.
_FLAGS = (
    "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "avx_vnni", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16",
    "asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2", "svebf16", "svei8mm", "sme", "sme2",
)  # fmt: skip
# Arm names no model in /proc/cpuinfo, only who made the core and which (arch/arm64/include/asm/cputype.h)
_ARM_PARTS = {
    ("0x41", "0xd0c"): "Arm Neoverse N1", ("0x41", "0xd40"): "Arm Neoverse V1", ("0x41", "0xd49"): "Arm Neoverse N2",
    ("0x41", "0xd4f"): "Arm Neoverse V2", ("0x41", "0xd85"): "Arm Cortex-X925", ("0xc0", "0xac3"): "Ampere-1",
}  # fmt: skip


def read(root: Path = _HERE) -> Host:
    """The host of the machine below `root`; what cannot be read is Unknown."""
    info = _cpuinfo(root)
    memory = _system_memory(root)
    nodes = _nodes(root)
    return Host(
        cpu=_model(info),
        cores=_cores(root),
        memory_bytes=memory if isinstance(memory, Unknown) else cgroup.granted(root, memory).total,
        shm_bytes=_shm(root),
        numa_nodes=len(nodes) if nodes else Unknown("/sys/devices/system/node is not readable"),
        cpu_flags=tuple(flag for flag in _FLAGS if flag in _flags(info)),
    )


def cpu_gpu(root: Path = _HERE) -> Gpu:
    """The processor as the device that vLLM's CPU build would use: one NUMA node, rates assumed from the catalog.

    Raises ProbeError where its memory cannot be read, or for a processor that the catalog has no entry of.
    """
    from vllm_advisor.catalog import gpus  # noqa: PLC0415  # a machine with GPUs need not look

    found = gpus.find(_entry(_cpuinfo(root)))
    memory = vllm_memory(root)
    if isinstance(memory, Unknown):
        raise ProbeError(f"the memory of this machine cannot be read: {memory.why}", "name a machine with --gpu")
    free = min(memory.available, cgroup.granted(root, memory).available)
    rest = tuple(field for field in found.unverified if field != "memory_bytes")
    source = found.source.replace("memory_bytes: E", "memory_bytes: read")
    return replace(found, memory_bytes=memory.total, free_bytes=free, unverified=rest, source=source)


def cpu_warnings(root: Path = _HERE) -> tuple[str, ...]:
    """What a reader must know before serving on this processor. Raises ProbeError as `cpu_gpu` does."""
    return (_assumed(root), *_other_memory(root))


def _assumed(root: Path) -> str:
    from vllm_advisor.catalog import gpus  # noqa: PLC0415  # the same

    entry = gpus.node(_entry(_cpuinfo(root)))
    what = " ".join(entry.warnings).partition("assumed: ")[2].rpartition(", ")[0]  # the last part is its memory
    cores = _cores(root)
    has = "" if isinstance(cores, Unknown) else f"; this one may use {cores} core{'s' if cores > 1 else ''}"
    return f"the processor's speed is not read, it is assumed for {what}{has}"


def _other_memory(root: Path) -> Iterator[str]:
    from vllm_advisor.units import gib  # noqa: PLC0415  # the same

    nodes, memory = _nodes(root), vllm_memory(root)
    if len(nodes) > 1:
        yield f"a rank of vLLM has one NUMA node: the memory is that of node {_node(root)}, one of {len(nodes)}"
    if isinstance(memory, Unknown):
        return
    most = cgroup.granted(root, memory).total
    if most < memory.total:
        yield f"only {gib(most)} may be used here, vLLM counts {gib(memory.total)}: lower its utilization"


def system_memory_bytes(root: Path = _HERE) -> int | Unknown:
    """All memory of the machine, which is what CUDA and HIP count on devices that share it; limits do not bind them."""
    memory = _system_memory(root)
    return memory if isinstance(memory, Unknown) else memory.total


def vllm_memory(root: Path = _HERE) -> Memory | Unknown:
    """What vLLM's CPU worker takes as total and as available (v1/worker/cpu_worker.py:72)."""
    node = _node_memory(root)
    memory = _system_memory(root) if isinstance(node, Unknown) else node
    return memory if isinstance(memory, Unknown) else cgroup.clamped(memory, root / cgroup.MOUNT)


# --- processor


def _cpuinfo(root: Path) -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo, keys in lower case."""
    found: dict[str, str] = {}
    for line in cgroup.text(root / "proc/cpuinfo").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            found.setdefault(key.strip().lower(), value.strip())
        elif found:
            break
    return found


def _flags(info: dict[str, str]) -> frozenset[str]:
    return frozenset((info.get("flags") or info.get("features") or "").split())


def _model(info: dict[str, str]) -> str:
    arm = _ARM_PARTS.get((info.get("cpu implementer", ""), info.get("cpu part", "")), "")
    return " ".join((info.get("model name") or arm or info.get("cpu model", "")).split())


def _entry(info: dict[str, str]) -> str:
    """The catalog's name of this kind of processor. Raises ProbeError where there is none."""
    flags = _flags(info)
    machine = "x86_64" if "flags" in info else "aarch64" if "features" in info else platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return "CPU Arm"
    if machine not in ("x86_64", "amd64"):
        hint = "name a machine with --gpu, or a recorded one with --node"
        raise ProbeError(f"a processor of kind {machine!r} is not in the catalog", hint)
    return "CPU AMX" if "amx_bf16" in flags else "CPU AVX512" if "avx512f" in flags else "CPU x86_64"


def _cores(root: Path) -> int | Unknown:
    """Physical cores that this process may use: affinity, and the CPU quota rounded down."""
    cpus = _allowed_cpus(root)
    if not cpus:
        return Unknown("neither /proc/self/status nor /sys names a CPU")
    cores = {
        cgroup.text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or cpu for cpu in cpus
    }
    return max(1, min(len(cores), int(cgroup.quota(root))))


def _allowed_cpus(root: Path) -> tuple[int, ...]:
    online = id_list(cgroup.text(root / "sys/devices/system/cpu/online"))
    allowed = id_list(_status(root, "Cpus_allowed_list"))
    both = tuple(cpu for cpu in allowed if cpu in online)
    if allowed or online:
        return both or allowed or online
    return tuple(range(os.cpu_count() or 0)) if root == _HERE else ()


# --- memory


def _nodes(root: Path) -> tuple[int, ...]:
    """NUMA nodes with memory; a node without (an accelerator's, a bare socket) is none."""
    for name in ("has_memory", "online"):
        found = id_list(cgroup.text(root / _NODES / name))
        if found:
            return found
    return ()


def _node(root: Path) -> int:
    """The node of the first CPU that this process may use, if its memory may be used too, else the first such node."""
    memory = id_list(_status(root, "Mems_allowed_list")) or _nodes(root)
    first = _allowed_cpus(root)[:1]
    for node in memory:
        if first and first[0] in id_list(cgroup.text(root / _NODES / f"node{node}/cpulist")):
            return node
    return memory[0] if memory else 0


def _node_memory(root: Path) -> Memory | Unknown:
    """The node's meminfo as vLLM adds it up: free, file cache and reclaimable slabs are available."""
    info = _meminfo(root / _NODES / f"node{_node(root)}/meminfo")
    if not info.get("MemTotal"):
        return Unknown("no NUMA node has a meminfo")
    parts = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")
    return Memory(info["MemTotal"], min(info["MemTotal"], sum(info.get(part, 0) for part in parts)))


def _system_memory(root: Path) -> Memory | Unknown:
    info = _meminfo(root / "proc/meminfo")
    if info.get("MemTotal"):
        return Memory(info["MemTotal"], info.get("MemAvailable", info.get("MemFree", 0)))
    if root == _HERE:
        try:
            pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (ValueError, OSError, AttributeError):
            pages = 0
        if pages > 0:
            return Memory(pages, pages)
    return Unknown("/proc/meminfo is not readable")


def _meminfo(path: Path) -> dict[str, int]:
    """`MemTotal: 5 kB`, with or without `Node 0` before it, as bytes."""
    found = {}
    for line in cgroup.text(path).splitlines():
        key, _, rest = line.partition(":")
        words = rest.split()
        if key and words and words[0].isdecimal():
            found[key.split()[-1]] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return found


# --- files


def _shm(root: Path) -> int | Unknown:
    try:
        shm = os.statvfs(root / "dev/shm")
    except (OSError, AttributeError):
        return Unknown("there is no /dev/shm")
    return shm.f_blocks * shm.f_frsize


def _status(root: Path, key: str) -> str:
    lines = cgroup.text(root / "proc/self/status").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{key}:")), "")


def id_list(text: str) -> tuple[int, ...]:
    """`0-2,4` as (0, 1, 2, 4); empty for what is no such list."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (last or first).isdecimal() and int(last or first) < 1 << 16:
            found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))
