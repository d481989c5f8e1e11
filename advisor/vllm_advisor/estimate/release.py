"""Which vLLM a row speaks of: the version that it names, else the release that was newest on its date.

A version that no surface was read of keeps its own number and takes the names of flags, methods and backends from the
nearest one that was read: memory depends on the number first (`vllm.history`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import UnknownVllm
from vllm_advisor.vllm import history
from vllm_advisor.vllm import surface as surfaces


if TYPE_CHECKING:
    from vllm_advisor.vllm.surface import Surface


_DATE = re.compile(r"20[0-9]{2}(-[0-9]{2}){0,2}")


OLDEST = (0, 5, 0)  # of vllm/history.py


class Release(NamedTuple):
    """A version's surface, and in words what was assumed to get there."""

    surface: Surface
    assumed: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def of_row(version: str | None, date: str | None) -> Release:
    """The release of a row: its version, else its date, else the newest that is known."""
    found = history.parse(version) if version else None
    if found is not None:
        said = (version or "").removeprefix("v").split("+")[0]
        return _release(found, () if said == _text(found) else (f"vLLM {_text(found)}: {said[:60]}",))
    day = _DATE.match(date or "")
    if day:
        newest = history.version_at(day[0])
        return _release(_parsed(newest), (f"vLLM {newest}: the newest on {day[0]}",))
    newest = surfaces.versions()[-1]
    return Release(surfaces.load(newest), (f"vLLM {newest}: neither version nor date is given",))


def named(version: str) -> Release:
    """The release of a version as typed: `0.11.0`, `v0.24`, `latest`. Raises UnknownVllm for no version."""
    if version.strip() in ("", "latest"):
        return Release(surfaces.load("latest"))
    return _release(_parsed(version.strip()), ())


def _release(release: history.Release, said: tuple[str, ...]) -> Release:
    newest = surfaces.release_of(surfaces.versions()[-1])
    beyond = ""
    if release[:2] > newest[:2]:
        beyond = f"vLLM {_text(release)} is newer than {_text(newest)}, the newest that was read: taken like it"
    elif release < OLDEST:
        beyond = f"vLLM {_text(release)} is older than {_text(OLDEST)}, the oldest that was read: taken like it"
    return Release(surface_of(release), said + ((beyond,) if beyond else ()))


@lru_cache(maxsize=256)
def surface_of(release: history.Release) -> Surface:
    """The surface that was read of a release, or the nearest older one (else the oldest) under this number."""
    known = surfaces.versions()
    older = [version for version in known if surfaces.release_of(version) <= release]
    nearest = surfaces.load((older or known[:1])[-1])
    return nearest if nearest.release == release else nearest._replace(version=_text(release), release=release)


def _parsed(version: str) -> history.Release:
    found = history.parse(version)
    if found is None:
        raise UnknownVllm(f"{version[:60]!r} is not a vLLM version", "write it as 0.11.0")
    return found


def _text(release: history.Release) -> str:
    return ".".join(map(str, release))
