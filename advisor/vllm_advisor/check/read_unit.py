"""A systemd unit that starts vLLM: `ExecStart=` and `Environment=` of its [Service] section.

systemd quotes much like a shell, joins lines at a backslash, knows no operators, and writes a per cent sign twice
(systemd.service(5), "Command lines"). `${NAME}` takes the unit's own environment.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vllm_advisor.check import start
from vllm_advisor.check.expansion import expand
from vllm_advisor.check.word import Word


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vllm_advisor.check.invocation import Invocation

_PREFIXES = "@-:+!"


def invocations(path: Path, text: str) -> list[Invocation]:
    """Every server that the unit starts. Raises ValueError for a quote that is never closed."""
    env: dict[str, str] = {}
    found = []
    for key, value, line in _settings(text):
        if key == "Environment":
            env |= dict(start.assigned(_words(value, line, {})))
        elif key == "EnvironmentFile":
            env |= environment_file(path.parent / value.lstrip("-"))
        elif key == "ExecStart" and value:
            words = _words(value.lstrip(_PREFIXES), line, env)
            found += [one.at(f"{path}:{line}") for one in start.lines_of(words, tuple(env.items()))]
    return found


def environment_file(path: Path) -> dict[str, str]:
    """NAME=VALUE lines of a file; none where it is not here, which is no fault of the command."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return {}
    pairs = (line.strip().removeprefix("export ").partition("=") for line in lines)
    return {name: value.strip().strip("\"'") for name, sign, value in pairs if sign and name.isidentifier()}


def _settings(text: str) -> Iterator[tuple[str, str, int]]:
    """(key, value, line), joined over continued lines."""
    pending, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(("#", ";")):
            continue
        first = first if pending else number
        if line.endswith("\\"):
            pending += line[:-1] + "\n"
            continue
        key, sign, value = (pending + line).partition("=")
        pending = ""
        if sign:
            yield key.strip(), value.strip(), first


def _words(value: str, line: int, env: dict[str, str]) -> list[Word]:
    """The words of a value, each with its own line."""
    variables = {name: [text] for name, text in env.items()}
    found: list[Word] = []
    for raw, below in _raw(value):
        found += [Word(word.text.replace("%%", "%"), line + below, word.quoted) for word in expand(raw, variables)]
    return found


_RAW = re.compile(r"(?:'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|[^\s'\"\\])+", re.DOTALL)


def _raw(value: str) -> Iterator[tuple[str, int]]:
    for match in _RAW.finditer(value):
        yield match[0], value.count("\n", 0, match.start())
