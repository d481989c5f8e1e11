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
    """`advisor`: the commands of `app`, then those of `LATER`."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every name, in the order of the help."""
        return [*super().list_commands(ctx), *LATER]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, imported now if it is one of `LATER`."""
        if cmd_name not in LATER:
            return super().get_command(ctx, cmd_name)
        module, _, name = LATER[cmd_name][0].partition(":")
        found = getattr(importlib.import_module(f"vllm_advisor.cli.{module}"), name or "app")
        command = typer.main.get_command(found)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands, from the table where nothing was imported."""
        own = [(name, self.commands[name].get_short_help_str(80)) for name in super().list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([*own, *((name, line) for name, (_, line) in LATER.items())])
