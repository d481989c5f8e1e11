"""One self-contained HTML page of an answer: no script, no font, no picture from elsewhere; everything is escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from vllm_advisor.units import count, gib, milliseconds, significant


if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vllm_advisor.facts import Finding, MemoryBudget, Ranked, Recommendation
    from vllm_advisor.units import Interval

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem}table{border-collapse:collapse;width:100%}
td,th{border-bottom:1px solid #ddd;padding:.3rem .5rem;text-align:left;vertical-align:top}
td.n,th.n{text-align:right}pre{background:#f4f4f4;padding:1rem;overflow-x:auto}.bar{display:flex;height:1.4rem;
border:1px solid #999}.bar span{display:block;height:100%}.dim{color:#666}code{background:#f4f4f4}
@media print{body{margin:0}}
"""
_COLOURS = ("#3b6ea8", "#c9822b", "#7a5ca8", "#8a8a8a", "#2f9e6b")


def page(answer: Recommendation, shell: str, chart: str, *, made: str) -> str:
    """The page: hardware, load, plans, memory, Pareto chart (an SVG), reasons, command. `made` says by what."""
    title = f"{answer.facts.model.name} on {answer.facts.node.label}"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="dim">{escape(made)}. Every speed is an estimate, none was measured.</p>',
        *_section("Hardware and load", _facts(answer)),
        *(_answered(answer, shell, chart) if answer.plans else _refused(answer)),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>\n'
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _section(title: str, lines: Iterable[str]) -> list[str]:
    return [f"<h2>{escape(title)}</h2>", *lines]


def _answered(answer: Recommendation, shell: str, chart: str) -> list[str]:
    best = answer.plans[0]
    return [
        *_section("Command", [f"<pre>{escape(shell.strip())}</pre>"]),
        *_section("Plans, best first", _plans(answer)),
        *_section("Memory of plan 1, on one device", _memory(best.budget)),
        *_section(
            "Speed for all against speed for one", [chart, '<p class="dim">Green: nothing beats it in both.</p>']
        ),
        *_section("Kernels that vLLM will pick", _table(("part", "kernel"), best.kernels)),
        *_section("Why", _reasons(best.findings)),
        f'<p class="dim">{answer.accepted} plans stand, {len(answer.rejected)} were rejected.</p>',
    ]


def _refused(answer: Recommendation) -> list[str]:
    verdict = "It cannot be told whether this fits." if answer.verdict == "cannot tell" else "No plan fits."
    misses = [line for miss in answer.misses for line in _reasons(miss.rejected.findings)]
    fixes = [f"<li>{escape(r.change)}</li>" for miss in answer.misses for r in miss.remedies]
    return [f"<h2>{verdict}</h2>", *misses, *(["<h2>Would fit with</h2><ul>", *fixes, "</ul>"] if fixes else [])]


def _facts(answer: Recommendation) -> list[str]:
    facts, load = answer.facts, answer.facts.workload
    gpu, spec = facts.node.gpu, facts.model
    lengths = f"{count(load.input_tokens)} tokens in, {count(load.output_tokens)} out"
    said = f"{load.name}: {lengths}, {load.concurrency} requests at once; objective {load.objective}"
    rows = (
        ("machine", f"{facts.node.label}, {gib(gpu.memory_bytes)} a device, {gpu.arch}"),
        ("vLLM", facts.vllm.version),
        ("model", f"{count(spec.params)} parameters, {spec.num_layers} layers, stored in {spec.quantization.scheme}"),
        ("load", said),
        *(("unverified", name) for name in gpu.unverified),
        *(("warning", text) for text in facts.node.warnings),
    )  # fmt: skip
    return _table(("", ""), rows)


def _plans(answer: Recommendation) -> list[str]:
    header = ("", "layout", "weights", "KV", "context", "tok/s out", "ms a token", "first token", "against plan 1")
    return _table(header, [_plan(i, p) for i, p in enumerate(answer.plans, 1)])


def _plan(number: int, ranked: Ranked) -> tuple[str, ...]:
    plan, speed = ranked.plan, ranked.estimate
    weights = f"{plan.quantization} online" if plan.quantization else ranked.model.quantization.scheme
    return (
        str(number), plan.layout, weights, plan.kv_cache_dtype, count(plan.max_model_len),
        _range(speed.output_tok_s), _range(speed.tpot_ms), milliseconds(speed.ttft_ms.mid), ranked.trade,
    )  # fmt: skip


def _range(value: Interval) -> str:
    return f"{significant(value.mid)} ({significant(value.low)} to {significant(value.high)})"


def _memory(budget: MemoryBudget) -> list[str]:
    terms = (
        ("weights", float(budget.weights)),
        ("activation", budget.activation.mid),
        ("CUDA graphs", budget.graphs.mid),
        ("non-torch", budget.non_torch.mid),
        ("KV cache", budget.kv_cache.mid),
    )
    spans = [
        f'<span style="width:{max(0.0, size) / budget.total:.2%};background:{colour}" title="{name}"></span>'
        for (name, size), colour in zip(terms, _COLOURS, strict=True)
    ]
    rows = [(name, gib(size)) for name, size in (*terms, ("not used", float(budget.total - budget.requested)))]
    holds = (
        f"The KV cache holds {count(budget.kv_tokens)} tokens: {budget.max_concurrency:.1f} requests of full length."
    )
    return [f'<div class="bar">{"".join(spans)}</div>', *_table(("term", "size"), rows), f"<p>{escape(holds)}</p>"]


def _reasons(findings: Sequence[Finding]) -> list[str]:
    rows = [(f.rule, f.level, f"{f.message}. {f.hint}".strip(), f.source) for f in findings]
    return _table(("rule", "level", "reason", "source"), rows)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return ["<table>", *([f"<tr>{head}</tr>"] if any(header) else []), *body, "</table>"]
