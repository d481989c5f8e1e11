"""An answer of the engine in lines and cells: the words of the plans' table and panes. No figure is made here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from vllm_advisor.tui.glyphs import UTF8
from vllm_advisor.tui.messages import Failed
from vllm_advisor.tui.widgets.plot import Spot
from vllm_advisor.tui.widgets.rows import grid
from vllm_advisor.units import count, gib, milliseconds, significant


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.table import Table

    from vllm_advisor.errors import AdvisorError
    from vllm_advisor.facts import Finding, Miss, Ranked, Recommendation, Remedy
    from vllm_advisor.hardware import Node
    from vllm_advisor.pareto import Point
    from vllm_advisor.plan import Plan
    from vllm_advisor.question import Answer
    from vllm_advisor.tui.glyphs import Glyphs
    from vllm_advisor.units import Interval

_HEADS = (
    ("#", 4),
    ("plan", 14),
    ("weights", 16),
    ("KV", 5),
    ("context", 10),
    ("tok/s", 7),
    ("ms/tok", 7),
    ("first", 9),
)
_RIGHT = frozenset(("#", "context", "tok/s", "ms/tok", "first"))
_NARROW, _MORE = 80, 30  # columns beyond which names of weights have more room, and how much at most


def columns(wide: int) -> tuple[str, ...]:
    """Heads, padded to widths that stay the same, so that nothing jumps while a slider moves."""
    return tuple(_padded(name, name, width) for name, width in _widths(wide))


def _widths(wide: int) -> list[tuple[str, int]]:
    more = min(_MORE, max(0, wide - _NARROW))
    return [(name, width + (more if name == "weights" else 0)) for name, width in _HEADS]


def _padded(name: str, text: str, width: int, dots: str = "~") -> str:
    cut = text if len(text) < width else text[: width - 2] + dots
    return cut.rjust(width) if name in _RIGHT else f" {cut}".ljust(width)


def headline(answer: Answer) -> str:
    """How many plans stand, and for what."""
    found = answer.found
    facts = found.facts
    where = f"{facts.model.name}, {facts.node.label}, vLLM {facts.vllm.version}"
    if not found.plans:
        words = "no plan fits" if found.verdict == "does not fit" else "it cannot be told what fits"
        return f"{words}: {where}"
    stand = "1 plan" if found.accepted == 1 else f"{found.accepted} plans"
    return f"{stand} ({len(found.rejected)} rejected), {where}"


def kind(ranked: Ranked) -> tuple[object, ...]:
    """What makes a plan the same one under another load."""
    plan = ranked.plan
    return plan.checkpoint, plan.layout, plan.quantization, plan.kv_cache_dtype


def rows(answer: Answer, glyphs: Glyphs, wide: int) -> list[tuple[Text, ...]]:
    """A row a plan. `=` marks a tie with the first, `m` what was measured here."""
    from vllm_advisor.score import ties

    tied = set(ties(answer.found.plans, answer.found.facts.workload))
    measured = bool(answer.outcome and answer.outcome.measured)
    asked, dots = answer.found.facts.model.name, "…" if glyphs == UTF8 else "~"
    marks = ["m" if measured and i == 0 else "=" if i in tied else " " for i in range(len(answer.found.plans))]
    return [
        tuple(Text(_padded(name, cell, width, dots)) for (name, width), cell in zip(_widths(wide), cells, strict=True))
        for cells in (
            _cells(ranked, f"{mark}{i:>2}", asked)
            for i, (ranked, mark) in enumerate(zip(answer.found.plans, marks, strict=True), 1)
        )
    ]


def _cells(ranked: Ranked, number: str, asked: str) -> tuple[str, ...]:
    plan, speed = ranked.plan, ranked.estimate
    return (
        number, plan.layout, weights(ranked, asked), plan.kv_cache_dtype[:4], count(plan.max_model_len),
        significant(speed.output_tok_s.mid), significant(speed.tpot_ms.mid), milliseconds(speed.ttft_ms.mid),
    )  # fmt: skip


def weights(ranked: Ranked, asked: str) -> str:
    """`fp8_per_channel online`, or the scheme of the checkpoint and, for a sibling, whose it is."""
    if ranked.plan.quantization:
        return f"{ranked.plan.quantization} online"
    scheme = ranked.model.quantization.scheme
    return scheme if ranked.model.name == asked else f"{scheme} {ranked.model.name}"


def devices(ranked: Ranked, node: Node) -> str:
    """Whose memory the bar shows: every device of the plan holds the same, the least of them is shown."""
    used, all_of_it, size = ranked.plan.world_size, node.world, gib(ranked.budget.total)
    if node.world == 1:
        return f"the device, {size}"
    return f"all {used} devices, {size} each" if used == all_of_it else f"{used} of {all_of_it} devices, {size} each"


def speed(answer: Answer, row: int) -> Table:
    """Each figure with its interval, said to be an estimate; what was measured beside it; what it trades."""
    ranked = answer.found.plans[row]
    predicted = ranked.estimate
    figures = (
        ("output", predicted.output_tok_s, "tok/s"),
        ("in and out", predicted.total_tok_s, "tok/s"),
        ("a token", predicted.tpot_ms, "ms"),
        ("first token", predicted.ttft_ms, "ms"),
    )
    rows_ = list(_measured(answer, row))
    rows_ += [(name, f"{_interval(v)} {unit}") for name, v, unit in figures]
    rows_ += [("limited by", f"{predicted.bound}, {significant(predicted.running)} requests in flight")]
    rows_ += [("against 1", ranked.trade)] if ranked.trade else []
    return grid([*rows_, *(("", note) for note in predicted.notes)], "Speed (an estimate, not a measurement)")


def _measured(answer: Answer, row: int) -> Iterator[tuple[str, str]]:
    """What was measured on this very machine, for the first plan alone."""
    from vllm_advisor.profiles_text import summary

    profile = answer.outcome.measured if answer.outcome else None
    if profile and row == 0:
        yield "MEASURED", summary(profile)


def _interval(value: Interval) -> str:
    return f"{significant(value.mid):>6} ({significant(value.low)} to {significant(value.high)})"


def why(ranked: Ranked) -> Table:
    """Every finding of the rules, with its rule and source."""
    return grid(map(_finding, ranked.findings) if ranked.findings else [("", "no rule speaks of it")], "Why")


def _finding(finding: Finding) -> tuple[str, str]:
    hint = f" Hint: {finding.hint}" if finding.hint else ""
    text = f"{finding.level}: {finding.message}.{hint} [{finding.source}]".replace("..", ".")
    return finding.rule, text


def kernels(ranked: Ranked) -> Table:
    """Which kernels vLLM will pick."""
    return grid(ranked.kernels or [("", "none that we know")], "Kernels that vLLM will pick (from its source)")


def spots(points: Sequence[Point], here: Ranked | None) -> list[Spot]:
    """Every plan at every load as a point of the plot, and the one under the cursor at the load that was asked for."""
    from vllm_advisor import pareto

    best = {id(point) for point in pareto.frontier(points)}
    found = [
        Spot(
            p.per_user.mid, p.per_gpu.mid, "best" if id(p) in best else "other",
            _in_words(p.per_gpu.mid, p.per_user.mid, f"{pareto.label(p)} at {p.concurrency}"),
        )
        for p in points
    ]  # fmt: skip
    if here and found:
        per_user, per_gpu = 1000 / here.estimate.tpot_ms.mid, here.estimate.output_tok_s.mid / here.plan.world_size
        found.append(Spot(per_user, per_gpu, "here", _in_words(per_gpu, per_user, "the plan under the cursor")))
    return found


def _in_words(per_gpu: float, per_user: float, what: str) -> str:
    """A point of the plot for those who cannot see it."""
    return f"{significant(per_gpu)} a GPU, {significant(per_user)} a user: {what}"


def misses(answer: Answer, glyphs: Glyphs) -> list[str]:
    """Why nothing fits: the nearest misses with what speaks against each; or what is not known of the model."""
    found = answer.found
    if found.verdict == "cannot tell":
        return ["What is missing:", *(f"{glyphs.warning} {text}" for text in found.facts.model.unknowns)]
    lines = ["The nearest misses:"]
    for miss in found.misses:
        lines.append(f"{glyphs.fails} {label(miss.rejected.plan)}")
        lines += [f"    {finding.rule}: {finding.message}" for finding in _vetoes(miss.rejected.findings)]
    has_any = any(miss.remedies for miss in found.misses)
    return [*lines, "It would fit with (Enter applies one):" if has_any else "No single change makes one of them fit."]


def _vetoes(findings: Iterable[Finding]) -> Iterator[Finding]:
    yield from (finding for finding in findings if finding.level == "veto")


def label(plan: Plan) -> str:
    """What tells one plan from another."""
    return f"{plan.checkpoint}, {plan.layout}, {plan.quantization or 'as it is'}, KV {plan.kv_cache_dtype}"


def remedy(miss: Miss, change: Remedy) -> str:
    """`max_num_seqs 16: 3.2 GiB of KV cache (TP1, as it is)`."""
    plan = miss.rejected.plan
    return (
        f"{change.change}: {gib(change.budget.kv_cache.mid)} of KV cache, {change.budget.max_concurrency:.1f} requests "
        f"({plan.layout}, {plan.quantization or 'as it is'})"
    )


_AGAINST = ("plan", "weights", "KV", "against it", "checkpoint")


def rejected(found: Recommendation) -> tuple[tuple[str, ...], list[tuple[Text, ...]]]:
    """Heads, and a row a rejected plan: what it is, and by which rules; all cells of a column are equally wide."""
    texts = [
        (
            r.plan.layout, r.plan.quantization or "as it is", r.plan.kv_cache_dtype,
            " ".join(dict.fromkeys(f.rule for f in _vetoes(r.findings))), r.plan.checkpoint,
        )
        for r in found.rejected
    ]  # fmt: skip
    widths = [max(map(len, column)) + 2 for column in zip(_AGAINST, *texts, strict=True)]
    heads, *cells = (
        tuple(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (_AGAINST, *texts)
    )
    return heads, [tuple(map(Text, row)) for row in cells]


def reasons(found: Recommendation, row: int) -> Table:
    """Everything that speaks against one rejected plan."""
    item = found.rejected[row]
    return grid(map(_finding, _vetoes(item.findings)), label(item.plan))


def failed(error: AdvisorError) -> Failed:
    """An error as the message that a screen's line shows."""
    return Failed(error.message, error.hint)
