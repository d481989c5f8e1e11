"""The pictures of docs/wizard.md and README.md, taken from the real wizard: SVG screens, and a cast of a short run.

    python benchmarks/wizard_pictures.py docs/pictures
    python benchmarks/wizard_pictures.py docs/pictures --only plans matrix
    python benchmarks/wizard_pictures.py docs/pictures --cast      # the recording, too (asciinema v2)

Everything is chosen from the catalog, so that the pictures are the same on every machine.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import pty
import re
import select
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING

from textual.widgets import TextArea

from vllm_advisor.tui import testing
from vllm_advisor.tui.app import Wizard
from vllm_advisor.tui.glyphs import UTF8
from vllm_advisor.tui.state import State


if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.pilot import Pilot

SIZE = (120, 34)
CHOSEN = State(gpu="8xH100", model="openai/gpt-oss-120b", offline=True)
PASTED = "VLLM_USE_V1=1 vllm serve openai/gpt-oss-120b \\\n  --tensor-parallel-size 3 --swap-space 4 --host 127.0.0.1"
FOREVER = ("log", "metrics")
# A picture's name, the step it begins at, and the keys pressed then.
PICTURES: dict[str, tuple[str, tuple[str, ...]]] = {
    "hardware": ("hardware", ()),
    "model": ("model", ()),
    "workload": ("workload", ()),
    "plans": ("plans", ()),
    "command": ("command", ()),
    "matrix": ("hardware", ("f3", "down")),
    "check": ("hardware", ("f4",)),
    "help": ("hardware", ("f1",)),
}
# The recording: what is waited for, and what is typed then.
RUN: tuple[tuple[str, str], ...] = (
    ("Which machine will serve", "\x0e"),
    ("▶2 model", "\x0e"),
    ("▶3 workload", "\x0e"),
    ("▶4 plans.*tok/s", "\x1b[B"),
    ("", "\x1b[B"),
    ("", "\x0e"),
    ("vllm serve", "\x1bOR"),
    ("The decision matrix", "\x1b[B"),
    ("", "\x1b"),
    ("▶5 command", "\x11"),
)
_PAUSE = 1.2  # seconds that a viewer gets for each screen


async def picture(name: str) -> str:
    """One screen of the real app as SVG."""
    step, keys = PICTURES[name]
    app = Wizard(CHOSEN._replace(step=step), glyphs=UTF8)
    async with testing.opened(app, SIZE, forever=FOREVER) as pilot:
        for key in keys:
            await pilot.press(key)
            await testing.settled(pilot, forever=FOREVER)
        if name == "check":
            await _paste(pilot)
        return testing.picture(app)


async def _paste(pilot: Pilot[State]) -> None:
    pilot.app.screen.query_one(TextArea).load_text(PASTED)
    await testing.settled(pilot)
    await pilot.press("tab", "tab", "tab")
    await testing.settled(pilot)


def cast() -> str:
    """A run in a terminal of its own, as asciinema v2: a line of JSON for what was printed when."""
    width, height = SIZE
    head = {
        "version": 2,
        "width": width,
        "height": height,
        "title": "advisor wizard",
        "env": {"TERM": "xterm-256color"},
    }
    return "\n".join([json.dumps(head), *(json.dumps(event) for event in _recorded(width, height))]) + "\n"


def _recorded(width: int, height: int) -> Iterator[tuple[float, str, str]]:
    words = ["wizard", CHOSEN.model, "--gpu", CHOSEN.gpu, "--offline"]
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}
        os.execv(sys.executable, [sys.executable, "-m", "vllm_advisor", *words])  # noqa: S606
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    clock, shown = 0.0, ""
    for awaited, typed in (*RUN, ("", "")):
        began, fresh = time.monotonic(), ""
        while not (re.search(awaited, fresh, re.DOTALL) and time.monotonic() - began > _PAUSE):
            ready, _, _ = select.select([terminal], [], [], 0.2)
            text = _read(terminal) if ready else ""
            if ready and not text:
                break
            if text:
                fresh = (fresh + re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text))[-100_000:]
                yield round(clock + min(time.monotonic() - began, _PAUSE), 3), "o", text
        clock += min(time.monotonic() - began, _PAUSE) + 0.1
        shown += fresh
        if typed:
            os.write(terminal, typed.encode())
    os.waitpid(child, 0)


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 65536).decode("utf-8", "replace")
    except OSError:  # the child has closed its side
        return ""


def main() -> None:
    """Write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=PICTURES, default=list(PICTURES))
    parser.add_argument("--cast", action="store_true")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as nowhere:
        os.environ.pop("NO_COLOR", None)
        os.environ |= {
            "ADVISOR_WIZARD_STATE": f"{nowhere}/state.json",
            "ADVISOR_DATABASE_URL": f"{nowhere}/none.db",
            "HF_HOME": nowhere,
            "HF_HUB_OFFLINE": "1",
        }
        for name in asked.only:
            (asked.folder / f"{name}.svg").write_text(asyncio.run(picture(name)), encoding="utf-8")
            print(f"{name}.svg")
        if asked.cast:
            (asked.folder / "wizard.cast").write_text(cast(), encoding="utf-8")
            print("wizard.cast")


if __name__ == "__main__":
    main()
