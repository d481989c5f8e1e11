"""A systemd unit, restarted with another command by a drop-in that takes the place of its ExecStart=.

The unit's own file is never touched: without the drop-in it is what it was, and that is how it is undone. One that was
written but not started from yet is told apart without clocks: the manager says which profile it has loaded (by a
variable that the drop-in sets), and the drop-in names the invocation before it, which each start changes.
"""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_advisor.errors import EngineError, UsageError
from vllm_advisor.plan import LaunchCommand
from vllm_tuner.daemon import orphans
from vllm_tuner.daemon.units import exec_line
from vllm_tuner.daemon.units.exec_line import ExecLine
from vllm_tuner.daemon.units.managed import FOREIGN, PROFILE, State


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_tuner.daemon.orphans import Process

DROP_IN = "zz-vllm-advisor.conf"  # drop-ins count by name: behind the override.conf of `systemctl edit`
_ASK_S = 5.0
_STOP_S = 60.0  # vLLM ends within seconds; a tick may wait a minute
_RELOAD_S = 20.0  # a host of many units reads all their files again
_UP = ("active", "activating", "reloading", "refreshing")
_CHANGING = ("deactivating", "inactive", "failed")  # with a job in the queue: on its way to a start
_NAME = re.compile(r"[A-Za-z0-9:_.@\\-]{1,200}")
_SHOWN = (
    "LoadState", "ActiveState", "SubState", "Result", "ExecMainCode", "ExecMainStatus", "ControlGroup", "InvocationID",
    "Job", "Environment",
)  # fmt: skip
_PROFILE_LINE = re.compile(rf"^# {PROFILE}=(\S*)$", re.MULTILINE)
_BEFORE_LINE = re.compile(r"^# before=([0-9a-f]+)$", re.MULTILINE)
_LOADED = re.compile(rf'(?:^|\s)"?{PROFILE}=([^\s"]*)')
# Where the hierarchy that systemd keeps its units in is mounted: cgroup v2 alone, hybrid, v1 alone
# (https://systemd.io/CGROUP_DELEGATION, "Three Different Tree Setups").
_CGROUPS = tuple(Path("/sys/fs/cgroup") / name for name in ("", "unified", "systemd"))


class Systemd:
    """`folder`: where drop-ins of the manager that this user can talk to are read. `systemctl`: its command."""

    supervised = False

    def __init__(self, name: str, folder: Path | None = None, systemctl: tuple[str, ...] | None = None) -> None:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name of a systemd unit", 'name = "vllm.service"')
        self.name = name if "." in name else f"{name}.service"
        mine = os.getuid() != 0
        self._systemctl = systemctl or (("systemctl", "--user") if mine else ("systemctl",))
        home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd/user"
        self.drop_in = (folder or (home if mine else Path("/etc/systemd/system"))) / f"{self.name}.d" / DROP_IN

    def running(self) -> State:
        shown = self._show()
        state, queued = shown.get("ActiveState", "?"), shown.get("Job", "0") not in ("", "0")
        crashed = shown.get("SubState") == "auto-restart" and not queued
        up = (state in _UP and not crashed) or (state in _CHANGING and queued)
        return State(up, self._profile(shown), "" if up else _why(shown))

    def _profile(self, shown: dict[str, str]) -> str:
        """What the unit was started with; what is on its way out is nothing that it was asked for."""
        try:
            text = self.drop_in.read_text(encoding="utf-8")
        except OSError:
            text = ""
        written, before = _PROFILE_LINE.search(text), _BEFORE_LINE.search(text)
        profile = written[1] if written else ""
        begun = before is None or before[1] != shown.get("InvocationID")
        leaving = shown.get("ActiveState") == "deactivating"
        return profile if begun and not leaving and profile == _loaded(shown) else FOREIGN

    def command(self) -> LaunchCommand:
        """Its own ExecStart=, as `systemctl cat` prints the files without ours; what systemd replaces stays."""
        return LaunchCommand(self._own().words)

    def _own(self) -> ExecLine:
        files = re.split(r"^(?=# /)", self._call("cat", self.name), flags=re.MULTILINE)
        ours = f"/{self.drop_in.parent.name}/{DROP_IN}"
        try:
            found = exec_line.last("\n".join(file for file in files if not file.partition("\n")[0].endswith(ours)))
        except ValueError as error:
            raise UsageError(f"the ExecStart= of {self.name} cannot be read: {error}") from None
        if found is None:
            raise UsageError(f"{self.name} has no ExecStart=", f"systemctl cat {self.name}")
        return found

    def start(self, command: LaunchCommand, profile: str) -> None:
        before = self._show().get("InvocationID", "")
        self._write(text(command, profile, before, self._own()))
        self._reload()
        if _loaded(self._show()) != profile:
            self._remove()
            why = "a drop-in behind it, or XDG_CONFIG_HOME that the manager does not have"
            raise EngineError(f"systemd does not take {self.drop_in}", f"systemctl cat {self.name}: {why}")
        self._restart()

    def restore(self) -> None:
        """Until the restart is ordered, a drop-in without a command says that the old one still runs."""
        marked = self._mark()
        if not marked:
            self._remove()
        self._reload()
        self._restart()
        if marked:
            self._remove()
            self._reload()

    def _mark(self) -> bool:
        """Whether that could be written: a full disk is no reason to stay."""
        with suppress(EngineError):
            if self.drop_in.exists():
                self._write(_head("", self._show().get("InvocationID", "")))
                return True
        return False

    def _remove(self) -> None:
        try:
            self.drop_in.unlink(missing_ok=True)
        except OSError as error:
            raise EngineError(f"{self.drop_in} cannot be removed: {error.strerror}") from error

    def _reload(self) -> None:
        self._call("daemon-reload", most_s=_RELOAD_S)

    def _restart(self) -> None:
        """What died too often is refused (StartLimitBurst=), to us as well, until that is forgotten: systemctl(1)."""
        with suppress(EngineError):  # one that never ran has nothing to forget
            self._call("reset-failed", self.name)
        self._call("--no-block", "restart", self.name)

    def stop(self) -> None:
        self._call("stop", self.name, most_s=_STOP_S)

    def processes(self) -> tuple[Process, ...]:
        group = self._show().get("ControlGroup", "").lstrip("/")
        roots = (root / group for root in _CGROUPS if group)
        numbers = next((members for root in roots if (members := sorted(_members(root)))), [])
        return tuple(found for number in numbers if (found := orphans.find(number)))

    def leave(self) -> None:
        """It is systemd's: it stays."""

    def _write(self, content: str) -> None:
        """Whole or not at all: a full disk leaves the drop-in that was there."""
        draft = self.drop_in.with_suffix(".new")
        try:
            self.drop_in.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("w", encoding="utf-8") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.drop_in)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise EngineError(f"{self.drop_in} cannot be written: {error.strerror}", "docs/daemon.md, units") from error

    def _show(self) -> dict[str, str]:
        """What systemd says of the unit. Raises EngineError for one that is not there."""
        told = self._call("show", self.name, f"--property={','.join(_SHOWN)}")
        shown = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
        if shown.get("LoadState") == "not-found" and shown.get("ActiveState") == "inactive":
            listed = " ".join((*self._systemctl, "list-unit-files", "'*.service'"))
            raise EngineError(f"there is no unit {self.name}", f"{listed} names those that are")
        return shown

    def _call(self, *words: str, most_s: float | None = None) -> str:
        argv = [*self._systemctl, *words]
        asked = " ".join(word for word in argv if not word.startswith("--property"))
        try:
            done = subprocess.run(  # noqa: S603 - systemd's own tool
                argv, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=most_s or _ASK_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineError(f"{asked} does not answer: {_short(error)}") from None
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
            raise EngineError(f"{asked}: {said}", f"systemctl status {self.name}")
        return done.stdout


def _short(error: OSError | subprocess.TimeoutExpired) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"nothing within {error.timeout:g} s"
    return error.strerror or str(error)


def _loaded(shown: dict[str, str]) -> str:
    """The profile of the drop-in that the manager has read."""
    found = _LOADED.search(shown.get("Environment", ""))
    return found[1] if found else ""


def _why(shown: dict[str, str]) -> str:
    """`failed (exit-code, exit code 3)`: systemd's words, and how the process ended (ExecMainCode: CLD_ of wait(2))."""
    how = {"1": "exit code", "2": "signal", "3": "signal"}.get(shown.get("ExecMainCode", ""))
    ended = f", {how} {shown.get('ExecMainStatus')}" if how and shown.get("Result") != "success" else ""
    state = "auto-restart" if shown.get("SubState") == "auto-restart" else shown.get("ActiveState", "?")
    return f"{state} ({shown.get('Result', '?')}{ended})"


def _members(group: Path) -> Iterator[int]:
    """Numbers of the processes in a control group and those below it."""
    for place, _, _ in os.walk(group):
        with suppress(OSError):  # it went, or it is threaded
            yield from map(int, (Path(place) / "cgroup.procs").read_text(encoding="ascii").split())


def text(command: LaunchCommand, profile: str, before: str = "", own: ExecLine | None = None) -> str:
    """The drop-in. `before`: the unit's invocation when it was written; `own`: the command in whose place it comes."""
    lines = [
        "[Service]",
        "ExecStart=",
        f"ExecStart={(own or ExecLine(())).written(command.argv)}",
        *(f"Environment={exec_line.assignment(name, value)}" for name, value in (*command.env, (PROFILE, profile))),
    ]
    return _head(profile, before) + "\n".join(lines) + "\n"


def _head(profile: str, before: str) -> str:
    lines = [
        "# Written by tuner daemon; `tuner rollback`, or removing this file and daemon-reload, undoes it.",
        f"# {PROFILE}={profile}",
        *([f"# before={before}"] if before else []),
    ]
    return "\n".join(lines) + "\n"
