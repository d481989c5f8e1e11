"""Signals are borrowed: Ctrl-C and SIGTERM unwind the block, and are sent again when it has cleaned up.

A second one during the clean-up unwinds that too, and the server's group is then killed at once.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

BORROWED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A borrowed signal came; no `except Exception` may swallow it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def borrowed_signals() -> Iterator[None]:
    """Run the block with SIGINT, SIGTERM and SIGHUP as an exception; then restore the handlers and send it again.

    So the exit status stays honest: whoever waits for us sees death by that signal. What is ignored stays ignored, as
    nohup(1) and a shell's background jobs want it. Outside of the main thread nothing is borrowed, because Python lets
    only the main thread set handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in BORROWED if signal.getsignal(number) is not signal.SIG_IGN]
    former = {number: signal.signal(number, _raise) for number in heard}
    came = None
    try:
        yield
    except Interrupted as interrupted:
        came = interrupted.number
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    if came is not None:
        signal.raise_signal(came)  # to this thread and at once; os.kill may reach another one, and we would end well


def _raise(number: int, _frame: FrameType | None) -> None:
    raise Interrupted(number)
