"""What is told of the daemon: one JSON document and the same as Prometheus' text (metric names end in their unit)."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor import __version__
from vllm_advisor.hardware import Unknown
from vllm_tuner.daemon.policy_state import Health, Phase
from vllm_tuner.daemon.status import Pages


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vllm_tuner.daemon.drift_reason import Reason
    from vllm_tuner.daemon.permit import Permit
    from vllm_tuner.daemon.policy_state import Mode, State, Unit, Work

SCHEMA = 1


class Snapshot(NamedTuple):
    """One tick's end. `trouble`: what stands against normal work now; `calm`: ticks in a row without any.

    `away`: the unit was stopped for a run.
    """

    at: float
    node: str
    mode: Mode
    leased: bool
    state: State
    reasons: tuple[Reason, ...]
    permits: tuple[Permit, ...]
    work: Work
    unit: Unit
    healthy: bool
    ticks: int
    tick_s: float
    left_out: int
    spent_s: float
    failures: int
    started: float
    trouble: tuple[str, ...] = ()
    calm: int = 0
    away: bool = False


def document(seen: Snapshot) -> dict[str, Any]:
    """For `tuner status --json` and GET /status."""
    state = seen.state
    return {
        "schema": SCHEMA,
        "version": __version__,
        "node": seen.node,
        "at": _day(seen.at),
        "started": _day(seen.started),
        "mode": str(seen.mode),
        "leased": seen.leased,
        "phase": str(state.phase),
        "waiting": state.waiting,
        "attempt": state.attempt,
        "incumbent": state.incumbent or None,
        "candidate": state.candidate or None,
        "previous": state.previous,
        "refused": list(state.refused),
        "work": {"state": str(seen.work.state), "says": seen.work.says},
        "unit": {"health": str(seen.unit.health), "profile": seen.unit.profile or None, "makes_way": seen.away},
        "server": {"answers": seen.healthy},
        "reasons": [reason(one, handled=one.key in state.handled) for one in seen.reasons],
        "against": [{"by": permit.by, "why": permit.why} for permit in seen.permits if not permit.granted],
        "allowance": {"spent_s": round(seen.spent_s, 1), "failures": seen.failures},
        "ticks": seen.ticks,
        "calm_ticks": seen.calm,
        "left_out": seen.left_out,
        "trouble": list(seen.trouble),
    }


def reason(one: Reason, *, handled: bool) -> dict[str, Any]:
    """One reason with its evidence."""
    return {
        "kind": str(one.kind),
        "key": one.key,
        "says": one.says,
        "parts": [str(part) for part in one.parts],
        "since": _day(one.since),
        "answered": handled,
        "evidence": [evidence._asdict() for evidence in one.evidence],
    }


def _day(at: float) -> str | None:
    """None for a moment that is none: a clock may say anything."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else None
    except (ValueError, OverflowError, OSError):
        return None


def pages(seen: Snapshot, healthy_s: float) -> Pages:
    """What is shown until the next tick; `healthy_s` is how old it may become."""
    return Pages(
        json.dumps(document(seen), ensure_ascii=False).encode() + b"\n", text(seen).encode(), recent(healthy_s)
    )


def recent(seconds: float) -> Callable[[], bool]:
    """True until so many seconds have passed."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() < until


def text(seen: Snapshot) -> str:
    """In Prometheus' text format 0.0.4."""
    return "\n".join(_lines(seen)) + "\n"


def _lines(seen: Snapshot) -> Iterator[str]:
    node = f'node="{_escaped(seen.node)}"'
    for name, kind, says, value in _FIGURES(seen):
        yield f"# HELP tuner_{name} {says}"
        yield f"# TYPE tuner_{name} {kind}"
        yield f"tuner_{name}{{{node}}} {value:.10g}"
    yield "# HELP tuner_phase Where the service stands: 1 for the phase that it is in."
    yield "# TYPE tuner_phase gauge"
    for phase in Phase:
        yield f'tuner_phase{{{node},phase="{phase}"}} {int(phase is seen.state.phase)}'
    yield "# HELP tuner_reason A reason to tune again: 1 while it stands unanswered, 0 once it was answered."
    yield "# TYPE tuner_reason gauge"
    for one in seen.reasons:
        yield f'tuner_reason{{{node},kind="{one.kind}"}} {int(one.key not in seen.state.handled)}'


def _FIGURES(seen: Snapshot) -> Iterator[tuple[str, str, str, float]]:  # noqa: N802 - a table
    yield "up", "gauge", "1 while ticks are made.", 1
    yield "leased", "gauge", "1 while this daemon has the node.", int(seen.leased)
    yield "last_tick_timestamp_seconds", "gauge", "When the last tick ended.", seen.at
    yield "ticks_total", "counter", "Ticks since the start.", seen.ticks
    yield "samples_left_out_total", "counter", "Readings that could not be used.", seen.left_out
    yield "attempts_total", "counter", "Tuning runs of this node.", seen.state.attempt
    yield "run_active", "gauge", "1 while a tuning run goes on.", int(seen.work.state == "running")
    yield "allowance_spent_seconds", "gauge", "Spent on tuning today.", seen.spent_s
    yield "failures_in_a_row", "gauge", "Failed attempts since the last that ended well.", seen.failures
    yield "unit_healthy", "gauge", "1 while the managed unit serves.", int(seen.unit.health is Health.HEALTHY)
    yield "server_answers", "gauge", "1 while the watched server's /health answers.", int(seen.healthy)
    yield "refused_profiles", "gauge", "Candidates that were rolled back.", len(seen.state.refused)
    yield "trouble", "gauge", "Things that stand against normal work.", len(seen.trouble)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def why(value: object) -> str:
    """The reason of an Unknown, "" for a value."""
    return value.why if isinstance(value, Unknown) else ""
