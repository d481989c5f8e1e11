"""What the fault campaign breaks: a daemon in mode adopt, its stand-in of vLLM, searches and a load."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from vllm_advisor.store.profile_store import ProfileStore
from vllm_tuner.daemon import orphans
from vllm_tuner.daemon.status import ask
from vllm_tuner.daemon.testing import FAKE, environment, profile
from vllm_tuner.stand_in import install
from vllm_tuner.testing import facts


CLIENTS = 8  # of the busy load
PAUSE_S = 0.08  # of the calm one's client: so few requests a second as no plan serves at the busy load
SEQS = (1, 2, 3, 4, 5, 6, 7, 8, 0)  # batch limits of the winners, by chance; 0: a search without one
OWN_SEQS = 6
LOAD_S = 0.5  # of the stand-in's start
KEPT = (1, 2, 4, 6, 8)  # of profiles that are there before
TICK_S = 0.1
PATIENCE_S = 60.0
CONFIG = """
mode = "adopt"
tick_seconds = {tick}
[deployment]
url = "{url}"
model = "m"
node = "box"
[unit]
kind = "child"
command = ["vllm", "serve", "m", "--max-num-seqs", "{seqs}"]
[windows]
open = "00:00-24:00"
[idle]
samples = 1
[drift]
block_minutes = 1
least_requests = 20
warm_up_hours = 1
hold_minutes = 0.003
most_queued_share = 0.02
[allowance]
back_off_minutes = 0
hours_a_day = 24
[adopt]
start_minutes = 0.5
canary_minutes = 0.15
"""
# The daemon's own process: its wall clock and its devices are what files say.
DAEMON = """
import sys, time
from pathlib import Path
folder, real = Path(sys.argv[1]), time.time
def word(name):
    try: return (folder / name).read_text().strip()
    except OSError: return ""
time.time = lambda: real() + float(word("clock") or 0)
from vllm_advisor.hardware import Unknown
from vllm_advisor.probe import activity
def devices():
    if word("gpu") == "lost":
        return (activity.Activity(0, *(Unknown("the GPU has fallen off the bus") for _ in range(7))),)
    return (activity.Activity(0, 0.0, 0, (), 50.0, 100.0, 300.0, 300.0),)
activity.read = devices
from vllm_tuner.daemon.start import daemon
daemon(folder / "daemon.toml", tuner=(sys.executable, "-S", sys.argv[2]))
"""
LOAD = Path(__file__)  # run with an address and a file, this module is the load


class Broken(Exception):
    """A promise was broken: which, and after which fault."""


def _kept_port() -> int:
    """A free port that the system gives to no outgoing connection: the server binds it again after each fault."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port")


class World:
    """All processes and files of one run."""

    def __init__(self, folder: Path, seed: int, *, stop_unit: bool = False) -> None:
        self.stop_unit = stop_unit
        self.folder, self.seed, self.random = folder, seed, random.Random(seed)  # noqa: S311 - a test's choices
        self.url = f"http://127.0.0.1:{_kept_port()}"
        self.socket = folder / "run/tuner.sock"
        self.journal, self.alone = folder / "journal", folder / "alone"
        self.daemon: subprocess.Popen[bytes] | None = None
        self.load: subprocess.Popen[bytes] | None = None
        self._clients = -1
        self._prepare()

    def _prepare(self) -> None:
        facts(self.folder / "m")
        with ProfileStore.open(self.folder / "advisor.db") as store:
            kept = [(store.save_profile(profile(str(self.folder / "m"), seqs=seqs)), seqs) for seqs in KEPT]
        self.journal.write_text("".join(f"{number} {seqs}\n" for number, seqs in kept), encoding="ascii")
        text = CONFIG.format(tick=TICK_S, url=self.url, seqs=OWN_SEQS)
        text += "[tuning]\nstop_unit = true\n" if self.stop_unit else ""
        (self.folder / "daemon.toml").write_text(text, encoding="utf-8")
        self.env = environment(
            self.folder,
            FAKE_TUNER_JOURNAL=str(self.journal),
            FAKE_TUNER_MODEL=str(self.folder / "m"),
            FAKE_TUNER_SEED=str(self.seed),
            FAKE_TUNER_SEQS=",".join(map(str, SEQS)),
            FAKE_TUNER_ALONE=str(self.alone),
            FAKE_TUNER_S="0.2",
            STAND_IN_ORPHAN="1",
            STAND_IN_FAULT=str(self.folder / "fault"),
            PATH=f"{_slow(install(self.folder / 'bin'))}{os.pathsep}{os.environ['PATH']}",
        )
        self.clients(0)

    def clients(self, number: int) -> None:
        """How many requests the load keeps in flight."""
        if number == self._clients:
            return
        self._clients = number
        draft = self.folder / "clients.new"
        draft.write_text(str(number), encoding="ascii")
        draft.replace(self.folder / "clients")

    @property
    def profiles(self) -> dict[str, int]:
        """Batch limits of all profiles that were ever stored, by id: as whoever stored them wrote down."""
        return {name: int(seqs) for name, seqs in map(str.split, self.journal.read_text("ascii").splitlines())}

    def word(self, name: str, text: str) -> None:
        """What the daemon's clock, its devices or the server's faults are told."""
        draft = self.folder / f"{name}.new"
        draft.write_text(text, encoding="ascii")
        draft.replace(self.folder / name)

    def start_daemon(self) -> None:
        """A daemon; after a kill, the next one."""
        with (self.folder / "daemon.log").open("ab") as log:
            self.daemon = subprocess.Popen(
                [sys.executable, "-c", DAEMON, str(self.folder), str(FAKE)], env=self.env, stdout=log, stderr=log
            )

    def start_load(self) -> None:
        """The load, as a process of its own."""
        argv = [sys.executable, "-S", LOAD, self.url, str(self.folder / "clients")]
        self.load = subprocess.Popen(argv, env=self.env)

    def status(self) -> dict[str, Any]:
        """What the daemon says, {} for nothing."""
        page = ask(self.socket)
        return dict(json.loads(page)) if page else {}

    def until(self, what: str, done: Any, seconds: float = PATIENCE_S) -> dict[str, Any]:
        """Wait for a state of the daemon. Raises Broken."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            seen = self.status()
            if seen and done(seen):
                return seen
            time.sleep(TICK_S / 4)
        raise Broken(f"{what} was not reached: {self.status()}")

    @staticmethod
    def end_of(child: subprocess.Popen[bytes] | None) -> None:
        if child is not None:
            child.kill()
            child.wait()

    def close(self) -> None:
        """Nothing outlives the campaign."""
        self.end_of(self.daemon)
        self.end_of(self.load)
        orphans.stop_inside(self.folder / "state", 0.2)


def _slow(folder: Path) -> Path:
    """The stand-in takes a moment to load, as servers do: so that faults find it loading."""
    script = folder / "vllm"
    text = script.read_text("utf-8").replace("import runpy, sys\n", f"import runpy, sys, time\ntime.sleep({LOAD_S})\n")
    script.write_text(text, encoding="utf-8")
    return folder


async def _client(url: str, number: int, file: Path) -> None:
    """Requests one after the other, while the file says that there are so many clients."""
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps({"model": "m", "prompt": [1] * 16, "max_tokens": 4, "stream": True})
    text = f"POST /v1/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    while True:
        wanted = int(file.read_text(encoding="ascii") or 0)  # noqa: ASYNC240 - one number
        if wanted <= number:
            await asyncio.sleep(0.02)
            continue
        if wanted == 1:
            await asyncio.sleep(PAUSE_S)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(20):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(text)
                await reader.read(-1)
                writer.close()
                continue
        await asyncio.sleep(0.05)


async def load(url: str, file: Path) -> None:
    await asyncio.gather(*(_client(url, number, file) for number in range(CLIENTS)))


if __name__ == "__main__":
    asyncio.run(load(sys.argv[1], Path(sys.argv[2])))
