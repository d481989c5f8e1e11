"""Processes that outlive whoever started them: noted in a file, found again, and stopped as a group.

A child stands in a run folder of its own, and so does everything that it starts. The folder is its identity: a process
number is given again some day, a folder is not. It is noted before the start, so that a kill between the start and the
note leaves nothing unseen. Where the system has no /proc, the leader of the noted number has to do.
"""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from vllm_advisor.launch.child import LOG_NAME, await_group_end, signal_group


SERVER, SEARCH = "server", "search"
_POLL_S, _SWEEP_S = 0.05, 2.0


class Left(NamedTuple):
    """What is noted of one. `pid` leads its group (0: not known yet); `command` is for people."""

    kind: str
    folder: str
    pid: int = 0
    model: str = ""
    url: str = ""
    command: tuple[str, ...] = ()

    @property
    def log(self) -> Path:
        """Everything that it writes."""
        return Path(self.folder) / LOG_NAME


def note(left: Left, notes: Path) -> None:
    """Keep it in the folder of notes, readable by its owner only. Raises OSError."""
    notes.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = _file(left, notes)
    beside = file.with_suffix(f".{os.getpid()}.new")
    beside.touch(mode=0o600)
    beside.write_text(json.dumps(left._asdict()), encoding="utf-8")
    beside.replace(file)


def forget(left: Left, notes: Path) -> None:
    """It is gone, or somebody else's from now on."""
    with suppress(OSError):
        _file(left, notes).unlink()


def found(notes: Path) -> tuple[Left, ...]:
    """Those that still run, the newest first; notes of others are taken away."""
    alive = []
    for file in sorted(notes.glob("*.json"), reverse=True):
        left = _read(file)
        running = processes(left) if left else ()
        if left and running:
            alive.append(left._replace(pid=_leader(left, running)))
        else:
            with suppress(OSError):
                file.unlink()
    return tuple(alive)


def is_alive(left: Left) -> bool:
    """Whether any of its processes runs."""
    return bool(left.pid and _stands_in(left.pid, left.folder)) or bool(processes(left))


def processes(left: Left) -> tuple[int, ...]:
    """Those that stand in its folder; a process that ended and was not reaped stands nowhere."""
    if not Path("/proc/self/cwd").exists():
        return (left.pid,) if left.pid and _leads(left.pid) else ()
    every = (int(process.name) for process in Path("/proc").glob("[0-9]*"))
    return tuple(sorted(pid for pid in every if _stands_in(pid, left.folder)))


def stop(left: Left, number: int = signal.SIGTERM, grace_s: float = 30.0) -> None:
    """The signal to the leader alone, which stops its own in order; after the grace SIGKILL to whatever is left."""
    leader = _leader(left, processes(left))
    if not leader:
        return
    with suppress(ProcessLookupError):
        os.kill(leader, number)
    end = time.monotonic() + grace_s
    while _stands_in(leader, left.folder) and time.monotonic() < end:
        time.sleep(_POLL_S)
    if signal_group(leader, signal.SIGTERM):
        await_group_end(leader, _SWEEP_S)
    signal_group(leader, signal.SIGKILL)
    for pid in processes(left):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    await_group_end(leader, _SWEEP_S)


def _file(left: Left, notes: Path) -> Path:
    return notes / f"{Path(left.folder).name}.json"


def _read(file: Path) -> Left | None:
    try:
        plain = json.loads(file.read_text(encoding="utf-8"))
        left = Left(**plain | {"command": tuple(plain["command"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return left if type(left.pid) is int and isinstance(left.folder, str) and left.folder else None


def _leader(left: Left, running: tuple[int, ...]) -> int:
    """Whoever leads the group of those that run; 0 for none."""
    if left.pid in running:
        return left.pid
    with suppress(ProcessLookupError):
        return os.getpgid(running[0]) if running else 0
    return 0


def _stands_in(pid: int, folder: str) -> bool:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink()).removesuffix(" (deleted)") == folder
    except OSError:
        return not Path("/proc/self/cwd").exists() and _leads(pid)


def _leads(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False
