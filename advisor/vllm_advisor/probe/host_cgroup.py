"""What the control groups of Linux grant: CPUs and memory, in both versions of the hierarchy.

Decision: the kernel enforces the tightest limit between a process's own group and the root, so every folder on the way
counts. vLLM looks only at the root of the mount, which is the container's own group; `clamped` is that one step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


MOUNT = "sys/fs/cgroup"
_NO_LIMIT = 1 << 62  # version 1 writes a number near 2**63 for "none"; the bound is vLLM's
_NO_QUOTA = float(1 << 20)  # more CPUs than any machine has


class Memory(NamedTuple):
    """Bytes that exist, and of them those that nobody uses or that are only a file cache."""

    total: int
    available: int


def quota(root: Path) -> float:
    """CPUs that the cgroups grant; more than any machine has where there is no limit."""
    limits = [_NO_QUOTA]
    for folder in _cgroups(root, ""):
        words = text(folder / "cpu.max").split()
        limits += [int(words[0]) / int(words[1])] if len(words) == 2 and _positive(words) else []
    for folder in _cgroups(root, "cpu"):
        words = [text(folder / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
        limits += [int(words[0]) / int(words[1])] if _positive(words) else []
    return min(limits)


def _positive(words: list[str]) -> bool:
    return all(word.isdecimal() and int(word) > 0 for word in words)


def granted(root: Path, memory: Memory) -> Memory:
    """A memory under every limit from the process's own cgroup up to the root."""
    for folder in (*_cgroups(root, ""), *_cgroups(root, "memory")):
        memory = clamped(memory, folder)
    return memory


def clamped(memory: Memory, cgroup: Path) -> Memory:
    """As vLLM clamps: the total by the limit, the available by what the group has not used of it."""
    limit, usage = _limit(cgroup)
    if limit is None or limit >= memory.total:
        return memory
    return Memory(limit, max(0, min(memory.available, limit - usage)))


def _limit(folder: Path) -> tuple[int | None, int]:
    """The limit and the usage of a cgroup, of version 2 or of the memory controller of version 1; None: no limit."""
    v1 = folder / "memory" if folder.name == "cgroup" else folder
    for limit, usage in (
        (folder / "memory.max", folder / "memory.current"),
        (v1 / "memory.limit_in_bytes", v1 / "memory.usage_in_bytes"),
    ):
        most, used = text(limit), text(usage)
        if most.isdecimal():
            found = int(most)
            return (found if found < _NO_LIMIT else None), (int(used) if used.isdecimal() else 0)
    return None, 0


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's cgroup and of its parents; "" is the unified hierarchy of version 2.

    In a container the path is often the host's and does not exist: then only the root of the mount is left.
    """
    mount = root / MOUNT / controller
    own = _own_cgroup(root, controller)
    for parts in range(len(own), -1, -1):
        folder = mount.joinpath(*own[:parts])
        if folder.is_dir():
            yield folder


def _own_cgroup(root: Path, controller: str) -> list[str]:
    for line in text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if (not controller and number == "0") or (controller and controller in names.split(",")):
            return [part for part in path.split("/") if part not in ("", "..", ".")]
    return []


def text(path: Path) -> str:
    """A file of the kernel, "" where it is not there or not readable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):
        return ""
