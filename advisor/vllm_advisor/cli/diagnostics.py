"""All of stderr, and the exit codes: stdout is data, stderr is narration."""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from vllm_advisor.errors import AdvisorError


class ExitCode(IntEnum):
    """What a script may rely on."""

    OK = 0
    NO = 1  # the answer is no: no feasible plan, findings at error level
    USAGE = 2
    PROBE = 3
    STORE = 4
    ENGINE = 5
    INTERRUPTED = 130


def note(message: str) -> None:
    """One line that a person may want to know and a program may ignore."""
    print(f"note: {message}", file=sys.stderr)


def fail(error: AdvisorError) -> int:
    """The error as one line and, on a second, what to do next; returns the exit code."""
    print(f"error: {' '.join(error.message.split())}", file=sys.stderr)
    if error.hint:
        print(f"hint: {' '.join(error.hint.split())}", file=sys.stderr)
    return error.exit_code
