"""Real container engines for tests: Docker's and Podman's own daemons as root, each in namespaces of its own.

An engine gets a mount namespace (Podman with the unified control groups alone, which its runtime asks for), a network
namespace, a folder for all that it keeps, and an image of busybox that is made here: no registry, no bridge and no
firewall rule on the machine. `python -m vllm_tuner.daemon.testing_engines` says which of them run here.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from vllm_advisor.errors import EngineError
from vllm_tuner.daemon.units.engine_api import exchange


if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("docker", "podman")
IMAGE, ENTRY = "localhost/served:1", "localhost/served:entry"
# A server in a shell: it says with which words it was started, and ends when it is told to.
_SERVER = """#!/bin/sh
echo "$*" > /www/args; echo "starting $*"
case "$*" in *--die*) echo "OutOfMemoryError: no memory left" >&2; exit 3;; esac
trap 'kill $!; exit 0' TERM
httpd -f -p 8000 -h /www & wait $!
"""
_TOOLS = {"docker": ("dockerd", "containerd", "runc"), "podman": ("podman", "crun")}
_SHARED = ("busybox", "unshare", "nsenter", "curl", "iptables")
_MOUNTS = {
    "docker": "over /etc/docker",
    "podman": "mount -t cgroup2 none /sys/fs/cgroup; over /var/lib/cni; over /run/netns",
}
_PODMAN_CONF = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
cgroups = "disabled"
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
runtime = "crun"
"""
_BEGIN_S, _END_S = 30.0, 20.0
# Within what a test may ask for where the process may not raise its own limits.
_LIMITS = [{"Name": "nofile", "Soft": 512, "Hard": 1024}, {"Name": "nproc", "Soft": 512, "Hard": 1000}]


class Engine:
    """One engine and its folder. Raises EngineError where it does not come up."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder, self.path = kind, folder, folder / "e.sock"
        self._log = (folder / "log").open("ab")
        (folder / "daemon.json").write_text("{}")
        (folder / "containers.conf").write_text(_PODMAN_CONF)
        self.begin()

    def begin(self) -> None:
        """Start the daemon, and wait for its socket."""
        over = 'over() { mkdir -p "$1"; mount -t tmpfs none "$1"; }'
        script = f"set -e; {over}; busybox ip link set lo up; {_MOUNTS[self.kind]}; exec {' '.join(self._words())}"
        words = ["unshare", "-m", "-n", "sh", "-c", script]
        self.daemon = subprocess.Popen(words, stdout=self._log, stderr=self._log, env=self._environment())  # noqa: S603
        end = time.monotonic() + _BEGIN_S
        while self.daemon.poll() is None and time.monotonic() < end:
            with suppress(EngineError):
                if self.path.is_socket() and self.ask("GET", "/_ping")[0] == 200:
                    return
            time.sleep(0.05)
        raise EngineError(f"{self.kind} does not come up: {self.said()}")

    def _words(self) -> list[str]:
        at = self.folder
        if self.kind == "podman":
            return [*self._podman(), "system", "service", "--time=0", f"unix://{at}/e.sock"]
        places = f"--data-root {at}/root --exec-root {at}/x -p {at}/pid -H unix://{at}/e.sock"
        alone = f"--iptables=false --ip6tables=false --bridge=none -s vfs --config-file {at}/daemon.json"
        group = f"--cgroup-parent=/{at.name}"
        return f"dockerd {alone} {places} --exec-opt native.cgroupdriver=cgroupfs {group}".split()

    def _podman(self) -> list[str]:
        at = self.folder
        places = f"--root {at}/root --runroot {at}/run --tmpdir {at}/now --network-config-dir {at}/net"
        return f"podman --storage-driver vfs {places}".split()

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "CONTAINERS_CONF": f"{self.folder}/containers.conf", "TMPDIR": str(self.folder)}

    def inside(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command in the engine's namespaces."""
        argv = ["nsenter", "-t", str(self.daemon.pid), "-m", "-n", *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=self._environment())  # noqa: S603

    def podman(self, *words: str) -> str:
        """Podman's own command line. Raises EngineError with what it says."""
        done = self.inside(*self._podman(), *words)
        if done.returncode:
            raise EngineError(done.stderr.strip()[-300:])
        return done.stdout.strip()

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Its API, raw: the status, and what it says."""
        found = exchange(self.path, method, path, _BEGIN_S, body)
        return found.status, found.json()

    def load(self) -> None:
        """The two images: IMAGE, and ENTRY, which has an entry point."""
        tar = self.folder / "image.tar"
        tar.write_bytes(_rootfs())
        for image, change in ((IMAGE, ""), (ENTRY, 'ENTRYPOINT ["/bin/vllm"]')):
            target = f"http://d/images/create?fromSrc=-&repo=made{f'&changes={quote(change)}' if change else ''}"
            sent = [
                "--data-binary",
                f"@{tar}",
                "-H",
                "Content-Type: application/x-tar",
                "--unix-socket",
                str(self.path),
            ]
            done = subprocess.run(["curl", "-s", *sent, target], capture_output=True, check=False)  # noqa: S603, S607
            number = json.loads(done.stdout or b"{}").get("status", "none")
            self.tag(number, image)

    def tag(self, image: str, name: str) -> None:
        """Another name for an image."""
        repository, _, tag = name.rpartition(":")
        self.ask("POST", f"/images/{image}/tag?repo={repository}&tag={tag}")

    def run(self, name: str, words: list[str], *, image: str = IMAGE, start: bool = True, **more: Any) -> str:
        """An operator's `docker run -d`; its id. Raises EngineError."""
        host = {"NetworkMode": "host", "Ulimits": _LIMITS, **more.pop("HostConfig", {})}
        code, said = self.ask(
            "POST", f"/containers/create?name={name}", {"Image": image, "Cmd": words, "HostConfig": host, **more}
        )
        if code == 201 and start:
            started, told = self.ask("POST", f"/containers/{name}/start")
            code, said = (201, said) if started == 204 else (started, told)
        if code != 201:
            raise EngineError(f"{self.kind} runs no container: {said}")
        return str(said["Id"])

    def see(self, name: str) -> Any:
        """A container, None where there is none."""
        code, found = self.ask("GET", f"/containers/{name}/json")
        return found if code == 200 else None

    def names(self) -> dict[str, bool]:
        """All containers: whether each runs."""
        found = self.ask("GET", "/containers/json?all=true")[1]
        return {one["Names"][0].strip("/"): one["State"] == "running" for one in found}

    def serves(self) -> str:
        """With which words the one at the port was started; it is waited for."""
        for _ in range(100):
            done = self.inside("busybox", "wget", "-qO-", "http://127.0.0.1:8000/args")
            if not done.returncode:
                return done.stdout.strip()
            time.sleep(0.05)
        return f"nothing: {done.stderr}"

    def clear(self) -> None:
        """No container and no volume stays."""
        for name in self.names():
            self.ask("DELETE", f"/containers/{name}?force=true&v=true")

    def said(self) -> str:
        """The end of its log."""
        return (self.folder / "log").read_text(errors="replace")[-300:].strip()

    def stop(self) -> None:
        """The daemon alone, as when the machine goes down."""
        self.daemon.terminate()
        try:
            self.daemon.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()

    def end(self) -> None:
        """The daemon, and whatever of it is left."""
        with suppress(EngineError):
            self.clear()
        self.stop()
        self._log.close()
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if f"{self.folder}/".encode() in place.read_bytes():
                    os.kill(int(place.parent.name), signal.SIGKILL)
        for group in Path("/sys/fs/cgroup").glob(f"**/{self.folder.name}"):
            with suppress(OSError):
                group.rmdir()


@contextmanager
def engine(kind: str) -> Iterator[Engine]:
    """One with its images, ended and removed afterwards. Raises EngineError with the reason that it cannot run here."""
    missing = [tool for tool in (*_TOOLS[kind], *_SHARED) if not shutil.which(tool)]
    if missing or os.getuid():
        raise EngineError(f"{kind} cannot run here: {f'there is no {missing[0]}' if missing else 'it takes root'}")
    folder = Path(tempfile.mkdtemp(prefix="engine-"))
    made = None
    try:
        made = Engine(kind, folder)
        made.load()
        made.run("probe", ["/bin/sleep", "60"])
        made.clear()
        yield made
    finally:
        if made is not None:
            made.end()
        shutil.rmtree(folder, ignore_errors=True)


def _rootfs() -> bytes:
    """An image as a tar: busybox, and the server as /bin/vllm."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name in ("bin", "www", "tmp", "etc", "proc", "sys", "dev"):
            _add(tar, name, tarfile.DIRTYPE)
        for name in ("sh", "httpd", "kill", "sleep", "echo", "env"):
            _add(tar, f"bin/{name}", tarfile.SYMTYPE, link="busybox")
        _add(tar, "bin/busybox", data=Path(shutil.which("busybox") or "").read_bytes())
        _add(tar, "bin/vllm", data=_SERVER.encode())
    return made.getvalue()


def _add(tar: tarfile.TarFile, name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", link: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size, entry.linkname = kind, 0o755, len(data), link
    tar.addfile(entry, io.BytesIO(data))


def main() -> None:
    """Which engines run here."""
    for kind in KINDS:
        try:
            with engine(kind) as made:
                version = made.ask("GET", "/version")[1]["Version"]
                sys.stdout.write(f"{kind} {version} runs containers\n")
        except EngineError as error:
            sys.stdout.write(f"{error.message}\n")


if __name__ == "__main__":
    main()
