"""The service as a unit of a test's manager, as `tuner install-service` writes it; and a load for what it watches."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

from vllm_tuner.daemon import config as configs
from vllm_tuner.daemon import service
from vllm_tuner.daemon.run import TUNER
from vllm_tuner.daemon.status import ask
from vllm_tuner.daemon.testing import FAKE, LATE, environment
from vllm_tuner.daemon.units import exec_line


if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vllm_tuner.daemon.testing_systemd import Manager

UNIT = "tuner-test.service"
_SHOWN = ("ActiveState", "Result", "StatusText", "NRestarts", "MainPID")
_ENVIRONMENT = ("PYTHONPATH", "STATE_DIRECTORY", "RUNTIME_DIRECTORY", "ADVISOR_DATABASE_URL")
# A manager in a namespace has no other users, and may not mount over /proc and /dev; a test's files lie in /tmp.
_CANNOT = (
    "DynamicUser=no", "SupplementaryGroups=", "PrivateTmp=no", "ProtectKernelTunables=no", "ProtectKernelLogs=no",
)  # fmt: skip
# The daemon with the fake search, for a systemd that is another one than root's.
_CODE = """
import sys; from pathlib import Path; from vllm_tuner.daemon import start; from vllm_tuner.daemon.units import systemd
config, fake, folder = sys.argv[1:]
if folder:
    start.unit_of = lambda config, *_: systemd.Systemd(config.unit.name, Path(folder), ("systemctl", "--user"))
sys.exit(start.daemon(Path(config), tuner=(sys.executable, "-S", fake)))
"""


class Installed:
    """The unit of a configuration; not started. `of_system`: the hardened one for the system's manager.

    What it may write then is its own folder of state, the drop-ins of what it manages, and this test's folder.
    """

    def __init__(self, manager: Manager, folder: Path, url: str, *, of_system: bool = False) -> None:
        self.manager, self.folder, self.url, self.of_system = manager, folder, url, of_system
        self.config, self._state = folder / "daemon.toml", folder / "state"
        self.env = {name: value for name, value in environment(folder).items() if name in _ENVIRONMENT}

    def configure(self, text: str, tables: str = "", limits: str = "") -> None:
        """The configuration; it is read at the start and at a reload."""
        deployment = f'\n[deployment]\nurl = "{self.url}"\nmodel = "m"\nnode = "box"\n{limits}'
        self.config.write_text(text + LATE + tables + deployment, encoding="utf-8")

    def install(self) -> None:
        """Write the unit of the configuration, in the manager's folder."""
        if not self.of_system:
            words = ("--user", "--force", "--name", UNIT.removesuffix(".service"), "--config", str(self.config))
            env = environment(self.folder, XDG_CONFIG_HOME=str(self.manager.home / ".config"))
            subprocess.run([*TUNER, "install-service", *words], env=env, check=True, capture_output=True)  # noqa: S603
            self.manager.call("daemon-reload")
            return
        text = service.unit(configs.load(self.config), self.config, service.Wish())
        self.manager.write(UNIT, text.replace("/etc/systemd/system", str(self.manager.units)))

    def adapt(self, *lines: str) -> None:
        """What this host needs, in a drop-in: folders, the path of our packages; and a test's own lines."""
        env = self.env | ({"TMPDIR": str(self.folder)} if self.of_system else {})
        every = [
            "[Service]",
            *(_CANNOT if self.of_system else ()),
            *([f"ReadWritePaths={self.folder}"] if self.of_system else ()),
            *(f"Environment={exec_line.assignment(*one)}" for one in env.items()),
            f"StandardOutput=append:{self.folder / 'log'}",  # there is no journal
            "StandardError=inherit",
            f"ExecStopPost=/bin/sh -c 'echo $SERVICE_RESULT >>{self.folder / 'results'}'",
            *lines,
        ]
        self.manager.write(f"{UNIT}.d/test.conf", "\n".join(every) + "\n")

    def fake(self) -> tuple[str, ...]:
        """For `adapt`: the fake search, and this manager in the place of the system's.

        As root the service would ask that one; it is another user in a namespace, or its adapter is told another one.
        """
        words = (sys.executable, "-c", _CODE, str(self.config), str(FAKE))
        hardened = (*words, str(self.manager.units))  # no namespaces there
        other = ("/usr/bin/unshare", "--user", "--map-user=1000", *words, "")
        return ("ExecStart=", f"ExecStart={exec_line.ExecLine(()).written(hardened if self.of_system else other)}")

    def said(self) -> str:
        """Its log."""
        return (self.folder / "log").read_text(encoding="utf-8")

    def seen(self) -> dict[str, str]:
        """What the manager says of it."""
        return self.manager.show(UNIT, *_SHOWN)

    def status(self) -> dict[str, Any]:
        """What it says of itself."""
        page = ask(self.folder / "run/tuner.sock")
        return dict(json.loads(page)) if page else {}

    def until(self, done: Callable[[], object], seconds: float = 60.0) -> None:
        """Until it is so. Raises AssertionError with its status and its last words."""
        try:
            self.manager.until(done, seconds)
        except AssertionError:
            raise AssertionError(f"never: {self.status()}\n{self.said()[-4000:]}") from None

    def end(self) -> None:
        """Stop it, whatever state it is in, and forget how it ended."""
        self.manager.end(UNIT)
        self.manager.until(lambda: self.seen()["ActiveState"] in ("inactive", "failed"))
        self.manager.call("reset-failed", UNIT, check=False)


class Load:
    """Clients of a server, one request after the other each, as many at once as `wanted` says."""

    def __init__(self, port: int, most: int = 8) -> None:
        self.port, self.wanted, self._over = port, 0, threading.Event()
        self._threads = [threading.Thread(target=self._client, args=(number,), daemon=True) for number in range(most)]
        for thread in self._threads:
            thread.start()

    def _client(self, number: int) -> None:
        while not self._over.is_set():
            if number >= self.wanted:
                self._over.wait(0.02)
                continue
            try:
                self._ask()
            except (OSError, http.client.HTTPException):  # it is being restarted
                self._over.wait(0.05)

    def _ask(self) -> None:
        server = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        body = json.dumps({"model": "m", "prompt": [1] * 16, "max_tokens": 4, "stream": True})
        server.request("POST", "/v1/completions", body)
        server.getresponse().read()
        server.close()

    def close(self) -> None:
        """All of them."""
        self._over.set()
        for thread in self._threads:
            thread.join()
