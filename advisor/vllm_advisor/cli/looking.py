"""`advisor probe`, `matrix`, `gpus` and `models`: what they take, and which function answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vllm_advisor.cli import options as o


probe_app = o.single()
matrix_app = o.single()
gpus_app = o.single()
models_app = o.single()


@probe_app.command(
    epilog=o.examples(
        "advisor probe                                                  # what is in this machine",
        "advisor probe --save box.json                                  # carry it to a laptop",
        "advisor recommend Qwen/Qwen3-8B --node box.json                # and decide there",
    )
)
def probe(
    save: Annotated[Path | None, typer.Option(help="Write the machine to a file for --node.")] = None,
    node: o.NodeFile = None,
    json: o.Json = False,
) -> None:
    """Show what is in this machine: GPUs, memory, links, driver, host."""
    from vllm_advisor.cli import commands

    commands.probe(save, node, json=json)


@matrix_app.command(
    epilog=o.examples("advisor matrix MI300X --vllm 0.24.0", "advisor matrix                  # for this machine")
)
def matrix(
    gpu: Annotated[str | None, typer.Argument(help="A GPU by name; none: the one in this machine.")] = None,
    vllm: o.Vllm = o.DEFAULT_VLLM,
    allow_plugin: o.AllowPlugin = False,
    json: o.Json = False,
) -> None:
    """Print the decision matrix of a GPU, beside the six rows of the text this product began from."""
    from vllm_advisor.cli import commands

    commands.matrix(gpu, vllm, allow_plugin=allow_plugin, json=json)


@gpus_app.command()
def gpus(json: o.Json = False) -> None:
    """List the GPUs of the catalog with memory, bandwidth and formats."""
    from vllm_advisor.cli import commands

    commands.gpus(json=json)


@models_app.command(epilog=o.examples("advisor models qwen3"))
def models(
    name: Annotated[str, typer.Argument(help="Part of a name.")] = "",
    json: o.Json = False,
) -> None:
    """List the models of the catalog, which need no network."""
    from vllm_advisor.cli import commands

    commands.models(name, json=json)
