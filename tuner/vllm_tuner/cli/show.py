"""What `tuner serve` says: progress on stderr, or events as JSON lines on stdout; then the result."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from vllm_advisor.cli import output
from vllm_advisor.profile import Event, TrialState
from vllm_advisor.render import chart
from vllm_advisor.units import milliseconds, significant
from vllm_tuner import pareto, spaces
from vllm_tuner.quality_gate import Accuracy, said
from vllm_tuner.trial import Candidate, candidate_of


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.profile import Trial
    from vllm_advisor.units import Interval
    from vllm_tuner.budget import Budget
    from vllm_tuner.outcome import Outcome
    from vllm_tuner.serving import Bench
    from vllm_tuner.spaces import Space
    from vllm_tuner.trial import Study, Tell

SCHEMA = 1
_UNSAID = ("trial", "left_s", "worth")
_UNITS = {"output_tok_s": "tok/s out", "tpot_ms": "ms/token", "ttft_ms": "ms to the first token"}


def opened(study: Study, space: Space, budget: Budget) -> Event:
    """The first event: what is searched."""
    facts, load = space.facts, space.facts.workload
    message = (
        f"{facts.model.name} on {facts.node.label}, vLLM {facts.vllm.version}; {load.input_tokens} tokens in, "
        f"{load.output_tokens} out, {load.concurrency} at once; objective {load.objective}; {space.size} points"
    )
    return Event("opened", message, study.node, (("study", study.name), ("left_s", round(budget.left(), 1))))


def listener(*, json_lines: bool) -> Tell:
    """Where events go."""
    return _json_line if json_lines else _progress


def _json_line(event: Event) -> None:
    line = {"schema": SCHEMA, "event": event.kind, "message": event.message, "at": event.at} | dict(event.details)
    _write_line(line)


def _write_line(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _progress(event: Event) -> None:
    details = dict(event.details)
    trial = f"trial {details['trial']} " if "trial" in details else ""
    extra = "".join(f", {_named(name, value)}" for name, value in event.details if name not in _UNSAID)
    left = float(details.get("left_s") or 0)
    print(f"[{_clock(left)} left] {trial}{event.message}{extra}", file=sys.stderr, flush=True)  # noqa: T201 - narration


def _named(name: str, value: object) -> str:
    shown = significant(value) if isinstance(value, float) else str(value)
    return f"{shown} {_UNITS[name]}" if name in _UNITS else f"{name} {shown}"


def _clock(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def result(outcome: Outcome, bench: Bench, profile: str, place: str) -> None:
    """All of it as text."""
    lines = [output.bold(f"{len(outcome.trials)} trials of {outcome.study.name}"), *_table(outcome), ""]
    lines += [*_chart(outcome), *_accuracy(outcome), output.bold(_verdict(outcome)), f"  {outcome.says}", ""]
    chosen = candidate_of(outcome.chosen) if outcome.chosen else None
    if chosen:
        lines += _command(bench, chosen)
    lines += ["", f"kept as profile {profile[:12]} in {place}"] if profile else []
    output.write(lines)


def _accuracy(outcome: Outcome) -> Iterator[str]:
    """What the gate compared, and what it could not."""
    judged = [*outcome.refused, *([(outcome.best, outcome.accuracy)] if outcome.best else [])]
    rows = [(trial, accuracy) for trial, accuracy in judged if accuracy != Accuracy()]
    if rows:
        yield output.bold("Accuracy against what was asked for")
    for trial, accuracy in rows:
        verdict = "refused" if accuracy.refused else f"not checked: {accuracy.unchecked}" * bool(accuracy.unchecked)
        figures = "; ".join(said(result) for result in accuracy.results) or accuracy.refused
        yield f"  trial {trial.id} {verdict or 'passed'}{figures and f': {figures}'}"
    if rows:
        yield ""


def _verdict(outcome: Outcome) -> str:
    if outcome.chosen is None:
        return "Nothing ran"
    name = outcome.rival if outcome.chosen.id == outcome.incumbent.id else f"trial {outcome.chosen.id}"
    return f"Chosen: {name}"


def _table(outcome: Outcome) -> list[str]:
    best = {id(point.trial) for point in pareto.frontier(pareto.points(outcome.trials))}
    rows: list[tuple[str, ...]] = [
        ("", "trial", "configuration", "tok/s out", "ms/token", "first token", "repeats", "")
    ]
    rows += [_row(trial, outcome, starred=id(trial) in best) for trial in outcome.trials]
    return [*output.table(rows), "  * nothing beats it in tokens a second and in tokens a user"]


def _row(trial: Trial, outcome: Outcome, *, starred: bool) -> tuple[str, ...]:
    candidate = candidate_of(trial) or Candidate(outcome.incumbent.plan)  # type: ignore[arg-type]
    default = f" ({outcome.rival})" if trial.id == outcome.incumbent.id else ""
    name = spaces.label(candidate, outcome.incumbent.plan) + default
    if trial.measurement is None:
        why = trial.reason if len(trial.reason) <= 60 else f"{trial.reason[:59]}…"
        return ("", str(trial.id), name, "", "", "", "", f"{trial.state}: {why}")
    figure = trial.measurement.figure
    speeds = (_spread(figure("output_tok_s")), _ms(figure("tpot_ms")), _ms(figure("ttft_ms")))
    return ("*" if starred else "", str(trial.id), name, *speeds, str(trial.measurement.repeats), "")


def _spread(value: Interval | None) -> str:
    if value is None:
        return "?"
    half = value.high - value.mid
    return f"{significant(value.mid)} ±{significant(half, 2)}" if half else significant(value.mid)


def _ms(value: Interval | None) -> str:
    return milliseconds(value.mid) if value else "?"


def _dots(outcome: Outcome) -> tuple[list[chart.Dot], tuple[pareto.Point, ...]]:
    """The measured trials for a chart, those that nothing beats first."""
    points = pareto.points(outcome.trials)
    best = pareto.frontier(points)
    ordered = [*best, *(point for point in points if point not in best)]
    return [chart.Dot(p.per_user, p.per_device, p in best, f"trial {p.trial.id}") for p in ordered], best


def _chart(outcome: Outcome) -> Iterator[str]:
    """Where two trials or more were measured."""
    dots, best = _dots(outcome)
    if len(dots) > 1:
        yield output.bold("Measured: tokens a second a device (up) against tokens a second a user (right)")
        yield from chart.text(dots, height=12, utf8=output.utf8())
        yield "  " + ", ".join(f"{chart.letter(i)} trial {p.trial.id}" for i, p in enumerate(best))
        yield ""


def svg(outcome: Outcome) -> str:
    """The same as one SVG element."""
    return chart.svg(_dots(outcome)[0], title=outcome.study.name)


def _command(bench: Bench, chosen: Candidate) -> list[str]:
    """The command as a shell takes it."""
    import shlex

    command = bench.space.command(chosen)
    variables = [f"{name}={shlex.quote(value)}" for name, value in command.env]
    return [" ".join([*variables, shlex.join(command.argv)])]


def result_json(outcome: Outcome, bench: Bench, profile: str, *, lines: bool) -> None:
    """The result as one document, or as the last JSON line."""
    document = _document(outcome, bench, profile)
    _write_line(document) if lines else output.write_json(document)


def _document(outcome: Outcome, bench: Bench, profile: str) -> dict[str, Any]:
    chosen = outcome.chosen
    candidate = candidate_of(chosen) if chosen else None
    command = bench.space.command(candidate) if candidate else None
    decision = outcome.contest.decision if outcome.contest else None
    frontier = {id(p.trial) for p in pareto.frontier(pareto.points(outcome.trials))}
    return {
        "schema": SCHEMA,
        "event": "result",
        "study": outcome.study.name,
        "verdict": outcome.verdict,
        "says": outcome.says,
        "chosen": chosen.id if chosen else None,
        "incumbent": outcome.incumbent.id,
        "gain": _finite(decision.gain) if decision else None,
        "rounds": decision.rounds if decision else 0,
        "profile": profile or None,
        "argv": list(command.argv) if command else None,
        "env": dict(command.env) if command else None,
        "trials": [_trial(trial, outcome, frontier=id(trial) in frontier) for trial in outcome.trials],
    }


def _finite(value: Interval | None) -> list[float | None] | None:
    """JSON has no infinity: an open end is null."""
    return [x if abs(x) < float("inf") else None for x in value] if value else None


def _trial(trial: Trial, outcome: Outcome, *, frontier: bool) -> dict[str, Any]:
    from vllm_advisor.store import form

    measured = trial.measurement
    return {
        "trial": trial.id,
        "state": str(trial.state),
        "reason": trial.reason,
        "plan": form.plan_to(trial.plan) if trial.plan else None,
        "flags": dict(trial.settings),
        "figures": {name: list(value) for name, value in measured.figures} if measured else None,
        "repeats": measured.repeats if measured else 0,
        "frontier": frontier and trial.state is TrialState.COMPLETE,
        "accuracy": _compared(outcome.accuracy_of(trial)),
    }


def _compared(accuracy: Accuracy) -> dict[str, Any] | None:
    """What the gate says of a trial, None where it was not asked."""
    if accuracy == Accuracy():
        return None
    figures = [
        {"check": r.check, "value": _finite(r.value), "limit": r.limit, "passed": r.passed, "note": r.note}
        for r in accuracy.results
    ]
    passed = accuracy.passed and not accuracy.unchecked
    return {
        "trial": accuracy.trial or None,
        "passed": passed,
        "refused": accuracy.refused,
        "unchecked": accuracy.unchecked,
        "figures": figures,
    }
