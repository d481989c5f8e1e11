"""A real systemd for tests: a user's manager in namespaces of its own, where PID 1 is another program.

Its units, sockets and state lie in one folder, its processes in one control group; both go with it. It needs the right
to make user and mount namespaces and control groups; `Absent` says what is missing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_tuner.daemon.units.managed import State


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_tuner.daemon.units.systemd import Systemd

_SYSTEMD = Path("/lib/systemd/systemd")
_CGROUPS = Path("/sys/fs/cgroup")
_PATIENCE_S = 30.0
# /run/systemd/system is how systemd knows itself; without it systemctl refuses (sd_booted(3)).
_BEGIN = """
for group; do echo $$ >"$group/cgroup.procs" || exit 3; done
exec unshare -Urm bash -c 'mount -t tmpfs none /run && mkdir -p /run/systemd/system &&
    exec /lib/systemd/systemd --user --log-target=console'
"""
# Of what a desktop's manager starts by itself, nothing is wanted.
_MASKED = ("systemd-tmpfiles-setup.service", "systemd-tmpfiles-clean.timer", "sockets.target")


class Absent(Exception):
    """No manager can run here: why."""


class Manager:
    """A user's manager in a folder. Raises Absent."""

    def __init__(self, folder: Path) -> None:
        for tool in ("systemctl", "unshare"):
            if not shutil.which(tool):
                raise Absent(f"there is no {tool}")
        if not _SYSTEMD.exists():
            raise Absent("systemd is not installed")
        self.runtime, self.home = folder / "run", folder / "home"
        self.units, self.log = self.home / ".config/systemd/user", folder / "log"
        self.runtime.mkdir(mode=0o700)
        self.units.mkdir(parents=True)
        for name in _MASKED:
            (self.units / name).symlink_to("/dev/null")
        self.systemctl = ("env", f"XDG_RUNTIME_DIR={self.runtime}", f"HOME={self.home}", "systemctl", "--user")
        self._name = f"vllm-tuner-test-{os.getpid()}-{id(self):x}"
        self._groups = self._make_groups()
        self._process = self._begin()

    def _make_groups(self) -> tuple[Path, ...]:
        """A control group in each hierarchy in which systemd keeps units, so that it takes nobody else's processes."""
        roots = (root for root in (_CGROUPS, _CGROUPS / "unified", _CGROUPS / "systemd"))
        groups = tuple(root / self._name for root in roots if (root / "cgroup.procs").exists())
        if not groups:
            raise Absent("there are no control groups")
        try:
            for group in groups:
                group.mkdir()
        except OSError as error:
            raise Absent(f"no control group can be made: {error.strerror}") from None
        return groups

    def _begin(self) -> subprocess.Popen[bytes]:
        env = {"XDG_RUNTIME_DIR": str(self.runtime), "HOME": str(self.home), "PATH": os.environ["PATH"]}
        with self.log.open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - a test's own
                ["/bin/bash", "-c", _BEGIN, "bash", *map(str, self._groups)],
                env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + _PATIENCE_S
        while self.call("show", "--property=Version", check=False).returncode:
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                process.wait()
                self._sweep()
                raise Absent(f"no user's manager runs in namespaces: {self.log.read_text(errors='replace')[-300:]}")
            time.sleep(0.02)
        return process

    def call(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """What systemctl says. Raises CalledProcessError."""
        return subprocess.run(  # noqa: S603 - a test's own
            [*self.systemctl, *words], capture_output=True, text=True, check=check, timeout=_PATIENCE_S
        )

    def show(self, unit: str, *names: str) -> dict[str, str]:
        """Properties of a unit."""
        told = self.call("show", unit, f"--property={','.join(names)}").stdout
        return dict(line.split("=", 1) for line in told.splitlines())

    def argv(self, unit: str) -> tuple[str, ...]:
        """The words of a unit's main process, as the kernel has them."""
        return tuple(self._proc(unit, "cmdline"))

    def environment(self, unit: str) -> dict[str, str]:
        """The variables of a unit's main process."""
        return dict(part.split("=", 1) for part in self._proc(unit, "environ"))

    def _proc(self, unit: str, name: str) -> list[str]:
        number = self.show(unit, "MainPID")["MainPID"]
        return Path(f"/proc/{number}/{name}").read_text(encoding="utf-8").split("\0")[:-1]

    def invocation(self, unit: str) -> str:
        """Which start of a unit it is."""
        return self.show(unit, "InvocationID")["InvocationID"]

    def end(self, unit: str) -> None:
        """Stop a unit at once, deaf or not."""
        self.call("stop", "--no-block", unit, check=False)
        self.call("kill", "--signal=KILL", unit, check=False)

    def write(self, unit: str, text: str) -> Path:
        """A unit's file, or a drop-in (`t.service.d/x.conf`), read at once; its path."""
        path = self.units / unit
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        self.call("daemon-reload")
        return path

    def until(self, done: Callable[[], object], seconds: float = _PATIENCE_S) -> None:
        """Until it is so. Raises AssertionError."""
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds:g} s")
            time.sleep(0.02)

    def until_runs(self, unit: Systemd, profile: str) -> None:
        """Until the adapter says that the unit runs with a profile. Raises AssertionError."""
        self.until(lambda: unit.running() == State(up=True, profile=profile))

    def close(self) -> None:
        """It, its units and their control groups."""
        self.call("exit", check=False)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        self._process.kill()
        self._process.wait()
        self._sweep()

    def _sweep(self) -> None:
        end = time.monotonic() + 5.0
        while time.monotonic() < end and (left := list(self._places())):
            for place in reversed(left):  # the innermost first
                _kill(place)
                with suppress(OSError):  # something still ends in it
                    place.rmdir()

    def _places(self) -> list[Path]:
        """Its groups in all hierarchies, outer ones first."""
        roots = [_CGROUPS / self._name, *_CGROUPS.glob(f"*/{self._name}")]
        return [Path(place) for root in roots for place, _, _ in os.walk(root)]


def _kill(group: Path) -> None:
    with suppress(OSError):
        for number in (group / "cgroup.procs").read_text(encoding="ascii").split():
            with suppress(ProcessLookupError):
                os.kill(int(number), signal.SIGKILL)
