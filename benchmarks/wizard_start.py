"""The wizard's first paint in a terminal, beside what Python and Textual alone cost: medians of interleaved runs.

    python benchmarks/wizard_start.py [--runs 7] [--check]

`paint` is from the start of the process until the first screen was written to its terminal, `textual` a Python that
imports Textual's app and widgets and nothing of ours. Beside the time on the clock stands that of the processor, which
a busy machine does not stretch: `--check` exits 1 when `paint` takes 0.4 s of it more than `textual`, times how much
slower this machine is at present.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from typing import NamedTuple

from vllm_advisor.tui.testing import slowness


PYTHON = [sys.executable, "-c", "pass"]
TEXTUAL = [sys.executable, "-c", "import textual.app, textual.screen, textual.widgets; textual.widgets.Input"]
WIZARD = [sys.executable, "-m", "vllm_advisor", "wizard", "--gpu", "8xH100", "--offline"]
PAINTED = b"1 hardware"
BAR_S = 0.4


class Took(NamedTuple):
    """Seconds on the clock, and of the processor."""

    clock: float
    processor: float


def started(argv: list[str], awaited: bytes = b"") -> Took:
    """In a terminal of 100 columns, until it has written what is awaited, or has ended."""
    start = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        os.execv(argv[0], argv)  # noqa: S606
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    seen = b""
    while (part := _read(terminal)) and not (awaited and awaited in (seen := seen + part)):
        pass
    clock = time.perf_counter() - start
    os.kill(child, signal.SIGKILL if awaited else 0)
    used = os.wait4(child, 0)[2]
    os.close(terminal)
    return Took(clock, used.ru_utime + used.ru_stime)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the child has closed its side
        return b""


def measure(runs: int) -> dict[str, Took]:
    """Medians by name; they take turns, so that noise meets all of them."""
    ways = {"python": (PYTHON, b""), "textual": (TEXTUAL, b""), "paint": (WIZARD, PAINTED)}
    for way in ways.values():
        started(*way)
    times: dict[str, list[Took]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, way in ways.items():
            times[name].append(started(*way))
    return {name: Took(*map(statistics.median, zip(*found, strict=True))) for name, found in times.items()}


def main() -> int:
    """Print the medians, and what is more than the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--check", action="store_true", help="exit 1 when the bar is missed")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as nowhere:
        os.environ["ADVISOR_WIZARD_STATE"] = f"{nowhere}/state.json"
        before = slowness()
        medians = measure(args.runs)
        slow = max(before, slowness())
    for name, value in medians.items():
        print(f"{name:8} {value.processor * 1e3:6.0f} ms of the processor, {value.clock * 1e3:6.0f} ms on the clock")
    more, bar = medians["paint"].processor - medians["textual"].processor, BAR_S * slow
    print(f"{'ours':8} {more * 1e3:6.0f} ms of the processor (bar {bar * 1e3:.0f}: {BAR_S} s, machine {slow:.1f} x)")
    return int(args.check and more > bar)


if __name__ == "__main__":
    sys.exit(main())
