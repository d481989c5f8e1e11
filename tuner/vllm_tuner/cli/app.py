"""The `tuner` command: what each subcommand takes, and which function answers. No logic lives here."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from vllm_advisor.cli import options as o
from vllm_tuner.cli import options as t


# Subcommands that live in a module of this package as `app`: imported when they are called.
LATER: dict[str, tuple[str, str]] = {
    "calibrate": ("vllm_tuner.calibrate.cli", "Find KV scales, unseen experts and sensitive layers; warm a server up."),
    "compare": ("vllm_tuner.compare_cli", "Start a model in each format, and set its own figures beside estimates."),
    "kernels": ("vllm_tuner.kernel_tuning.cli", "Search the launches of our kernels on this machine."),
    "files": ("vllm_tuner.vllm_configs.cli", "Name, check, prove and tune the tile files that vLLM reads for experts."),
    "daemon": ("vllm_tuner.daemon.cli.daemon", "Watch a deployment, and tune it again when its plan no longer fits."),
    "status": ("vllm_tuner.daemon.cli.status", "What the daemon of this machine does now."),
    "history": ("vllm_tuner.daemon.cli.history", "What the daemon did, and when."),
    "why": ("vllm_tuner.daemon.cli.why", "What a decision rests on, with its numbers."),
    "adopt": ("vllm_tuner.daemon.cli.adopt", "Say yes to the candidate that waits."),
    "rollback": ("vllm_tuner.daemon.cli.rollback", "Go back to the plan that ran before."),
    "install-service": ("vllm_tuner.daemon.cli.install_service", "Write the daemon's systemd unit."),
}
_SETTINGS = {"help_option_names": ["-h", "--help"]}


class LazyGroup(TyperGroup):
    """`tuner`: the commands below, then those of `LATER`."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every name, in the order of the help."""
        return [*super().list_commands(ctx), *LATER]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, imported now if it is one of `LATER`."""
        if cmd_name not in LATER:
            return super().get_command(ctx, cmd_name)
        command = typer.main.get_command(importlib.import_module(LATER[cmd_name][0]).app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands, from the table where nothing was imported."""
        own = [(name, self.commands[name].get_short_help_str(80)) for name in super().list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([*own, *((name, line) for name, (_, line) in LATER.items())])


app = typer.Typer(
    name="tuner",
    cls=LazyGroup,
    help="Measure vLLM on this machine, compare, and keep what won.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings=_SETTINGS,
    epilog=o.examples("tuner serve Qwen/Qwen3-8B", "tuner serve Qwen/Qwen3-8B --only 1,3 --effort quick"),
)


@app.callback(invoke_without_command=True)
def tuner(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        from vllm_advisor import __version__

        typer.echo(f"vllm-tuner {__version__}")
        raise typer.Exit


@app.command(
    epilog=o.examples(
        "tuner serve Qwen/Qwen3-8B                                      # the best plans of `advisor recommend`",
        "tuner serve Qwen/Qwen3-8B --only 1,2 --effort quick            # settle a tie between two of them",
        "tuner serve Qwen/Qwen3-8B --requests sharegpt.json --objective latency --budget 2h",
        "tuner serve Qwen/Qwen3-8B --requests http://127.0.0.1:8000    # the load that this server has now",
        "tuner serve Qwen/Qwen3-8B --profile 4f1c                       # measure a kept or imported plan here",
        "tuner serve ./my-model --gpu cpu --vllm-python ~/vllm/bin/python --json-lines",
    )
)
def serve(
    model: o.Model,
    only: t.Only = "",
    effort: t.Effort = "normal",
    budget: t.Budget = None,
    trials: t.Trials = None,
    vllm_python: t.VllmPython = None,
    requests: t.Requests = None,
    draft: t.Draft = None,
    tool: t.Tool = "auto",
    price: o.Price = None,
    prices: o.Prices = None,
    gpu: t.Gpu = None,
    vllm: t.Vllm = None,
    workload: o.Preset = "chat",
    input_tokens: o.InputTokens = None,
    output_tokens: o.OutputTokens = None,
    concurrency: o.Concurrency = None,
    context: o.Context = None,
    request_rate: o.RequestRate = None,
    shared_prefix: o.SharedPrefix = None,
    objective: o.ObjectiveName = None,
    ttft_ms: o.Ttft = None,
    tpot_ms: o.Tpot = None,
    sensitivity: o.SensitivityName = None,
    quantization: o.Quantization = None,
    kv_cache_dtype: o.KvCacheDtype = None,
    tp: o.TensorParallel = None,
    enforce_eager: o.Eager = False,
    quality: t.Quality = "quick",
    no_quality: t.NoQuality = False,
    profile: t.ProfileId = "",
    against: t.Against = "",
    this_checkpoint: o.ThisCheckpoint = False,
    start_timeout: t.StartTimeout = 1800,
    folder: t.Folder = None,
    store: t.Store = None,
    svg: t.Svg = None,
    json: o.Json = False,
    json_lines: t.JsonLines = False,
    offline: o.Offline = False,
) -> None:
    """Search the server settings of MODEL on this machine, and compare the best with vLLM's own defaults."""
    from vllm_advisor.candidates import Restrictions
    from vllm_advisor.cli import inputs
    from vllm_tuner.cli import serve as room
    from vllm_tuner.cli.requests import given

    load = inputs.Load(
        workload, input_tokens, output_tokens, concurrency, context, request_rate, shared_prefix, objective,
        ttft_ms, tpot_ms, sensitivity,
    )  # fmt: skip
    eager, siblings = enforce_eager or None, not this_checkpoint
    fixed = Restrictions(quantization, kv_cache_dtype, tp, enforce_eager=eager, siblings=siblings)
    asked = room.Asked(
        model, gpu, vllm, load, fixed, offline, only, effort, budget, trials, given(requests), tuple(draft or ()),
        "" if no_quality else quality, profile, against,
    )  # fmt: skip
    where = room.Where(vllm_python, folder, store, start_timeout, json_lines, svg, json, tool, price, prices)
    raise typer.Exit(room.serve(asked, where))


def main() -> None:
    """The console script: expected failures are one line and an exit code."""
    from vllm_advisor.errors import AdvisorError

    try:
        app()
    except AdvisorError as error:
        from vllm_advisor.cli import diagnostics

        sys.exit(diagnostics.fail(error))
