"""The faults of the campaign, a method each: it returns when its cause is gone, False where nothing was hit."""

from __future__ import annotations

import json
import resource
import signal
import sqlite3
import subprocess
import sys
import time

from fault_campaign_world import DAEMON, PATIENCE_S, TICK_S, Broken, World

from vllm_tuner.daemon import orphans
from vllm_tuner.daemon.status import ask
from vllm_tuner.daemon.testing import FAKE


class Faults(World):
    """What may go wrong."""

    def kill_daemon(self) -> None:
        """SIGKILL; the next daemon must find everything."""
        self.end_of(self.daemon)
        time.sleep(self.random.uniform(0, 0.2))
        self.start_daemon()

    def kill_server(self) -> bool:
        """The managed server's whole group; whether there was one."""
        found = orphans.inside(self.folder / "state/daemon/box/unit")
        hit = [orphans.signal_group(process, signal.SIGKILL) for process in found]
        return any(hit)

    def kill_search(self) -> bool:
        """The search, or only the server that it started; whether there was one."""
        found = orphans.inside(self.folder / "state/daemon/box/runs")
        return bool(found) and orphans.signal_group(self.random.choice(found), signal.SIGKILL)

    def kill_load(self) -> None:
        """All requests break off."""
        self.end_of(self.load)
        self.start_load()

    def _metrics(self, fault: str) -> None:
        self.word("fault", fault)
        time.sleep(self.random.uniform(2, 6) * TICK_S)
        self.word("fault", "")

    def metrics_garbage(self) -> None:
        """A page of nonsense."""
        self._metrics("garbage")

    def metrics_cut(self) -> None:
        """Half a page."""
        self._metrics("cut")

    def metrics_error(self) -> None:
        """Status 404."""
        self._metrics("error")

    def metrics_hang(self) -> None:
        """No answer at all: the daemon's own limit ends it."""
        self._metrics("hang")
        time.sleep(3.5)

    def disk_full(self) -> None:
        """No file of the daemon's, nor of what it starts, can grow."""
        self._limited(1)

    def _limited(self, size: int) -> None:
        number = self.daemon.pid if self.daemon else 0
        _, most = resource.prlimit(number, resource.RLIMIT_FSIZE)
        resource.prlimit(number, resource.RLIMIT_FSIZE, (size, most))
        time.sleep(self.random.uniform(2, 8) * TICK_S)
        resource.prlimit(number, resource.RLIMIT_FSIZE, (most, most))

    def store_locked(self) -> None:
        """Another program holds the write lock, sometimes for longer than the store waits."""
        other = sqlite3.connect(self.folder / "advisor.db", isolation_level=None, timeout=10)
        other.execute("BEGIN IMMEDIATE")
        time.sleep(6.0 if self.random.random() < 0.1 else self.random.uniform(0.1, 0.6))
        other.execute("ROLLBACK")
        other.close()

    def clock_jump(self) -> None:
        """Minutes to days ahead or back, and back again."""
        self.word("clock", str(self.random.choice((-86400, -3600, -90, 90, 3600, 86400))))
        time.sleep(4 * TICK_S)
        self.word("clock", "0")

    def gpu_lost(self) -> None:
        """The device answers nothing: no search may begin, one that runs goes on or ends."""
        self.word("gpu", "lost")
        time.sleep(self.random.uniform(2, 6) * TICK_S)
        self.word("gpu", "ok")

    def second_daemon(self) -> None:
        """Another daemon of the same node: it must wait."""
        env = self.env | {"RUNTIME_DIRECTORY": str(self.folder / "run2")}
        with (self.folder / "second.log").open("ab") as log:
            other = subprocess.Popen(
                [sys.executable, "-c", DAEMON, str(self.folder), str(FAKE)], env=env, stdout=log, stderr=log
            )
        end = time.monotonic() + PATIENCE_S
        while ask(self.folder / "run2/tuner.sock", "/health") is None and time.monotonic() < end:
            time.sleep(TICK_S)
        time.sleep(4 * TICK_S)
        page = ask(self.folder / "run2/tuner.sock")
        leased = bool(page) and json.loads(page or b"{}").get("leased", False)
        other.kill()
        other.wait()
        if leased and self.status().get("leased"):
            raise Broken("two daemons have the node")
