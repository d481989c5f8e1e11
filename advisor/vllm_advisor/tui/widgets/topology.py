"""A machine for people: equal devices in one line, and who reaches whom as a matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.hardware import Unknown
from vllm_advisor.units import gib, significant


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.hardware import Gpu, Link, Node

_NAMES = {
    "nvlink": ("NV", "NVLink"),
    "xgmi": ("XG", "xGMI"),
    "pcie": ("PC", "PCI Express"),
    "c2c": ("C2", "chip to chip"),
    "host": ("--", "through the host"),
}
_MOST = 16  # columns; a wider matrix fits no terminal, and its legend tells the kinds


def devices(gpus: Sequence[Gpu]) -> list[str]:
    """`0-7  NVIDIA H100 SXM, sm90, 79.2 GiB`, a line for each run of equal ones."""
    lines, start = list[str](), 0
    for i in range(1, len(gpus) + 1):
        if i < len(gpus) and _seen(gpus[i]) == _seen(gpus[start]):
            continue
        n, gpu = i - start, gpus[start]
        where = f"{start}-{i - 1}" if n > 1 else f"{start}"
        lines.append(f"{where:<4} {gpu.name}, {gpu.arch}, {gib(gpu.memory_bytes)}{_state(gpu)}")
        start = i
    return lines


def _seen(gpu: Gpu) -> tuple[object, ...]:
    return gpu.name, gpu.memory_bytes, _state(gpu)


def _state(gpu: Gpu) -> str:
    """What only a probe knows, where it matters."""
    said = [gpu.partition] if gpu.partition else []
    said += [f"{gib(gpu.other_processes_bytes)} used by others"] if gpu.other_processes_bytes else []
    free = gpu.free_bytes
    said += [f"{gib(free)} free"] if not isinstance(free, Unknown) and free < gpu.memory_bytes else []
    return "".join(f", {text}" for text in said)


def matrix(node: Node) -> list[str]:
    """Rows and columns are devices; below, what each sign means. [] for a single device."""
    n = len(node.gpus)
    if n < 2:
        return []
    if not node.topology.links:
        return ["links: none known, through the host"]
    codes = _codes(node.topology.links)
    cells = {frozenset((link.a, link.b)): codes[link.kind, link.gb_s][0] for link in node.topology.links}
    width = max(len(code) for code, _ in codes.values()) + 1
    legend = [f"{code}  {words}" for code, words in codes.values()]
    if n > _MOST:
        return legend
    head = "   " + "".join(f"{j:>{width}}" for j in range(n))
    rows = [
        f"{i:>2} " + "".join(f"{'·' if i == j else cells.get(frozenset((i, j)), '--'):>{width}}" for j in range(n))
        for i in range(n)
    ]
    missing = len(cells) < n * (n - 1) // 2 and "--" not in {code for code, _ in codes.values()}
    return [head, *rows, *legend, *(["--  through the host"] if missing else [])]


def _codes(links: Sequence[Link]) -> dict[tuple[str, float], tuple[str, str]]:
    """The sign of each kind and rate, with a letter where one kind has several rates, and what it means."""
    found = dict[tuple[str, float], int]()
    for link in links:
        found[link.kind, link.gb_s] = found.get((link.kind, link.gb_s), 0) + 1
    rates: dict[str, list[float]] = {}
    for kind, gb_s in sorted(found, key=lambda key: -key[1]):
        rates.setdefault(kind, []).append(gb_s)
    codes = {}
    for (kind, gb_s), pairs in found.items():
        short, name = _NAMES.get(kind, (kind[:2].upper(), kind))
        letter = "abcdefgh"[rates[kind].index(gb_s) % 8] if len(rates[kind]) > 1 else ""
        one = "pair" if pairs == 1 else "pairs"
        codes[kind, gb_s] = (short + letter, f"{name}, {significant(gb_s)} GB/s one way, {pairs} {one}")
    return codes
