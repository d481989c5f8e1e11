"""The kernel tables of a surface (form: `extract_kernels.read`), looked up by device.

A release without tables, of which no surface was made with them, is judged by the nearest release that has some.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from vllm_advisor.vllm import surface as surfaces


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.vllm.surface import Surface

_AITER = "+aiter"


@functools.lru_cache(maxsize=64)
def tables(surface: Surface) -> Mapping[str, Any]:
    """The release's tables, or those of the nearest release that has some."""
    return judge(surface).kernels


@functools.lru_cache(maxsize=64)
def judge(surface: Surface) -> Surface:
    """The release by whose tables this one is judged: itself where it has some."""
    if surface.kernels:
        return surface
    shipped = (surfaces.load(v) for v in sorted(surfaces.versions(), key=lambda v: _distance(surface, v)))
    return next((s for s in shipped if s.kernels), surface)


def _distance(surface: Surface, version: str) -> tuple[int, ...]:
    return tuple(abs(a - b) for a, b in zip(surface.release, surfaces.release_of(version), strict=True))


@functools.lru_cache(maxsize=512)
def device(surface: Surface, arch: str, *, aiter: bool) -> int:  # noqa: A002 - AMD's library is called so
    """A device's number in the tables; -1 for one that they do not have."""
    found = tables(surface)
    names = found.get("devices", [])
    name = found.get("same", {}).get(arch, arch)
    wanted = name + _AITER if aiter and name + _AITER in names else name
    return names.index(wanted) if wanted in names else -1


def row(surface: Surface, table: str, key: str, number: int) -> Any:
    """What one table says of one device; None where it takes nothing there."""
    if number < 0:
        return None
    rows = tables(surface).get(table, {}).get(key, ())
    return next((value for devices, value in rows if devices >> number & 1), None)


def unread(surface: Surface, table: str, number: int) -> str | None:
    """The gates that were passed by unread on the way to a choice; None where all of them were read."""
    found = tables(surface)
    name = found["devices"][number] if number >= 0 else ""
    notes = [note for where, who, note in found.get("unread", ()) if where == table and who == name]
    return "; ".join(notes) or None
