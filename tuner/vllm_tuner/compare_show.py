"""What `tuner compare` says: progress on stderr, columns as they are known, measured beside estimated at the end."""

from __future__ import annotations

import json
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.cli import compare_document, compare_view, output
from vllm_advisor.profile import Event
from vllm_advisor.units import count, significant
from vllm_tuner import compare
from vllm_tuner.cli import show


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm_advisor.compare import Comparison
    from vllm_tuner.budget import Budget
    from vllm_tuner.compare import Column, Figure
    from vllm_tuner.trial import Study, Tell

SCHEMA = 1
_NAMES = (
    "weights", "KV cache", "KV cache size", "full requests", "CUDA graphs", "output", "time a token", "first token",
)  # fmt: skip
_ABREAST = 4  # two numbers and a ratio a column
_EMPTY = "-"
_ACCURACY = "No answer was checked: `advisor compare` says what each format may cost in accuracy."


class Form(StrEnum):
    """How the answer is wanted."""

    TEXT = "text"
    JSON = "json"
    LINES = "json-lines"


class Shown(NamedTuple):
    """Where everything goes."""

    found: Comparison
    form: Form

    @property
    def event(self) -> Tell:
        """Progress: on stderr, or as JSON lines on stdout."""
        return show.listener(json_lines=self.form is Form.LINES)

    def opened(self, study: Study, budget: Budget) -> None:
        """The first event: what is compared."""
        facts, load = self.found.facts, self.found.facts.workload
        message = (
            f"{facts.model.name} on {facts.node.label}, vLLM {facts.vllm.version}: "
            f"{', '.join(row.format.label for row in self.found.rows)}; {count(load.input_tokens)} tokens in, "
            f"{count(load.output_tokens)} out, {load.concurrency} at once"
        )
        details = (("study", study.name), ("left_s", round(budget.left(), 1)))
        self.event(Event("opened", message, study.node, details, time.time()))

    def column(self, column: Column) -> None:
        """A column is known."""
        if self.form is Form.LINES:
            _write({"schema": SCHEMA, "event": "measured", **document(self.found, column)})

    def result(self, done: Sequence[Column]) -> None:
        """All that is known; nothing where no column is."""
        if self.form is Form.TEXT:
            output.write(lines(self.found, done) if done else [])
            return
        base = compare.base(self.found, done)
        answer = {
            "schema": SCHEMA,
            "model": self.found.facts.model.name,
            "node": self.found.facts.node.label,
            "vllm": self.found.facts.vllm.version,
            "layout": self.found.layout or None,
            "ratios_to": base.row.format.key if base else None,
            "columns": [document(self.found, column, base) for column in done],
        }
        if self.form is Form.JSON:
            output.write_json(answer)
        else:
            _write({"event": "result", **answer})


def _write(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def lines(found: Comparison, done: Sequence[Column]) -> list[str]:
    """Measured beside estimated, column by column, and what is behind each."""
    facts, base = found.facts, compare.base(found, done)
    out = [output.bold(f"{facts.model.name} on {facts.node.label}, vLLM {facts.vllm.version}, measured")]
    out.append(
        f"layout {found.layout or _EMPTY}; memory of one device as the engine's log says it; e/m: estimated/measured"
    )
    ran = [column for column in done if column.figures]
    for start in range(0, len(ran), _ABREAST):
        out += ["", *_table(ran[start : start + _ABREAST], base)]
    out.append("")
    for column in done:
        out += _behind(column)
    return [*out, "", _ACCURACY]


def _table(columns: Sequence[Column], base: Column | None) -> list[str]:
    rows = [("", *(column.row.format.label for column in columns))]
    for name in _NAMES:
        figures = [column.figure(name) for column in columns]
        known = next((f for f in figures if f), None)
        if known is not None:
            rows.append((f"{name}, {known.unit}", *(_cell(c, f, base) for c, f in zip(columns, figures, strict=True))))
    return output.table(rows)


def _cell(column: Column, figure: Figure | None, base: Column | None) -> str:
    """`0.25 (0.93 ×), e/m 1.01`; what the log did not say has the estimate alone."""
    if figure is None:
        return _EMPTY
    if figure.measured is None:
        return f"? (estimate {_number(figure.estimated, figure.unit)})" if figure.estimated is not None else _EMPTY
    times = compare.against(base, column, figure.name)
    more = f" ({times:.2f} ×)" if times is not None else ""
    return f"{_number(figure.measured, figure.unit)}{more}" + (
        f", e/m {figure.ratio:.2f}" if figure.ratio is not None else ""
    )


def _number(value: float, unit: str) -> str:
    return count(value) if unit == "tokens" else f"{value:.2f}" if unit == "GiB" else significant(value)


def _behind(column: Column) -> Iterator[str]:
    row = column.row
    state = str(column.state) if column.state else f"not started, {row.verdict}"
    said = f": {column.reason}" if column.reason else ""
    yield from output.wrapped("", f"{output.bold(row.format.label)}: {state}{said}")
    if column.state and row.paths:
        yield from output.wrapped("    ", f"expected: {compare_view.arithmetic(row.paths)}")
    for part, name in column.kernels:
        yield from output.wrapped("    ", f"the log names: {part}: {name}")


def document(found: Comparison, column: Column, base: Column | None = None) -> dict[str, Any]:
    """One column: what was measured, and the estimate as `advisor compare --json` has it."""
    return {
        "format": column.row.format.key,
        "state": str(column.state) if column.state else None,
        "reason": column.reason or None,
        "seconds": round(column.seconds, 1),
        "figures": [_figure(f, compare.against(base, column, f.name)) for f in column.figures],
        "kernels": [list(pair) for pair in column.kernels],
        "estimate": compare_document.column(found, column.row),
    }


def _figure(figure: Figure, times: float | None) -> dict[str, Any]:
    return {
        "name": figure.name,
        "unit": figure.unit,
        "measured": figure.measured,
        "estimated": figure.estimated,
        "low": figure.low,
        "high": figure.high,
        "estimated_over_measured": None if figure.ratio is None else round(figure.ratio, 4),
        "ratio_to_base": None if times is None else round(times, 4),
    }
