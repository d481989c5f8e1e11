"""What operators ask the service: answered by its socket where it runs, by the store where it does not.

Nothing is ordered over the socket: a wish is a row in the store, which the daemon takes up at its next tick.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from vllm_advisor.cli import output
from vllm_advisor.cli.diagnostics import ExitCode, note
from vllm_tuner.daemon import kept, policy_state, start, told
from vllm_tuner.daemon import status as boards
from vllm_tuner.daemon.tenure import lease_name


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vllm_advisor.profile import Event
    from vllm_tuner.daemon.config import Config

SCHEMA = 1
_LEFT = "the unit was stopped for a run: the next daemon starts it, or you do by hand"


def status(path: Path | None, *, metrics: bool, as_json: bool) -> int:
    """Print what the daemon says of itself. 1: none runs, and what the store knows is printed."""
    config = start.read(path)
    page = boards.ask(start.socket_of(config), "/metrics" if metrics else "/status")
    if page is not None:
        sys.stdout.write(page.decode() if metrics else told.shown(page, as_json=as_json))
        return ExitCode.OK
    document = _from_store(config)
    if not metrics:
        sys.stdout.write(told.shown(json.dumps(document).encode(), as_json=as_json))
    holder = document["holder"]
    note(f"no daemon answers at {start.socket_of(config)}" + (f"; {holder} has the node" if holder else ""))
    return ExitCode.NO


def _from_store(config: Config) -> dict[str, Any]:
    node = start.node_of(config)
    with start.opened(config) as store:
        text, holder = store.kept(kept.POLICY, node), store.holder(lease_name(node))
        away = store.kept(kept.AWAY, node)
    try:
        state = policy_state.loads(text) if text else policy_state.State()
    except ValueError:
        state = policy_state.State()
    return {
        "schema": SCHEMA, "node": node, "mode": str(config.mode), "running": False,
        "holder": holder.owner if holder else None, "phase": str(state.phase), "attempt": state.attempt,
        "incumbent": state.incumbent or None, "candidate": state.candidate or None, "previous": state.previous,
        "refused": list(state.refused), "reasons": [], "against": [], "trouble": [_LEFT] if away else [],
    }  # fmt: skip


def wish(what: str, path: Path | None, *, as_json: bool) -> int:
    """Leave a wish for the daemon. 1: no daemon runs, so it stays until one does."""
    config = start.read(path)
    node = start.node_of(config)
    with start.opened(config) as store:
        store.keep(kept.ASKED, node, what)
        holder = store.holder(lease_name(node))
    if as_json:
        output.write_json({"schema": SCHEMA, "asked": what, "node": node, "daemon": holder.owner if holder else None})
    else:
        output.write([f"asked the service on {node}: {what}; `tuner history` shows what came of it"])
    if holder is None:
        note(f"no daemon has {node} now: the wish stays until one does")
        return ExitCode.NO
    return ExitCode.OK


def history(path: Path | None, last: int, kind: str, *, as_json: bool) -> int:
    """Print the node's events, the newest last. 1: there are none."""
    config = start.read(path)
    node = start.node_of(config)
    with start.opened(config) as store:
        events = store.events(last, kind or None, node)[::-1]
    if as_json:
        output.write_json({"schema": SCHEMA, "node": node, "events": [_event(event) for event in events]})
    else:
        output.write([f"{_time(event.at)}  {event.kind:<11} {event.message}" for event in events])
    return ExitCode.OK if events else ExitCode.NO


def _event(event: Event) -> dict[str, Any]:
    return {"at": _time(event.at), "kind": event.kind, "says": event.message, "details": dict(event.details)}


def _time(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "?"


_DECISIONS = ("adopted", "rolled back", "rollback", "kept", "failed", "tuned", "drift")


def why(profile: str, path: Path | None, *, as_json: bool) -> int:
    """Print what stands behind the state of the service, or behind a profile."""
    config = start.read(path)
    if profile:
        return _why_profile(profile, config, as_json=as_json)
    page = boards.ask(start.socket_of(config))
    seen = json.loads(page) if page else _from_store(config)
    with start.opened(config) as store:
        events = [e for e in store.events(200, None, start.node_of(config)) if e.kind in _DECISIONS][:10][::-1]
    if as_json:
        output.write_json({"schema": SCHEMA, "status": seen, "decisions": [_event(event) for event in events]})
        return ExitCode.OK
    lines = [*told.lines(seen), *_evidence(seen)]
    lines += [f"  {_time(event.at)}  {event.kind}: {event.message}" for event in events]
    output.write(lines)
    return ExitCode.OK


def _evidence(seen: dict[str, Any]) -> Iterator[str]:
    for one in seen.get("reasons", ()):
        for evidence in one["evidence"]:
            yield f"    {evidence['name']}: {evidence['then']} → {evidence['now']} {evidence['unit']}".rstrip()


def _why_profile(number: str, config: Config, *, as_json: bool) -> int:
    from vllm_advisor.store import form

    with start.opened(config) as store:
        found = store.profile(number)
        trials = [store.trial(one) for one in found.provenance.trials]
    origin = found.provenance
    if as_json:
        rows = [
            {"trial": t.id, "state": str(t.state), "reason": t.reason, "settings": dict(t.settings)} for t in trials
        ]
        output.write_json({
            "schema": SCHEMA, "profile": found.id, "model": found.model, "note": origin.note, "by": origin.by,
            "measured": form.measurement_to(found.measurement), "trials": rows,
        })  # fmt: skip
        return ExitCode.OK
    lines = [output.bold(f"{found.id} of {found.model}, by {origin.by} on {origin.node} {_time(origin.at)}")]
    lines += [f"  {origin.note}"] if origin.note else []
    lines += [f"  {name} {value.low:.4g} … {value.high:.4g}" for name, value in found.measurement.figures]
    lines += [f"  trial {t.id} {t.state}{f': {t.reason}' if t.reason else ''}" for t in trials]
    output.write(lines)
    return ExitCode.OK
