"""`tuner kernels`: from what was typed to a search, progress on stderr, results on stdout, in store and file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from vllm_advisor.cli import options as o


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.store.profile_store import ProfileStore
    from vllm_tuner.budget import Budget
    from vllm_tuner.kernel_tuning.contract import Problem
    from vllm_tuner.kernel_tuning.door import Door
    from vllm_tuner.kernel_tuning.effort import Effort
    from vllm_tuner.kernel_tuning.run import Result, Run
    from vllm_tuner.kernel_tuning.shapes import Shape

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Asked(NamedTuple):
    """The question as typed."""

    model: str | None
    shapes: tuple[str, ...]
    tp: int
    op: str
    tokens: str
    effort: str
    budget: str | None
    strategy: str
    retime: bool
    offline: bool


class Where(NamedTuple):
    """Where results go and how progress is told."""

    store: str | None
    out: Path | None
    json: bool
    json_lines: bool


@app.command(
    epilog=o.examples(
        "tuner kernels Qwen/Qwen3-8B                         # the products of its layers, on this machine",
        "tuner kernels --shapes 4096,14336 --tokens 1,16,256 --effort quick",
        "tuner kernels --shapes 5760,2880,32,4 --budget 20m  # a layer of 32 experts, 4 a token",
        "tuner kernels --retime                              # after a new driver or Triton: drop who no longer wins",
        "tuner kernels --list",
    )
)
def kernels(
    model: o.OptionalModel = None,
    shapes: Annotated[
        list[str] | None, typer.Option(help="Rows and columns of a weight: N,K or N,K,EXPERTS,TOPK; may be repeated.")
    ] = None,
    tp: Annotated[int, typer.Option(min=1, help="Tensor parallel size: shapes of MODEL are one rank's.")] = 1,
    op: Annotated[str, typer.Option(help="The kernel; none: the one that our plugin uses here.")] = "",
    tokens: Annotated[str, typer.Option(help="Batch sizes: 1,16,256; none: the effort's.")] = "",
    effort: Annotated[str, typer.Option(help="quick, normal or thorough.")] = "normal",
    budget: Annotated[str | None, typer.Option(help="Time for all of it: 90s, 10m, 2h.")] = None,
    strategy: Annotated[
        str, typer.Option(help="exhaustive, random, pattern or model; none: what fits the space.")
    ] = "",
    retime: Annotated[
        bool, typer.Option("--retime", help="Only time stored winners against the default again.")
    ] = False,
    cpu: Annotated[bool, typer.Option("--cpu", help="The processor's kernels, whatever GPUs there are.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Say what is stored, and stop.")] = False,
    store: Annotated[
        str | None, typer.Option("--store", help="Where results are kept: a file or an address of PostgreSQL.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file of winners, for ADVISOR_KERNEL_CONFIGS.")] = None,
    json: o.Json = False,
    json_lines: Annotated[bool, typer.Option("--json-lines", help="Events and the result on stdout as JSON.")] = False,
    offline: o.Offline = False,
) -> None:
    """Search the launches of our kernels on this machine; keep those that beat the default beyond noise."""
    where = Where(store, out, json, json_lines)
    if list_:
        _list(where, op)
        return
    asked = Asked(model, tuple(shapes or ()), tp, op, tokens, effort, budget, strategy, retime, offline)
    raise typer.Exit(_tuned(asked, where, on_cpu=cpu))


def _list(where: Where, op: str) -> None:
    from vllm_advisor.cli import output
    from vllm_advisor.store.profile_store import ProfileStore
    from vllm_tuner.kernel_tuning import show

    with ProfileStore.open(where.store) as store:
        found = show.rows(store, op)
    if where.json or where.json_lines:
        output.write_json({"schema": show.SCHEMA, "kernels": [show.document(row) for row in found]})
    else:
        output.write(show.listed(found))


def _tuned(asked: Asked, where: Where, *, on_cpu: bool) -> int:
    """Search, show, keep, hand over. 0: something was decided; 1: nothing was."""
    import socket

    from vllm_advisor.cli.diagnostics import ExitCode
    from vllm_advisor.launch import borrowed_signals
    from vllm_advisor.store.profile_store import ProfileStore
    from vllm_tuner.budget import Budget
    from vllm_tuner.effort import seconds
    from vllm_tuner.kernel_tuning import door as doors
    from vllm_tuner.kernel_tuning.effort import effort
    from vllm_tuner.lease import leased

    row = effort(asked.effort)
    limit = seconds(asked.budget) if asked.budget else row.budget_s
    shapes, tokens = _shapes(asked), _tokens(asked.tokens) or row.tokens
    door = doors.here(on_cpu=on_cpu)
    budget = Budget(limit)  # from here on: building the kernels at their first use is no part of a search
    with borrowed_signals(), ProfileStore.open(where.store) as store, leased(store, socket.gethostname(), budget):
        run = _run(asked, where, door, store, row, budget)
        results = _results(run, door, asked, door.problems(shapes, tokens, asked.op))
        file = _handed(door, store, where.out)
        _show(results, file, store, where)
    return ExitCode.OK if any(result.config for result in results) else ExitCode.NO


def _shapes(asked: Asked) -> tuple[Shape, ...]:
    from vllm_advisor.cli import inputs
    from vllm_advisor.errors import UsageError
    from vllm_tuner.kernel_tuning import shapes

    found = tuple(shapes.parse(text) for text in asked.shapes)
    if asked.model:
        found += shapes.of_model(inputs.model(asked.model, None, offline=asked.offline), asked.tp)
    if not found and not asked.retime:
        raise UsageError("nothing to tune: give a model or a shape", "tuner kernels MODEL, or --shapes 4096,14336")
    return found


def _tokens(text: str) -> tuple[int, ...]:
    from vllm_advisor.errors import UsageError

    try:
        found = tuple(sorted({int(part) for part in text.split(",") if part.strip()}))
    except ValueError:
        found = (0,)
    if any(number < 1 for number in found):
        raise UsageError(f"{text!r} is no list of batch sizes", "write --tokens 1,16,256")
    return found


def _run(asked: Asked, where: Where, door: Door, store: ProfileStore, row: Effort, budget: Budget) -> Run:
    import socket

    from vllm_tuner.cli.show import listener
    from vllm_tuner.kernel_tuning.attempt import Bench
    from vllm_tuner.kernel_tuning.run import Run
    from vllm_tuner.kernel_tuning.strategies import check

    check(asked.strategy)
    tell = listener(json_lines=where.json_lines)
    bench = Bench(door.kernels, row, store, tell, socket.gethostname(), len(os.sched_getaffinity(0)))
    return Run(bench, store, door.machine, budget, asked.strategy, door.peaks)


def _results(run: Run, door: Door, asked: Asked, problems: Sequence[Problem]) -> tuple[Result, ...]:
    from vllm_advisor.cli.diagnostics import note
    from vllm_tuner.kernel_tuning import retime

    try:
        if asked.retime:
            return retime.retime(run, retime.stored(run, door.make, asked.op))
        return run.tune(problems)
    except BaseException:
        note("stopped; finished trials are kept: run the same command again to go on")
        raise


def _handed(door: Door, store: ProfileStore, out: Path | None) -> Path | None:
    """The file of all winners that hold here; None: there is none."""
    from vllm_advisor import tuned_kernels
    from vllm_tuner.kernel_tuning import handoff

    path = (out or tuned_kernels.place()).expanduser().absolute()
    won = handoff.winners(store, door.kernels, door.machine, door.make)
    return path if handoff.write(path, won, door.kernels, door.files) else None


def _show(results: tuple[Result, ...], file: Path | None, store: ProfileStore, where: Where) -> None:
    import json
    import sys

    from vllm_advisor.cli import output
    from vllm_tuner.kernel_tuning import show

    if where.json_lines:
        sys.stdout.write(json.dumps(show.result_document(results, file), ensure_ascii=False) + "\n")
    elif where.json:
        output.write_json(show.result_document(results, file))
    else:
        output.write(show.results(results, file, store.place.shown))
