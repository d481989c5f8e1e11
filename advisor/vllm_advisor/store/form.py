"""Plans, measurements and fingerprints as plain mappings and back: for a column, for a file, for `--json`.

Reading trusts nothing: every field is of its type and in its range, and a field that we do not know is refused.
Knows no database, because `lookup` and `advisor recommend` read with it.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from vllm_advisor.errors import BadInput
from vllm_advisor.hardware import Unknown
from vllm_advisor.plan import Plan
from vllm_advisor.profile import Fingerprint, Measurement, QualityResult
from vllm_advisor.units import Interval
from vllm_advisor.workload import Objective, Sensitivity, Sla, Workload


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.profile import Readings, Scalar, Settings

Plain = dict[str, Any]
_LONGEST = 4096  # characters of a text: an address, a note, a path
_SECRETS = ("TOKEN", "SECRET", "PASSWORD", "API_KEY", "CREDENTIAL")


def dumps(value: object) -> str:
    """Canonical JSON: what is hashed is what is stored."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def plan_to(plan: Plan) -> Plain:
    """Fields that differ from the default, and the checkpoint; a None is left out."""
    plain: Plain = {"checkpoint": plan.checkpoint}
    for field in fields(plan):
        value = getattr(plan, field.name)
        if field.name not in ("checkpoint", "env") and value != field.default:
            plain[field.name] = value
    return plain | ({"env": dict(plan.env)} if plan.env else {})


def plan_from(plain: object) -> Plan:
    """Raises BadInput for a field that is none, of a wrong type or out of range."""
    given = mapping(plain, "plan")
    kinds = {field.name: str(field.type) for field in fields(Plan)}
    known(given, kinds, "plan")
    values: Plain = {name: _plan_value(name, kinds[name], value) for name, value in given.items() if name != "env"}
    if not values.get("checkpoint"):
        raise BadInput("plan.checkpoint is missing")
    env = mapping(given.get("env", {}), "plan.env")
    variables = tuple(sorted((_variable(name), text(value, f"plan.env.{name}")) for name, value in env.items()))
    return Plan(**values, env=variables)


def _plan_value(name: str, kind: str, value: object) -> object:
    where = f"plan.{name}"
    if kind.startswith("bool"):
        return flag(value, where)
    if kind.startswith("int"):
        return whole(value, where, least=1)
    if kind.startswith("float"):
        share = number(value, where)
        if not 0 < share <= 1:
            raise BadInput(f"{where} is {share:g}, a share of the memory is above 0 and at most 1")
        return share
    return text(value, where)


def _variable(name: str) -> str:
    if not name.replace("_", "").isalnum() or not name.isascii():
        raise BadInput(f"plan.env holds {name[:40]!r}, which is no variable's name")
    if any(word in name.upper() for word in _SECRETS):
        raise BadInput(f"plan.env holds {name}: a secret has no place in a profile")
    return name


def workload_to(load: Workload) -> Plain:
    """Fields that differ from the default."""
    plain: Plain = {}
    for field in fields(load):
        value = getattr(load, field.name)
        if field.name != "sla" and value is not None and value != field.default:
            plain[field.name] = str(value) if field.name in ("objective", "sensitivity") else value
    limits = {"ttft_ms": load.sla.ttft_ms, "tpot_ms": load.sla.tpot_ms}
    sla = {name: value for name, value in limits.items() if value is not None}
    return plain | ({"sla": sla} if sla else {})


def workload_from(plain: object) -> Workload:
    """Raises BadInput."""
    given = mapping(plain, "workload")
    known(given, {field.name for field in fields(Workload)}, "workload")
    sla = mapping(given.get("sla", {}), "workload.sla")
    known(sla, ("ttft_ms", "tpot_ms"), "workload.sla")
    values: Plain = {name: _load_value(name, value) for name, value in given.items() if name != "sla"}
    limits = {name: number(value, f"workload.sla.{name}", least=0.0) for name, value in sla.items()}
    return Workload(**values, sla=Sla(**limits))


def _load_value(name: str, value: object) -> object:
    where = f"workload.{name}"
    if name in ("objective", "sensitivity"):
        kind = Objective if name == "objective" else Sensitivity
        if value not in list(kind):
            raise BadInput(f"{where} is {str(value)[:40]!r}, one of {', '.join(kind)}")
        return kind(str(value))
    if name == "name":
        return text(value, where)
    if name == "request_rate":
        return number(value, where, least=0.0)
    return whole(value, where, least=0 if name in ("context", "shared_prefix_tokens") else 1)


def measurement_to(measured: Measurement) -> Plain:
    """Figures as [low, mid, high]."""
    plain: Plain = {
        "figures": {name: [float(x) for x in value] for name, value in measured.figures},
        "repeats": measured.repeats,
        "seconds": float(measured.seconds),
        "tool": measured.tool,
        "at": float(measured.at),
    }
    return plain | ({"workload": workload_to(measured.workload)} if measured.workload else {})


def measurement_from(plain: object) -> Measurement:
    """Raises BadInput: a figure is a positive interval, low ≤ mid ≤ high."""
    given = mapping(plain, "measurement")
    known(given, ("figures", "repeats", "seconds", "tool", "at", "workload"), "measurement")
    figures = mapping(given.get("figures"), "measurement.figures")
    return Measurement(
        tuple(sorted((text(name, "a figure's name"), interval(value, name)) for name, value in figures.items())),
        workload_from(given["workload"]) if "workload" in given else None,
        whole(given.get("repeats", 1), "measurement.repeats", least=1),
        number(given.get("seconds", 0.0), "measurement.seconds", least=0.0),
        text(given.get("tool", ""), "measurement.tool"),
        number(given.get("at", 0.0), "measurement.at", least=0.0),
    )


def quality_to(result: QualityResult) -> Plain:
    """One check."""
    return result._asdict() | {"value": [float(x) for x in result.value], "limit": float(result.limit)}


def quality_from(plain: object) -> QualityResult:
    """Raises BadInput."""
    given = mapping(plain, "quality")
    known(given, QualityResult._fields, "quality")
    return QualityResult(
        text(given.get("check"), "quality.check"),
        interval(given.get("value"), "quality.value", least=-math.inf),
        number(given.get("limit"), "quality.limit"),
        flag(given.get("passed"), "quality.passed"),
        text(given.get("note", ""), "quality.note"),
        number(given.get("at", 0.0), "quality.at", least=0.0),
    )


def readings_to(readings: Readings) -> Plain:
    """An Unknown is a mapping with its why."""
    return {name: {"unknown": value.why} if isinstance(value, Unknown) else value for name, value in readings}


def readings_from(plain: object, where: str) -> Readings:
    """Raises BadInput."""
    return tuple(
        (text(name, where), _reading(value, f"{where}.{name}")) for name, value in sorted(mapping(plain, where).items())
    )


def _reading(value: object, where: str) -> str | Unknown:
    if isinstance(value, dict):
        known(value, ("unknown",), where)
        return Unknown(text(value.get("unknown"), where))
    return text(value, where)


def fingerprint_from(strict: object, loose: object) -> Fingerprint:
    """Raises BadInput where a part holds nothing."""
    found = Fingerprint(readings_from(strict, "fingerprint.strict"), readings_from(loose, "fingerprint.loose"))
    if not (found.strict and found.loose):
        raise BadInput("the fingerprint says nothing", "a profile without one fits nowhere")
    return found


def settings_to(settings: Settings) -> Plain:
    """Names and plain values."""
    return dict(settings)


def settings_from(plain: object, where: str = "settings") -> Settings:
    """Raises BadInput."""
    return tuple(sorted((text(name, where), _scalar(value, where)) for name, value in mapping(plain, where).items()))


def flags_from(plain: object) -> Settings:
    """Flags of vLLM by name, as `settings_from`. Raises BadInput for a name that is none."""
    found = settings_from(plain, "flags")
    for name, _ in found:
        if not (name.startswith("--") and name[2:].replace("-", "").replace(".", "").isalnum()):
            raise BadInput(f"flags holds {name[:40]!r}, which is no flag of vLLM")
    return found


def _scalar(value: object, where: str) -> Scalar:
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise BadInput(f"{where} holds {type(value).__name__}, which is no plain value")


def mapping(value: object, where: str) -> Mapping[str, Any]:
    """Raises BadInput where it is none."""
    if not isinstance(value, dict):
        raise BadInput(f"{where} is missing or no table")
    return value


def known(given: Mapping[str, Any], allowed: Any, where: str) -> None:
    """Raises BadInput for a name that this release does not know."""
    for name in given:
        if name not in allowed:
            raise BadInput(f"{where} has a field {str(name)[:60]!r} that this release does not know")


def text(value: object, where: str) -> str:
    """Raises BadInput."""
    if not isinstance(value, str) or len(value) > _LONGEST or any(ord(c) < 32 and c not in "\n\t" for c in value):
        raise BadInput(f"{where} is no text of at most {_LONGEST} characters")
    return value


def flag(value: object, where: str) -> bool:
    """Raises BadInput."""
    if not isinstance(value, bool):
        raise BadInput(f"{where} is neither true nor false")
    return value


def whole(value: object, where: str, *, least: int) -> int:
    """Raises BadInput."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 62:
        raise BadInput(f"{where} is {str(value)[:40]}, want a whole number of at least {least}")
    return value


def number(value: object, where: str, *, least: float = -math.inf) -> float:
    """Raises BadInput."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < least:
        raise BadInput(
            f"{where} is {str(value)[:40]}, want a number" + (f" of at least {least:g}" if least > -math.inf else "")
        )
    return float(value)


def interval(value: object, where: str, *, least: float = 0.0) -> Interval:
    """Raises BadInput."""
    if not isinstance(value, list) or len(value) != 3:
        raise BadInput(f"{where} is no [low, middle, high]")
    found = Interval(*(number(x, where, least=least) for x in value))
    if not found.low <= found.mid <= found.high:
        raise BadInput(f"{where} is {list(found)}: low, middle, high must rise")
    return found
