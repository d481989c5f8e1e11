"""`advisor wizard`: the terminal app, and what is printed when it ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vllm_advisor.cli import options as o
from vllm_advisor.cli.options import examples


if TYPE_CHECKING:
    from vllm_advisor.tui.app import Wizard

app = o.single()


@app.command(
    epilog=examples(
        "advisor wizard",
        "advisor wizard Qwen/Qwen3-8B --gpu 2xL40S",
        "advisor wizard --resume             # where the last one ended, however it ended",
        "advisor wizard --web                # in a browser on this machine",
    )
)
def wizard(
    model: o.OptionalModel = None,
    gpu: o.GpuName = None,
    node: o.NodeFile = None,
    vllm: o.Vllm = o.DEFAULT_VLLM,
    vllm_python: Annotated[Path | None, typer.Option(help="The Python of an environment that has vLLM.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the last wizard ended.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="No boxes and no motion: for screen readers.")] = False,
    web: Annotated[bool, typer.Option("--web", help="Serve it to a browser, on this machine only.")] = False,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of --web on 127.0.0.1.")] = 8765,
    offline: o.Offline = False,
) -> None:
    """Choose step by step: machine, model, workload, plan; then launch and tune it."""
    from vllm_advisor.errors import UsageError

    if gpu and node:
        raise UsageError("--gpu and --node both name a machine", "give one of them")
    given = {
        "model": model or "",
        "gpu": gpu or "",
        "node": str(node or ""),
        "vllm": vllm,
        "vllm_python": str(vllm_python or ""),
        "offline": offline,
    }
    if resume and (model or gpu or node):
        raise UsageError("--resume takes everything from the last wizard", "leave out MODEL, --gpu and --node")
    if web:
        _serve(port, given, resume=resume, plain=plain)
        return
    _run(given, resume=resume, plain=plain)


def _run(given: dict[str, object], *, resume: bool, plain: bool) -> None:
    import gc

    from vllm_advisor.errors import UsageError

    in_browser = "TEXTUAL_DRIVER" in os.environ
    if not sys.stdout.isatty() and not in_browser:
        raise UsageError("the wizard needs a terminal", "`advisor recommend MODEL` answers without one")
    try:
        from vllm_advisor.tui.app import Wizard
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise UsageError("textual is not installed", "pip install 'vllm-advisor[tui]'") from None
    from vllm_advisor.tui import keep
    from vllm_advisor.tui.state import State

    gc.freeze()  # modules are no garbage: looking at them again and again would be felt
    gc.enable()  # unlike the other commands, this one may run for days
    state = keep.load(keep.place()) if resume else State(**given)  # type: ignore[arg-type]
    wizard = Wizard(state, plain=plain)
    wizard.run()
    _left(wizard)
    _ended(wizard, in_browser=in_browser)


def _left(wizard: Wizard) -> None:
    """Whatever goes on without it is not forgotten."""
    from vllm_advisor.cli.diagnostics import note
    from vllm_advisor.tui import leaving

    for child in wizard.processes.running():
        note(f"still running: {leaving.said(child)} The next `advisor wizard` finds it.")


def _ended(wizard: Wizard, *, in_browser: bool) -> None:
    """Once the screen is the terminal's again: what went wrong, or the command that gives the same answer."""
    import shlex

    from vllm_advisor.cli import output
    from vllm_advisor.cli.diagnostics import ExitCode, fail
    from vllm_advisor.errors import AdvisorError

    if wizard.crash is not None:
        where = f"the report is {wizard.crash.file}" if wizard.crash.file else "no report could be written"
        error = AdvisorError(f"the wizard ended unexpectedly: {wizard.crash.said}; {where}", "advisor wizard --resume")
        fail(error)
        raise typer.Exit(ExitCode.NO)
    if wizard.state.model and not in_browser:
        output.write(["The same answer without the wizard:", f"  {shlex.join(wizard.state.recommend())}"])


def _serve(port: int, given: dict[str, object], *, resume: bool, plain: bool) -> None:
    from vllm_advisor.cli import output
    from vllm_advisor.errors import UsageError

    try:
        from vllm_advisor.tui import web
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("textual", "textual_serve", "aiohttp"):
            raise
        raise UsageError("textual-serve is not installed", "pip install 'vllm-advisor[tui,web]'") from None
    web.serve(
        _command(given, resume=resume, plain=plain),
        port,
        lambda address: output.write([f"Open {address}", "(only on this machine; Ctrl+C ends it)"]),
    )


def _command(given: dict[str, object], *, resume: bool, plain: bool) -> str:
    """The wizard itself, for a shell; what the browser shows is UTF-8, whatever the server's terminal is."""
    import shlex

    words = [sys.executable, "-m", "vllm_advisor", "wizard", *([str(given["model"])] if given["model"] else [])]
    for name in ("gpu", "node", "vllm", "vllm_python"):
        words += [f"--{name.replace('_', '-')}", str(given[name])] if given[name] and not resume else []
    words += [flag for flag, on in (("--offline", given["offline"]), ("--resume", resume), ("--plain", plain)) if on]
    return f"PYTHONUTF8=1 exec {shlex.join(words)}"
