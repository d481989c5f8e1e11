"""`tuner why`: what a decision rests on."""

from __future__ import annotations

from typing import Annotated

import typer

from vllm_advisor.cli import options as o
from vllm_tuner.daemon.cli.common import ConfigFile, new


app = new()


@app.command(epilog=o.examples("tuner why", "tuner why 4f1c2a      # what a profile rests on"))
def why(
    profile: Annotated[str, typer.Argument(help="A profile's id; none: the state of the service.")] = "",
    config: ConfigFile = None,
    json: o.Json = False,
) -> None:
    """The reasons that stand with their evidence, what stands against tuning, and the last decisions."""
    from vllm_tuner.daemon import ask

    raise typer.Exit(ask.why(profile, config, as_json=json))
