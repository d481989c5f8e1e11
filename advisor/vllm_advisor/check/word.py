"""One word of a command, and the words that assign a variable; light, since every check begins with it."""

from __future__ import annotations

from typing import NamedTuple


class Word(NamedTuple):
    """One word after quoting and expansion, and the line it starts on. `quoted`: some of it stood in quotes."""

    text: str
    line: int
    quoted: bool = False


class Assignment(NamedTuple):
    """`NAME=VALUE`, or `NAME+=VALUE` (`adds`)."""

    name: str
    value: str
    adds: bool


def assignment(text: str) -> Assignment | None:
    """What a word assigns; None for any other word."""
    name, sign, value = text.partition("=")
    bare = name.removesuffix("+")
    if sign and bare.isascii() and bare.isidentifier():
        return Assignment(bare, value, name.endswith("+"))
    return None
