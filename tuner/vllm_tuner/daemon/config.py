"""`daemon.toml` as one frozen value: every key has its unit in its name and a default, and no secret stands in it.

The keys are the table in `config_fields`; this file puts them together. A secret is named by the environment variable
or by the file that holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from vllm_advisor.errors import BadInput
from vllm_advisor.workload import Sla
from vllm_tuner.daemon.allowance import AllowanceLimits
from vllm_tuner.daemon.config_fields import FIELDS, Value, checked, refuse_unknown
from vllm_tuner.daemon.drift_reason import DriftLimits
from vllm_tuner.daemon.idle import IdleLimits
from vllm_tuner.daemon.policy_state import Mode, Timing
from vllm_tuner.daemon.windows import Windows


if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vllm_tuner.daemon.config_fields import Field

_T = TypeVar("_T")
# Of `tuner serve`, what an operator may decide: the load, the limits and the places are the daemon's.
SEARCH_OPTIONS = (
    "--draft", "--enforce-eager", "--kv-cache-dtype", "--no-quality", "--offline", "--only", "--price", "--prices",
    "--quality", "--quantization", "--sensitivity", "--start-timeout", "--this-checkpoint", "--tool", "--tp",
    "--vllm-python",
)  # fmt: skip


class Secret(NamedTuple):
    """Where a secret is; both "": there is none. Its value is read by whoever needs it, when it does."""

    env: str = ""
    file: str = ""

    def __bool__(self) -> bool:
        return bool(self.env or self.file)


class Deployment(NamedTuple):
    """What is watched. `model` as for `tuner serve`; `profile` is the one that it runs, "": `priors.running` says.

    A limit of `sla` that is None is the profile's.
    """

    url: str
    model: str
    profile: str
    node: str
    sla: Sla
    api_key: Secret


class UnitConfig(NamedTuple):
    """What may be restarted in mode adopt: `kind` none, child, systemd or container, and its name.

    `command`: how a child is started before anything was adopted.
    """

    kind: str
    name: str
    command: tuple[str, ...] = ()


class Tuning(NamedTuple):
    """How a run searches: an effort of `effort.EFFORTS`, its limits (0: the effort's), and what else it does.

    `beside_server`: although the watched server holds memory; `stop_unit`: the unit is stopped for it, and started
    again. `objective`: one of `Objective`, "": that of the profile that runs. `options`: words for `tuner serve`, of
    those in SEARCH_OPTIONS.
    """

    effort: str
    kernels: bool
    beside_server: bool
    stop_unit: bool = False
    objective: str = ""
    options: tuple[str, ...] = ()
    trials: int = 0
    most_s: float = 0.0


class Webhook(NamedTuple):
    """Where news go to, "": nowhere. `secret` signs them."""

    url: str
    secret: Secret


class Status(NamedTuple):
    """The status API: a Unix socket ("": the default one), and a loopback port behind a token (0: none)."""

    socket: str
    tcp_port: int
    token: Secret


class Config(NamedTuple):
    """All of the file."""

    mode: Mode
    tick_s: float
    store: str
    deployment: Deployment
    unit: UnitConfig
    windows: Windows
    idle: IdleLimits
    allowance: AllowanceLimits
    drift: DriftLimits
    timing: Timing
    tuning: Tuning
    webhook: Webhook
    status: Status


def load(path: Path) -> Config:
    """Read a file. Raises BadInput, with the line for what is no TOML."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise BadInput(f"{path}: {why}", "tuner daemon --example prints one") from None
    return parse(text, str(path))


def parse(text: str, name: str = "daemon.toml") -> Config:
    """From its text. Raises BadInput in one line."""
    import tomllib

    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"{name} is no TOML: {error}", "tuner daemon --example prints one") from None
    return from_table(table, name)


def from_table(table: Mapping[str, Any], name: str = "daemon.toml") -> Config:
    """From what TOML makes of it. Raises BadInput."""
    refuse_unknown(table, name)
    values = {(row.section, row.key): checked(row, table, name) for row in FIELDS}
    config = _config(values)
    _agree(config, name)
    return config


def _config(values: Mapping[tuple[str, str], Value]) -> Config:
    def of(section: str, kind: type[_T]) -> _T:
        rows = [row for row in FIELDS if row.section == section and row.into]
        return kind(**{row.into: _scaled(values[section, row.key], row) for row in rows})

    def secret(section: str, key: str) -> Secret:
        return Secret(str(values[section, f"{key}_env"]), str(values[section, f"{key}_file"]))

    texts: Any = values["windows", "open"]
    return Config(
        mode=Mode(str(values["", "mode"])),
        tick_s=_number(values["", "tick_seconds"]),
        store=str(values["", "store_env"]),
        deployment=_deployment(values, secret("deployment", "api_key")),
        unit=of("unit", UnitConfig),
        windows=Windows.parse(texts, str(values["windows", "time_zone"])),
        idle=of("idle", IdleLimits),
        allowance=of("allowance", AllowanceLimits)._replace(seed=str(values["deployment", "node"])),
        drift=of("drift", DriftLimits),
        timing=of("adopt", Timing),
        tuning=of("tuning", Tuning),
        webhook=Webhook(str(values["webhook", "url"]), secret("webhook", "secret")),
        status=Status(
            str(values["status", "socket"]), int(_number(values["status", "tcp_port"])), secret("status", "token")
        ),
    )


def _deployment(values: Mapping[tuple[str, str], Value], api_key: Secret) -> Deployment:
    url, model, profile, node = (str(values["deployment", key]) for key in ("url", "model", "profile", "node"))
    ttft, tpot = (_number(values["deployment", key]) or None for key in ("most_ttft_ms", "most_tpot_ms"))
    return Deployment(url, model, profile, node, Sla(ttft, tpot), api_key)


def _scaled(value: Value, row: Field) -> Any:
    """In the unit of the program; 0 means no limit where the row says so."""
    if row.unlimited and value == 0:
        return float("inf")
    if row.scale is None or not isinstance(value, int | float) or isinstance(value, bool):
        return value
    return type(row.scale)(value * row.scale)


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _agree(config: Config, name: str) -> None:
    """What each key allows and all together do not."""
    unit, where = config.unit, f"{name}:"
    if config.mode is Mode.ADOPT and unit.kind == "none":
        raise BadInput(f'{where} mode = "adopt" needs a unit to restart', 'set [unit] kind, or mode = "advise"')
    if unit.kind in ("systemd", "container") and not unit.name:
        raise BadInput(f"{where} [unit] kind = {unit.kind!r} needs a name", 'name = "vllm.service"')
    if config.status.tcp_port and not config.status.token:
        raise BadInput(f"{where} [status] tcp_port needs a token", "set token_env or token_file")
    if config.webhook.url and not config.webhook.url.startswith("https://"):
        raise BadInput(f"{where} [webhook] url must begin with https://", "news are signed, not encrypted, by us")
    if config.tuning.stop_unit and (config.mode is not Mode.ADOPT or config.tuning.beside_server):
        raise BadInput(f'{where} [tuning] stop_unit is for mode = "adopt", and not for beside_server', "docs/daemon.md")
    for word in config.tuning.options:
        if word.startswith("-") and word.partition("=")[0] not in SEARCH_OPTIONS:
            raise BadInput(f"{where} [tuning] options: {word[:80]!r}", f"of these: {', '.join(SEARCH_OPTIONS)}")
    for address in (config.webhook.url, config.deployment.url):
        if "@" in address.partition("://")[2].partition("/")[0]:
            raise BadInput(f"{where} an address holds a password", "name its variable or file instead")
