"""ExecStart= of a systemd unit, read and written: systemd.service(5) "Command lines", systemd.syntax(7) "Quoting".

A command line has two layers: words with quotes and escapes, and in a word `%i` and `${NAME}`, which systemd replaces.
A plan's words are literal, so theirs are doubled; what an operator's own words want replaced stays as it is written.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from collections.abc import Iterator

_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
_SECTION = re.compile(r"\[(.+)\]\s*")
_START = re.compile(r"ExecStart\s*=\s*(.*)", re.DOTALL)
_REPLACED = re.compile(r"(?<!%)(?:%%)*%[A-Za-z]|^\$[A-Za-z_]|(?<!\$)(?:\$\$)*\$\{")
_SPECIFIED = re.compile(r"(?<!%)(?:%%)*%[A-Za-z]")
_GOES_ON = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_PREFIXES = "@-:+!"
_KEPT = "-+!"  # `@` names the process, `:` turns ${NAME} off: neither changes what our line does
_ESCAPE = re.compile(
    r"\\(?:(?P<one>[abfnrtvs\\\"'])|x(?P<hex>[0-9A-Fa-f]{2})|(?P<oct>[0-7]{3})"
    r"|u(?P<u>[0-9A-Fa-f]{4})|U(?P<U>[0-9A-Fa-f]{8}))"
)
_ONE = dict(zip("abfnrtvs", "\a\b\f\n\r\t\v ", strict=True))


class ExecLine(NamedTuple):
    """One command. `prefix`: its marks of `-+!`. `replaced`: those of its words in which systemd replaces something."""

    words: tuple[str, ...]
    prefix: str = ""
    replaced: frozenset[str] = frozenset()

    def written(self, argv: tuple[str, ...]) -> str:
        """The value of an ExecStart= with other words, under the same prefix."""
        first, *rest = argv
        words = (quoted(word, literal=word not in self.replaced) for word in rest)
        return " ".join((self.prefix + quoted(first, literal=first not in self.replaced, dollars=False), *words))


def last(text: str) -> ExecLine | None:
    """The command of a service by the text of its files, one behind the other; None: it has none.

    The last one counts; an empty ExecStart= takes all before it away. Raises ValueError for quotes that do not close.
    """
    found = ""
    for line in _lines(text):
        if match := _START.fullmatch(line):
            found = match[1].strip()
    return parse(found) if found else None


def _lines(text: str) -> Iterator[str]:
    """Lines of [Service], those that end in a backslash joined; comments in between are none of them."""
    section, parts = "", []  # type: tuple[str, list[str]]
    for line in text.split("\n"):
        bare = line.strip()
        if bare.startswith(("#", ";")) or not (bare or parts):
            continue
        if match := None if parts else _SECTION.fullmatch(bare):
            section = match[1]
        elif _GOES_ON.search(bare):
            parts.append(bare[:-1])
        else:
            whole, parts = " ".join((*parts, bare)), []
            if section == "Service":
                yield whole


def parse(value: str) -> ExecLine:
    """One command line. Raises ValueError for quotes that do not close."""
    words = list(split(value))
    if not words:
        return ExecLine(())
    bare = words[0].lstrip(_PREFIXES)
    marks = words[0][: len(words[0]) - len(bare)]
    rest = words[2:] if "@" in marks else words[1:]
    texts = [word.replace("$", "$$") for word in rest] if ":" in marks else rest
    replaced = {word for word in texts if _REPLACED.search(word)}
    replaced |= {value for word in replaced if _REPLACED.search(value := word.partition("=")[2])}
    if _SPECIFIED.search(bare):
        replaced |= {bare}
    first = bare if bare in replaced else bare.replace("%%", "%")
    plain = (word if word in replaced else word.replace("%%", "%").replace("$$", "$") for word in texts)
    prefix = "".join(mark for mark in marks if mark in _KEPT)
    return ExecLine((first, *plain), prefix, frozenset(replaced))


def split(line: str) -> Iterator[str]:
    """Words without their quotes and escapes; an escape that is none stays as it is written."""
    place, word, quote = 0, None, ""  # type: tuple[int, str | None, str]
    while place < len(line):
        sign, took = line[place], 1
        if sign == "\\" and place + 1 < len(line):
            text, took = _escape(line, place)
            word = (word or "") + text
        elif quote:
            word, quote = (word or "") + (sign if sign != quote else ""), quote if sign != quote else ""
        elif sign in "'\"":
            word, quote = word or "", sign
        elif sign in " \t\n\r":
            if word is not None:
                yield word
            word = None
        else:
            word = (word or "") + sign
        place += took
    if quote:
        raise ValueError(f"No closing quotation: {quote}")
    if word is not None:
        yield word


def _escape(line: str, place: int) -> tuple[str, int]:
    """What an escape stands for, and how long it is."""
    found = _ESCAPE.match(line, place)
    if found is None:
        return line[place : place + 2], 2
    if one := found["one"]:
        return _ONE.get(one, one), 2
    digits, base = (found["oct"], 8) if found["oct"] else (found["hex"] or found["u"] or found["U"], 16)
    return chr(int(digits, base)), len(found[0])


def quoted(word: str, *, literal: bool = True, dollars: bool = True) -> str:
    """A word as systemd reads it back. `dollars`: it is an argument, in which `$$` is a dollar; a path knows none."""
    if _PLAIN.fullmatch(word):
        return word
    text = word.replace("%", "%%") if literal else word
    return f'"{_escaped(text.replace("$", "$$") if literal and dollars else text)}"'


def assignment(name: str, value: str) -> str:
    """The value of an Environment=: no dollar means anything there."""
    return f'"{_escaped(f"{name}={value}".replace("%", "%%"))}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
