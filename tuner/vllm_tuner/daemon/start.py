"""From a configuration file to a daemon that runs: everything is opened here, and closed again."""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_tuner.daemon import config as configs
from vllm_tuner.daemon import keys
from vllm_tuner.daemon.actions import World
from vllm_tuner.daemon.logs import Log
from vllm_tuner.daemon.look import Look, plan_of
from vllm_tuner.daemon.loop import Clocks, Daemon
from vllm_tuner.daemon.metrics import Client
from vllm_tuner.daemon.notify import Webhook
from vllm_tuner.daemon.run import TUNER
from vllm_tuner.daemon.sd_notify import Supervisor
from vllm_tuner.daemon.signals import Signals
from vllm_tuner.daemon.status import Board, default_socket
from vllm_tuner.daemon.watch import Watch


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.plan import LaunchCommand
    from vllm_advisor.store.profile_store import ProfileStore
    from vllm_tuner.daemon.config import Config
    from vllm_tuner.daemon.units.managed import Managed


_PREPARE_S = 60.0


def read(path: Path | None) -> Config:
    """The configuration of a file, or all defaults. Raises BadInput."""
    return configs.load(path) if path is not None else configs.parse("")


def node_of(config: Config) -> str:
    """The machine's name in the store."""
    return config.deployment.node or socket.gethostname()


def environment(config: Config) -> dict[str, str]:
    """What children are told of the store: by the environment, because an address may hold a password."""
    address = os.environ.get(config.store, "")
    return {"ADVISOR_DATABASE_URL": address} if address else {}


def opened(config: Config) -> ProfileStore:
    """The store. Raises StoreError."""
    from vllm_advisor.store.profile_store import ProfileStore

    return ProfileStore.open(os.environ.get(config.store) or None)


def _prepared(config: Config) -> None:
    """Migrations are run by another process, which takes the 11 MiB that they need with it."""
    from vllm_advisor.store import engine, schema

    place = schema.place(os.environ.get(config.store) or None)
    found = engine.connect(place)
    try:
        with found.connect() as connection:
            if engine.revision(connection) == schema.HEAD:
                return
    except Exception:  # noqa: BLE001 - whatever it is, the opening says it properly
        return
    finally:
        found.dispose()
    asked = Look(environment(config))
    asked.ask("prepare")
    asked.wait(_PREPARE_S)


def folder(node: str) -> Path:
    """Where runs and their logs lie: the folder that systemd made, else the user's state folder."""
    named = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if named:
        root = Path(named)
    else:
        import platformdirs

        root = platformdirs.user_state_path("vllm-advisor")
    plain = "".join(c if c.isalnum() or c in "-._" else "_" for c in node) or "node"
    return root / "daemon" / plain


def unit_of(config: Config, place: Path, env: dict[str, str]) -> Managed | None:
    """The managed unit, None where nothing is managed. Raises UsageError and StoreError."""
    if config.unit.kind == "systemd":
        from vllm_tuner.daemon.units.systemd import Systemd

        return Systemd(config.unit.name)
    if config.unit.kind == "container":
        from vllm_tuner.daemon.units.container import Container

        return Container(config.unit.name)
    if config.unit.kind == "child":
        from vllm_tuner.daemon.units.child import Child

        python = os.environ.get("ADVISOR_VLLM_PYTHON")
        return Child(place / "unit", config.deployment.url, _own(config, env), Path(python) if python else None)
    return None


def _own(config: Config, env: dict[str, str]) -> LaunchCommand | None:
    """A child's first command: as configured, else that of the profile."""
    from vllm_advisor.plan import LaunchCommand

    if config.unit.command:
        return LaunchCommand(config.unit.command)
    if not config.deployment.profile:
        return None
    return plan_of(config.deployment.profile, "", env)


@contextmanager
def made(config: Config, log: Log, tuner: tuple[str, ...] = TUNER) -> Iterator[Daemon]:
    """A daemon with everything that it needs, closed at the end."""
    node, clocks = node_of(config), Clocks()
    place, env = folder(node), environment(config)
    runs = place / "runs"
    runs.mkdir(parents=True, exist_ok=True, mode=0o700)
    client = Client(config.deployment.url, lambda: keys.value(config.deployment.api_key))
    webhook = _webhook(config, node, log)
    watch = Watch(client, clocks.now, clocks.steady, look=Look(env))
    _prepared(config)
    with opened(config) as store:
        world = World(
            config,
            node,
            store,
            runs,
            watch,
            unit_of(config, place, env),
            log,
            webhook,
            env,
            clocks.now,
            tuner,
            host=socket.gethostname(),
        )
        try:
            yield Daemon(world, clocks)
        finally:
            client.close()
            watch.look.stop()
            if webhook is not None:
                webhook.stop()


def _webhook(config: Config, node: str, log: Log) -> Webhook | None:
    if not config.webhook.url:
        return None
    return Webhook(config.webhook.url, lambda: keys.value(config.webhook.secret), node, log)


def socket_of(config: Config) -> Path:
    """Where the status is told."""
    return Path(config.status.socket).expanduser() if config.status.socket else default_socket()


def _listen(board: Board, config: Config) -> None:
    board.on_socket(socket_of(config))
    if config.status.tcp_port:
        keys.value(config.status.token)  # said at the start, not at the first request
        board.on_loopback(config.status.tcp_port, lambda: keys.value(config.status.token))


def daemon(path: Path | None, *, once: bool = False, as_json: bool = False, tuner: tuple[str, ...] = TUNER) -> int:
    """Run until a signal, or one tick. `tuner`: what searches. Raises AdvisorError."""
    config = read(path)
    log = Log()
    supervisor = Supervisor()
    with made(config, log, tuner) as service, Signals(service.force) as signals:
        if once:
            return _once(service, as_json=as_json)
        try:
            _listen(service.board, config)
            log("info", "started", f"mode {config.mode}, node {service.world.node}, {config.deployment.url}")
            service.run(signals, supervisor, lambda: read(path))
        finally:
            service.board.close()
    signals.send_again()
    return 0


def _once(service: Daemon, *, as_json: bool) -> int:
    """A tick, and what it found; 1 where another daemon has the node."""
    from vllm_tuner.daemon import told

    service.tick()
    time.sleep(min(5.0, service.world.config.tick_s))
    service.tick()
    leased = service.leased
    service.stop()
    sys.stdout.write(told.shown(service.board.pages.status, as_json=as_json))
    return 0 if leased else 1
