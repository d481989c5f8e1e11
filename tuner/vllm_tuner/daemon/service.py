"""The systemd unit of the service, hardened as far as tuning allows, and where it is written.

What stays open is what a search needs: devices, network interfaces (NCCL asks netlink for them), and memory that is
written and executed (Triton and torch compile). Checked by `systemd-analyze verify`, in the tests and after writing.
"""

from __future__ import annotations

import grp
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.cli import output
from vllm_advisor.cli.diagnostics import ExitCode, note
from vllm_advisor.errors import BadInput, UsageError
from vllm_tuner.daemon import start
from vllm_tuner.daemon.run import TUNER
from vllm_tuner.daemon.units import exec_line
from vllm_tuner.daemon.units.exec_line import ExecLine


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_tuner.daemon.config import Config

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_STATE = "vllm-advisor"
_WATCHDOG_S = 180  # a tick may wait a minute for a command, and for a locked store besides
_VERIFY_S = 20.0
_OPEN_GROUPS = ("video", "render")  # who may open AMD's devices
# systemd.exec(5); MemoryDenyWriteExecute and PrivateDevices would end a search.
_HARDENED = (
    "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=read-only", "PrivateTmp=yes",
    "ProtectKernelTunables=yes", "ProtectKernelModules=yes", "ProtectKernelLogs=yes", "ProtectControlGroups=yes",
    "ProtectClock=yes", "ProtectHostname=yes", "RestrictSUIDSGID=yes", "RestrictRealtime=yes",
    "RestrictNamespaces=yes", "LockPersonality=yes", "SystemCallArchitectures=native",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK", "CapabilityBoundingSet=", "UMask=0077",
)  # fmt: skip
# What a user's manager can do without privileges.
_HARDENED_USER = ("NoNewPrivileges=yes", "RestrictRealtime=yes", "LockPersonality=yes", "UMask=0077")


class Wish(NamedTuple):
    """How it is installed. `account`: instead of a dynamic user; `user`: in one's own manager."""

    name: str = "vllm-tuner"
    account: str = ""
    user: bool = False
    show: bool = False
    force: bool = False


def install(path: Path | None, wish: Wish, *, as_json: bool) -> int:
    """Print or write the unit, and say what comes next. Raises BadInput and UsageError."""
    if not _NAME.fullmatch(wish.name):
        raise UsageError(f"{wish.name!r} is no name of a unit", "--name vllm-tuner")
    file = path.expanduser().resolve() if path is not None else None
    content = unit(start.read(file), file, wish)
    if wish.show:
        output.write_json({"schema": 1, "unit": content}) if as_json else output.write(content.rstrip("\n").split("\n"))
        return ExitCode.OK
    target = _folder(wish) / f"{wish.name}.service"
    _write(target, content, force=wish.force)
    found = verify(target)
    for line in found:
        note(f"systemd-analyze: {line}")
    whose = " --user" if wish.user else ""
    following = [
        f"systemctl{whose} daemon-reload",
        f"systemctl{whose} enable --now {wish.name}",
        f"journalctl{whose} -fu {wish.name}",
    ]
    if as_json:
        output.write_json({"schema": 1, "written": str(target), "next": following, "verify": found})
    else:
        output.write([f"wrote {target}", *(f"  {line}" for line in following)])
    return ExitCode.OK


def _folder(wish: Wish) -> Path:
    if not wish.user:
        return Path("/etc/systemd/system")
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd/user"


def unit(config: Config, file: Path | None, wish: Wish) -> str:
    """The unit's text."""
    sections = (_head(config, wish), _service(config, file, wish), _install(wish))
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _head(config: Config, wish: Wish) -> Iterator[str]:
    yield "[Unit]"
    yield f"Description=vLLM tuner (mode {config.mode}): tunes again when a plan no longer fits"
    yield "Documentation=man:systemd.exec(5)"
    if not wish.user:  # a user's manager does not know the system's targets
        yield "Wants=network-online.target"
        yield "After=network-online.target"
    if config.unit.kind == "systemd":
        yield f"After={_percent(_full_name(config))}"
    yield "StartLimitIntervalSec=600"
    yield "StartLimitBurst=10"


def _service(config: Config, file: Path | None, wish: Wish) -> Iterator[str]:
    yield "[Service]"
    yield "Type=notify"
    yield "NotifyAccess=main"
    yield f"ExecStart={ExecLine(()).written(tuple(command(file)))}"
    yield "ExecReload=/bin/kill -HUP $MAINPID"
    yield f"WatchdogSec={_WATCHDOG_S}"
    yield "TimeoutStopSec=20"
    yield "KillMode=mixed"
    yield "Restart=on-failure"
    yield "RestartSec=10"
    if wish.user:
        yield from _HARDENED_USER
        return
    yield from _account(config, wish)
    yield f"StateDirectory={_STATE}"
    yield f"RuntimeDirectory={_STATE}"
    yield "RuntimeDirectoryMode=0700"
    yield f"Environment=HOME=%S/{_STATE} {config.store}=sqlite:///%S/{_STATE}/advisor.db"
    yield "# an address of PostgreSQL, HF_HOME, ADVISOR_VLLM_PYTHON and secrets go here, mode 600:"
    yield "EnvironmentFile=-/etc/vllm-advisor/daemon.env"
    yield from _HARDENED
    yield from _managed(config)


def _account(config: Config, wish: Wish) -> Iterator[str]:
    """A dynamic user, unless a unit of the system's manager is to be restarted: only root may write its drop-in."""
    if wish.account:
        yield f"User={exec_line.quoted(wish.account, dollars=False)}"
    elif not _restarts_unit(config):
        yield "DynamicUser=yes"
    groups = [name for name in _OPEN_GROUPS if _exists(name)]
    groups += ["docker"] if config.unit.kind == "container" and _exists("docker") else []
    if groups:
        yield f"SupplementaryGroups={' '.join(groups)}"


def _restarts_unit(config: Config) -> bool:
    return config.mode == "adopt" and config.unit.kind == "systemd"


def _full_name(config: Config) -> str:
    return config.unit.name if "." in config.unit.name else f"{config.unit.name}.service"


def _managed(config: Config) -> Iterator[str]:
    if _restarts_unit(config):
        folder = f"/etc/systemd/system/{_percent(_full_name(config))}.d"
        yield f"ExecStartPre=+/bin/mkdir -p {folder}"
        yield f"ReadWritePaths=-{folder}"


def _install(wish: Wish) -> Iterator[str]:
    yield "[Install]"
    yield "WantedBy=default.target" if wish.user else "WantedBy=multi-user.target"


def command(file: Path | None) -> list[str]:
    """What is started: the console script beside this Python, else this Python."""
    script = Path(sys.executable).with_name("tuner")
    entry = [str(script)] if script.exists() else list(TUNER)
    return [*entry, "daemon", *(["--config", str(file)] if file is not None else [])]


def _exists(group: str) -> bool:
    try:
        grp.getgrnam(group)
    except KeyError:
        return False
    return True


def _percent(word: str) -> str:
    return word.replace("%", "%%")


def _write(target: Path, content: str, *, force: bool) -> None:
    """Whole or not at all; one that somebody has changed is not replaced unasked."""
    try:
        if target.exists() and target.read_text(encoding="utf-8") != content and not force:
            raise UsageError(f"{target} is there and differs", "--force replaces it, --print shows the new one")
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_suffix(".new")
        draft.write_text(content, encoding="utf-8")
        draft.chmod(0o644)
        draft.replace(target)
    except OSError as error:
        raise BadInput(
            f"{target} cannot be written: {error.strerror}", "sudo, or --user for your own manager"
        ) from None


def verify(path: Path) -> list[str]:
    """What `systemd-analyze verify` finds wrong with a unit file, one line each; nothing where it is not installed."""
    tool = shutil.which("systemd-analyze")
    if tool is None:
        return []
    try:
        done = subprocess.run(  # noqa: S603 - systemd's own tool
            [tool, "verify", str(path)], capture_output=True, text=True, timeout=_VERIFY_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line for line in done.stderr.splitlines() if path.name in line]
