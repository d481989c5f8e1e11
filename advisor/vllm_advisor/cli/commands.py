"""What each subcommand does, in calls to the rooms: read the inputs, ask the engine, hand the answer to `output`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.cli import inputs
from vllm_advisor.cli.diagnostics import ExitCode
from vllm_advisor.errors import NoFeasiblePlan, UsageError
from vllm_advisor.units import GIB, parse_tokens


if TYPE_CHECKING:
    from pathlib import Path

    from vllm_advisor.candidates import Restrictions
    from vllm_advisor.estimate import Configuration
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


class Given(NamedTuple):
    """One configuration to estimate, as typed."""

    model: str | None
    gpu: str | None
    node: Path | None
    vllm: str
    configuration: Configuration
    max_model_len: str | None
    kv_gib: float | None
    offline: bool
    revision: str | None


class Batch(NamedTuple):
    """Many configurations in a file, and the folder of their models' configs."""

    file: Path | None
    models: Path | None
    given_kv: bool


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


def is_batch(asked: Given, rows: Batch, *, json: bool, vllm: str) -> bool:
    """Whether a file of rows is asked for; raises UsageError for neither one nor a model, and for flags without effect.

    `vllm` is the version that is meant where none was typed.
    """
    if not (rows.file or asked.model):
        raise UsageError("nothing to estimate", "name a MODEL, or rows with --batch")
    if not rows.file and (rows.models or rows.given_kv):
        raise UsageError("--models and --given-kv belong to --batch", "for one model there is --given-kv-gib")
    if rows.file and (asked != _nothing(asked, vllm) or json):
        raise UsageError("--batch takes everything from its rows", "give only --models and --given-kv beside it")
    return rows.file is not None


def _nothing(asked: Given, vllm: str) -> Given:
    """What a command line without any flag of a single estimate comes to."""
    from vllm_advisor.estimate import Configuration

    return Given(None, None, None, vllm, Configuration(), None, None, asked.offline, None)


def estimate_batch(rows: Batch) -> None:
    """`advisor estimate --batch`: a row out for each row in."""
    from vllm_advisor.cli import estimate as view

    if rows.file is not None:
        view.batch(rows.file, rows.models, given_kv=rows.given_kv)


def _configuration(asked: Given) -> Configuration:
    """The flags, with lengths and sizes in tokens and bytes."""
    length = parse_tokens(asked.max_model_len) if asked.max_model_len else None
    kv_bytes = int(asked.kv_gib * GIB) if asked.kv_gib else None
    return asked.configuration._replace(max_model_len=length, kv_cache_memory_bytes=kv_bytes)


def estimate(asked: Given, *, json: bool) -> int:
    """`advisor estimate`: what one configuration takes, and what would make it fit."""
    from vllm_advisor import estimate as room
    from vllm_advisor.cli import estimate as view
    from vllm_advisor.estimate.release import named

    version = named(asked.vllm)
    spec = inputs.model(asked.model or "", asked.revision, offline=asked.offline)
    found = room.estimate(spec, inputs.node(asked.gpu, asked.node), version.surface, _configuration(asked))
    found = found._replace(assumed=version.assumed + found.assumed)
    vetoes = room.objections(spec, found.plan, found.node, found.surface, found.budget)
    show = view.show_json if json else view.show
    show(found, vetoes, room.fixes(found, inputs.siblings(spec)))
    return ExitCode.OK if found.budget.fits and not vetoes else ExitCode.NO


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
