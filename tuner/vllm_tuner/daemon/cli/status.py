"""`tuner status`: what the service does now."""

from __future__ import annotations

from typing import Annotated

import typer

from vllm_advisor.cli import options as o
from vllm_tuner.daemon.cli.common import ConfigFile, new


app = new()


@app.command(epilog=o.examples("tuner status", "tuner status --json --config daemon.toml", "tuner status --metrics"))
def status(
    config: ConfigFile = None,
    metrics: Annotated[bool, typer.Option("--metrics", help="Prometheus' text instead.")] = False,
    json: o.Json = False,
) -> None:
    """What the service on this machine does now, and why it waits. 1: none runs."""
    from vllm_tuner.daemon import ask

    raise typer.Exit(ask.status(config, metrics=metrics, as_json=json))
