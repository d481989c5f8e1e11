"""What a warm-up says: progress on stderr, then the steps, or the first requests of two servers, on stdout."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from vllm_advisor.cli import output
from vllm_advisor.cli.diagnostics import note
from vllm_advisor.units import significant


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_tuner.calibrate.warm_up import Step
    from vllm_tuner.calibrate.warm_up_run import Compared, Done, Outcome
    from vllm_tuner.calibrate.warm_up_send import Door

SCHEMA = 1


def progress(one: Done, count: int, every: int, end: float) -> None:
    """One line on stderr: the time left, and the step that ended."""
    left = max(0.0, end - time.monotonic())
    said = f"refused: {one.error}" if one.error else f"{one.seconds:.2f} s"
    note(f"[{left:.0f} s left] {count} of {every}: {one.step.kind} {one.step.name}, {said}")


def steps(door: Door, done: Sequence[Done], left: Sequence[Step], why: str, *, json: bool) -> None:
    """What was sent to a server; `left` was not, `why` says the reason."""
    from vllm_advisor.vllm.live import shown

    url = shown(door.url)
    if json:
        listed = [_name(step) for step in left]
        output.write_json({"schema": SCHEMA, "url": url, "steps": _records(done), "left_out": listed, "stopped": why})
        return
    slowest = sorted(done, key=lambda one: -one.seconds)[:5]
    rows = [("slowest", "seconds"), *((_name(d.step), f"{d.seconds:.2f}") for d in slowest)]
    refused = [f"  refused: {_name(d.step)}: {d.error}" for d in done if d.error]
    stopped = [f"stopped: {why}; {len(left)} steps are left out: {', '.join(map(_name, left))}"] if why else []
    output.write([output.bold(f"{len(done)} steps at {url}"), *output.table(rows), *refused, *stopped])


def _name(step: Step) -> str:
    return f"{step.kind} {step.name}"


def _records(done: Sequence[Done]) -> list[dict[str, Any]]:
    return [
        {
            "kind": d.step.kind, "name": d.step.name, "seconds": round(d.seconds, 4), "ttft_s": round(d.ttft_s, 4),
            "error": d.error,
        }
        for d in done
    ]  # fmt: skip


def outcome(found: Outcome, todo: Sequence[Step], *, json: bool) -> None:
    """Two starts compared; `todo` are all steps, of which some may have been left out."""
    left = [_name(step) for step in todo[len(found.done) :]]
    if json:
        rows = [row._asdict() for row in found.firsts]
        output.write_json({"schema": SCHEMA, "first_requests": rows, "steps": _records(found.done), "left_out": left})
        return
    heading = ("request", "without warm-up", "later ones", "times", "with warm-up", "later ones", "times")
    output.write(
        [
            output.bold("Seconds to the first token of the first request of each kind"),
            *output.table([heading, *map(_row, found.firsts)]),
            f"the warm-up took {sum(d.seconds for d in found.done):.1f} s for {len(found.done)} steps",
            *([f"left out for time: {', '.join(left)}"] if left else []),
            "Keep it: tuner calibrate warm-up --script warm_up.py -- vllm serve …",
        ]
    )


def _row(row: Compared) -> tuple[str, ...]:
    without, warm = _figures(row.without_s, row.without_later_s), _figures(row.with_s, row.with_later_s)
    return (row.name, *without, *warm)


def _figures(first: float, later: float) -> tuple[str, str, str]:
    return (f"{first:.3f}", f"{later:.3f}", f"{significant(first / later, 2)}×" if later else "?")
