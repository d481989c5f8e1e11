"""Child processes of the wizard: a server, a search. For worker threads: everything here may block.

Both stand in a run folder of their own, write into files there, and lead their own process group. So they survive the
wizard, whatever ends it, and the next wizard finds them by their notes: it shows them as its own, or stops them.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import EngineError, UsageError, one_line
from vllm_advisor.launch import left as notes
from vllm_advisor.launch.child import LOG_NAME
from vllm_advisor.launch.left import SEARCH, SERVER, Left


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.launch import Server
    from vllm_advisor.plan import LaunchCommand

EVENTS_NAME = LOG_NAME  # of a search: its events, one JSON object a line
ERRORS_NAME = "errors.log"
_STEERING = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")  # escape sequences
_BLOCK = 1 << 20
_SEARCH_GRACE_S = 120.0  # it stops its own server first, which has 30 s


class Child:
    """One of them. Without a handle it is somebody else's child: its exit code cannot be known."""

    def __init__(self, left: Left, place: Path, handle: Server | subprocess.Popen[bytes] | None = None) -> None:
        self.left = left
        self._place = place
        self._handle = handle
        self._stopping = threading.Lock()

    @property
    def url(self) -> str:
        """Where a server answers."""
        return self.left.url

    @property
    def model(self) -> str:
        """What it serves, or measures."""
        return self.left.model

    @property
    def log(self) -> Path:
        """What it writes."""
        return self.left.log

    @property
    def errors(self) -> Path:
        """What a search says on stderr."""
        return Path(self.left.folder) / ERRORS_NAME

    @property
    def pid(self) -> int:
        """Its leader."""
        return self.left.pid

    @property
    def is_found(self) -> bool:
        """Whether another wizard started it."""
        return self._handle is None

    def ended(self) -> str | None:
        """None while it runs; then `exit code 1`, `SIGKILL`, or "" where that cannot be known."""
        code = self._code()
        if code is None and (self._handle is not None or notes.is_alive(self.left)):
            return None
        if code is None:
            return ""
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name

    def sweep(self) -> None:
        """What it left behind when it ended by itself: workers without a leader hold memory. Then its note goes."""
        self.stop()

    def _code(self) -> int | None:
        if self._handle is None:
            return None
        return self._handle.poll() if isinstance(self._handle, subprocess.Popen) else self._handle.wait(0)

    def stop(self) -> None:
        """All of it, in order; nothing is left running. A search keeps what it has measured."""
        if self.left.kind == SEARCH:
            notes.stop(self.left, signal.SIGINT, _SEARCH_GRACE_S)
            if isinstance(self._handle, subprocess.Popen):
                self._handle.wait()
        elif self._handle is None or isinstance(self._handle, subprocess.Popen):
            notes.stop(self.left)
        else:
            with self._stopping:
                self._handle.stop()
        notes.forget(self.left, self._place)


class Children:
    """What runs at the wizard's side, and the folder of notes about it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.server: Child | None = None
        self.search: Child | None = None
        self.kept = 0  # profiles that searches of this wizard kept

    def running(self) -> tuple[Child, ...]:
        """Those of this wizard that still run."""
        return tuple(child for child in (self.server, self.search) if child is not None and child.ended() is None)

    def orphans(self, kind: str) -> tuple[Child, ...]:
        """Those of earlier wizards that still run."""
        mine = {child.left.folder for child in (self.server, self.search) if child is not None}
        every = notes.found(self.place) if self.place.is_dir() else ()
        return tuple(Child(left, self.place) for left in every if left.kind == kind and left.folder not in mine)

    def serve(self, command: LaunchCommand, python: Path | None, port: int) -> Child:
        """Start a server; it is not ready yet. Raises UsageError for a port in use, EngineError."""
        from vllm_advisor.launch import Server

        server = Server(command, run_folder=_folder(), vllm_python=python, port=port)
        planned = Left(SERVER, str(server.run_folder), 0, server.model, "", command.argv)
        started = self._noted(planned, server.start, lambda: planned._replace(pid=server.pid, url=server.url))
        self.server = Child(started, self.place, server)
        return self.server

    def tune(self, words: tuple[str, ...], model: str) -> Child:
        """Start a search. Raises UsageError without a tuner, EngineError where it does not start."""
        folder = _folder()
        argv = (tuner(), *words)
        planned = Left(SEARCH, str(folder), 0, model, "", ("tuner", *words))
        made = list[subprocess.Popen[bytes]]()
        started = self._noted(
            planned, lambda: made.append(_spawn(argv, folder)), lambda: planned._replace(pid=made[0].pid)
        )
        self.search = Child(started, self.place, made[0])
        return self.search

    def _noted(self, planned: Left, start: Callable[[], None], known: Callable[[], Left]) -> Left:
        """Noted before it is started: whatever ends us in between, it will be found."""
        try:
            notes.note(planned, self.place)
            start()
            started = known()
            notes.note(started, self.place)
        except OSError as error:
            raise EngineError(f"no note of it can be kept in {self.place}: {error.strerror or error}") from error
        except BaseException:
            notes.forget(planned, self.place)
            raise
        return started


def tuner() -> str:
    """The `tuner` command: on the PATH, or beside this Python. Raises UsageError."""
    import shutil

    beside = Path(sys.executable).parent / "tuner"
    found = shutil.which("tuner") or (str(beside) if beside.exists() else None)
    if found is None:
        raise UsageError("the tuner is not installed here", "pip install 'vllm-advisor[tuner]'")
    return found


def _spawn(argv: tuple[str, ...], folder: Path) -> subprocess.Popen[bytes]:
    with (folder / EVENTS_NAME).open("wb") as events, (folder / ERRORS_NAME).open("wb") as errors:
        try:
            return subprocess.Popen(  # noqa: S603  what the person asked for
                argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=events, stderr=errors, start_new_session=True
            )
        except OSError as error:
            raise EngineError(f"{argv[0]} cannot be started: {error.strerror}") from error


def _folder() -> Path:
    """A new run folder, by the name that the system itself has for it."""
    from vllm_advisor.launch.child import new_run_folder

    wanted = new_run_folder()
    for number in range(1, 1000):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            folder.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise EngineError(f"no run folder can be made: {error.strerror}: {folder}") from error
        return folder.resolve()
    raise EngineError(f"too many run folders called {wanted.name}")


class Tail:
    """What a growing file has that was not read yet; nothing while there is none."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._at = 0

    def read(self) -> bytes:
        """The next bytes, at most 1 MiB."""
        try:
            with self._file.open("rb") as file:
                file.seek(self._at)
                block = file.read(_BLOCK)
        except OSError:
            return b""
        self._at += len(block)
        return block


class Shown(NamedTuple):
    """A line of a log for people: its level, without what stands before the message, and whole."""

    level: str
    short: str
    whole: str


class Lines:
    """A log's bytes as lines to show, without secrets and without what would steer a terminal."""

    def __init__(self) -> None:
        from vllm_advisor.vllm.logs_lines import Cutter

        self._cutter, self._number = Cutter(), 0

    def take(self, block: bytes) -> list[Shown]:
        """The lines that end in this block."""
        return [shown for raw in self._cutter.lines(block) for shown in self._line(raw)]

    def _line(self, raw: bytes) -> list[Shown]:
        from vllm_advisor.launch.log import scrub
        from vllm_advisor.vllm.logs_lines import messages

        self._number += 1
        clean = scrub(_STEERING.sub("", raw.decode("utf-8", "replace").rstrip().rpartition("\r")[2]))
        told = messages(self._number, clean.encode())
        return [Shown(line.level, _prefixed(line.process, _untabbed(line.text)), _untabbed(clean)) for line in told]


def _prefixed(process: str, text: str) -> str:
    return f"{process}: {text}" if process and not process.startswith(("APIServer", "EngineCore")) else text


def _untabbed(text: str) -> str:
    return one_line(text.expandtabs(4))


def patiently(do: Callable[[], None], given_up: Callable[[], bool]) -> bool:
    """Run what may take minutes in a thread that nobody has to wait for; whether it came to its end."""
    over = threading.Event()

    def run() -> None:
        try:
            do()
        finally:
            over.set()

    threading.Thread(target=run, daemon=True).start()
    while not over.wait(0.1):
        if given_up():
            return False
    return True


def absolute(path: str) -> str:
    """A path that means the same in another folder; a name of a repository as it is. Links are kept: venvs are some."""
    return str(Path(path).expanduser().absolute()) if path and Path(path).expanduser().exists() else path


def own_machine(gpu: str, node: str) -> bool:
    """Whether a state means the machine that this runs on."""
    return not node and gpu.strip().lower() in ("", "cpu")
