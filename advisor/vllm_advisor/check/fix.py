"""A command mended: changes taken into its words and variables, and the result as text to paste."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from vllm_advisor.check.parse import start_length


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from vllm_advisor.check.finding import Change
    from vllm_advisor.check.invocation import Invocation


def apply(invocation: Invocation, changes: Iterable[Change | None]) -> Invocation:
    """The command with the changes in it, right to left; of two that touch the same words the first given wins.

    Lines and the origin of words are kept for those that stay; new words have line 0.
    """
    given = [c for c in changes if c is not None]
    argv, lines = list(invocation.argv), list(invocation.lines or (0,) * len(invocation.argv))
    origin = [(i in invocation.joined, i in invocation.falses) for i in range(len(argv))]
    for change in sorted(_apart(given), key=lambda c: (c.word, c.end), reverse=True):
        argv[change.word : change.end] = change.words
        lines[change.word : change.end] = [0] * len(change.words)
        origin[change.word : change.end] = [(False, False)] * len(change.words)
    return invocation._replace(
        argv=tuple(argv),
        env=(env := _environment(invocation.env, given)),
        unexported=tuple(pair for pair in invocation.unexported if pair[0] not in dict(env)),
        lines=tuple(lines),
        joined=tuple(i for i, (joined, _) in enumerate(origin) if joined),
        falses=tuple(i for i, (_, false) in enumerate(origin) if false),
    )


def _apart(changes: Sequence[Change]) -> Iterator[Change]:
    """Those of argv that do not overlap one before them, each once."""
    taken: set[int] = set()
    seen: set[Change] = set()
    for change in changes:
        words = set(range(change.word, change.end))
        if (words or change.words) and not words & taken and change not in seen:
            taken |= words
            seen.add(change)
            yield change


def _environment(env: Iterable[tuple[str, str]], changes: Iterable[Change]) -> tuple[tuple[str, str], ...]:
    """Variables keep their order; a new one comes last."""
    result = dict(env)
    for change in changes:
        for name, value in change.env:
            if value is None:
                result.pop(name, None)
            else:
                result[name] = value
    return tuple(result.items())


def shell(invocation: Invocation) -> str:
    """`export` lines, then the command, an option a line, ready to paste; ends with a line break.

    A word that holds a variable of the shell (`$MODEL`) stands in double quotes, all others as plain as they can.
    """
    exports = [f"export {name}={_quoted(value)}" for name, value in invocation.env]
    return (
        "\n".join([*exports, " \\\n  ".join(" ".join(map(_quoted, part)) for part in _parts(invocation.argv))]) + "\n"
    )


def _parts(argv: Sequence[str]) -> list[list[str]]:
    """What starts vLLM with the model, then each option with its values."""
    head = start_length(argv)
    parts = [list(argv[:head])]
    for word in argv[head:]:
        if word.startswith("-") and len(word) > 1 and not word[1].isdigit():
            parts.append([])
        parts[-1].append(word)
    return parts


def _quoted(word: str) -> str:
    if "$" in word and "'" not in word and not {'"', "`", "\\"} & set(word):
        return f'"{word}"'
    return shlex.quote(word)
