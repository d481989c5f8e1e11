"""`tuner history`: what the service did."""

from __future__ import annotations

from typing import Annotated

import typer

from vllm_advisor.cli import options as o
from vllm_tuner.daemon.cli.common import ConfigFile, new


app = new()


@app.command(epilog=o.examples("tuner history", "tuner history --last 200 --kind adopted --json"))
def history(
    config: ConfigFile = None,
    last: Annotated[int, typer.Option(min=1, max=10_000, help="How many events.")] = 50,
    kind: Annotated[str, typer.Option(help="Only events of one kind: drift, adopted, rolled back, failed …")] = "",
    json: o.Json = False,
) -> None:
    """What the service saw, decided and did on this node, the newest last."""
    from vllm_tuner.daemon import ask

    raise typer.Exit(ask.history(config, last, kind, as_json=json))
