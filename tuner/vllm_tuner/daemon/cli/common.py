"""What all of these commands have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


ConfigFile = Annotated[Path | None, typer.Option("--config", "-c", help="daemon.toml; none: every key at its default.")]


def new() -> typer.Typer:
    """An application with the settings that all commands share."""
    return typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
