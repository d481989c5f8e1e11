"""All of stdout: the command first, then the why. Colour and width follow the terminal; a pipe gets plain text."""

from __future__ import annotations

import json
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from vllm_advisor.score import settled_by, ties
from vllm_advisor.throughput.cost import per_million_output
from vllm_advisor.units import count, gib, milliseconds, significant


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from vllm_advisor.facts import Finding, MemoryBudget, Miss, Ranked, Recommendation
    from vllm_advisor.units import Interval

_BAR = 32
_PIPE_WIDTH = 120
_BOLD, _DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"


def write_json(value: dict[str, Any]) -> None:
    """One JSON document; never wrapped, never coloured."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write(lines: Iterable[str]) -> None:
    """Lines of text, in one call."""
    sys.stdout.write("\n".join(lines) + "\n")


def recommendation(answer: Recommendation, shell: str, *, why_not: bool, price: float | None = None) -> None:
    """The whole answer as text; `shell` is the best plan's command, `price` that of one device an hour, if known."""
    lines = [*_header(answer), ""]
    lines += [shell.rstrip(), "", *_plans(answer, price), ""] if answer.plans else [*_no_plan(answer), ""]
    if answer.plans:
        best = answer.plans[0]
        lines += [*_memory(best), "", *_speed(best), "", *_kernels(best), *_reasons("Why", best.findings)]
        lines += _remarks(best)
    lines += _rejected(answer) if why_not else _rejected_count(answer)
    write(lines)


def _header(answer: Recommendation) -> Iterator[str]:
    facts, load = answer.facts, answer.facts.workload
    context = (
        f"{count(load.context)} asked for" if load.context else f"the model's own {count(facts.model.max_position)}"
    )
    yield bold(f"{facts.model.name} on {facts.node.label}, vLLM {facts.vllm.version}")
    yield (
        f"{load.name}: {count(load.input_tokens)} tokens in, {count(load.output_tokens)} out, "
        f"{load.concurrency} requests at once, context {context}; objective {load.objective}"
    )
    yield from (dim(f"unverified: {note}") for note in _unverified(answer))
    yield from (dim(f"warning: {warning}") for warning in facts.node.warnings)


def _unverified(answer: Recommendation) -> Iterator[str]:
    gpu, spec = answer.facts.node.gpu, answer.facts.model
    if gpu.unverified:
        yield f"{gpu.name}: {', '.join(gpu.unverified)} (no source read)"
    if spec.provenance in ("assembled", "derived-quant"):
        yield f"{spec.name}: configuration is {spec.provenance}, not the published file"


def _plans(answer: Recommendation, price: float | None) -> list[str]:
    """A table, best first, and below it what each other plan trades and which cannot be told apart."""
    header = ("", "plan", "weights", "KV", "context", "tok/s out", "ms/token", "first token")
    asked = answer.facts.model.name
    rows = [header, *(_plan_row(i, plan, asked) for i, plan in enumerate(answer.plans, 1))]
    if price is not None:
        costs = ["cost of 1M out", *(_cost(plan, price) for plan in answer.plans)]
        rows = [(*row, cost) for row, cost in zip(rows, costs, strict=True)]
    trades = [f"  {i}  {p.trade}" for i, p in enumerate(answer.plans, 1) if p.trade]
    title = [bold("Plans, best first (speeds are estimates at this load, middle of the interval)")]
    return [*title, *table(rows), *(["Against plan 1:", *trades] if trades else []), *_ties(answer)]


def _ties(answer: Recommendation) -> Iterator[str]:
    tied = ties(answer.plans, answer.facts.workload)
    if tied:
        numbers = ", ".join(str(position + 1) for position in tied)
        yield f"Plans {numbers} are a tie: the estimates cannot tell them apart; {settled_by(tied)}"


def _cost(ranked: Ranked, price: float) -> str:
    return significant(per_million_output(ranked.estimate, ranked.plan.world_size, price).mid)


def _plan_row(number: int, ranked: Ranked, asked: str) -> tuple[str, ...]:
    plan, speed = ranked.plan, ranked.estimate
    return (
        str(number),
        plan.layout,
        weights_label(ranked, asked),
        plan.kv_cache_dtype,
        count(plan.max_model_len),
        significant(speed.output_tok_s.mid),
        significant(speed.tpot_ms.mid),
        milliseconds(speed.ttft_ms.mid),
    )


def weights_label(ranked: Ranked, asked: str) -> str:
    """`fp8_per_channel online`, or the scheme of the checkpoint and, for a sibling, whose it is."""
    if ranked.plan.quantization:
        return f"{ranked.plan.quantization} online"
    scheme = ranked.model.quantization.scheme
    return scheme if ranked.model.name == asked else f"{scheme} ({ranked.model.name})"


def _memory(best: Ranked) -> list[str]:
    budget = best.budget
    title = bold(f"Memory of plan 1, a device of {gib(budget.total)} (vLLM may take {gib(budget.requested)})")
    whole = (
        f"  the whole checkpoint is {gib(best.model.weight_bytes)} of weights, {count(best.model.params)} parameters"
    )
    return [title, *memory_bars(budget), whole]


def memory_bars(budget: MemoryBudget) -> list[str]:
    """One bar a term, all on the scale of the device's memory, and what the KV cache holds."""
    terms = (
        ("weights", budget.weights, ""),
        ("activation", budget.activation.mid, _range(budget.activation)),
        ("CUDA graphs", budget.graphs.mid, _range(budget.graphs)),
        ("non-torch", budget.non_torch.mid, _range(budget.non_torch)),
        ("KV cache", budget.kv_cache.mid, _range(budget.kv_cache)),
        ("not used", budget.total - budget.requested, "left to others"),
    )
    holds = (
        f"  KV cache holds {count(budget.kv_tokens)} tokens: {budget.max_concurrency:.1f} requests of full length, "
        f"longest single request {count(budget.max_context)}"
    )
    return [*(_bar(name, size, budget.total, note) for name, size, note in terms if size), holds]


def _bar(name: str, size: float, total: int, note: str) -> str:
    filled = min(_BAR, max(0, round(size / max(1, total) * _BAR)))
    bar = ("█" if utf8() else "#") * filled + ("░" if utf8() else ".") * (_BAR - filled)
    return f"  {name:<12} {bar} {gib(size):>10}  {note}".rstrip()


def _range(value: Interval) -> str:
    return f"({gib(max(0.0, value.low))} to {gib(value.high)})" if value.high > 0 else "nothing is left"


def _speed(ranked: Ranked) -> list[str]:
    speed = ranked.estimate
    rows = (
        ("output", speed.output_tok_s, "tok/s"),
        ("in and out", speed.total_tok_s, "tok/s"),
        ("per token", speed.tpot_ms, "ms"),
        ("first token", speed.ttft_ms, "ms"),
    )
    title = bold("Predicted speed (an estimate, not a measurement)")
    lines = [
        f"  {name:<12} {significant(v.mid)} {unit} ({significant(v.low)} to {significant(v.high)})"
        for name, v, unit in rows
    ]
    tail = f"  limited by   {speed.bound}, {significant(speed.running)} requests in flight"
    return [title, *lines, tail, *(f"  {note}" for note in speed.notes)]


def _kernels(ranked: Ranked) -> list[str]:
    rows = [f"  {part:<26} {backend}" for part, backend in ranked.kernels]
    return [bold("Kernels that vLLM will pick (read from its source)"), *rows, ""] if rows else []


def _remarks(ranked: Ranked) -> list[str]:
    """What the command cannot say with a flag."""
    remarks = [why for flag, why in ranked.command.notes if not flag]
    return (
        ["", bold("Beside the command"), *(line for why in remarks for line in wrapped("  ", why))] if remarks else []
    )


def _reasons(title: str, findings: Iterable[Finding]) -> list[str]:
    return [bold(title), *(line for finding in findings for line in _finding(finding))]


def _finding(finding: Finding) -> list[str]:
    hint = f" Hint: {finding.hint}" if finding.hint else ""
    text = f"{finding.message}.{hint} [{finding.source}]".replace("..", ".")
    return wrapped(f"  {finding.rule:<7} {finding.level:<10} ", text)


def _no_plan(answer: Recommendation) -> list[str]:
    if answer.verdict == "cannot tell":
        missing = (line for unknown in answer.facts.model.unknowns for line in wrapped("  ", unknown))
        return [bold("It cannot be told whether this model fits; what is missing:"), *missing]
    lines = [bold("No plan fits."), ""]
    for miss in answer.misses:
        lines += _miss(miss)
    return lines


def _miss(miss: Miss) -> list[str]:
    plan = miss.rejected.plan
    label = f"{plan.checkpoint}, {plan.layout}, {plan.quantization or 'as it is'}, KV {plan.kv_cache_dtype}"
    vetoes = [f for f in miss.rejected.findings if f.level == "veto"]
    fixes = [f"    would fit with: {remedy.change}" for remedy in miss.remedies] or [
        "    no single change makes it fit"
    ]
    return [f"Nearest miss: {label}", *(line for f in vetoes for line in _finding(f)), *fixes, ""]


def _rejected_count(answer: Recommendation) -> list[str]:
    if not answer.rejected:
        return []
    shown = f"{answer.accepted} plans stand, {len(answer.plans)} are shown; " if answer.plans else ""
    rejected = "1 was" if len(answer.rejected) == 1 else f"{len(answer.rejected)} were"
    return ["", dim(f"{shown}{rejected} rejected: --why-not says why, with every reason")]


def _rejected(answer: Recommendation) -> list[str]:
    lines = ["", bold(f"Rejected plans ({len(answer.rejected)})" if answer.rejected else "No plan was rejected")]
    for item in answer.rejected:
        plan = item.plan
        lines.append(f"  {plan.checkpoint}  {plan.layout}  {plan.quantization or 'as it is'}  KV {plan.kv_cache_dtype}")
        lines += [line for f in item.findings if f.level == "veto" for line in _finding(f)]
    return lines


def table(rows: Sequence[tuple[str, ...]], *, indent: str = "  ") -> list[str]:
    """Columns as wide as their widest cell; the first row is the header."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [indent + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [dim(lines[0]), *lines[1:]]


def wrapped(prefix: str, text: str) -> list[str]:
    """`text` behind `prefix`, later lines aligned below its start."""
    return textwrap.wrap(
        text, _width(), initial_indent=prefix, subsequent_indent=" " * len(prefix), break_long_words=False,
        break_on_hyphens=False,  # a flag in two lines cannot be copied
    )  # fmt: skip


def bold(text: str) -> str:
    """Bold on a terminal that wants colour, plain elsewhere."""
    return f"{_BOLD}{text}{_RESET}" if _colour() else text


def dim(text: str) -> str:
    """Dim on a terminal that wants colour, plain elsewhere."""
    return f"{_DIM}{text}{_RESET}" if _colour() else text


def described(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """(label, value) rows, values aligned; a value may have several lines."""
    for label, value in rows:
        for i, line in enumerate(value.split("\n")):
            yield from _kept(f"{'' if i else label:<12} ", line)


def _kept(prefix: str, line: str) -> list[str]:
    """A line that fits stays as it is, aligned columns included; a longer one is wrapped."""
    return [(prefix + line).rstrip()] if len(prefix + line) <= _width() else wrapped(prefix, line)


def _colour() -> bool:
    import os

    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def utf8() -> bool:
    """Whether the terminal or pipe takes more than ASCII."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _width() -> int:
    import shutil

    return min(160, shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns) if sys.stdout.isatty() else _PIPE_WIDTH
