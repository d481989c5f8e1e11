"""`advisor pareto` and `advisor report`: plans under every load as a chart, and one answer as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vllm_advisor.cli import options as o
from vllm_advisor.cli.options import examples


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.pareto import Point
    from vllm_advisor.question import Question
    from vllm_advisor.render.chart import Dot

app = o.single()
report = o.single()


@app.command(
    epilog=examples(
        "advisor pareto openai/gpt-oss-120b --gpu 8xH100",
        "advisor pareto Qwen/Qwen3-32B --gpu 4xL40S --levels 1,8,64 --svg plans.svg",
        "advisor pareto Qwen/Qwen3-8B --gpu H100 --json",
    )
)
def pareto(
    model: o.Model,
    gpu: o.GpuName = None,
    node: o.NodeFile = None,
    vllm: o.Vllm = o.DEFAULT_VLLM,
    workload: o.Preset = "chat",
    input_tokens: o.InputTokens = None,
    output_tokens: o.OutputTokens = None,
    context: o.Context = None,
    quantization: o.Quantization = None,
    kv_cache_dtype: o.KvCacheDtype = None,
    this_checkpoint: o.ThisCheckpoint = False,
    allow_plugin: o.AllowPlugin = False,
    levels: Annotated[str, typer.Option(help="Requests in flight at once, comma-separated.")] = "",
    html: Annotated[Path | None, typer.Option(help="Write the chart as one HTML page.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the chart as SVG.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write the chart as PNG (needs the extra `plot`).")] = None,
    json: o.Json = False,
    offline: o.Offline = False,
) -> None:
    """Chart tokens a second a GPU against tokens a second a user, over plans and loads."""
    from vllm_advisor import question
    from vllm_advisor.candidates import Restrictions

    load = question.Load(workload, input_tokens, output_tokens, context=context)
    fixed = Restrictions(quantization, kv_cache_dtype, siblings=not this_checkpoint, allow_plugin=allow_plugin)
    asked = question.Question(model, gpu, node, vllm, load, fixed, offline, None)
    raise typer.Exit(_pareto(asked, _levels(levels), {"html": html, "svg": svg, "png": png}, json=json))


def _levels(text: str) -> tuple[int, ...]:
    from vllm_advisor.errors import UsageError
    from vllm_advisor.pareto import LEVELS

    if not text:
        return LEVELS
    try:
        found = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        found = ()
    if not found or found[0] < 1:
        raise UsageError(f"{text!r} is no list of loads", "write --levels 1,8,64")
    return found


def _pareto(asked: Question, levels: tuple[int, ...], files: dict[str, Path | None], *, json: bool) -> int:
    from vllm_advisor import question
    from vllm_advisor.cli import commands, output
    from vllm_advisor.cli.diagnostics import ExitCode, note
    from vllm_advisor.pareto import frontier, points

    facts, siblings = question.read(asked, note)
    found = points(facts, siblings, asked.restrictions, levels)
    if not found:
        raise commands.nothing_fits(facts)
    best = frontier(found)
    title = f"{facts.model.name} on {facts.node.label}, vLLM {facts.vllm.version}"
    for kind, path in files.items():
        if path:
            _save(kind, path, dots(found, best), title)
    if json:
        output.write_json(_document(title, found, best))
    else:
        output.write(_lines(title, found, best))
    return ExitCode.OK


def dots(found: Sequence[Point], best: Sequence[Point]) -> list[Dot]:
    """The points as the chart takes them, the best in their order."""
    from vllm_advisor.pareto import label
    from vllm_advisor.render.chart import Dot

    chosen = set(map(id, best))
    ordered = [*best, *(p for p in found if id(p) not in chosen)]
    return [
        Dot(p.per_user.mid, p.per_gpu.mid, id(p) in chosen, f"{label(p)} at {p.concurrency} requests") for p in ordered
    ]


def _lines(title: str, found: Sequence[Point], best: Sequence[Point]) -> list[str]:
    from vllm_advisor.cli import output
    from vllm_advisor.pareto import label
    from vllm_advisor.render import chart
    from vllm_advisor.units import significant

    rows = [("", "requests", "plan", "tok/s a GPU", "tok/s a user", "first token")]
    rows += [
        (chart.letter(i), str(p.concurrency), label(p), significant(p.per_gpu.mid), significant(p.per_user.mid),
         f"{significant(p.ranked.estimate.ttft_ms.mid)} ms")
        for i, p in enumerate(best)
    ]  # fmt: skip
    drawn = chart.text(dots(found, best), utf8=output.utf8())
    return [
        output.bold(title),
        "",
        *drawn,
        "",
        output.bold("Nothing beats these in both (estimates)"),
        *output.table(rows),
    ]


def _document(title: str, found: Sequence[Point], best: Sequence[Point]) -> dict[str, Any]:
    from vllm_advisor.cli import document

    chosen = set(map(id, best))
    return {
        "schema": document.SCHEMA,
        "title": title,
        "points": [
            {
                "concurrency": p.concurrency,
                "frontier": id(p) in chosen,
                "output_tok_s_per_gpu": document.interval(p.per_gpu),
                "output_tok_s_per_user": document.interval(p.per_user),
                "mean_ttft_ms": document.interval(p.ranked.estimate.ttft_ms),
                "plan": document.plan(p.ranked.plan),
            }
            for p in found
        ],
    }


def _save(kind: str, path: Path, drawn: list[Dot], title: str) -> None:
    from vllm_advisor.cli.diagnostics import note
    from vllm_advisor.render import chart

    if kind == "png":
        _save_png(path, drawn, title)
    elif kind == "svg":
        _write(path, chart.svg(drawn, title=title) + "\n")
    else:
        from html import escape

        shown = escape(title)
        _write(path, f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{shown}</title></head>'
                     f"<body><h1>{shown}</h1>{chart.svg(drawn, title=title)}</body></html>\n")  # fmt: skip
    note(f"wrote {path}")


def _write(path: Path, text: str) -> None:
    from vllm_advisor.errors import BadInput

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(
            f"{path} cannot be written: {error.strerror}", "name a folder that exists and is yours"
        ) from None


def _save_png(path: Path, drawn: list[Dot], title: str) -> None:
    from vllm_advisor.errors import UsageError

    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("PNG needs matplotlib", "pip install 'vllm-advisor[plot]', or --svg") from None
    figure = Figure(figsize=(8, 4.5), dpi=150)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(xscale="log", yscale="log", title=title)
    axes.set_xlabel("output tokens a second for one user")
    axes.set_ylabel("output tokens a second a GPU")
    others, best = [d for d in drawn if not d.best], [d for d in drawn if d.best]
    axes.scatter([d.x for d in others], [d.y for d in others], s=12, color="0.6")
    axes.plot([d.x for d in best], [d.y for d in best], "o-", color="#00bb66")
    figure.savefig(path, bbox_inches="tight")


@report.command(
    epilog=examples(
        "advisor report openai/gpt-oss-120b --gpu 8xH100 --html plan.html",
        "advisor report ./my-model --node box.json --workload rag --html plan.html",
    )
)
def write_report(
    model: o.Model,
    html: Annotated[Path, typer.Option(help="The file to write.")],
    gpu: o.GpuName = None,
    node: o.NodeFile = None,
    vllm: o.Vllm = o.DEFAULT_VLLM,
    workload: o.Preset = "chat",
    concurrency: o.Concurrency = None,
    context: o.Context = None,
    objective: o.ObjectiveName = None,
    offline: o.Offline = False,
) -> None:
    """Write one self-contained page: hardware, plans, memory, chart, reasons, command."""
    from vllm_advisor import question
    from vllm_advisor.candidates import Restrictions

    load = question.Load(workload, concurrency=concurrency, context=context, objective=objective)
    raise typer.Exit(_report(question.Question(model, gpu, node, vllm, load, Restrictions(), offline, None), html))


def _report(asked: Question, path: Path) -> int:
    from vllm_advisor import __version__, question
    from vllm_advisor.cli import commands
    from vllm_advisor.cli.diagnostics import ExitCode, note
    from vllm_advisor.pareto import LEVELS, frontier, points
    from vllm_advisor.recommend import recommend
    from vllm_advisor.render import chart
    from vllm_advisor.render.page import page

    facts, siblings = question.read(asked, note)
    found = recommend(facts, siblings, asked.restrictions, 5)
    plans = points(facts, siblings, asked.restrictions, LEVELS) if found.plans else ()
    drawn = chart.svg(dots(plans, frontier(plans)), title="Pareto chart")
    shell = commands.rendered(found, "command", annotate=True) if found.plans else ""
    _write(path, page(found, shell, drawn, made=f"vllm-advisor {__version__}"))
    note(f"wrote {path}")
    return ExitCode.OK if found.plans else ExitCode.NO
