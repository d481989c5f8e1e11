"""Signals as notes for the loop: SIGTERM and SIGINT stop, SIGHUP reloads, a second SIGINT ends at once.

Handlers only note, and a byte in a pipe wakes the loop, so no signal interrupts a transaction. Whatever hangs after
the first stop signal is ended by an alarm: children are killed, and the process with them.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Self


if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

NOTED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PATIENCE_S = 9.0  # SIGTERM stops within ten seconds, whatever hangs


class Signals:
    """A context manager around the loop. `force`: kill what would be nobody's, when there is no time left."""

    def __init__(self, force: Callable[[], None], patience_s: float = PATIENCE_S) -> None:
        self.stop = 0
        self.reload = False
        self._force, self._patience_s = force, patience_s
        self._former: dict[int, object] = {}

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._former = {number: signal.signal(number, self._note) for number in NOTED}
        self._former[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._late)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._former.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        os.close(self._read)
        os.close(self._write)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self.reload = True
            return
        if self.stop and number == signal.SIGINT:
            self._late(number, None)
        if not self.stop:
            signal.setitimer(signal.ITIMER_REAL, self._patience_s)
        self.stop = self.stop or number

    def _late(self, number: int, _frame: FrameType | None) -> None:
        """No time is left: nothing of ours may stay, and nobody waits for the rest."""
        self._force()
        os._exit(130 if number == signal.SIGINT else 143)

    def wait(self, seconds: float) -> None:
        """Sleep, or until a signal comes."""
        if self.stop or self.reload:
            return
        ready, _, _ = select.select([self._read], [], [], max(0.0, seconds))
        with suppress(BlockingIOError):
            while ready and os.read(self._read, 1024):
                pass

    def send_again(self) -> None:
        """The signal that stopped us, with its usual effect: whoever waits for us sees the truth."""
        if self.stop:
            signal.signal(self.stop, signal.SIG_DFL)
            os.kill(os.getpid(), self.stop)
