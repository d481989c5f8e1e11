"""Subcommands that are imported only when they are called: a command costs the others' start nothing.

Each lives in a module of this package as `app`, a Typer of one command or of several. The table below is all that
`advisor --help` and shell completion need to know of them.
"""

from __future__ import annotations

import importlib
from typing import Any

import typer
from typer.core import TyperGroup


# Name, module (and the name in it, `app` if none), and the line of `advisor --help`.
LATER: dict[str, tuple[str, str]] = {
    "probe": ("looking:probe_app", "Show what is in this machine: GPUs, memory, links, driver, host."),
    "recommend": (
        "deciding:recommend_app",
        "Rank the ways to serve MODEL on a machine, and print the command of the best.",
    ),
    "estimate": (
        "estimating:estimate_app",
        "Say what one configuration of MODEL takes, whether it starts, and what would fit.",
    ),
    "launch": ("deciding:launch_app", "Start the best plan for MODEL on this machine, and stop it with Ctrl-C."),
    "matrix": ("looking:matrix_app", "Print the decision matrix of a GPU, beside the six rows of the seed text."),
    "gpus": ("looking:gpus_app", "List the GPUs of the catalog with memory, bandwidth and formats."),
    "models": ("looking:models_app", "List the models of the catalog, which need no network."),
    "wizard": ("wizard", "Choose step by step in the terminal: machine, model, load, plan; launch it, tune it."),
    "pareto": ("pareto:app", "Chart tokens a second a GPU against tokens a second a user, over plans and loads."),
    "report": (
        "pareto:report",
        "Write one self-contained HTML page: hardware, plans, memory, chart, reasons, command.",
    ),
    "compare": (
        "compare",
        "Set BF16, FP8, FP8 KV and MXFP4 side by side: memory, load, speed, kernels, accuracy.",
    ),
    "check": ("check", "Judge a vllm serve command, script, Compose file or manifest, and correct it."),
    "migrate": ("migrate", "Rewrite a vllm serve command for another vLLM version, and say what changes."),
    "doctor": ("doctor", "Say what a start-up log or a running server shows, and the smallest fix."),
    "verify": ("verify", "Ask vLLM itself, under a stand-in of a GPU, whether it takes a command."),
    "profiles": ("profiles", "List, show, compare, carry and remove measured deployments."),
    "vllm": ("versions", "Read a vLLM release's surface from its wheel, or compare two releases."),
}


class LazyGroup(TyperGroup):
    """`advisor`: the commands of `LATER`."""

    def list_commands(self, _ctx: Any) -> list[str]:
        """Every name, in the order of the help."""
        return [*LATER]

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        """The command, imported now; None for what is none."""
        if cmd_name not in LATER:
            return None
        module, _, name = LATER[cmd_name][0].partition(":")
        found = getattr(importlib.import_module(f"vllm_advisor.cli.{module}"), name or "app")
        command = typer.main.get_command(found)
        command.name = cmd_name
        return command

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """The list of commands, from the table: nothing is imported."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in LATER.items()])


def single(**context: Any) -> typer.Typer:
    """A Typer of one command, for the table; `context`: more settings of click's context."""
    return typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"], **context},
    )


def examples(*lines: str) -> str:
    """An epilog that keeps its line breaks: a backspace in front is click's sign for that."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
