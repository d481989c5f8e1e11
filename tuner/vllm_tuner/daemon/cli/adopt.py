"""`tuner adopt`: an operator's yes."""

from __future__ import annotations

import typer

from vllm_advisor.cli import options as o
from vllm_tuner.daemon.cli.common import ConfigFile, new


app = new()


@app.command(
    epilog=o.examples("tuner adopt                 # restart the managed unit with the candidate, watched as a canary")
)
def adopt(config: ConfigFile = None, json: o.Json = False) -> None:
    """Ask the service to restart the managed unit with the stored candidate now, outside of any window."""
    from vllm_tuner.daemon import ask

    raise typer.Exit(ask.wish("adopt", config, as_json=json))
