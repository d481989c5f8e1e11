"""`tuner calibrate`: a model folder calibrated on real prompts, what earlier runs found, and a server's warm-up."""

from __future__ import annotations

import json as codec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from vllm_advisor.cli import options as o
from vllm_tuner.calibrate.overlay import Form


if TYPE_CHECKING:
    from vllm_tuner.calibrate.run import Calibration, Settings

MODEL = "model"
_HELP = ["-h", "--help"]
_INTERRUPTED = 130


class ModelFirst(TyperGroup):
    """`tuner calibrate FOLDER …` is `tuner calibrate model FOLDER …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command's name in front, where none is."""
        named = bool(args) and args[0] in (*self.commands, *_HELP)
        return super().parse_args(ctx, args if named else [MODEL, *args])


app = typer.Typer(
    cls=ModelFirst,
    help="Calibrate a model on real prompts, or warm a server up before its first user.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": _HELP},
    epilog=o.examples(
        "tuner calibrate ./Qwen3-8B ./Qwen3-8B-kv     # `model` may be left out; its options: calibrate model -h",
        "tuner calibrate list ./Qwen3-8B",
        "tuner calibrate warm-up --url http://127.0.0.1:8000",
    ),
)


@app.command(
    MODEL,
    epilog=o.examples(
        "tuner calibrate ./Qwen3-8B ./Qwen3-8B-kv     # then: vllm serve ./Qwen3-8B-kv --kv-cache-dtype fp8",
        "tuner calibrate ./Qwen3-8B ./out --prompts mine.jsonl --budget 10m",
        "tuner calibrate ./Qwen3-30B-A3B --json       # only measure: cold experts, losses, proposals",
    ),
)
def calibrate(
    model: Annotated[Path, typer.Argument(help="A local model folder, bf16.", show_default=False)],
    out: Annotated[Path | None, typer.Argument(help="A new folder: links to the weights, and the scales.")] = None,
    prompts: Annotated[
        Path | None, typer.Option(help='A line each: text, {"prompt": "…"} or an array of token ids.')
    ] = None,
    tokens: Annotated[int, typer.Option(min=16, help="Tokens of text to run in all.")] = 8192,
    longest: Annotated[int, typer.Option(min=2, help="Tokens of the longest prompt.")] = 2048,
    expert_tokens: Annotated[int, typer.Option(min=1, help="Tokens that each expert should see.")] = 32,
    expert_budget: Annotated[
        int, typer.Option(min=0, help="Tokens of prompts aimed at cold experts, at most.")
    ] = 65_536,
    losses: Annotated[
        bool, typer.Option("--losses/--no-losses", help="Measure what MXFP4 and FP8 weights would cost.")
    ] = True,
    form: Annotated[
        Form, typer.Option(help="How scales are declared; compressed-tensors is not for gfx94x.")
    ] = Form.FP8,
    copy: Annotated[bool, typer.Option("--copy", help="Copy the weights: links don't reach into a container.")] = False,
    seed: Annotated[int, typer.Option(help="Of the aimed prompts.")] = 0,
    budget: Annotated[str | None, typer.Option(help="Time for all of it: 90s, 10m, 2h.")] = None,
    vllm: o.Vllm = o.DEFAULT_VLLM,
    store: Annotated[str | None, typer.Option(help="Where the result is kept: a file or a PostgreSQL address.")] = None,
    keep: Annotated[bool, typer.Option("--keep/--no-keep", help="Keep the result in the store.")] = True,
    json: o.Json = False,
) -> None:
    """Calibrate an FP8 KV cache on real prompts, and name cold experts and sensitive layers.

    Ctrl-C, or the end of --budget, keeps what was found once the scales are known. Exit 2: bad input.
    """
    from vllm_tuner.calibrate.overlay import check_free

    if out is not None:
        check_free(out)
    settings = _settings(tokens, longest, expert_tokens, expert_budget, seed, budget, losses=losses)
    found = _run(model, prompts, settings)
    _write(model, out, found, form, copy=copy)
    if keep:
        _keep(found, model, out, store)
    _print(found, out, form, vllm, json=json)
    raise typer.Exit(_INTERRUPTED if found.stopped == "interrupted" else 0)


@app.command("list", epilog=o.examples("tuner calibrate list ./Qwen3-8B", "tuner calibrate list ./Qwen3-8B --json"))
def listed(
    model: Annotated[Path, typer.Argument(help="The model folder that was calibrated.", show_default=False)],
    store: Annotated[str | None, typer.Option(help="A file or a PostgreSQL address.")] = None,
    json: o.Json = False,
) -> None:
    """Show what earlier calibrations of a model found, the newest first. Exit 1: there is none."""
    from vllm_tuner.calibrate import kept

    raise typer.Exit(kept.show(model, store, json=json))


@app.command(
    "warm-up",
    epilog=o.examples(
        "tuner calibrate warm-up --url http://127.0.0.1:8000                 # a server before its users come",
        "tuner calibrate warm-up --url 127.0.0.1:8000 --budget 1m -- vllm serve ./m --max-num-seqs 64",
        "tuner calibrate warm-up --script warm_up.py -- vllm serve ./m -tp 2 # for ExecStartPost or a startup probe",
        "tuner calibrate warm-up -- vllm serve ./m       # start it twice: what first requests cost, with and without",
    ),
)
def warm_up(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- [NAME=VALUE …] vllm serve …]", help="The server's command, behind `--`."),
    ] = None,
    url: Annotated[str | None, typer.Option("--url", help="A server that runs: http://127.0.0.1:8000.")] = None,
    script: Annotated[
        str | None, typer.Option(help="Write a Python script that needs nothing installed; `-`: to stdout.")
    ] = None,
    paths: Annotated[
        str, typer.Option(help="greedy, sampled, penalties, logprobs, structured, chat: some of them, or all.")
    ] = "all",
    budget: Annotated[str, typer.Option(help="Time for the requests: 90s, 10m.")] = "5m",
    force: Annotated[bool, typer.Option("--force", help="Warm up a server that is busy.")] = False,
    max_num_seqs: Annotated[int | None, typer.Option(min=1, help="Sequences in a batch.")] = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens in a step.")] = None,
    vllm: Annotated[str | None, typer.Option("--vllm", help="The vLLM version; none: the server's.")] = None,
    gpu: o.GpuName = None,
    node: o.NodeFile = None,
    api_key_env: Annotated[str | None, typer.Option(help="The variable that holds the server's API key.")] = None,
    vllm_python: Annotated[
        Path | None, typer.Option(envvar="ADVISOR_VLLM_PYTHON", help="The Python of an environment that has vLLM.")
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Where logs and caches of the two servers are kept.")] = None,
    start_timeout: Annotated[float, typer.Option(min=1, help="Seconds until a server must answer.")] = 1800,
    seed: Annotated[int | None, typer.Option(help="Of the prompts; none: others each time.")] = None,
    json: o.Json = False,
    offline: o.Offline = False,
) -> None:
    """Send what compiles every shape before a user does: to a server, as a script, or to two of ours to compare.

    A busy server is left alone. Exit 5: no vLLM answers, or it refuses every request.
    """
    from vllm_tuner.calibrate import warm_up_cli as room

    asked = room.Asked(
        tuple(words or ()), url, vllm, gpu, node, max_num_seqs, max_num_batched_tokens, paths, budget, script, force,
        api_key_env, vllm_python, folder, start_timeout, seed, json, offline,
    )  # fmt: skip
    raise typer.Exit(room.run(asked))


def _settings(
    tokens: int, longest: int, expert_tokens: int, expert_budget: int, seed: int, budget: str | None, *, losses: bool
) -> Settings:
    from vllm_tuner.kernels import FORMATS, needed

    needed("torch")  # said before anything is read
    from vllm_tuner.calibrate.run import Settings
    from vllm_tuner.effort import seconds

    return Settings(
        tokens=tokens, longest=longest, expert_tokens=expert_tokens, expert_budget=expert_budget, seed=seed,
        formats=FORMATS if losses else (), seconds=seconds(budget) if budget else None,
    )  # fmt: skip


def _run(model: Path, file: Path | None, settings: Settings) -> Calibration:
    from vllm_tuner.calibrate import prompts as text
    from vllm_tuner.calibrate.run import calibrate as run

    ids = None
    if file is not None:
        ids = text.of_file(file, lambda: text.tokenizer(model), budget=settings.tokens, longest=settings.longest)
    return run(model, ids, settings, lambda line: typer.echo(line, err=True))


def _write(model: Path, out: Path | None, found: Calibration, form: Form, *, copy: bool) -> None:
    from vllm_advisor.errors import BadInput
    from vllm_tuner.calibrate import overlay, report

    if out is None:
        return
    try:
        overlay.write(model, out, found.scales, form, record=report.record(found), copy=copy)
    except OSError as error:
        raise BadInput(f"{error.filename or out}: {error.strerror}") from error


def _keep(found: Calibration, model: Path, out: Path | None, store: str | None) -> None:
    """A store that can't be written loses nothing: the result is printed all the same."""
    from vllm_advisor.errors import StoreError
    from vllm_tuner.calibrate import kept

    try:
        kept.save(found, model, out, store)
    except StoreError as error:
        typer.echo(f"not kept in the store: {error.message}", err=True)


def _print(found: Calibration, out: Path | None, form: Form, vllm: str, *, json: bool) -> None:
    from vllm_tuner.calibrate import report

    if json:
        value = report.record(found) | {"out": str(out) if out else None, "form": form.value}
        value |= {"command": report.command(found, out, vllm) if out else None}
        typer.echo(codec.dumps(value, indent=2))
    else:
        typer.echo("\n".join(report.lines(found, out, form, vllm)))
