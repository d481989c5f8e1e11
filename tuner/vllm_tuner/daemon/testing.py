"""What tests of the service need: a server that says what a test wants, a search that ends as a test wants, clocks.

All of it is real: HTTP on a socket, child processes with groups of their own, files, a store.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_advisor.plan import LaunchCommand, Plan
from vllm_advisor.profile import Fingerprint, Measurement, Origin, Profile, Provenance
from vllm_advisor.units import Interval
from vllm_advisor.workload import Workload
from vllm_tuner.daemon import config as configs
from vllm_tuner.daemon import orphans
from vllm_tuner.daemon.actions import World
from vllm_tuner.daemon.logs import Log
from vllm_tuner.daemon.look import Look
from vllm_tuner.daemon.loop import Clocks, Daemon
from vllm_tuner.daemon.metrics import Client
from vllm_tuner.daemon.status import ask
from vllm_tuner.daemon.watch import Watch
from vllm_tuner.stand_in import Engine


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from vllm_advisor.store.profile_store import ProfileStore

MONDAY = 1_767_571_200.0  # 2026-01-05 00:00 UTC
FAKE = Path(__file__).with_name("fake_tuner.py")
FAST = """
tick_seconds = 0.05
[windows]
open = "00:00-24:00"
[idle]
most_host_load_share = 1.0
samples = 1
[drift]
block_minutes = 0.001
least_requests = 1
warm_up_hours = 0
[allowance]
back_off_minutes = 0
"""


class Clock:
    """A clock that a test moves: the wall and the steady hand together, or the wall alone."""

    def __init__(self, at: float = MONDAY) -> None:
        self.at, self.steady = at, 1000.0

    def pass_(self, seconds: float) -> None:
        """Time passes."""
        self.at += seconds
        self.steady += seconds

    @property
    def clocks(self) -> Clocks:
        """As the daemon takes them."""
        return Clocks(lambda: self.at, lambda: self.steady)


class _Quiet(ThreadingHTTPServer):
    """A client that was killed is no event."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Nothing is printed."""


class Exporter:
    """A server's /health, /v1/models and /metrics, in this process; `answer`: garbage in the place of its counters."""

    def __init__(self) -> None:
        self.engine = Engine(256, 8192)
        self.healthy, self.answer, self.status = True, "", 200
        self.release = threading.Event()
        self.release.set()
        self._server = _Quiet(("127.0.0.1", 0), _pages(self))
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def serve(self, requests: int, prompt: int, output: int = 20, tpot_ms: float = 20.0) -> None:
        """So many requests end."""
        for _ in range(requests):
            self.engine.finish(prompt, output, (0.0, 0.0, 0.1, 0.1 + tpot_ms / 1000 * (output - 1)))
            self.engine.prompts += prompt
            self.engine.generated += output

    def restart(self) -> None:
        """Its counters begin anew."""
        self.engine = Engine(256, 8192)

    def close(self) -> None:
        """Nobody answers any more."""
        self.release.set()
        self._server.shutdown()
        self._server.server_close()


def _pages(exporter: Exporter) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            exporter.release.wait(30)
            code, text = 200, ""
            if self.path == "/health":
                code = 200 if exporter.healthy else 503
            elif self.path == "/metrics":
                code, text = exporter.status, exporter.answer or exporter.engine.metrics()
            elif self.path == "/v1/models":
                text = '{"data": [{"id": "stand-in", "root": "stand-in"}]}'
            body = text.encode("utf-8", "surrogateescape")
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Tests are quiet."""

    return Handler


def profile(
    name: str = "m", *, seqs: int = 8, tpot_ms: float = 20.0, load: Workload | None = None, length: int = 256
) -> Profile:
    """A measured profile of a model, told apart by its batch limit, and by its context where two have the same."""
    figures = (("tpot_ms", Interval(tpot_ms, tpot_ms, tpot_ms)),)
    measured = Measurement(figures, load or Workload("test", 100, 20, 4), 3, 60.0, "test", MONDAY)
    readings = (("gpus", "1xcpu"), ("vllm", "0.33.0"))
    origin = Provenance(Origin.MEASURED, "tuner test", MONDAY, "box", validated_at=MONDAY)
    plan = Plan(name, max_num_seqs=seqs, max_model_len=length)
    return Profile(Fingerprint(readings, readings), plan, measured, (), origin, name)


class Silent(Look):
    """A question that nobody answers: tests of the loop need no fingerprint."""

    def ask(self, *words: str) -> None:
        """Nothing is started."""


def plan(profile: str, vllm: str, environment: Mapping[str, str]) -> LaunchCommand:  # noqa: ARG001 - as `look.plan_of`
    """The command of any profile."""
    return LaunchCommand(("vllm", "serve", "m", "--max-num-seqs", "4"))


def world(store: ProfileStore, folder: Path, url: str, text: str = FAST, **more: Any) -> World:
    """Everything around a daemon. `more`: fields of World, `clock`, `devices`, `lines` (where its log goes)."""
    clock: Clock = more.pop("clock", None) or Clock()
    lines: list[str] = more.pop("lines", [])
    devices = more.pop("devices", tuple)
    config = configs.parse(text)
    config = config._replace(deployment=config.deployment._replace(url=url, model="m"))
    watch = Watch(Client(url, deadline_s=1.0), clock.clocks.now, clock.clocks.steady, devices, Silent())
    runs = folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    made = World(
        config, "box", store, runs, watch, None, Log(lines.append, clock.clocks.now), None, {}, clock.clocks.now,
        (sys.executable, "-S", str(FAKE)), plan,
    )  # fmt: skip
    return made._replace(**more)


@contextmanager
def daemon(made: World, clock: Clock) -> Iterator[Daemon]:
    """A daemon whose children end with the test."""
    service = Daemon(made, clock.clocks)
    try:
        yield service
    finally:
        service.hands.stop(0.5)
        made.watch.client.close()


def environment(folder: Path, **more: str) -> dict[str, str]:
    """For a daemon in a process of its own: our packages on its path, its files in a folder, no real vLLM."""
    outer = {name: value for name, value in os.environ.items() if name != "ADVISOR_VLLM_PYTHON"}
    return outer | {
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        "HOME": str(folder),
        "STATE_DIRECTORY": str(folder / "state"),
        "RUNTIME_DIRECTORY": str(folder / "run"),
        "ADVISOR_DATABASE_URL": f"sqlite:///{folder / 'advisor.db'}",
        **more,
    }


LATE = FAST.replace("[drift]\n", "[drift]\nhold_minutes = 0.001\n")


class Process:
    """A daemon in a process of its own, whose search is the fake one. Its log is `log`, its configuration `file`."""

    def __init__(self, folder: Path, url: str, text: str = LATE, **env: str) -> None:
        self.folder, self.file, self.log = folder, folder / "daemon.toml", folder / "daemon.log"
        self.socket = folder / "run/tuner.sock"
        self.env = environment(folder, **env)
        self.write(url, text)
        self.child: subprocess.Popen[bytes] | None = None

    def write(self, url: str, text: str) -> None:
        """Its configuration: the text, and the deployment with a limit that every request of the exporter misses."""
        where = f'\n[deployment]\nurl = "{url}"\nmodel = "m"\nnode = "box"\nmost_ttft_ms = 10\n'
        self.file.write_text(text + where, encoding="utf-8")

    def start(self) -> None:
        """Start it; it is ready when its socket answers."""
        code = (
            "import sys; from pathlib import Path; from vllm_tuner.daemon.start import daemon\n"
            "daemon(Path(sys.argv[1]), tuner=(sys.executable, '-S', sys.argv[2]))"
        )
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-c", code, str(self.file), str(FAKE)], env=self.env, stdout=log, stderr=log
            )

    def status(self) -> dict[str, Any]:
        """What it says of itself, {} where it does not answer."""
        page = ask(self.socket)
        return dict(json.loads(page)) if page else {}

    def until(self, done: Callable[[dict[str, Any]], bool], seconds: float = 60.0) -> dict[str, Any]:
        """Until its status is so. Raises AssertionError with its log."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            seen = self.status()
            if seen and done(seen):
                return seen
            time.sleep(0.02)
        raise AssertionError(f"never: {self.status()}\n{self.log.read_text(encoding='utf-8')[-3000:]}")

    def signal(self, number: int) -> None:
        """Send it a signal."""
        if self.child is not None:
            self.child.send_signal(number)

    def wait(self, seconds: float = 15.0) -> int:
        """Its exit code."""
        return self.child.wait(seconds) if self.child is not None else 0

    def left(self) -> tuple[orphans.Process, ...]:
        """Processes of its runs."""
        return orphans.inside(self.folder / "state")

    def close(self) -> None:
        """Nothing of it stays."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()
        orphans.stop_inside(self.folder / "state", 0.0)
