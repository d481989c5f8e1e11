"""`tuner files`: vLLM's own tuned files for experts: which names it looks for, what is wrong with them, and proof."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from vllm_advisor.cli import options as o


if TYPE_CHECKING:
    from vllm_advisor.hardware import Node
    from vllm_tuner.vllm_configs.legal import Problem
    from vllm_tuner.vllm_configs.listing import Asked, Listing
    from vllm_tuner.vllm_configs.prove import Heard
    from vllm_tuner.vllm_configs.serverlog import LogVerdict
    from vllm_tuner.vllm_configs.shapes import Shape

_HELP = ("-h", "--help")
_BATCHES = "1,2,4,8,16,32,64,128,256,512,1024,2048"


class ModelFirst(TyperGroup):
    """`tuner files MODEL` is `tuner files list MODEL`; a word that is no command is a model."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `list` in front of what is no command."""
        if args and args[0] not in self.commands and args[0] not in _HELP:
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=ModelFirst,
    help="vLLM's tuned files for experts: which names it looks for, who reads them, and proof.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": list(_HELP)},
    epilog=o.examples(
        "tuner files Qwen/Qwen3-30B-A3B --gpu H100                    # the names that vLLM looks for",
        "tuner files check ./tuned Qwen/Qwen3-30B-A3B --gpu H100      # what is wrong with a folder",
        "tuner files check ./tuned MODEL --prove --vllm-python ~/vllm/bin/python",
        "tuner files check ./tuned MODEL --log server.log             # did the server read them?",
        "tuner files tune ./tuned MODEL --vllm-python ~/vllm/bin/python   # needs a GPU",
        "tuner files keep ./tuned MODEL --vllm-python ~/vllm/bin/python   # does the server win with them?",
    ),
)

Backend = Annotated[str | None, typer.Option("--moe-backend", help="As given to vLLM; else vLLM's own choice.")]
Env = Annotated[
    list[str] | None, typer.Option("--env", help="NAME=VALUE that the server gets (VLLM_ROCM_USE_AITER=1).")
]
DeviceName = Annotated[str | None, typer.Option(help="The device as its driver calls it: NVIDIA H100 80GB HBM3.")]
Redundant = Annotated[int, typer.Option(min=0, help="Copies of experts that EPLB adds.")]
Folder = Annotated[Path | None, typer.Option(help="Tuned folder. Default: VLLM_TUNED_CONFIG_FOLDER.")]
FolderFirst = Annotated[Path, typer.Argument(help="The folder that VLLM_TUNED_CONFIG_FOLDER will name.")]
Python = Annotated[Path | None, typer.Option(help="The Python of an environment that has vLLM.")]


@app.command("list")
def list_(
    model: o.Model,
    gpu: o.GpuName = None,
    node: o.NodeFile = None,
    vllm: o.Vllm = o.DEFAULT_VLLM,
    tp: o.RunTensorParallel = 1,
    dp: o.RunDataParallel = 1,
    ep: o.RunExpertParallel = False,
    quantization: o.RunQuantization = None,
    moe_backend: Backend = None,
    env: Env = None,
    device_name: DeviceName = None,
    redundant_experts: Redundant = 0,
    folder: Folder = None,
    json: o.Json = False,
    offline: o.Offline = False,
) -> None:
    """The names that vLLM will look for, whether they are there, and whether the experts' kernel reads them."""
    from vllm_advisor.cli import output
    from vllm_tuner.vllm_configs import listing as view

    machine = _node(gpu, node)
    plan = _plan(model, tp, dp, quantization, moe_backend, env, ep=ep)
    asked = _asked(model, machine, vllm, plan, device_name, redundant_experts, offline=offline)
    found = view.listing(asked, folder or _folder())
    if json:
        output.write_json(view.record(found))
    else:
        output.write(view.lines(found))


@app.command()
def check(
    folder: FolderFirst,
    model: o.Model,
    gpu: o.GpuName = None,
    node: o.NodeFile = None,
    vllm: o.Vllm = o.DEFAULT_VLLM,
    tp: o.RunTensorParallel = 1,
    dp: o.RunDataParallel = 1,
    ep: o.RunExpertParallel = False,
    quantization: o.RunQuantization = None,
    moe_backend: Backend = None,
    env: Env = None,
    device_name: DeviceName = None,
    redundant_experts: Redundant = 0,
    prove: Annotated[bool, typer.Option("--prove", help="Have vLLM's own loader read the folder.")] = False,
    vllm_python: Python = None,
    log: Annotated[Path | None, typer.Option(help="A server's log: did it read the files?")] = None,
    json: o.Json = False,
    offline: o.Offline = False,
) -> None:
    """What is wrong with a folder of tuned files, a line each. Exit 1: something is, or vLLM did not read it."""
    from vllm_tuner.vllm_configs import listing as view

    machine = _node(gpu, node)
    plan = _plan(model, tp, dp, quantization, moe_backend, env, ep=ep)
    asked = _asked(model, machine, vllm, plan, device_name, redundant_experts, offline=offline)
    _is_folder(folder)
    found = view.listing(asked, folder)
    problems = view.check(found, folder)
    heard = _heard(_needed(vllm_python), machine, found, folder) if prove else None
    verdicts = _logged(log, found, folder) if log else ()
    _show(found, problems, heard, verdicts, json=json)
    good = all(p.level != "error" for p in problems) and (heard is None or all(p.proved for p in heard.proofs))
    raise typer.Exit(0 if good and all(v.state == "read" for v in verdicts) else 1)


@app.command()
def tune(
    folder: FolderFirst,
    model: o.Model,
    vllm_python: Python = None,
    gpu: o.GpuName = None,
    node: o.NodeFile = None,
    vllm: o.Vllm = o.DEFAULT_VLLM,
    tp: o.RunTensorParallel = 1,
    dp: o.RunDataParallel = 1,
    ep: o.RunExpertParallel = False,
    quantization: o.RunQuantization = None,
    moe_backend: Backend = None,
    env: Env = None,
    redundant_experts: Redundant = 0,
    batches: Annotated[str, typer.Option(help="Batch sizes, with commas.")] = _BATCHES,
    strategy: Annotated[str, typer.Option(help="pattern, random, exhaustive or model.")] = "pattern",
    trials: Annotated[int, typer.Option(min=1, help="Tiles to try for a batch size.")] = 60,
    minutes: Annotated[float, typer.Option(min=0.1, help="Time for all of it.")] = 60,
    json: o.Json = False,
    offline: o.Offline = False,
) -> None:
    """Time tiles of vLLM's own kernel on this GPU and write what beats its defaults. Exit 5: no GPU or no vLLM."""
    from vllm_tuner.vllm_configs import tuning
    from vllm_tuner.vllm_configs.listing import listing

    python = _needed(vllm_python)
    plan = _plan(model, tp, dp, quantization, moe_backend, env, ep=ep)
    asked = _asked(model, _node(gpu, node), vllm, plan, None, redundant_experts, offline=offline)
    wanted = tuning.Wanted(tuning.numbers(batches), strategy, trials, minutes * 60)
    results = tuning.run(python, listing(asked, folder), folder, wanted, _tell)
    tuning.show(results, folder, json=json)


@app.command()
def keep(
    folder: FolderFirst,
    model: o.Model,
    vllm_python: Python = None,
    vllm: o.Vllm = o.DEFAULT_VLLM,
    tp: o.RunTensorParallel = 1,
    dp: o.RunDataParallel = 1,
    ep: o.RunExpertParallel = False,
    quantization: o.RunQuantization = None,
    moe_backend: Backend = None,
    env: Env = None,
    workload: o.Preset = "chat",
    concurrency: o.Concurrency = None,
    effort: Annotated[str, typer.Option(help="quick, normal or thorough: rounds and requests.")] = "normal",
    minutes: Annotated[float, typer.Option(min=0.1, help="Time for all of it.")] = 120,
    runs: Annotated[Path | None, typer.Option(help="Where the servers' logs are kept.")] = None,
    json: o.Json = False,
    offline: o.Offline = False,
) -> None:
    """Serve with the folder and without it, in turns; keep the files only if the server wins. Exit 1: taken away."""
    from vllm_tuner.vllm_configs import keeping

    _is_folder(folder)
    machine = _node(None, None)
    plan = _plan(model, tp, dp, quantization, moe_backend, env, ep=ep)
    asked = _asked(model, machine, vllm, plan, None, 0, offline=offline)
    load = keeping.Load(workload, concurrency, effort, minutes * 60)
    played = keeping.run(asked, machine, folder, load, keeping.Where(_needed(vllm_python), runs), tell=_tell)
    keeping.show(played, json=json)
    raise typer.Exit(0 if played.kept.kept else 1)


def _tell(line: str) -> None:
    from vllm_advisor.cli.diagnostics import note

    note(line)


def _folder() -> Path | None:
    named = os.environ.get("VLLM_TUNED_CONFIG_FOLDER")
    return Path(named) if named else None


def _node(gpu: str | None, file: Path | None) -> Node:
    from vllm_advisor.cli import inputs

    return inputs.node(gpu, file)


def _needed(python: Path | None) -> Path:
    from vllm_advisor.errors import UsageError

    if python is None:
        raise UsageError("no vLLM to ask", "--vllm-python takes the Python of an environment with vLLM")
    return python


def _is_folder(folder: Path) -> None:
    from vllm_advisor.errors import BadInput

    if not folder.is_dir():
        raise BadInput(f"{folder} is no folder", "the first word is the folder of tuned files, the second the model")


def _plan(
    model: str, tp: int, dp: int, quantization: str | None, backend: str | None, env: list[str] | None, *, ep: bool
) -> Any:
    from vllm_advisor.errors import UsageError
    from vllm_advisor.plan import Plan

    pairs = [text.partition("=") for text in env or []]
    if not all(equals for _, equals, _ in pairs):
        raise UsageError("--env takes NAME=VALUE", "once for each variable")
    return Plan(
        model, quantization=quantization, tensor_parallel_size=tp, data_parallel_size=dp, enable_expert_parallel=ep,
        moe_backend=backend, env=tuple(sorted((name, value) for name, _, value in pairs)),
    )  # fmt: skip


def _asked(model: str, node: Node, vllm: str, plan: Any, told: str | None, redundant: int, *, offline: bool) -> Asked:
    from vllm_advisor.cli import inputs
    from vllm_tuner.vllm_configs.listing import Asked

    spec = inputs.model(model, None, offline=offline)
    return Asked(spec, plan, inputs.surface(vllm), node.gpu, told or "", redundant)


def _heard(python: Path, node: Node, found: Listing, folder: Path) -> Heard:
    """What vLLM's loader makes of the folder, on this machine's own device where that is the one asked about."""
    from vllm_advisor.vllm.oracle_device import stand_in
    from vllm_tuner.vllm_configs import table
    from vllm_tuner.vllm_configs.prove import prove

    rows = [row for row in found.rows if row.present] or list(found.rows[: len(found.shapes)])
    device = rows[0].file.device
    real = node.origin == "probe" and node.gpu.vendor.value != "cpu"
    played = None if real else stand_in(node)._replace(name=device)
    written = [(shape, table.read(path) if path.is_file() else None) for shape, path in _paths(found, device, folder)]
    return prove(python, played, folder, written)


def _paths(found: Listing, device: str, folder: Path) -> list[tuple[Shape, Path]]:
    return [(shape, folder / shape.file(device).name) for shape in found.shapes]


def _logged(log: Path, found: Listing, folder: Path) -> tuple[LogVerdict, ...]:
    from vllm_tuner.vllm_configs import serverlog

    rows = [row.file.name for row in found.rows if row.present]
    return serverlog.judge(serverlog.read(log), rows, folder)


def _show(
    found: Listing, problems: tuple[Problem, ...], heard: Heard | None, verdicts: tuple[LogVerdict, ...], *, json: bool
) -> None:
    from vllm_advisor.cli import output
    from vllm_tuner.vllm_configs import report

    if json:
        output.write_json(report.record(found, problems, heard, verdicts))
    else:
        output.write(report.lines(found, problems, heard, verdicts))
