"""A container engine over its Unix socket, as Docker and Podman both answer: one call, one answer, never without end.

Paths carry no version: an engine then answers as its newest one. What is not JSON, or of another form than the API
documents, is an error and never a container that is not there.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from vllm_advisor.errors import EngineError, UsageError


# A look is answered at once; a stop waits for the container, a creation for its layers, a start for the devices' hooks.
LOOK_S, STOP_S, CHANGE_S = 5.0, 6, 30.0
_MOST_BYTES = 4 << 20
_MOST_LINE = 300


class Answer(NamedTuple):
    """`podman`: who answered. `data`: the whole body."""

    status: int
    podman: bool
    data: bytes

    def json(self) -> Any:
        """The body read; None where it is no JSON."""
        try:
            return json.loads(self.data) if self.data.strip() else {}
        except (ValueError, RecursionError):
            return None


class Beside(NamedTuple):
    """`devices`: CDI names that were typed. `host_ipc`: shares the host's memory, printed as shareable."""

    devices: tuple[str, ...]
    host_ipc: bool


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))

    def cut(self) -> None:
        """From another thread: whoever waits for this socket gets its end."""
        with suppress(OSError, AttributeError):
            self.sock.shutdown(socket.SHUT_RDWR)


class EngineApi:
    """The calls that a unit needs. Raises EngineError with what the engine said."""

    def __init__(self, path: Path) -> None:
        self.path, self.podman = path, False

    def inspect(self, name: str) -> dict[str, Any] | None:
        """A container as the engine describes it; None: there is none of that name."""
        answer = self._ask("GET", f"/containers/{quote(name)}/json", LOOK_S, missing=True)
        if answer is None:
            return None
        found = answer.json()
        if not _is_container(found):
            raise EngineError(f"the container engine describes {name} in an unknown form")
        return dict(found)

    def image(self, name: str) -> str:
        """The id of an image now; "": there is none of that name."""
        answer = self._ask("GET", f"/images/{quote(name, safe='/:@')}/json", LOOK_S, missing=True)
        found = answer.json() if answer is not None else None
        return str(found.get("Id", "")) if isinstance(found, dict) else ""

    def create(self, name: str, body: dict[str, Any]) -> None:
        self._ask("POST", f"/containers/create?name={quote(name)}", CHANGE_S, body)

    def connect(self, network: str, name: str, ends: dict[str, Any]) -> None:
        """Join a further network."""
        body = {"Container": name, "EndpointConfig": ends}
        self._ask("POST", f"/networks/{quote(network, safe='')}/connect", CHANGE_S, body)

    def start(self, name: str) -> None:
        self._ask("POST", f"/containers/{quote(name)}/start", CHANGE_S)

    def restart(self, name: str) -> None:
        self._ask("POST", f"/containers/{quote(name)}/restart?t={STOP_S}", STOP_S + CHANGE_S)

    def stop(self, name: str) -> None:
        """SIGTERM, and SIGKILL after STOP_S; one that does not run is left."""
        self._ask("POST", f"/containers/{quote(name)}/stop?t={STOP_S}", STOP_S + LOOK_S)

    def rename(self, name: str, new: str) -> None:
        self._ask("POST", f"/containers/{quote(name)}/rename?name={quote(new)}", LOOK_S)

    def remove(self, name: str) -> None:
        """The container, never a volume of it."""
        self._ask("DELETE", f"/containers/{quote(name)}?force=true", STOP_S + LOOK_S, missing=True)

    def restart_policy(self, name: str, policy: dict[str, Any]) -> None:
        """Whether the engine starts it by itself; Podman 4 cannot change it, and starts nothing that it stopped."""
        with suppress(EngineError):
            self._ask("POST", f"/containers/{quote(name)}/update", LOOK_S, {"RestartPolicy": policy})

    def last_line(self, name: str) -> str:
        """The last error of its log, else its last line; "" where there is none to be read."""
        path = f"/containers/{quote(name)}/logs?stdout=1&stderr=1&tail=20"
        try:
            answer = self._ask("GET", path, LOOK_S)
        except EngineError:
            return ""
        both, errors = _parted(answer.data if answer else b"")
        lines = [line.strip() for line in (errors.strip() or both).splitlines() if line.strip()]
        return lines[-1][:_MOST_LINE] if lines else ""

    def beside(self, name: str) -> Beside:
        """What Podman's inspection in Docker's form leaves out, from its own one. Raises EngineError."""
        answer = self._ask("GET", f"/v4.0.0/libpod/containers/{quote(name)}/json", LOOK_S)
        found = answer.json() if answer is not None else None
        config = found.get("Config") if isinstance(found, dict) else None
        if not isinstance(found, dict) or not isinstance(config, dict):
            raise EngineError(f"the container engine describes {name} in an unknown form")
        return Beside(_devices_typed(config.get("CreateCommand")), _host_ipc(str(found.get("OCIConfigPath") or "")))

    def major(self) -> int:
        """The first number of the engine's version, 0 where it tells none."""
        answer = self._ask("GET", "/version", LOOK_S)
        found = answer.json() if answer is not None else None
        number = re.match(r"\d+", str(found.get("Version", ""))) if isinstance(found, dict) else None
        return int(number[0]) if number else 0

    def _ask(
        self, method: str, path: str, limit_s: float, body: object = None, *, missing: bool = False
    ) -> Answer | None:
        """The answer; None where `missing` and there is no such thing."""
        answer = exchange(self.path, method, path, limit_s, body)
        self.podman = answer.podman
        if answer.status == 404 and missing:
            return None
        if not 200 <= answer.status < 400:
            told = answer.json()
            said = str(told.get("message", "no reason")) if isinstance(told, dict) else "no reason"
            raise EngineError(f"the container engine refuses {method} {path.partition('?')[0]}: {said[:_MOST_LINE]}")
        return answer


def exchange(path: Path, method: str, target: str, limit_s: float, body: object) -> Answer:
    """One request, over within the limit whatever the engine does: an answer that drips is cut off as well."""
    connection, begun = _Connection(path, limit_s), time.monotonic()
    clock = threading.Timer(limit_s, connection.cut)
    clock.daemon = True
    clock.start()
    try:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, target, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        podman = answer.getheader("Libpod-API-Version") is not None
        return Answer(answer.status, podman, answer.read(_MOST_BYTES))
    except (OSError, ValueError, http.client.HTTPException) as error:
        hint = "may this user reach the socket? see docs/daemon.md, units"
        late = isinstance(error, TimeoutError) or time.monotonic() - begun >= limit_s
        said = f"nothing within {limit_s:g} s" if late else str(error) or type(error).__name__
        raise EngineError(f"the container engine at {path} does not answer: {said}", hint) from None
    finally:
        clock.cancel()
        connection.close()


def _is_container(found: object) -> bool:
    """The parts that are read, each of its kind."""
    if not isinstance(found, dict):
        return False
    state, config, host = found.get("State"), found.get("Config"), found.get("HostConfig")
    labels = config.get("Labels") if isinstance(config, dict) else 0
    pid = state.get("Pid", 0) if isinstance(state, dict) else None
    return isinstance(pid, int) and all(part is None or isinstance(part, dict) for part in (labels, host))


def _devices_typed(typed: object) -> tuple[str, ...]:
    """`--device vendor/class=name` of a command line."""
    words = [str(word) for word in typed] if isinstance(typed, list) else []
    values = [word.partition("=")[2] for word in words if word.startswith("--device=")]
    values += [after for word, after in pairwise(words) if word == "--device"]
    return tuple(value for value in values if re.fullmatch(r"[\w.-]+/[\w.-]+=[\w.:-]+", value))


def _host_ipc(path: str) -> bool:
    """Whether the runtime's own file (OCI runtime-spec, config.json) names no IPC namespace; False: never started."""
    if not path:
        return False
    try:
        spaces = json.loads(Path(path).read_text(encoding="utf-8"))["linux"]["namespaces"]
        return all(space["type"] != "ipc" for space in spaces)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineError(
            f"{path} does not tell the container's namespaces: {error}", "docs/daemon.md, units"
        ) from None


def _parted(data: bytes) -> tuple[str, str]:
    """A log's text, and what of it are errors: without a terminal each piece has 8 bytes (stream, 3 zeros, length)."""
    pieces, rest = [], data
    while len(rest) >= 8 and rest[0] in (0, 1, 2) and rest[1:4] == b"\0\0\0":
        end = 8 + int.from_bytes(rest[4:8], "big")
        pieces.append((rest[0], rest[8:end]))
        rest = rest[end:]
    parts = (b"".join([*(text for _, text in pieces), rest]), b"".join(text for stream, text in pieces if stream == 2))
    return parts[0].decode("utf-8", "replace"), parts[1].decode("utf-8", "replace")


def engine_socket() -> Path:
    """Docker's, or Podman's of this user; DOCKER_HOST where it names one. Raises UsageError where there is none."""
    named = os.environ.get("DOCKER_HOST", "")
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    asked = [Path(named.removeprefix("unix://"))] if named.startswith("unix://") else []
    found = [*asked, Path("/var/run/docker.sock"), runtime / "podman/podman.sock", Path("/run/podman/podman.sock")]
    for path in found:
        if path.is_socket():
            return path
    raise UsageError("no container engine listens here", "DOCKER_HOST=unix:///run/docker.sock names its socket")
