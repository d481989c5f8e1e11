"""What `tuner kernels` says: the results as a table or as JSON, and what the store holds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor import tuned_kernels
from vllm_advisor.cli import output
from vllm_advisor.units import significant
from vllm_tuner.kernel_tuning.attempt import shown
from vllm_tuner.kernel_tuning.subject import last_contest, study_name


if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from vllm_advisor.profile import KernelConfig
    from vllm_advisor.store.profile_store import ProfileStore
    from vllm_advisor.units import Interval
    from vllm_tuner.kernel_tuning.run import Result

SCHEMA = 1


class Row(NamedTuple):
    """A stored launch and what its last comparison said; None where there was none."""

    config: KernelConfig
    speedup: Interval | None


def rows(store: ProfileStore, op: str = "") -> tuple[Row, ...]:
    """All of them, or those of one op, by op and bucket, the newest first."""
    ordered = sorted(store.kernels(op or None), key=lambda c: (c.key.kernel, c.key.bucket, -c.at))
    return tuple(Row(config, _speedup(store, config)) for config in ordered)


def _speedup(store: ProfileStore, config: KernelConfig) -> Interval | None:
    fought = last_contest(store.trials(study_name(config.key)))
    return fought.measurement.figure("speedup") if fought and fought.measurement else None


def listed(found: Sequence[Row]) -> list[str]:
    """The table of `--list`."""
    if not found:
        return ["no tuned launch is stored: tuner kernels MODEL"]
    header = ("kernel", "bucket", "device", "default us", "tuned us", "gain", "kept", "date", "launch")
    return output.table([header, *(_row(row) for row in found)], indent="")


def _row(row: Row) -> tuple[str, ...]:
    config = row.config
    return (
        config.key.kernel,
        config.key.bucket,
        config.key.device,
        significant(config.default_us) if config.default_us else "does not run",
        significant(config.median_us),
        gain(row.speedup),
        "yes" if config.kept else "no",
        datetime.fromtimestamp(config.at, UTC).strftime("%Y-%m-%d"),
        shown(config.settings),
    )


def gain(speedup: Interval | None) -> str:
    """`+12.3 % (+10.1 to +14.0)`; `-` where nothing was compared."""
    if speedup is None:
        return "-"
    low, mid, high = (100 * (x - 1) for x in speedup)
    return f"{mid:+.1f} % ({low:+.1f} to {high:+.1f})"


def document(row: Row) -> dict[str, Any]:
    """A stored launch as JSON."""
    config = row.config
    return {
        **config.key._asdict(),
        "launch": dict(config.settings),
        "default_us": config.default_us or None,
        "median_us": config.median_us,
        "speedup": list(row.speedup) if row.speedup else None,
        "kept": config.kept,
        "at": config.at,
    }


def results(found: Sequence[Result], file: Path | None, store: str) -> list[str]:
    """All of a run as text."""
    if not found:
        return ["no winner of this machine is stored: nothing to time again", *_handed(file)]
    lines = [output.bold(f"{len(found)} problems, {_winners(found)} with a launch that beats the default")]
    header = ("problem", "default us", "tuned us", "gain", "timed", "cannot run", "verdict")
    lines += output.table([header, *(_result_row(result) for result in found)])
    lines += ["", *(f"  {result.says}" for result in found), ""]
    return [*lines, *_handed(file), f"kept in {store}: tuner kernels --list"]


def _winners(found: Iterable[Result]) -> int:
    return sum(result.config is not None and result.config.kept for result in found)


def _result_row(result: Result) -> tuple[str, ...]:
    config, fought = result.config, result.fought
    return (
        result.about.label,
        significant(config.default_us) if config and config.default_us else "?",
        significant(config.median_us) if config else "?",
        gain(fought.speedup if fought else None),
        str(result.timed),
        str(result.infeasible),
        result.verdict,
    )


def _handed(file: Path | None) -> list[str]:
    if file is None:
        return ["nothing to hand over: the defaults stay, and a server needs no file"]
    return [f"a server with our plugin takes the winners with {tuned_kernels.VARIABLE}={file}"]


def result_document(found: Sequence[Result], file: Path | None) -> dict[str, Any]:
    """A run as one JSON value."""
    return {
        "schema": SCHEMA,
        "event": "result",
        "problems": [_problem(result) for result in found],
        "winners": _winners(found),
        "file": str(file) if file else None,
        "env": {tuned_kernels.VARIABLE: str(file)} if file else {},
    }


def _problem(result: Result) -> dict[str, Any]:
    fought, config = result.fought, result.config
    return {
        **result.about.key._asdict(),
        "verdict": result.verdict,
        "says": result.says,
        "points": len(result.about.space.points),
        "timed": result.timed,
        "infeasible": result.infeasible,
        "config": document(Row(config, fought.speedup if fought else None)) if config else None,
        "rounds": fought.decision.rounds if fought else 0,
    }
