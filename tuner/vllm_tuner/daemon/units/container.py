"""A container by name, through the engine's own API: the same container with other arguments.

The one that was there is never removed: it is stopped and renamed `NAME-before`, so that the way back is a rename, and
what it came with is never lost. The new one is made as `NAME-next` before anything is stopped, and compared with what
was asked for; only then does it take the name. `PROFILE` is its label, by which alone it may be removed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_advisor.errors import EngineError, UsageError
from vllm_advisor.plan import LaunchCommand
from vllm_tuner.daemon import orphans
from vllm_tuner.daemon.units.container_body import argv_of, lost, made_of, networks, own_of
from vllm_tuner.daemon.units.engine_api import EngineApi, engine_socket
from vllm_tuner.daemon.units.managed import FOREIGN, PROFILE, State


if TYPE_CHECKING:
    from vllm_tuner.daemon.orphans import Process

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,200}")
# Podman's API in Docker's form takes CDI devices (pkg/api/handlers/compat/containers_create.go of 5; 4.9 ignores them:
# github.com/podman-container-tools/podman/issues/28436).
_CDI_PODMAN = 5
# One that was put aside must not come back with the machine: "always" starts what was stopped by hand as well.
_NEVER = {"Name": "no", "MaximumRetryCount": 0}


class Container:
    """One container. `path` is the engine's socket."""

    supervised = False

    def __init__(self, name: str, path: Path | None = None) -> None:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name of a container", 'name = "vllm"')
        self.name, self._before, self._next = name, f"{name}-before", f"{name}-next"
        self._engine = EngineApi(path or engine_socket())

    def running(self) -> State:
        """One that the engine starts again and again is down; two that run at once are nobody's."""
        found = self._engine.inspect(self.name)
        if found is None:
            return State(up=False, why=f"there is no container {self.name}", profile=FOREIGN)
        if not _runs(found):
            return State(up=False, profile=_label(found), why=self._why(found["State"]))
        if _label(found) and _runs(self._engine.inspect(self._before)):
            return State(up=True, profile=FOREIGN, why=f"{self._before} runs beside it")
        return State(up=True, profile=_label(found))

    def _why(self, state: dict[str, Any]) -> str:
        word = str(state.get("Status") or "?")
        said = str(state.get("Error") or "") or (self._engine.last_line(self.name) if word != "created" else "")
        memory = ", out of memory" if state.get("OOMKilled") else ""
        return f"{word}, exit code {state.get('ExitCode', '?')}{memory}{f': {said[:300]}' if said else ''}"

    def command(self) -> LaunchCommand:
        return LaunchCommand(argv_of(self._own()))

    def _own(self) -> dict[str, Any]:
        """The container that it came as: what runs where it is none of ours, else what was put aside, or was to be."""
        now = self._engine.inspect(self.name)
        found = now if now is not None and not _label(now) else self._engine.inspect(self._before)
        if found is None and now is not None:
            found = own_of(now)
        if found is None:
            gone = f"{self.name} is a container of ours, and {self._before} is gone"
            none = f"there is no container {self.name}"
            raise EngineError(none if now is None else gone, f"docker ps -a --filter name={self.name}")
        return found

    def start(self, command: LaunchCommand, profile: str) -> None:
        """Make the new one beside the old one, put the own one aside once, and let the new one take the name."""
        own, now = self._own(), self._engine.inspect(self.name)
        ours = now is not None and bool(_label(now))
        if not ours:
            self._refuse_passing(own)
        self._prepare(own, now or self._engine.inspect(self._next) or own, command, profile)
        if ours:
            self._remove(self.name)
        elif now is not None:
            self._put_aside()
        self._engine.restart_policy(self._before, _NEVER)
        self._engine.rename(self._next, self.name)
        self._engine.start(self.name)

    def _prepare(self, own: dict[str, Any], like: dict[str, Any], command: LaunchCommand, profile: str) -> None:
        """NAME-next, complete. `like`: who knows the restart policy, which is taken from the own one when put aside."""
        found = self._engine.inspect(self._next)
        if found is not None and not _label(found):
            raise EngineError(f"{self._next} is no container of ours", f"docker rename {self._next} another-name")
        wanted = self._complete(own, like)
        self._remove(self._next)
        self._create(self._next, wanted, command, profile)

    def _create(self, name: str, own: dict[str, Any], command: LaunchCommand, profile: str) -> None:
        """One that is not started. Where the engine does not keep everything it goes again; what serves serves on."""
        body = made_of(own, command, profile, podman=self._engine.podman)
        body["Image"] = self._image(own)
        self._engine.create(name, body)
        for network, ends in list(networks(own).items())[1:]:
            self._engine.connect(network, name, ends)
        made = self._engine.inspect(name)
        missed = lost(body, made, own, podman=self._engine.podman) if made is not None else ("everything",)
        if missed:
            self._engine.remove(name)
            raise EngineError(f"the container engine does not keep of {self.name}: {', '.join(missed)[:300]}")

    def _image(self, own: dict[str, Any]) -> str:
        """By its name, or by its id where the name means another image by now."""
        name, number = str(own["Config"].get("Image", "")), str(own.get("Image", ""))
        if not number or self._engine.image(name) == number:
            return name
        return number

    def _complete(self, own: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
        """The own one with what its inspection does not tell."""
        host = {**(own.get("HostConfig") or {}), "RestartPolicy": _policy(like)}
        if self._engine.podman:
            beside = self._engine.beside(str(own.get("Id") or ""))
            if beside.devices and self._engine.major() < _CDI_PODMAN:
                why = f"this Podman cannot be asked for {beside.devices[0]} over its API"
                raise EngineError(why, f"Podman {_CDI_PODMAN} can; or run it as a systemd unit: docs/daemon.md, units")
            if beside.devices:
                host["DeviceRequests"] = [{"Driver": "cdi", "DeviceIDs": list(beside.devices)}]
            host["IpcMode"] = "host" if beside.host_ipc else host.get("IpcMode")
        return {**own, "HostConfig": host}

    def _put_aside(self) -> None:
        """Stopped first, so that two never serve."""
        old = self._engine.inspect(self._before)
        if old is not None and _runs(old):
            raise EngineError(f"{self._before} runs: what is it?", f"docker rename {self._before} another-name")
        if old is not None:  # of an earlier life of this service; the operator has made the container anew since
            self._engine.rename(self._before, f"{self._before}-{str(old.get('Id', ''))[:12]}")
        self._engine.stop(self.name)
        self._engine.rename(self.name, self._before)

    def stop(self) -> None:
        now = self._engine.inspect(self.name)
        if now is not None:
            self._refuse_passing(now)
            self._engine.stop(self.name)

    def _refuse_passing(self, found: dict[str, Any]) -> None:
        if (found.get("HostConfig") or {}).get("AutoRemove"):
            raise UsageError(f"{self.name} was started with --rm: stopped, it would be gone", "start it without --rm")

    def restore(self) -> None:
        """Only ours is removed: one that the operator made under the name meanwhile is the own one now."""
        now, old = self._engine.inspect(self.name), self._engine.inspect(self._before)
        ours = now is not None and bool(_label(now))
        if now is None or ours:
            own = self._own()
            if old is None:
                self._make_again(own)
            self._take_back(now if ours else self._engine.inspect(self._next))
        self._remove(self._next)
        self._engine.restart(self.name)

    def _make_again(self, own: dict[str, Any]) -> None:
        """The own one was removed while it was put aside, as `docker container prune` does with what is stopped."""
        self._create(self._before, self._complete(own, own), LaunchCommand(argv_of(own)), "")

    def _take_back(self, ours: dict[str, Any] | None) -> None:
        """Its restart policy first, from ours, which is the only one to know it."""
        if ours is not None and _label(ours) and _policy(ours):
            self._engine.restart_policy(self._before, _policy(ours))
        self._remove(self.name)
        self._engine.rename(self._before, self.name)

    def _remove(self, name: str) -> None:
        """Only ever a container of ours; it may be gone already."""
        found = self._engine.inspect(name)
        if found is None or not _label(found):
            return
        self._engine.stop(name)
        self._engine.remove(name)

    def processes(self) -> tuple[Process, ...]:
        found = self._engine.inspect(self.name)
        number = int(found["State"].get("Pid") or 0) if found else 0
        first = orphans.find(number) if number else None
        return tuple(process for process in orphans.every() if first and _below(process, first.number))

    def leave(self) -> None:
        """It is the engine's: it stays."""


def _runs(found: dict[str, Any] | None) -> bool:
    """Its process is there, and not just between two deaths."""
    state = found["State"] if found is not None else {}
    return bool(state.get("Running")) and not state.get("Restarting")


def _policy(found: dict[str, Any]) -> dict[str, Any]:
    return dict((found.get("HostConfig") or {}).get("RestartPolicy") or {})


def _label(found: dict[str, Any]) -> str:
    return str((found["Config"].get("Labels") or {}).get(PROFILE, ""))


def _below(process: Process, ancestor: int) -> bool:
    """Whether a process descends from another one, at most ten steps."""
    number = process.number
    for _ in range(10):
        if number == ancestor:
            return True
        try:
            text = Path(f"/proc/{number}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return False
        number = int(text.rpartition(")")[2].split()[1])
        if number <= 1:
            return number == ancestor
    return False
