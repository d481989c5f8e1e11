"""The `advisor` command. Each subcommand lies in a module of its own, which `lazy` imports when it is called."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from vllm_advisor.cli.lazy import LazyGroup, examples


app = typer.Typer(
    name="advisor",
    cls=LazyGroup,
    help="What should run on these GPUs, and why: a vLLM deployment that fits, is fast, and says how sure it is.",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich's help costs 80 ms more than plain text
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "advisor recommend openai/gpt-oss-120b --gpu 8xH100",
        "advisor probe",
        "advisor matrix MI300X",
    ),
)


@app.callback(invoke_without_command=True)
def advisor(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        from vllm_advisor import __version__

        typer.echo(f"vllm-advisor {__version__}")
        raise typer.Exit


def main() -> None:
    """The console script: expected failures are one line and an exit code."""
    from vllm_advisor.errors import AdvisorError

    try:
        app()
    except AdvisorError as error:
        from vllm_advisor.cli import diagnostics

        sys.exit(diagnostics.fail(error))
