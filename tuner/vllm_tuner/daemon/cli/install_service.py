"""`tuner install-service`: the unit file."""

from __future__ import annotations

from typing import Annotated

import typer

from vllm_advisor.cli import options as o
from vllm_tuner.daemon.cli.common import ConfigFile, new


app = new()


@app.command(
    name="install-service",
    epilog=o.examples(
        "tuner install-service --config /etc/vllm-advisor/daemon.toml --print",
        "sudo tuner install-service --config /etc/vllm-advisor/daemon.toml",
        "tuner install-service --user --config ~/.config/vllm-advisor/daemon.toml",
    ),
)
def install_service(
    config: ConfigFile = None,
    user: Annotated[bool, typer.Option("--user", help="A unit of your own user manager.")] = False,
    account: Annotated[str, typer.Option(help="Run as this user instead of a dynamic one.")] = "",
    name: Annotated[str, typer.Option(help="The unit's name.")] = "vllm-tuner",
    show: Annotated[bool, typer.Option("--print", help="Only print the unit.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a unit that differs.")] = False,
    json: o.Json = False,
) -> None:
    """Write a hardened systemd unit for the service; enabling it is left to you."""
    from vllm_tuner.daemon.service import Wish, install

    raise typer.Exit(install(config, Wish(name, account, user, show, force), as_json=json))
