"""`advisor verify`: vLLM's own verdict on a command, beside ours, part by part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vllm_advisor.cli import options as o
from vllm_advisor.cli import verdict as view
from vllm_advisor.cli.diagnostics import ExitCode, note


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vllm_advisor.check.invocation import Reading
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.vllm.oracle import Oracle
    from vllm_advisor.vllm.surface import Surface

app = o.single(ignore_unknown_options=True)
_STARTS = ("vllm", "python", "python3", "docker", "podman")


@app.command(
    epilog=o.examples(
        "advisor verify Qwen/Qwen3-8B --gpu H100 --vllm-python ~/vllm/bin/python     # what we recommend",
        "advisor verify --gpu 8xMI300X --vllm-python ~/vllm/bin/python -- vllm serve openai/gpt-oss-120b -tp 8",
    )
)
def verify(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] [-- NAME=VALUE … vllm serve …]",
            help="A model, whose recommended command is asked about; or a command behind `--`, of which MODEL, a "
            "folder or a config.json, may be the configuration.",
        ),
    ] = None,
    vllm_python: Annotated[
        Path | None, typer.Option(help="The Python of an environment that has vLLM; it is asked, no GPU is needed.")
    ] = None,
    gpu: o.GpuName = None,
    node: o.NodeFile = None,
    vllm: o.Vllm = o.DEFAULT_VLLM,
    workload: o.Preset = "chat",
    context: o.Context = None,
    concurrency: o.Concurrency = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for each answer of vLLM.")] = 600,
    json: o.Json = False,
    offline: o.Offline = False,
) -> None:
    """Ask vLLM itself whether it takes a command, and which kernels its layers get on a GPU that is not here."""
    from vllm_advisor.cli import inputs
    from vllm_advisor.errors import UsageError
    from vllm_advisor.vllm.oracle import Oracle
    from vllm_advisor.vllm.oracle_device import stand_in

    model, command = split(words or [])
    if vllm_python is None:
        hint = "--vllm-python ~/vllm/bin/python: an environment with `uv pip install vllm`"
        raise UsageError("whose vLLM is to be asked?", hint)
    machine, surface = inputs.node(gpu, node), inputs.surface(vllm)
    load = inputs.Load(workload, context=context, concurrency=concurrency)
    if command:
        ours = _given(command, machine, surface, model, offline=offline)
    elif model:
        ours = _recommended(model, machine, surface, load, offline=offline)
    else:
        raise UsageError("nothing to verify", "name a MODEL, or give a command: -- vllm serve MODEL …")
    config = configuration(ours.model.name if model is None or not Path(model).exists() else model, offline=offline)
    oracle = Oracle(
        vllm_python, stand_in(machine), ours.env, version=surface.version, start_s=timeout, answer_s=timeout
    )
    found = _asked(ours, config, oracle)
    view.show_json(found, machine) if json else view.show(found, machine)
    raise typer.Exit(ExitCode.OK if found.good else ExitCode.NO)


def split(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """MODEL and the command of `[MODEL] [NAME=VALUE …] vllm serve …`, each if it is there."""
    if not words:
        return None, []
    if Path(words[0]).name in _STARTS or "=" in words[0]:
        return None, list(words)
    return words[0], list(words[1:])


def configuration(name: str, *, offline: bool) -> Mapping[str, Any]:
    """The published config.json: of a folder, a file, the Hugging Face cache or the hub.

    Raises UnknownModel where there is none to be had: the catalog knows a model's figures, not its file.
    """
    from vllm_advisor.catalog import hub_files, hub_remote

    path = Path(name)
    if path.is_dir():
        return hub_files.config_of(path, name)
    if path.is_file():
        return hub_files.read_json(path, name)
    snapshot = hub_files.cached(name, None)
    if snapshot is None and (offline or hub_remote.offline_by_environment()):
        raise hub_remote.unreachable(name, "vLLM reads the published config.json, and the network is switched off")
    return hub_files.config_of(snapshot or hub_remote.download(name, None), name)


def _recommended(name: str, node: Node, surface: Surface, load: Any, *, offline: bool) -> view.Ours:
    """The best plan for the model on the machine."""
    from vllm_advisor.candidates import Restrictions
    from vllm_advisor.check import read
    from vllm_advisor.check.parse import parse
    from vllm_advisor.cli import inputs
    from vllm_advisor.errors import NoFeasiblePlan
    from vllm_advisor.recommend import recommend

    facts = inputs.facts(node, inputs.model(name, None, offline=offline), inputs.workload(load), surface)
    found = recommend(facts, (), Restrictions(siblings=False), 1)
    if not found.plans:
        raise NoFeasiblePlan(f"no plan fits {name} on {node.label}", "`advisor recommend` says what is missing")
    best = found.plans[0]
    reading = parse(read.command_line(best.command.argv), surface)
    return view.Ours(best.command.argv, best.command.env, reading, best.model, (), best.kernels)


def _given(command: Sequence[str], node: Node, surface: Surface, model: str | None, *, offline: bool) -> view.Ours:
    """A command of the user's, judged as `advisor check` does; `model` may be where its configuration lies."""
    from vllm_advisor.check import read, report
    from vllm_advisor.check.parse import parse
    from vllm_advisor.cli import inputs
    from vllm_advisor.errors import UsageError

    invocation = read.command_line(command)
    reading = parse(invocation, surface)
    name = model or reading.model
    if name is None:
        raise UsageError("the command names no model", "vllm serve MODEL …")
    spec = inputs.model(name, None, offline=offline)
    judged = report.judge(invocation, surface, node, spec)
    errors = tuple((f.id, f.text) for f in judged.findings if f.level == "error")
    return view.Ours(invocation.argv, invocation.env, reading, spec, errors, _kernels(reading, node, surface, spec))


def _kernels(reading: Reading, node: Node, surface: Surface, spec: ModelSpec) -> tuple[tuple[str, str], ...]:
    """Our picks for a command, () where it comes to no plan."""
    from vllm_advisor.check.configuration import asked, judged
    from vllm_advisor.errors import AdvisorError
    from vllm_advisor.rules.kernels import kernels

    try:
        return kernels(judged(asked(reading, surface), node, spec).case)
    except AdvisorError as error:
        note(f"our own picks cannot be told: {error.message}")
        return ()


def _asked(ours: view.Ours, config: Mapping[str, Any], oracle: Oracle) -> view.Compared:
    """Both verdicts, from a child that lives as long as this."""
    import tempfile

    from vllm_advisor.launch.signals import borrowed_signals
    from vllm_advisor.vllm.oracle_compare import cells
    from vllm_advisor.vllm.oracle_model import write

    note(f"asking vLLM in {oracle.python}: its import takes up to a minute")
    with borrowed_signals(), tempfile.TemporaryDirectory(prefix="vllm-advisor-verify-") as folder:
        model = write(config, Path(folder) / "model")
        with oracle:
            theirs = oracle.ask(about(ours.reading, model))
            return view.Compared(ours, theirs, cells(ours.kernels, theirs), oracle.vllm)
    raise AssertionError("a signal came and was not sent again")  # pragma: no cover


def about(reading: Reading, folder: Path) -> tuple[str, ...]:
    """The command as `vllm serve FOLDER flags…`: whatever started it, and wherever it named its model."""
    from vllm_advisor.check.parse import start_length

    argv = reading.invocation.argv
    left_out = set(range(start_length(argv)))
    named = [s for s in reading.settings if s.flag and s.flag.name == "--model"]
    for setting in named:
        left_out.update(range(setting.word, setting.end))
    taken = left_out | {i for s in reading.settings for i in range(s.word, s.end)} | set(reading.surplus)
    left_out.update(i for i in range(len(argv)) if i not in taken)  # the model in front
    return ("vllm", "serve", str(folder), *(word for i, word in enumerate(argv) if i not in left_out))
