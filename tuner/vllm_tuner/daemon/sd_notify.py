"""systemd's notifications without its library: one datagram to the socket that NOTIFY_SOCKET names (sd_notify(3))."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress


class Supervisor:
    """Who started us, if it wants to know. Without a socket in the environment nothing is sent."""

    def __init__(self) -> None:
        self.address = os.environ.pop("NOTIFY_SOCKET", "")  # children must not speak for us
        self.watchdog_s = _watchdog_s()

    def ready(self, text: str) -> None:
        """Started, or done with reading the configuration again."""
        self._send(f"READY=1\nSTATUS={_line(text)}")

    def alive(self, text: str) -> None:
        """One more tick is done: the watchdog waits anew."""
        self._send(f"WATCHDOG=1\nSTATUS={_line(text)}")

    def reloading(self) -> None:
        """The configuration is read again; until READY=1 the unit is `reloading`. The time is for Type=notify-reload.

        That type is newer (253) than the systemd that we support; whoever sets it needs nothing else from us.
        """
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}\nSTATUS=reloading")

    def stopping(self) -> None:
        """On the way out."""
        self._send("STOPPING=1\nSTATUS=stopping")

    def _send(self, text: str) -> None:
        if not self.address:
            return
        name = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.setblocking(False)
            to.sendto(text.encode(), name)


def _line(text: str) -> str:
    return " ".join(text.split())[:200]


def _watchdog_s() -> float:
    """Seconds within which the watchdog must hear of us; 0: there is none, or it waits for another process."""
    for_whom, limit = os.environ.pop("WATCHDOG_PID", ""), os.environ.pop("WATCHDOG_USEC", "")
    ours = for_whom in ("", str(os.getpid()))
    return int(limit) / 1e6 if ours and limit.isdigit() else 0.0
