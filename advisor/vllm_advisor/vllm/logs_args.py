"""The arguments that a log prints: a Python dict, a Namespace or a configuration, not all of it literals.

`non-default args: {'model': 'm', 'compilation_config': CompilationConfig(…)}`: what is a literal becomes its value,
the rest stays text, and nothing is evaluated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Iterator

Value = str | int | float | bool | None

_OPEN, _CLOSE = "([{", ")]}"
_WORDS: dict[str, Value] = {"None": None, "True": True, "False": False}


def mapping(text: str) -> dict[str, Value]:
    """`{'a': 1, 'b': [2]}` as a dict; values that are no scalar keep their text."""
    inner = text.strip()
    inner = inner.removeprefix("{")
    return dict(_pairs(inner, ":"))


def namespace(text: str) -> dict[str, Value]:
    """`Namespace(a=1, b='c')`, or the bare `a=1, b='c'` of a configuration line."""
    inner = text.strip().removeprefix("Namespace(")
    return dict(_pairs(inner, "="))


def _pairs(text: str, between: str) -> Iterator[tuple[str, Value]]:
    for part in _parts(text):
        name, found, value = part.partition(between)
        name = name.strip().strip("'\"")
        if found and name.isidentifier():
            yield name, _value(value.strip())


def _parts(text: str) -> Iterator[str]:
    """Top-level pieces between commas; stops where the outer bracket closes."""
    depth, quote, start, at = 0, "", 0, 0
    while at < len(text):
        c = text[at]
        if quote:
            at += c == "\\"
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in _OPEN:
            depth += 1
        elif c in _CLOSE:
            if depth == 0:
                break
            depth -= 1
        elif c == "," and depth == 0:
            yield text[start:at]
            start = at + 1
        at += 1
    yield text[start:at]


def _value(text: str) -> Value:
    if text in _WORDS:
        return _WORDS[text]
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1].replace("\\'", "'").replace('\\"', '"').replace("\\\\", "\\")
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text
