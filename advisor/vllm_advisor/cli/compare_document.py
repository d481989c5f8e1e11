"""The `--json` form of a comparison: explicit keys, the same facts as the table, bytes not rounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_advisor import __version__
from vllm_advisor.cli import document as plain
from vllm_advisor.cli.compare_view import room, speed, to_base, weights


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.compare import Comparison, Row


def document(found: Comparison) -> dict[str, Any]:
    """The answer for `--json`, bytes not rounded."""
    facts = found.facts
    return {
        "schema": plain.SCHEMA,
        "advisor": __version__,
        "vllm": facts.vllm.version,
        "model": plain.model(facts.model),
        "node": plain.node(facts.node),
        "workload": plain.workload(facts.workload),
        "layout": found.layout or None,
        "request_tokens": found.length,
        "ratios_to": found.base.format.key if found.base else None,
        "formats": [column(found, row) for row in found.rows],
    }


def column(found: Comparison, row: Row) -> dict[str, Any]:
    """One format."""
    return {
        "format": row.format.key,
        "name": row.format.label,
        "verdict": row.verdict,
        "moved": row.moved,
        "needs_tensor_parallel_size": row.needs or None,
        "plan": plain.plan(row.plan) if row.plan else None,
        "memory": plain.budget(row.budget) if row.budget else None,
        "requests_together": round(row.together, 2) if row.budget else None,
        "estimate": plain.estimate(row.estimate) if row.estimate else None,
        "ratios": ratios(found, row),
        "arithmetic": [path._asdict() for path in row.paths],
        "accuracy": list(row.accuracy),
        "reasons": [plain.finding(f) for f in row.reasons],
        "command": plain.command(row.command) if row.command else None,
    }


def ratios(found: Comparison, row: Row) -> dict[str, float | None]:
    """Multiples of the base's figures; null for the base itself and where a figure is missing."""
    of: dict[str, Callable[[Row], float]] = {
        "weights": weights,
        "kv_cache": room,
        "kv_bytes_per_token": lambda r: r.budget.kv_bytes_per_token if r.budget else 0.0,
        "requests_together": lambda r: r.together,
        "output_tok_s": lambda r: speed(r, "output_tok_s"),
        "tpot_ms": lambda r: speed(r, "tpot_ms"),
    }
    found_ratios = {name: to_base(found, row, value, across=name == "weights") for name, value in of.items()}
    return {name: None if value is None else round(value, 4) for name, value in found_ratios.items()}
