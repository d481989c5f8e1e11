"""Who runs a trial or holds a lease: host, process and its start, since numbers of processes are used again."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def me() -> str:
    """The running process, as it signs trials and leases."""
    return f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}"


def alive(owner: str) -> bool:
    """Whether a process of this host still runs; of another host it cannot be told here: taken as alive."""
    host, _, rest = owner.rpartition(":")[0].rpartition(":")
    number, started = rest, owner.rpartition(":")[2]
    if host != socket.gethostname():
        return bool(host)
    return number.isdigit() and _runs(int(number)) and started == _started(int(number))


def _runs(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return _state(number) not in ("Z", "X")


def _state(number: int) -> str:
    fields = _stat(number)
    return fields[0] if fields else ""


def _started(number: int) -> str:
    """Clock ticks after boot (proc(5), field 22); empty where there is no /proc."""
    fields = _stat(number)
    return fields[19] if len(fields) > 19 else ""


def _stat(number: int) -> list[str]:
    """The fields behind the name, which may hold spaces and brackets itself."""
    try:
        text = Path(f"/proc/{number}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
