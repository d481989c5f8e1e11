"""What a GPU hour costs: a number on the command line, or a TOML file of prices by GPU name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.errors import BadInput, UsageError


if TYPE_CHECKING:
    from pathlib import Path

    from vllm_advisor.hardware import Node

_HINT = 'one line a GPU: "NVIDIA H100 SXM" = 2.49'


def hourly(price: float | None, file: Path | None, node: Node) -> float | None:
    """The price of one of the node's devices for an hour, in whatever currency the user thinks; None: not given.

    Raises UsageError for both at once, BadInput for a file that cannot be read or that has no price of this GPU.
    """
    if price is not None and file:
        raise UsageError("--price and --prices both name a price", "give one of them")
    return _listed(file, node) if file else price


def _listed(file: Path, node: Node) -> float:
    import tomllib

    try:
        prices = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{file} is no list of prices: {error}", _HINT) from None
    found = {_plain(name): value for name, value in prices.items()}.get(_plain(node.gpu.name))
    if not isinstance(found, int | float) or isinstance(found, bool) or found < 0:
        raise BadInput(f"{file} has no price of {node.gpu.name}", _HINT)
    return float(found)


def _plain(name: str) -> str:
    return " ".join(name.lower().removeprefix("nvidia ").removeprefix("amd instinct ").split())
