"""Calibrations in the store: what a run found by tensor, expert and module, and what was kept before."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Any

from vllm_advisor import fingerprint
from vllm_advisor.cli import output
from vllm_advisor.cli.diagnostics import ExitCode, note
from vllm_advisor.errors import StoreError
from vllm_advisor.hardware import Unknown
from vllm_advisor.profile import Calibration as Kept
from vllm_tuner.calibrate import overlay
from vllm_tuner.calibrate.proposals import ignore_list


if TYPE_CHECKING:
    from pathlib import Path

    from vllm_advisor.store.profile_store import ProfileStore
    from vllm_tuner.calibrate.run import Calibration

SCALES, EXPERTS, ERROR = "kv_scales", "experts", "error"


def records(found: Calibration, model: Path, out: Path | None) -> tuple[Kept, ...]:
    """KV scales by tensor, tokens by expert, output errors by module and format; what was not measured is left out."""
    revision = fingerprint.checkpoint(str(model)).revision
    made = [(SCALES, _scales(found), _scales_summary(found, out))]
    if found.coverage:
        experts = {f"model.layers.{e.layer}.experts.{e.expert}": float(e.tokens) for e in found.coverage.experts}
        made.append((EXPERTS, experts, f"{len(found.coverage.cold())} of {len(experts)} experts stayed cold"))
    if found.module_losses:
        errors = {f"{m.fmt}:{m.module}": m.output_error for m in found.module_losses}
        made.append((ERROR, errors, _loss_summary(found)))
    name, known = str(model.resolve()), "" if isinstance(revision, Unknown) else revision
    return tuple(Kept(kind, name, known, tuple(sorted(values.items())), text) for kind, values, text in made)


def _scales(found: Calibration) -> dict[str, float]:
    return {
        name: value
        for scales in found.scales
        for name, value in zip(overlay.tensor_names(scales.layer), (scales.k, scales.v, scales.q), strict=True)
    }


def _scales_summary(found: Calibration, out: Path | None) -> str:
    said = f"{len(found.scales)} layers from {sum(found.prompts)} tokens"
    return f"{said}; {overlay.serve_command(shlex.quote(str(out.resolve())))}" if out else f"{said}; no overlay written"


def _loss_summary(found: Calibration) -> str:
    formats = dict.fromkeys(loss.fmt for loss in found.module_losses)
    return "; ".join(f"{fmt}: {len(ignore_list(found.module_losses, fmt))} modules left in bf16" for fmt in formats)


def save(found: Calibration, model: Path, out: Path | None, place: str | None) -> None:
    """Keep them. Raises StoreError, also where the store's libraries are not installed."""
    with _open(place) as store:
        for one in records(found, model, out):
            store.save_calibration(one)


def _open(place: str | None) -> ProfileStore:
    try:
        from vllm_advisor.store.profile_store import ProfileStore
    except ModuleNotFoundError as error:
        raise StoreError(f"{error.name} is not installed", "pip install vllm-advisor") from error
    return ProfileStore.open(place)


def show(model: Path, place: str | None, *, json: bool) -> int:
    """All that is kept of a folder. 0, or 1 where nothing is. Raises StoreError."""
    name = str(model.resolve())
    with _open(place) as store:
        found = store.calibrations(name)
    if json:
        output.write_json({"schema": 1, "model": name, "calibrations": [_record(one) for one in found]})
    elif found:
        now = fingerprint.checkpoint(str(model)).revision
        output.write([line for one in found for line in _lines(one, now)])
    else:
        note(f"no calibration of {name} is kept: tuner calibrate {shlex.quote(str(model))}")
    return ExitCode.OK if found else ExitCode.NO


def _record(one: Kept) -> dict[str, Any]:
    return one._asdict() | {"values": dict(one.values)}


def _lines(one: Kept, now: str | Unknown) -> tuple[str, ...]:
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.at))
    other = one.revision and not isinstance(now, Unknown) and one.revision != now
    old = ("  of other weights than are there now: calibrate again",) if other else ()
    return (output.bold(f"{day}  {one.kind}, {len(one.values)} values"), *output.wrapped("  ", one.summary), *old)
