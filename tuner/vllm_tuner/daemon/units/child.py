"""A server that the daemon starts itself: a process group in a folder of its own, found again by that folder.

It outlives a daemon that is killed, and the next one finds it; a daemon that is told to stop takes it along, because
nobody would watch it then. Who wants a server to outlive the service manages a systemd unit or a container instead.
"""

from __future__ import annotations

import math
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from vllm_advisor.errors import EngineError, UsageError
from vllm_advisor.launch.arguments import child_argv, without
from vllm_advisor.launch.log import last_words, scrub, tail
from vllm_tuner.daemon import orphans
from vllm_tuner.daemon.units.managed import FOREIGN, PROFILE, State


if TYPE_CHECKING:
    from vllm_advisor.plan import LaunchCommand
    from vllm_tuner.daemon.orphans import Process

LOG_NAME = "server.log"
_LEAVE_S = 3.0  # a daemon that is told to stop has ten seconds for all of it
_OWN = "own"  # the folder of the command that it came with; others bear the id of a profile


class Child:
    """`own` is the command to begin with; the address is that of `url`. `grace_s`: from SIGTERM to SIGKILL."""

    supervised = True

    def __init__(
        self,
        folder: Path,
        url: str,
        own: LaunchCommand | None,
        vllm_python: Path | None = None,
        grace_s: float = 6.0,
    ) -> None:
        parts = urlsplit(url)
        self.folder, self._own = folder, own
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 8000
        self._python, self._grace_s = vllm_python, grace_s
        self._child: subprocess.Popen[bytes] | None = None

    def running(self) -> State:
        code = self._child.poll() if self._child is not None else None
        leaders = [process for process in self.processes() if process.number == process.group]
        if not leaders:  # an engine without its server serves nobody
            ended = f"it ended with {code}: {self._reason()}" if code is not None else "it was not started"
            return State(up=False, why=ended)
        told = {self._profile(process) for process in leaders}
        return State(up=True, profile=told.pop() if len(told) == 1 else FOREIGN)

    def command(self) -> LaunchCommand:
        if self._own is None:
            raise UsageError("the unit has no command", "name a [deployment] profile, or set [unit] command")
        return self._own

    def start(self, command: LaunchCommand, profile: str) -> None:
        self._stop()
        words = without(command.argv[3:], "--host", "--port")
        argv = child_argv(("vllm", "serve", command.argv[2], *words), self._host, self._port, self._python)
        environment = os.environ | dict(command.env) | {"PYTHONSAFEPATH": "1", PROFILE: profile}
        place = self.folder / (profile or _OWN)
        try:
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self.log.open("wb") as log:
                self.log.chmod(0o600)  # it repeats the arguments, an API key among them
                self._child = subprocess.Popen(  # noqa: S603 - the command that the plan is
                    argv, cwd=place, env=environment, stdin=subprocess.DEVNULL,
                    stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise EngineError(f"{argv[0]} cannot be started: {error.strerror}") from error

    def restore(self) -> None:
        self.start(self.command(), "")

    def stop(self) -> None:
        self._stop()

    def processes(self) -> tuple[Process, ...]:
        return orphans.inside(self.folder)

    def leave(self) -> None:
        self._stop(_LEAVE_S)

    def _profile(self, process: Process) -> str:
        """By the folder that it stands in: processes of vLLM write over their environment when they take a name."""
        try:
            where = Path(f"/proc/{process.number}/cwd").readlink()
            name = where.relative_to(self.folder.resolve()).parts[0]
        except (OSError, ValueError, IndexError):
            return FOREIGN
        return "" if name == _OWN else name

    def _stop(self, most_s: float = math.inf) -> None:
        orphans.stop_inside(self.folder, min(self._grace_s, most_s))
        if self._child is not None:
            self._child.wait()
            self._child = None

    @property
    def log(self) -> Path:
        """Everything that it writes; one start's."""
        return self.folder / LOG_NAME

    def _reason(self) -> str:
        return scrub(last_words(tail(self.log)))
