"""What each subcommand does, in calls to the rooms: read the inputs, ask the engine, hand the answer to `output`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor import question
from vllm_advisor.cli import inputs
from vllm_advisor.cli.diagnostics import ExitCode, note
from vllm_advisor.errors import NoFeasiblePlan, UsageError
from vllm_advisor.units import GIB, parse_tokens


if TYPE_CHECKING:
    from pathlib import Path

    from vllm_advisor.estimate import Configuration, Estimated
    from vllm_advisor.facts import Estimate, Facts, Recommendation
    from vllm_advisor.question import Question


class Shape(NamedTuple):
    """How the answer is wanted."""

    fmt: str | None
    top: int
    why_not: bool
    annotate: bool
    json: bool
    recipes: Path | None = None
    price: float | None = None
    prices: Path | None = None


class Where(NamedTuple):
    """How a server is started: whose vLLM, on which port, where the log goes, how long it may take."""

    vllm_python: Path | None
    port: int
    run_folder: Path | None
    allowance_s: float


class Lengths(NamedTuple):
    """The load of an estimate, as typed; nothing given: no speed is asked for."""

    input_tokens: str | None = None
    output_tokens: str | None = None
    concurrency: int | None = None
    request_rate: float | None = None


class Given(NamedTuple):
    """One configuration to estimate, as typed."""

    model: str | None
    gpu: str | None
    node: Path | None
    vllm: str
    configuration: Configuration
    max_model_len: str | None
    kv_gib: float | None
    load: Lengths
    offline: bool
    revision: str | None


class Batch(NamedTuple):
    """Many configurations in a file, and the folder of their models' configs."""

    file: Path | None
    models: Path | None
    given_kv: bool


def recommend(asked: Question, shape: Shape) -> int:
    """`advisor recommend`: the whole answer, or only the deployment in one format."""
    from vllm_advisor.cli import document, measured, output, price

    if shape.fmt and (shape.recipes or shape.prices or shape.price is not None):
        raise UsageError(
            "--format prints the deployment alone", "leave out --recipes, --price and --prices, or --format"
        )
    if shape.fmt == "python":
        asked = asked._replace(restrictions=asked.restrictions._replace(offline_llm=True))
    answer = question.answer(asked, shape.top, note)
    found = answer.found
    if shape.fmt and not found.plans:
        raise nothing_fits(found.facts)
    if shape.fmt:
        output.write([rendered(found, shape.fmt, annotate=shape.annotate).rstrip("\n")])
    elif shape.json:
        hourly = price.hourly(shape.price, shape.prices, found.facts.node)
        answered = document.recommendation(found, why_not=shape.why_not, price=hourly)
        output.write_json(answered | measured.document(answer) | _recipe_document(found, shape))
    else:
        hourly = price.hourly(shape.price, shape.prices, found.facts.node)
        shell = rendered(found, "command", annotate=shape.annotate) if found.plans else ""
        output.recommendation(found, shell, why_not=shape.why_not, price=hourly)
        if below := measured.lines(answer):
            output.write(below)
        _write_recipe(found, shape)
    return ExitCode.OK if found.plans else ExitCode.NO


def _recipe_document(found: Recommendation, shape: Shape) -> dict[str, object]:
    from vllm_advisor.cli import recipes

    return {"recipe": recipes.document(found, shape.recipes)} if shape.recipes else {}


def _write_recipe(found: Recommendation, shape: Shape) -> None:
    from vllm_advisor.cli import output, recipes

    if shape.recipes:
        output.write(["", *recipes.section(found, shape.recipes)])


def rendered(found: Recommendation, fmt: str, *, annotate: bool) -> str:
    """The best plan's deployment in one format."""
    from vllm_advisor.render import render

    best = found.plans[0]
    facts = found.facts
    return render(
        fmt, best.command, plan=best.plan, model=best.model, node=facts.node, surface=facts.vllm,
        workload=facts.workload, annotate=annotate,
    )  # fmt: skip


def nothing_fits(facts: Facts) -> NoFeasiblePlan:
    """The answer where only a plan would do."""
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

    return Given(None, None, None, vllm, Configuration(), None, None, Lengths(), asked.offline, None)


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
    show(found, vetoes, room.fixes(found, inputs.siblings(spec)), _speed(found, asked))
    return ExitCode.OK if found.budget.fits and not vetoes else ExitCode.NO


def _speed(found: Estimated, asked: Given) -> Estimate | None:
    """What the configuration does under the load that was named; a length that was not takes the chat preset's."""
    from vllm_advisor.estimate import speed
    from vllm_advisor.estimate.asked import Asked
    from vllm_advisor.throughput.load import Load
    from vllm_advisor.workload import PRESETS

    usual, load = PRESETS["chat"], asked.load
    if load == Lengths():
        return None
    prompt = parse_tokens(load.input_tokens) if load.input_tokens else usual.input_tokens
    answered = parse_tokens(load.output_tokens) if load.output_tokens else usual.output_tokens
    together = load.concurrency or (None if load.request_rate else usual.concurrency)
    under = Load(prompt, answered, together, load.request_rate)
    return speed.speed(found, _configuration(asked), Asked(under, command=True))


def launch(asked: Question, where: Where, number: int) -> int:
    """`advisor launch`: the plan of this number as a real child, until Ctrl-C. Raises UsageError if there is none."""
    import gc

    from vllm_advisor.launch import session

    gc.enable()
    found = question.answer(asked, number, note).found
    if not found.plans:
        raise nothing_fits(found.facts)
    if number > len(found.plans):
        raise UsageError(f"there is no plan {number}: {len(found.plans)} stand", "`advisor recommend` lists them")
    return session.serve(
        found.plans[number - 1].command,
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


def matrix(gpu: str | None, vllm: str, *, allow_plugin: bool, json: bool) -> None:
    """`advisor matrix`: situation by situation, and the seed's six rows beside."""
    from vllm_advisor.cli import matrix as view
    from vllm_advisor.rules.matrix import matrix as rows

    surface = inputs.surface(vllm)
    device = inputs.node(gpu, None).gpu
    view.show(device, surface, rows(device, surface, allow_plugin=allow_plugin), json=json)


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
