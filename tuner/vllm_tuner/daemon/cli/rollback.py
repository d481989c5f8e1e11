"""`tuner rollback`: an operator's no."""

from __future__ import annotations

import typer

from vllm_advisor.cli import options as o
from vllm_tuner.daemon.cli.common import ConfigFile, new


app = new()


@app.command(epilog=o.examples("tuner rollback              # back to what ran before"))
def rollback(config: ConfigFile = None, json: o.Json = False) -> None:
    """Ask the service to go back: from a canary to what is proven, or from what was adopted to what ran before."""
    from vllm_tuner.daemon import ask

    raise typer.Exit(ask.wish("rollback", config, as_json=json))
