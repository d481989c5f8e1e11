"""The keys of `daemon.toml`, one aligned row each: section, name with its unit, default, bounds, and what it is for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from vllm_advisor.errors import BadInput
from vllm_advisor.units import GIB


if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Value: TypeAlias = "str | bool | int | float | tuple[str, ...]"
_MIB, _HOUR, _DAY = GIB >> 10, 3600.0, 86400.0


class Field(NamedTuple):
    """One key. The default's type is the key's type; `low` and `high` bound a number; `choices` a text.

    `into` names the field of the value that it fills, in a unit `scale` times smaller; "": it is put there by hand.
    `unlimited`: 0 means no limit.
    """

    section: str
    key: str
    default: Value
    says: str
    into: str = ""
    scale: float | None = None
    low: float = 0.0
    high: float = math.inf
    choices: tuple[str, ...] = ()
    unlimited: bool = False


_MODES, _KINDS = ("observe", "advise", "adopt"), ("none", "child", "systemd", "container")
_EFFORTS = ("quick", "normal", "thorough")
_OBJECTIVES = ("", "balanced", "throughput", "latency", "cost")
_ANY_TIME = ("01:00-05:00",)

FIELDS: tuple[Field, ...] = (
    Field("", "mode", "advise", "observe; advise: tune on idle devices; adopt: restart the unit, too", choices=_MODES),
    Field("", "tick_seconds", 15.0, "between two looks", low=0.05, high=3600),
    Field("", "store_env", "ADVISOR_DATABASE_URL", "variable with the address of the store; unset: the user's own"),

    Field("deployment", "url", "http://127.0.0.1:8000", "the server that is watched"),
    Field("deployment", "model", "", "as for `tuner serve`; empty: what the server says"),
    Field("deployment", "profile", "", "id of the profile that it runs; empty: the unit says, or a guess"),
    Field("deployment", "node", "", "this machine's name in the store; empty: its host name"),
    Field("deployment", "most_ttft_ms", 0.0, "limit to the first token; 0: as the profile has it", high=1e7),
    Field("deployment", "most_tpot_ms", 0.0, "limit of a further token; 0: as the profile has it", high=1e6),
    Field("deployment", "api_key_env", "", "variable with the server's key"),
    Field("deployment", "api_key_file", "", "or the file that holds it"),

    Field("unit", "kind", "none", "what may be restarted in mode adopt", "kind", choices=_KINDS),
    Field("unit", "name", "", "of the systemd unit or of the container", "name"),
    Field("unit", "command", (), 'of kind child: ["vllm", "serve", "MODEL"]; empty: the profile\'s', "command"),

    Field("windows", "open", _ANY_TIME, '"Mon-Fri 02:00-05:30", "22:00-06:00" or "0 2 * * 1-5 for 3h"'),
    Field("windows", "time_zone", "UTC", "an IANA name, as Europe/Berlin"),

    Field("idle", "most_utilization_share", 0.05, "of a device that counts as idle", "utilization", high=1),
    Field("idle", "most_others_mib", 512, "held by other processes", "others_bytes", _MIB, high=1 << 24),
    Field("idle", "most_requests", 0.0, "running or waiting at the server", "requests", high=1e6),
    Field("idle", "most_host_load_share", 0.2, "of the processors, where there is no device", "host_load", high=1),
    Field("idle", "samples", 4, "ticks in a row", "samples", low=1, high=10_000),
    Field("idle", "hottest_celsius", 85.0, "no run starts or goes on above", "celsius", low=30, high=120),
    Field("idle", "least_power_cap_share", 0.9, "of a device's usual power cap", "cap_share", high=1),

    Field("allowance", "hours_a_day", 4.0, "of tuning", "seconds_a_day", _HOUR, high=24),
    Field("allowance", "kwh_a_day", 0.0, "0: no limit", "watt_hours_a_day", 1000.0, high=1e6, unlimited=True),
    Field("allowance", "back_off_minutes", 30.0, "after a failure, then doubled", "back_off_s", 60.0, high=1e5),
    Field("allowance", "longest_back_off_hours", 24.0, "between two attempts", "longest_back_off_s", _HOUR, high=1e4),

    Field("drift", "block_minutes", 180.0, "of traffic in one comparison", "block_s", 60.0, low=0.001, high=1440),
    Field("drift", "least_requests", 50.0, "in one comparison", "least_requests", low=1, high=1e6),
    Field("drift", "warm_up_hours", 24.0, "before anything new is judged", "warm_up_s", _HOUR, high=1e4),
    Field("drift", "learn_days", 28.0, "until what is usual is fixed", "learn_s", _DAY, high=1e4),
    Field("drift", "hold_minutes", 120.0, "that trouble must add up to", "hold_s", 60.0, low=0.001, high=1e5),
    Field("drift", "most_late_share", 0.05, "of requests beyond the limits", "late_share", high=1),
    Field("drift", "most_preempted_share", 0.01, "preemptions a request", "preempted_share", high=1e3),
    Field("drift", "most_rejected_share", 0.001, "rejections a request", "rejected_share", high=1e3),
    Field("drift", "most_queued_share", 0.2, "of a request's time", "queued_share", high=1),
    Field("drift", "most_kv_usage_share", 0.9, "of the KV cache", "kv_usage", high=1),
    Field("drift", "slower_times", 1.25, "a token, against the profile at its load", "slower", low=1, high=1e3),
    Field("drift", "oldest_profile_days", 90.0, "before it is measured again", "age_s", _DAY, low=0.001, high=1e5),
    Field("drift", "least_prior_gain_share", 0.05, "that a newer prior must promise", "prior_gain", high=1e3),
    Field("drift", "sightings", 3, "of a changed machine before it counts", "sightings", low=1, high=10_000),

    Field("tuning", "effort", "normal", "as for `tuner serve`", "effort", choices=_EFFORTS),
    Field("tuning", "objective", "", "of a plan; empty: the profile's", "objective", choices=_OBJECTIVES),
    Field("tuning", "most_trials", 0, "configurations of a run; 0: the effort's", "trials", high=10_000),
    Field("tuning", "most_minutes", 0.0, "of a run; 0: the effort's", "most_s", 60.0, high=1e4),
    Field("tuning", "kernels", True, "time kernels again where driver or software changed", "kernels"),
    Field("tuning", "options", (), 'more for `tuner serve`: ["--sensitivity", "sensitive"]', "options"),
    Field("tuning", "stop_unit", False, "stop the unit for a run in the window, and start it again", "stop_unit"),
    Field("tuning", "beside_server", False, "also while the watched server holds memory", "beside_server"),

    Field("adopt", "start_minutes", 30.0, "for a server to become healthy", "start_s", 60.0, low=0.001, high=1e4),
    Field("adopt", "canary_minutes", 60.0, "for a candidate to prove itself", "canary_s", 60.0, low=0.001, high=1e5),
    Field("adopt", "most_failures", 5, "of runs for one reason", "failures", low=1, high=1000),

    Field("webhook", "url", "", "https address for news; empty: none"),
    Field("webhook", "secret_env", "", "variable with the key that signs them"),
    Field("webhook", "secret_file", "", "or the file that holds it"),

    Field("status", "socket", "", "path of the Unix socket; empty: in the runtime folder"),
    Field("status", "tcp_port", 0, "on loopback; 0: none", high=65_535),
    Field("status", "token_env", "", "variable with the token that the port asks for"),
    Field("status", "token_file", "", "or the file that holds it"),
)  # fmt: skip

_SECTIONS = tuple(dict.fromkeys(row.section for row in FIELDS if row.section))
_SECRETS = ("api_key", "token", "secret", "password", "key")


def refuse_unknown(table: Mapping[str, Any], name: str) -> None:
    """Raises BadInput for the first key that there is none of, with the one that was meant."""
    top = [row.key for row in FIELDS if not row.section]
    for key, value in table.items():
        if key in _SECTIONS:
            if not isinstance(value, dict):
                raise BadInput(f"{name}: {key} is a section", f"write [{key}] on a line of its own")
            for inner in value:
                _refuse(inner, [row.key for row in FIELDS if row.section == key], f"{name}: [{key}]")
        else:
            _refuse(key, [*top, *_SECTIONS], f"{name}:")


def _refuse(key: str, known: Iterable[str], where: str) -> None:
    names = list(known)
    if key in names:
        return
    if key in _SECRETS and f"{key}_env" in names:
        raise BadInput(f"{where} no secret stands in this file", f"name its variable, {key}_env, or {key}_file")
    from vllm_advisor.check.nearest import nearest

    meant = nearest(key, names, 0.6)
    hint = f"did you mean {meant}?" if meant else f"one of {', '.join(names)}"
    raise BadInput(f"{where} no key {key[:80]!r}", hint)


def checked(row: Field, table: Mapping[str, Any], name: str) -> Value:
    """The value of a key, or its default. Raises BadInput."""
    section = table.get(row.section, {}) if row.section else table
    if row.key not in section:
        return row.default
    where = f"{name}: [{row.section}] {row.key}" if row.section else f"{name}: {row.key}"
    return _typed(row, section[row.key], where)


def _typed(row: Field, value: Any, where: str) -> Value:
    if isinstance(row.default, tuple):
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise BadInput(f"{where} is no list of texts", f"as {list(row.default)}")
        return tuple(texts)
    if isinstance(row.default, bool | str):
        return _word(row, value, where)
    return _amount(row, value, where)


def _word(row: Field, value: Any, where: str) -> str | bool:
    kind = "true or false" if isinstance(row.default, bool) else "a text in quotes"
    if type(value) is not type(row.default):
        raise BadInput(f"{where} = {value!r} is not {kind}", f"{row.key}: {row.says}")
    if row.choices and value not in row.choices:
        raise BadInput(f"{where} = {value!r}", f"one of {', '.join(row.choices)}")
    return bool(value) if isinstance(row.default, bool) else str(value)


def _amount(row: Field, value: Any, where: str) -> Value:
    whole = isinstance(row.default, int)
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise BadInput(f"{where} = {value!r} is no {'whole ' if whole else ''}number", f"{row.key}: {row.says}")
    if not row.low <= value <= row.high:
        raise BadInput(f"{where} = {value:g} is not within {row.low:g} and {row.high:g}", f"{row.key}: {row.says}")
    return int(value) if whole else float(value)


def example() -> str:
    """A file with every key at its default, each with what it is for."""
    lines = ["# tuner daemon --config daemon.toml: every key with its default. Secrets are named, never written here."]
    for section in ("", *_SECTIONS):
        lines += ["", f"[{section}]"] if section else []
        lines += [f"{row.key} = {_toml(row.default)}  # {row.says}" for row in FIELDS if row.section == section]
    return "\n".join(lines) + "\n"


def _toml(value: Value) -> str:
    import json

    return json.dumps(list(value) if isinstance(value, tuple) else value)
