"""`tuner serve`: from what was typed to a search, its progress on stderr, its result on stdout and in the store."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor import fingerprint
from vllm_advisor.cli import inputs, options
from vllm_advisor.cli.diagnostics import ExitCode, note
from vllm_advisor.errors import NoFeasiblePlan, UsageError
from vllm_advisor.hardware import Unknown
from vllm_tuner.cli import show, stored
from vllm_tuner.cli.running import running


if TYPE_CHECKING:
    from vllm_advisor.candidates import Restrictions
    from vllm_advisor.facts import Facts, Ranked
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.profile import Fingerprint
    from vllm_advisor.store.profile_store import ProfileStore
    from vllm_advisor.workload import Workload
    from vllm_tuner.budget import Budget
    from vllm_tuner.cli.requests import Given
    from vllm_tuner.cli.running import Running
    from vllm_tuner.cli.stored import Validation
    from vllm_tuner.effort import Effort
    from vllm_tuner.outcome import Outcome
    from vllm_tuner.quality_exam import Level
    from vllm_tuner.serving import Bench
    from vllm_tuner.spaces import Space
    from vllm_tuner.trial import Study, Tell


class Asked(NamedTuple):
    """The question as typed."""

    model: str
    gpu: str | None
    vllm: str | None
    load: inputs.Load
    restrictions: Restrictions
    offline: bool
    only: str
    effort: str
    budget: str | None
    trials: int | None
    requests: Given
    drafts: tuple[str, ...] = ()
    quality: str = "quick"
    profile: str = ""
    against: str = ""


class Where(NamedTuple):
    """Whose vLLM, where logs and results go, how long a start may take, and how progress is told."""

    vllm_python: Path | None
    folder: Path | None
    store: str | None
    allowance_s: float
    json_lines: bool
    svg: Path | None = None
    json: bool = False
    tool: str = "auto"
    price: float | None = None
    prices: Path | None = None


def serve(asked: Asked, where: Where) -> int:
    """Search, show, keep. 0: a plan is chosen, or the profile holds; 1: nothing ran, or it does not."""
    from vllm_advisor.launch import borrowed_signals
    from vllm_advisor.store.profile_store import ProfileStore
    from vllm_tuner.budget import Budget
    from vllm_tuner.effort import effort, seconds
    from vllm_tuner.lease import leased

    row = effort(asked.effort)
    row = row._replace(trials=asked.trials or row.trials)
    budget = Budget(seconds(asked.budget) if asked.budget else row.budget_s)
    level = _level(asked.quality)
    python = _python(where.vllm_python)
    asks = _question(asked, where, python, row)
    study, bench = _study(asked, where, asks.space, python), _bench(asked, where, asks.space, row)
    tell = show.listener(json_lines=where.json_lines)
    tell(show.opened(study, asks.space, budget))
    with borrowed_signals(), ProfileStore.open(where.store) as store, leased(store, study.node, budget):
        try:
            outcome, number = _settled(asks, study, bench, store, (budget, tell, level))
        except BaseException:
            note(f"stopped; finished trials are kept: run the same command again to go on ({study.name})")
            raise
        _show(outcome, bench, number, store, where)
    return ExitCode.OK if (number if asks.validation else outcome.chosen) else ExitCode.NO


def _level(name: str) -> Level | None:
    from vllm_tuner.quality_exam import level

    return level(name) if name else None


class _Question(NamedTuple):
    """The space to search, or a profile to measure again."""

    space: Space
    validation: Validation | None = None
    against: Running | None = None


def _question(asked: Asked, where: Where, python: Path | None, row: Effort) -> _Question:
    if asked.profile and asked.against:
        raise UsageError("--profile measures one plan, --against is for a search", "give one of them")
    if not asked.profile:
        facts = _facts(asked, python)
        runs = running(asked.against, facts, where.store, offline=asked.offline) if asked.against else None
        return _Question(_space(asked, facts, row, runs), against=runs)
    found = stored.find(where.store, asked.profile)
    facts = _facts(asked, python, found.measurement.workload)
    made = stored.validation(found, facts, offline=asked.offline)
    return _Question(made.space, made)


def _settled(
    asks: _Question, study: Study, bench: Bench, store: ProfileStore, how: tuple[Budget, Tell, Level | None]
) -> tuple[Outcome, str]:
    """Tune, and keep what came of it; with the id of its profile, "" for none."""
    from vllm_tuner.lessons import Lessons
    from vllm_tuner.tune import Wish, profile, tune

    budget, tell, level = how
    only = asks.validation.candidate if asks.validation else None
    wish = Wish(level, only, Lessons(), asks.against.candidate if asks.against else None)
    outcome = tune(study, bench, store, budget, tell, wish)
    model = asks.space.facts.model.name
    if asks.validation:
        return outcome, stored.settle(outcome, asks.validation, store, model)
    kept = profile(outcome, model)
    return outcome, store.save_profile(kept) if kept else ""


def _show(outcome: Outcome, bench: Bench, profile: str, store: ProfileStore, where: Where) -> None:
    if where.svg:
        where.svg.write_text(show.svg(outcome) + "\n", encoding="utf-8")
        note(f"wrote {where.svg}")
    if where.json_lines or where.json:
        show.result_json(outcome, bench, profile, lines=where.json_lines)
    else:
        show.result(outcome, bench, profile, str(store.place.shown))


def _python(given: Path | None) -> Path | None:
    """The Python that vLLM runs in: the given one, else the one beside the `vllm` on the PATH (None: not found)."""
    if given is not None:
        return given
    found = shutil.which("vllm")
    if found is None:
        hint = "--vllm-python ~/vllm/bin/python: an environment with `uv pip install vllm`"
        raise UsageError("there is no vllm on the PATH, and a search needs a real one", hint)
    beside = Path(found).parent / "python"
    return beside if beside.exists() else None


def _facts(asked: Asked, python: Path | None, load: Workload | None = None) -> Facts:
    """The machine here, the model, the load (None: as typed), and the version that is installed."""
    if asked.gpu is not None and asked.gpu.strip().lower() != "cpu":
        raise UsageError(f"--gpu {asked.gpu}: a search measures this machine", "leave it out, or --gpu cpu")
    surface = inputs.surface(asked.vllm or _installed(python))
    spec = inputs.model(asked.model, None, offline=asked.offline)
    return inputs.facts(inputs.node(asked.gpu, None), spec, load or _load(asked), surface)


def _load(asked: Asked) -> Workload:
    return asked.requests.planned(inputs.workload(asked.load), asked.load)


def _installed(python: Path | None) -> str:
    found = fingerprint.installed(python).vllm if python else Unknown("not looked for")
    if isinstance(found, Unknown):
        note(f"which vLLM is installed could not be read: taken as {options.DEFAULT_VLLM} (--vllm says otherwise)")
        return options.DEFAULT_VLLM
    return found


def _space(asked: Asked, facts: Facts, row: Effort, runs: Running | None) -> Space:
    from vllm_advisor.recommend import recommend
    from vllm_tuner.spaces import space

    numbers = _numbers(asked.only)
    found = recommend(facts, inputs.siblings(facts.model), asked.restrictions, max(numbers, default=row.plans)).plans
    if not found:
        hint = "`advisor recommend` says what is missing and what would make it fit"
        raise NoFeasiblePlan(f"no plan fits {facts.model.name} on {facts.node.label}", hint)
    picked = _picked(found, numbers)
    if runs and all(ranked.plan != runs.candidate.plan for _, ranked in picked):
        picked.append((len(found) + 1, runs.ranked))
    eager = bool(asked.restrictions.enforce_eager)
    return space(facts, picked, row.breadth, texts=asked.requests.texts, drafts=asked.drafts, eager=eager)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(dict.fromkeys(int(part) for part in text.split(",") if part.strip()))
    except ValueError:
        numbers = (0,)
    if any(number < 1 for number in numbers):
        raise UsageError(f"{text!r} is no list of plans", "write --only 1,3")
    return numbers


def _picked(found: tuple[Ranked, ...], numbers: tuple[int, ...]) -> list[tuple[int, Ranked]]:
    for number in numbers:
        if number > len(found):
            raise UsageError(f"there is no plan {number}: {len(found)} stand", "`advisor recommend` lists them")
    every = list(enumerate(found, 1))
    return [every[number - 1] for number in numbers] or every


def _study(asked: Asked, where: Where, space: Space, python: Path | None) -> Study:
    """What is searched, with what each checkpoint's measurements depend on."""
    from vllm_tuner.trial import Study, study_name

    facts, software = space.facts, fingerprint.installed(python)

    def of(model: ModelSpec) -> Fingerprint:
        return fingerprint.of(facts._replace(model=model), software, fingerprint.checkpoint(model.name))

    found = of(facts.model)
    models = {ranked.model.name: ranked.model for _, ranked in space.plans if ranked.model.name != facts.model.name}
    others = tuple((name, of(model)) for name, model in models.items())
    source = asked.requests.label
    source += f" by {where.tool}" * (where.tool != "own")  # figures of two tools are never compared
    return Study(study_name(facts.model.name, found, facts.workload, source), _host(), found, facts.workload, others)


def _host() -> str:
    import socket

    return socket.gethostname()


def _bench(asked: Asked, where: Where, space: Space, row: Effort) -> Bench:
    from vllm_advisor.cli import price
    from vllm_tuner.bench_tool import Tool
    from vllm_tuner.serving import Bench
    from vllm_tuner.workloads import Shape

    folder = (where.folder or _state_folder()).absolute()  # servers and clients stand in folders of their own
    python = where.vllm_python.absolute() if where.vllm_python else None
    tool, facts = Tool(where.tool, note), space.facts
    shape = Shape(facts.model.vocab_size, min(ranked.plan.max_model_len for _, ranked in space.plans))
    hourly = price.hourly(where.price, where.prices, facts.node)
    source = asked.requests.source(facts, shape)
    return Bench(space, source, row, folder, python, where.allowance_s, tool, hourly)


def _state_folder() -> Path:
    import platformdirs

    return platformdirs.user_state_path("vllm-advisor") / "tuner"
