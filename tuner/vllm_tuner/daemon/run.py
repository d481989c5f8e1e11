"""One tuning run: `tuner kernels --retime` and `tuner serve` as children, one after the other, in a folder of its own.

The children's JSON lines go to a file and are read from there: a reader that dies blocks nobody, and the file stays
for people. Each child leads a process group and stands in the run's folder, by which it is found again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_tuner.daemon import orphans
from vllm_tuner.daemon.drift_reason import Part
from vllm_tuner.daemon.policy_state import Work, WorkState


if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TUNER = (sys.executable, "-P", "-c", "from vllm_tuner.cli.app import main; main()")
_LINES, _TOLD = "events.jsonl", "tuner.log"
_LONGEST_LINE = 4 << 20
_GRACE_S = 20.0  # from SIGTERM to SIGKILL: the search stops its server first
_NO = 1  # exit code: the answer is no


class Job(NamedTuple):
    """One child: which part it answers, and its words behind `tuner`."""

    part: Part
    words: tuple[str, ...]


class Ended(NamedTuple):
    """One job's end: its exit code, its result line ({} without one), and the last that it said."""

    part: Part
    code: int
    result: Mapping[str, Any]
    says: str


class Run:
    """The jobs of an attempt, each `tuner` and its words. `environment` is added to ours."""

    def __init__(
        self, attempt: int, jobs: tuple[Job, ...], folder: Path, environment: Mapping[str, str], *,
        tuner: tuple[str, ...] = TUNER,
    ) -> None:  # fmt: skip
        self.attempt, self.folder = attempt, folder
        self.progress = ""
        self._jobs, self._ended = list(jobs), []  # type: tuple[list[Job], list[Ended]]
        self._environment, self._tuner = environment, tuner
        self._child: subprocess.Popen[bytes] | None = None
        self._part = Part.SERVER
        self._read, self._result = 0, {}  # type: tuple[int, dict[str, Any]]
        self._aborted = 0.0

    def start(self) -> None:
        """Start the next job. Raises OSError where that cannot be (a full disk, no processes left)."""
        job = self._jobs.pop(0)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._part, self._read, self._result = job.part, 0, {}
        lines, told = self.folder / f"{job.part}-{_LINES}", self.folder / f"{job.part}-{_TOLD}"
        self._lines = lines
        with lines.open("wb") as out, told.open("wb") as err:
            self._child = subprocess.Popen(  # noqa: S603 - ourselves
                [*self._tuner, *job.words],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env=os.environ | dict(self._environment), start_new_session=True,
            )  # fmt: skip

    def poll(self) -> Work:
        """What is known of it now."""
        if self._child is None:
            return Work(WorkState.NONE, self.attempt)
        self._listen()
        code = self._child.poll()
        if code is None:
            self._kill_late()
            return Work(WorkState.RUNNING, self.attempt, says=self.progress)
        orphans.stop_inside(self.folder, 2.0)  # nothing may outlive its job
        self._listen()
        self._ended.append(Ended(self._part, code, self._result, self._last_words()))
        if self._aborted:
            self._child = None
            return Work(WorkState.ABORTED, self.attempt)
        if self._jobs and code >= 0:  # what kernels answer is no condition for the server's search
            self.start()
            return Work(WorkState.RUNNING, self.attempt, says=self.progress)
        self._child = None
        return outcome(self.attempt, self._ended)

    def abort(self) -> None:
        """Ask it to stop, once; it is killed where it does not."""
        if self._child is not None and not self._aborted:
            self._aborted = time.monotonic()
            self._signal(signal.SIGTERM)

    def stop(self, grace_s: float) -> None:
        """Stop it now, and all that it started."""
        if self._child is None:
            return
        self.abort()
        end = time.monotonic() + grace_s
        while self._child.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        self._signal(signal.SIGKILL)
        orphans.stop_inside(self.folder, min(1.0, grace_s))
        self._child.wait()
        self._child = None

    def processes(self) -> tuple[orphans.Process, ...]:
        """All of its processes."""
        return orphans.inside(self.folder) if self._child is not None else ()

    def _signal(self, number: int) -> None:
        process = orphans.find(self._child.pid) if self._child is not None else None
        if process is not None:
            orphans.signal_group(process, number)

    def _kill_late(self) -> None:
        if self._aborted and time.monotonic() - self._aborted > _GRACE_S:
            self._signal(signal.SIGKILL)

    def _listen(self) -> None:
        """Read the lines that are new."""
        with self._lines.open("rb") as file:
            file.seek(self._read)
            text = file.read(_LONGEST_LINE)
        whole = text.rpartition(b"\n")[0]
        self._read += len(whole) + 1 if whole else 0
        for line in whole.splitlines():
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            found = json.loads(line)
        except ValueError:
            return
        if isinstance(found, dict):
            kind = found.get("event")
            self._result = found if kind == "result" else self._result
            self.progress = str(found.get("message") or found.get("says") or kind or "")[:300]

    def _last_words(self) -> str:
        """The error line of a job that failed, as our commands write it."""
        told = self.folder / f"{self._part}-{_TOLD}"
        with told.open("rb") as file:
            file.seek(max(0, told.stat().st_size - 65_536))
            lines = file.read().decode("utf-8", "replace").splitlines()
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        return (errors or [line for line in lines if line.strip()] or [self.progress or "it wrote nothing"])[-1][:500]


def outcome(attempt: int, ended: list[Ended]) -> Work:
    """What came of the jobs: a server's winner counts, kernels' new winners are stored by themselves."""
    says = "; ".join(_said(job) for job in ended)
    failed = [job for job in ended if not _answered(job)]
    server = next((job for job in ended if job.part is Part.SERVER), None)
    if server is not None and _answered(server):
        winner = str(server.result.get("profile") or "")
        better = server.result.get("verdict") in ("better", "defaults do not run") and winner
        return Work(WorkState.WON if better else WorkState.KEPT, attempt, winner if better else "", says)
    return Work(WorkState.FAILED if failed else WorkState.KEPT, attempt, "", says)


def _answered(job: Ended) -> bool:
    """Whether it decided something: yes or no, but no failure."""
    if job.part is Part.KERNELS:
        return job.code in (0, _NO)
    return job.code == 0 and bool(job.result)


def _said(job: Ended) -> str:
    if not _answered(job):
        return f"{job.part}: {_died(job.code)}{job.says}"
    return f"{job.part}: {job.result.get('says') or 'done'}"


def _died(code: int) -> str:
    return f"{signal.Signals(-code).name}: " if code < 0 else ""
