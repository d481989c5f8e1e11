"""What each subcommand does, in calls to the rooms: read the inputs, ask the engine, hand the answer to `output`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.cli import inputs
from vllm_advisor.cli.diagnostics import ExitCode
from vllm_advisor.errors import NoFeasiblePlan


if TYPE_CHECKING:
    from pathlib import Path

    from vllm_advisor.candidates import Restrictions
    from vllm_advisor.facts import Recommendation


class Question(NamedTuple):
    """What is asked of the engine, as typed."""

    model: str
    gpu: str | None
    node: Path | None
    vllm: str
    load: inputs.Load
    restrictions: Restrictions
    offline: bool
    revision: str | None


class Shape(NamedTuple):
    """How the answer is wanted."""

    fmt: str | None
    top: int
    why_not: bool
    annotate: bool
    json: bool


class Where(NamedTuple):
    """How a server is started: whose vLLM, on which port, where the log goes, how long it may take."""

    vllm_python: Path | None
    port: int
    run_folder: Path | None
    allowance_s: float


def answer(asked: Question, top: int) -> Recommendation:
    """Read everything, then decide."""
    from vllm_advisor.recommend import recommend as decide

    load = inputs.workload(asked.load)
    surface = inputs.surface(asked.vllm)
    spec = inputs.model(asked.model, asked.revision, offline=asked.offline)
    node = inputs.node(asked.gpu, asked.node)
    facts = inputs.facts(node, spec, load, surface)
    return decide(facts, inputs.siblings(spec), asked.restrictions, top)


def recommend(asked: Question, shape: Shape) -> int:
    """`advisor recommend`: the whole answer, or only the deployment in one format."""
    from vllm_advisor.cli import document, output

    if shape.fmt == "python":
        asked = asked._replace(restrictions=asked.restrictions._replace(offline_llm=True))
    found = answer(asked, shape.top)
    if shape.fmt and not found.plans:
        raise _nothing_fits(found)
    if shape.fmt:
        output.write([_rendered(found, shape.fmt, annotate=shape.annotate).rstrip("\n")])
    elif shape.json:
        output.write_json(document.recommendation(found, why_not=shape.why_not))
    else:
        shell = _rendered(found, "command", annotate=shape.annotate) if found.plans else ""
        output.recommendation(found, shell, why_not=shape.why_not)
    return ExitCode.OK if found.plans else ExitCode.NO


def _rendered(found: Recommendation, fmt: str, *, annotate: bool) -> str:
    from vllm_advisor.render import render

    best = found.plans[0]
    facts = found.facts
    return render(
        fmt, best.command, plan=best.plan, model=best.model, node=facts.node, surface=facts.vllm,
        workload=facts.workload, annotate=annotate,
    )  # fmt: skip


def _nothing_fits(found: Recommendation) -> NoFeasiblePlan:
    facts = found.facts
    hint = "`advisor recommend` without --format says what is missing and what would make it fit"
    return NoFeasiblePlan(f"no plan fits {facts.model.name} on {facts.node.label}", hint)


def launch(asked: Question, where: Where) -> int:
    """`advisor launch`: the best plan as a real child, until Ctrl-C."""
    import gc

    from vllm_advisor.launch import session

    gc.enable()
    found = answer(asked, 1)
    if not found.plans:
        raise _nothing_fits(found)
    best = found.plans[0]
    return session.serve(
        best.command,
        vllm_python=where.vllm_python,
        port=where.port,
        run_folder=where.run_folder,
        allowance_s=where.allowance_s,
    )


def probe(save: Path | None, file: Path | None, *, json: bool) -> None:
    """`advisor probe`: the machine, shown and perhaps saved."""
    from vllm_advisor.cli import output
    from vllm_advisor.probe import detect, recorded

    node = recorded.load(file) if file else detect.detect()
    if save:
        recorded.save(node, save)
    if json:
        output.write_json(recorded.to_mapping(node))
    else:
        output.write(output.described(detect.describe(node)))


def matrix(gpu: str | None, vllm: str, *, json: bool) -> None:
    """`advisor matrix`: situation by situation, and the seed's six rows beside."""
    from vllm_advisor.cli import matrix as view
    from vllm_advisor.rules.matrix import matrix as rows

    surface = inputs.surface(vllm)
    device = inputs.node(gpu, None).gpu
    view.show(device, surface, rows(device, surface), json=json)


def gpus(*, json: bool) -> None:
    """`advisor gpus`: the catalog."""
    from vllm_advisor.catalog import gpus as catalog
    from vllm_advisor.cli import listing

    listing.gpus(catalog.all_gpus(), json=json)


def models(part: str, *, json: bool) -> None:
    """`advisor models`: the names that need no network."""
    from vllm_advisor.catalog import models as catalog
    from vllm_advisor.cli import listing

    listing.models([name for name in catalog.names() if part.lower() in name.lower()], json=json)
