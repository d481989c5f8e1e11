"""Structured lines on stderr, one event each, in logfmt: `at=… level=info event=drift text="…" key=…`.

journald stores them, rotates them and adds time and unit; the priority in front (`<4>`, sd-daemon(3)) is written where
it listens. Keys and tokens are masked. A full disk or a closed stream never ends the daemon.
"""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from vllm_advisor.launch.log import scrub


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.profile import Scalar

LEVELS = {"debug": 7, "info": 6, "warning": 4, "error": 3}
_PLAIN = re.compile(r"[^\s\"=]+")
_LONGEST = 2000


class Log:
    """Where lines go. `write` is stderr's unless a test wants them."""

    def __init__(self, write: Callable[[str], object] | None = None, now: Callable[[], float] = time.time) -> None:
        self._write = write or _to_stderr
        self._now = now
        self._for_journal = "JOURNAL_STREAM" in os.environ
        self._last: dict[str, str] = {}

    def __call__(self, level: str, event: str, text: str, **fields: Scalar) -> None:
        """One line."""
        values = {"level": level, "event": event, "text": scrub(text), **fields}
        line = " ".join(f"{name}={quoted(value)}" for name, value in values.items())
        if self._for_journal:
            self._write(f"<{LEVELS[level]}>{line}")
        else:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._now()))
            self._write(f"at={stamp} {line}")

    def once(self, level: str, event: str, text: str) -> None:
        """A line that is not repeated while it stays the same; "" says that it is over."""
        if text == self._last.get(event, ""):
            return
        self._last[event] = text
        self(level if text else "info", event, text or "over")


def quoted(value: Scalar) -> str:
    """A value of logfmt: bare where it can be, else in quotes on one line."""
    text = " ".join(str(value).split())[:_LONGEST]
    if _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _to_stderr(line: str) -> None:
    with suppress(OSError, ValueError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
