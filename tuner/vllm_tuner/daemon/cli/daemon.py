"""`tuner daemon`: the service in the foreground."""

from __future__ import annotations

from typing import Annotated

import typer

from vllm_advisor.cli import options as o
from vllm_tuner.daemon.cli.common import ConfigFile, new


app = new()


@app.command(
    epilog=o.examples(
        "tuner daemon --example > daemon.toml       # every key with its default and what it is for",
        "tuner daemon --config daemon.toml          # in the foreground; Ctrl-C stops it",
        "tuner daemon --config daemon.toml --once   # one look, what it finds, and the end",
    )
)
def daemon(
    config: ConfigFile = None,
    once: Annotated[bool, typer.Option("--once", help="One tick, then print the status and stop.")] = False,
    example: Annotated[bool, typer.Option("--example", help="Print a configuration with every key.")] = False,
    json: o.Json = False,
) -> None:
    """Watch a deployment, tune again in quiet hours when its plan no longer fits, adopt only what is proven better."""
    if example:
        from vllm_tuner.daemon.config_fields import example as text

        typer.echo(text(), nl=False)
        return
    from vllm_tuner.daemon import start

    raise typer.Exit(start.daemon(config, once=once, as_json=json))
