"""From what a report calls its hardware to a Node: asides, mixed pairs, architecture names, and memory as printed.

A report names one machine in many ways and sometimes not at all. Where a name stands for devices of different memory,
nothing is chosen: the answer says which they are.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from vllm_advisor.catalog import gpus
from vllm_advisor.errors import UnknownGpu
from vllm_advisor.hardware import Gpu, Node


_ASIDE = re.compile(r"\([^()]*\)")
_ARCH = re.compile(r"\b(?:gfx[0-9a-f]{3,4}|sm_?[0-9]{2,3}a?)\b", re.IGNORECASE)
_CPU = re.compile(r"cpu(?: backend| only)?", re.IGNORECASE)
_UNSTATED = re.compile(r"\bnot stated\b|\bunknown\b|\bunstated\b", re.IGNORECASE)
_NAMES = re.compile(r"[A-Za-z]{0,3}[0-9]{2,4}[A-Za-z]*")


class Machine(NamedTuple):
    """A node, and in words what its name left open."""

    node: Node
    assumed: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def machine(name: str, devices: int, memory_bytes: int | None) -> Machine:
    """A node of `devices` devices of that name (0: as many as the name says, or one).

    `memory_bytes` replaces what the catalog says, as the driver of that very machine reported it. Raises UnknownGpu
    where no device, or several of different memory, could be meant.
    """
    named, assumed = _named(name.strip(), memory_bytes)
    members = _members(named, devices)
    if memory_bytes:
        members = tuple(replace(gpu, memory_bytes=memory_bytes) for gpu in members)
    node = Node(gpus=members, topology=named.topology if len(members) == len(named.gpus) else Node(()).topology)
    return Machine(node, assumed)


def _members(named: Node, devices: int) -> tuple[Gpu, ...]:
    """The devices: as named, or as many of the smallest as are used."""
    every = named.gpus * named.count
    return every if len(every) == devices or not devices else (named.gpu,) * devices


def _named(name: str, memory_bytes: int | None) -> tuple[Node, tuple[str, ...]]:
    if _CPU.fullmatch(name):
        return gpus.node("cpu"), ()
    open_memory = not memory_bytes and _UNSTATED.search(name)
    if open_memory:
        return _only_if_equal(name)
    for text in dict.fromkeys((name, _ASIDE.sub(" ", name).strip())):
        try:
            return _default(text)
        except UnknownGpu as error:
            first = error
    by_arch = _by_arch(name)
    if by_arch is None:
        raise first
    return by_arch


def _default(text: str) -> tuple[Node, tuple[str, ...]]:
    node = gpus.node(text)
    canonical = node.gpu.name
    plain = len(node.gpus) > 1 or _word(text) == _word(canonical)
    return node, () if plain else (f"{text}: taken as {canonical}",)


def _by_arch(name: str) -> tuple[Node, tuple[str, ...]] | None:
    """`gfx950 (MI350X/MI355X)`, `Blackwell sm_121 (GB10)`: the devices that the aside names, else all of that arch."""
    found = _ARCH.search(name)
    arch = found[0].lower().replace("_", "") if found else ""
    kinds = _listed(name, arch) or [gpu for gpu in gpus.all_gpus() if arch and gpu.arch == arch]
    if not kinds:
        return None
    if len({gpu.memory_bytes for gpu in kinds}) > 1:
        raise _several(name, kinds)
    return gpus.node(kinds[0].name), (f"{name}: taken as {kinds[0].name}",)


def _only_if_equal(name: str) -> tuple[Node, tuple[str, ...]]:
    """A name that says itself that it leaves something open: only where all candidates have the same memory."""
    stem = _ASIDE.sub(" ", name).strip()
    kinds = _listed(name, "") if "/" in name else [g for g in gpus.all_gpus() if _word(stem) in _words(g.name)]
    if not kinds:
        return _default(stem)
    if len({gpu.memory_bytes for gpu in kinds}) > 1:
        raise _several(name, kinds)
    return gpus.node(kinds[0].name), (f"{name}: taken as {kinds[0].name}",)


def _listed(name: str, arch: str) -> list[Gpu]:
    """The devices inside the parentheses, separated by slashes or commas."""
    inside = " / ".join(text[1:-1] for text in _ASIDE.findall(name))
    kinds = []
    for part in re.split(r"[/,]", inside):
        for text in _NAMES.findall(part):
            try:
                gpu = gpus.find(text)
            except UnknownGpu:
                continue
            kinds += [gpu] if arch in ("", gpu.arch) else []
    return kinds


def _word(stem: str) -> str:
    return stem.lower().removeprefix("nvidia ").removeprefix("amd ").strip()


def _words(name: str) -> list[str]:
    return name.lower().split()


def _several(name: str, kinds: list[Gpu]) -> UnknownGpu:
    sizes = sorted({f"{gpu.name} ({gpu.memory_bytes >> 30} GiB)" for gpu in kinds})
    return UnknownGpu(f"{name!r} could be {' or '.join(sizes)}", "give the memory of the device")
