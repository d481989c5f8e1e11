"""Processes by what they are: number and start together, the group that they lead, and the folder that they stand in.

A number alone is used again, so every process is named by its number and its start (clock ticks after boot, proc(5)
field 22). A run's folder is the second name: whatever stands in it belongs to the run, recorded or not, because nobody
else has that folder as working directory. So a daemon that was killed between a start and its record finds the child.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PROC = Path("/proc")
_POLL_S = 0.02


class Process(NamedTuple):
    """A process as it was seen: `group` is its process group, `started` in clock ticks after boot."""

    number: int
    group: int
    started: int
    ticks: int = 0

    @property
    def runs(self) -> bool:
        """Whether this very process still runs; a number that was given away since does not count."""
        return _same(find(self.number), self)


def _same(now: Process | None, then: Process) -> bool:
    return now is not None and (now.number, now.started) == (then.number, then.started)


def find(number: int) -> Process | None:
    """The process of a number; None: there is none, or it has ended and waits to be reaped."""
    try:
        text = (_PROC / str(number) / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in ("Z", "X"):
        return None
    return Process(number, int(fields[2]), int(fields[19]), int(fields[11]) + int(fields[12]))


def every() -> Iterator[Process]:
    """All processes that can be seen."""
    for name in os.listdir(_PROC):  # noqa: PTH208 - names are enough
        if name.isdigit() and (found := find(int(name))) is not None:
            yield found


def inside(folder: Path) -> tuple[Process, ...]:
    """Processes of this user whose working directory is the folder, or lies below it."""
    place = os.path.realpath(folder)
    return tuple(process for process in every() if _stands_in(process, place))


def _stands_in(process: Process, place: str) -> bool:
    try:
        where = str((_PROC / str(process.number) / "cwd").readlink()).removesuffix(" (deleted)")
    except OSError:  # somebody else's, or gone
        return False
    return where == place or where.startswith(place + os.sep)


def signal_group(process: Process, number: int) -> bool:
    """Send a signal to the group of a process, if it is still the same one; whether it was sent."""
    if process.group in (os.getpgrp(), 0) or not process.runs:
        return False
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.group, number)
        return True
    return False


def stop(found: Callable[[], tuple[Process, ...]], grace_s: float) -> tuple[int, ...]:
    """SIGTERM to the groups of all that `found` tells, SIGKILL to those that are left after `grace_s`; their numbers.

    `found` is asked again, because a child that is told to end may start another one on its way.
    """
    first = found()
    for process in _leaders(first):
        signal_group(process, signal.SIGTERM)
    end = time.monotonic() + grace_s
    while (left := found()) and time.monotonic() < end:
        time.sleep(_POLL_S)
    last = time.monotonic() + max(1.0, grace_s)
    while left and time.monotonic() < last:
        for process in _leaders(left):
            signal_group(process, signal.SIGKILL)
        time.sleep(_POLL_S)
        left = found()
    return tuple(sorted({process.number for process in first}))


def _leaders(processes: tuple[Process, ...]) -> tuple[Process, ...]:
    """One process for each group."""
    return tuple({process.group: process for process in processes}.values())


def stop_inside(folder: Path, grace_s: float = 5.0) -> tuple[int, ...]:
    """Stop whatever stands in a folder: what a killed daemon left behind; their numbers."""
    return stop(lambda: inside(folder), grace_s)
