"""A profile in words: one row, titled sections of names and values, and what differs from another one.

The command line prints these, and the wizard draws them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from vllm_advisor.hardware import Unknown
from vllm_advisor.store import form
from vllm_advisor.units import count, milliseconds, rate, significant


if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_advisor.profile import Profile, Readings
    from vllm_advisor.units import Interval

Rows: TypeAlias = "list[tuple[str, str]]"
Difference = tuple[str, str, str, str]
HEAD = ("id", "model", "machine", "plan", "KV", "tok/s out", "load", "is", "on")


def row(profile: Profile) -> tuple[str, ...]:
    """What a list shows, in the order of `HEAD`."""
    speed, load = profile.measurement.figure("output_tok_s"), profile.measurement.workload
    machine = profile.fingerprint.reading("gpus")
    return (
        profile.id,
        profile.model,
        machine if isinstance(machine, str) else "?",
        profile.plan.layout,
        profile.plan.kv_cache_dtype,
        significant(speed.mid) if speed else "–",
        f"{load.input_tokens}/{load.output_tokens} ×{load.concurrency}" if load else "–",
        standing(profile),
        day(profile.measurement.at),
    )


def standing(profile: Profile) -> str:
    """`measured`, `imported` (a prior), or `validated` for an imported one that was measured here."""
    return "validated" if profile.provenance.validated_at else str(profile.provenance.origin)


def day(at: float) -> str:
    """`2026-03-01`, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d") if at else "–"


def sections(profile: Profile) -> list[tuple[str, Rows]]:
    """Everything of one profile; a section or a row with nothing in it is left out."""
    measured = profile.measurement
    how = [("runs", str(measured.repeats)), ("measured", day(measured.at)), ("by", measured.tool)]
    parts: list[tuple[str, Rows]] = [
        ("Plan", _plan(profile)),
        ("Measured", [*_load(profile), *_figures(profile), *how]),
        ("Accuracy", _checks(profile)),
        ("Depends on", _readings(profile.fingerprint.strict)),
        ("Comes from", _origin(profile)),
    ]
    kept = [(title, [found for found in rows if found[1]]) for title, rows in parts]
    return [(title, rows) for title, rows in kept if rows]


def differences(old: Profile, new: Profile) -> list[Difference]:
    """(part, name, old, new) for all that is not the same."""
    return [
        *_unlike("plan", _plan(old), _plan(new)),
        *_unlike("load", _load(old), _load(new)),
        *_unlike("figures", _figures(old), _figures(new)),
        *_unlike("depends on", _readings(old.fingerprint.strict), _readings(new.fingerprint.strict)),
        *_unlike("comes from", [("is", standing(old))], [("is", standing(new))]),
    ]


def _unlike(part: str, old: Iterable[tuple[str, str]], new: Iterable[tuple[str, str]]) -> list[Difference]:
    before, after = dict(old), dict(new)
    names = dict.fromkeys((*before, *after))
    return [(part, n, before.get(n, "–"), after.get(n, "–")) for n in names if before.get(n) != after.get(n)]


def _plan(profile: Profile) -> Rows:
    return _opened(form.plan_to(profile.plan) | form.settings_to(profile.flags))


def _opened(plain: dict[str, Any]) -> Rows:
    """Names and values of a mapping, one level of nesting opened."""
    return [
        (f"{name}.{inner}" if inner else name, str(value))
        for name, outer in plain.items()
        for inner, value in (outer.items() if isinstance(outer, dict) else [("", outer)])
    ]


def _load(profile: Profile) -> Rows:
    load = profile.measurement.workload
    if load is None:
        return []
    rate = f", {load.request_rate:g} requests/s" if load.request_rate else f", {load.concurrency} at once"
    return [("load", f"{count(load.input_tokens)} tokens in, {count(load.output_tokens)} out{rate}")]


def _figures(profile: Profile) -> Rows:
    return [(name, _interval(value)) for name, value in profile.measurement.figures]


def _checks(profile: Profile) -> Rows:
    return [
        (c.check, f"{_interval(c.value)}, limit {c.limit:g}: {'passed' if c.passed else 'FAILED'}")
        for c in profile.quality
    ]


def _origin(profile: Profile) -> Rows:
    origin = profile.provenance
    return [
        ("is", standing(profile)),
        ("by", origin.by),
        ("on", day(origin.at)),
        ("node", origin.node),
        ("source", origin.source),
        ("note", origin.note),
        ("trials", ", ".join(map(str, origin.trials))),
    ]


def _readings(readings: Readings) -> Rows:
    return [(name, f"unknown: {value.why}" if isinstance(value, Unknown) else value) for name, value in readings]


def _interval(value: Interval) -> str:
    if value.low == value.high:
        return significant(value.mid)
    return f"{significant(value.mid)} ({significant(value.low)} to {significant(value.high)})"


def summary(profile: Profile) -> str:
    """`on 2026-03-01: 1,234 tok/s, 20 ms a token, 300 ms to the first (5 runs, vllm bench serve)`."""
    measured = profile.measurement
    day = datetime.fromtimestamp(measured.at, UTC).strftime("on %Y-%m-%d") if measured.at else "on a day not recorded"
    shapes: Iterable[tuple[str, str]] = (
        ("output_tok_s", "{}"),
        ("tpot_ms", "{} a token"),
        ("ttft_ms", "{} to the first"),
    )
    figures = ((shape, name, measured.figure(name)) for name, shape in shapes)
    parts = [
        shape.format(rate(v.mid) if name == "output_tok_s" else milliseconds(v.mid)) for shape, name, v in figures if v
    ]
    runs = f"{measured.repeats} run{'s' * (measured.repeats > 1)}"
    return f"{day}: {', '.join(parts) or 'no speed'} ({', '.join(filter(None, (runs, measured.tool)))})"
