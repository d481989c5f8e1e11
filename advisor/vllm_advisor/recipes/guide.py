"""The commands and flags in a recipe's prose: what people copy, and what nobody checks when a version moves on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.check.invocation import Invocation

_FENCE = re.compile(r"^[ \t]*```[ \t]*(?P<language>[\w+-]*)[^\n]*\n(?P<body>.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^[ \t]*#{1,6}[ \t]+(?P<text>[^\n]+)", re.MULTILINE)
_SHELLS = ("", "bash", "sh", "shell", "console", "zsh")
_SPAN = re.compile(r"`(?P<code>[^`\n]{1,2000})`")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
_MOST_COMMANDS = 60


class Said(NamedTuple):
    """One command of the guide, and the heading that it stands under."""

    heading: str
    invocation: Invocation


def commands(guide: str) -> tuple[Said, ...]:
    """Every `vllm serve` of its shell blocks; a block that is no shell text is passed over."""
    return tuple(said for match in _FENCE.finditer(guide) for said in _of_block(guide, match))[:_MOST_COMMANDS]


def _of_block(guide: str, match: re.Match[str]) -> Iterator[Said]:
    from vllm_advisor.check import start  # noqa: PLC0415  most recipes are compared without their prose

    if match["language"].lower() not in _SHELLS:
        return
    heading = _heading(guide, match.start())
    try:
        yield from (Said(heading, line.at(f"guide: {heading}")) for line in start.script(match["body"]))
    except ValueError:
        return


def _heading(guide: str, before: int) -> str:
    found = [m["text"].strip() for m in _HEADING.finditer(guide, 0, before)]
    return found[-1][:100] if found else "guide"


def flags(guide: str) -> tuple[tuple[str, str], ...]:
    """(flag, heading) of every flag that stands in the prose between backticks, each once."""
    prose = _FENCE.sub(lambda block: "\n" * block[0].count("\n"), guide)
    found: dict[str, str] = {}
    for span in _SPAN.finditer(prose):
        for flag in _FLAG.findall(span["code"]):
            found.setdefault(flag, _heading(prose, span.start()))
    return tuple(found.items())
