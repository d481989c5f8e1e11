"""One vLLM server as a child process: start, ready, stop its whole process group.

It runs in a folder of its own with PYTHONSAFEPATH=1, so that no folder of the caller's can shadow one of vLLM's
imports, and leads a new process group, because an engine is many processes and all of them hold GPU memory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from vllm_advisor.errors import EngineError
from vllm_advisor.launch.address import choose_port, url_of
from vllm_advisor.launch.arguments import child_argv, value_of
from vllm_advisor.launch.client import is_healthy
from vllm_advisor.launch.log import last_words, scrub, tail


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.plan import LaunchCommand

LOG_NAME = "server.log"
_POLL_S = 0.25
_SWEEP_S = 2.0


class Server:
    """A server that lives as long as the `with` block.

    `allowance_s` is how long it may take to answer /health, `grace_s` how long to leave after SIGTERM.
    `run_folder` holds the log and is kept; by default a new one below the user's state folder.
    Entering starts the child and returns at once; `wait_until_ready` waits. Raises UsageError for a port in use and
    EngineError, with the log's reason, for a child that dies or never answers.
    """

    def __init__(
        self,
        command: LaunchCommand,
        *,
        run_folder: Path | None = None,
        vllm_python: Path | None = None,
        host: str = "127.0.0.1",
        port: int | None = None,
        allowance_s: float = 600.0,
        grace_s: float = 30.0,
    ) -> None:
        self.command = command
        self.run_folder = run_folder or new_run_folder()
        self.vllm_python = vllm_python
        self.host = host
        self.wanted_port = port
        self.port = port or 0
        self.allowance_s = allowance_s
        self.grace_s = grace_s
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # a signal between the start and the block: nobody else would stop the child
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return url_of(self.host, self.port)

    @property
    def model(self) -> str:
        """The name that the API knows the model by."""
        return value_of(self.command.argv, "--served-model-name") or self.command.argv[2]

    @property
    def log(self) -> Path:
        """Everything that the child writes."""
        return self.run_folder / LOG_NAME

    @property
    def pid(self) -> int:
        """The child, which leads the group of the same number; 0 before start."""
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Start the child; it is not ready yet."""
        self.port = choose_port(self.host, self.wanted_port)
        argv = child_argv(self.command.argv, self.host, self.port, self.vllm_python)
        self.run_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.log.open("wb") as log:
            # The log repeats the arguments, an API key among them.
            self.log.chmod(0o600)
            self._process = self._spawn(argv, log.fileno())

    def _spawn(self, argv: list[str], log: int) -> subprocess.Popen[bytes]:
        environment = os.environ | dict(self.command.env) | {"PYTHONSAFEPATH": "1"}
        try:
            return subprocess.Popen(  # noqa: S603  the command that the plan is
                argv,
                cwd=self.run_folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            hint = "install vLLM in this environment, or name its Python with --vllm-python"
            raise EngineError(f"{argv[0]} cannot be started: {error.strerror}", hint) from error

    def wait_until_ready(self) -> float:
        """Seconds until /health answered. Raises EngineError when the child dies first or the allowance ends."""
        begun = time.monotonic()
        while not is_healthy(self.url):
            waited = time.monotonic() - begun
            if (code := self.wait(_POLL_S)) is not None:
                raise EngineError(
                    f"vLLM stopped before it was ready ({self.ended(code)}): {self.reason()}", self._hint()
                )
            if waited > self.allowance_s:
                message = f"vLLM was not ready after {self.allowance_s:g} s; its last words: {self.reason()}"
                raise EngineError(message, self._hint())
        return time.monotonic() - begun

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The child's exit code, None when it still runs after `timeout_s`."""
        if self._process is None:
            raise EngineError("this server was never started")
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def reason(self) -> str:
        """The log's last meaningful line, without secrets."""
        return scrub(last_words(tail(self.log)), os.environ | dict(self.command.env))

    def stop(self) -> None:
        """SIGTERM to the server, then to what is left of its group, then SIGKILL; interrupted, SIGKILL at once.

        The leader goes first, and alone: vLLM then stops its own engine and workers in order.
        """
        if self._process is None:
            return
        try:
            self._process.terminate()
            if self.wait(self.grace_s) is not None and signal_group(self.pid, signal.SIGTERM):
                await_group_end(self.pid, _SWEEP_S)
        finally:
            signal_group(self.pid, signal.SIGKILL)
            self._process.wait()
            await_group_end(self.pid, _SWEEP_S)

    @staticmethod
    def ended(code: int) -> str:
        """`exit code 1`, or the signal's name."""
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name

    def _hint(self) -> str:
        return f"read {scrub(str(self.log))}"


def new_run_folder() -> Path:
    """A folder of this start's own, below the user's state folder."""
    import platformdirs  # noqa: PLC0415  only who launches needs it

    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    return platformdirs.user_state_path("vllm-advisor") / "runs" / name


def signal_group(leader: int, number: int) -> bool:
    """Send a signal to all of a group; whether there was a group to send it to."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):  # gone; macOS says the second of a group of zombies
        return False
    return True


def await_group_end(leader: int, at_most_s: float) -> None:
    """Wait until all of the group have released what they hold."""
    end = time.monotonic() + at_most_s
    while signal_group(leader, 0) and _holds_anything(leader) and time.monotonic() < end:
        time.sleep(0.02)


def _holds_anything(leader: int) -> bool:
    """Whether a process of the group still runs; one that ended but that nobody reaped (containers) holds nothing."""
    states = [stat.rpartition(")")[2].split()[:3] for stat in _process_stats()]
    return not states or any(int(group) == leader and state != "Z" for state, _, group in states)


def _process_stats() -> Iterator[str]:
    """/proc/PID/stat of every process; nothing where there is no such file system."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            yield stat.read_text(encoding="utf-8", errors="replace")
