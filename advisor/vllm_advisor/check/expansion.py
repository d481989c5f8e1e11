"""What a shell makes of one written word: quotes, escapes, `$NAME`, `${NAME:-default}` and arrays of the same text.

What only a run would tell (`$(…)`, a variable that the text does not set) stays as it is written, so that whoever reads
the word can leave it unjudged. `"$@"` is a caller's business and becomes no word.
"""

from __future__ import annotations

import re
from typing import NamedTuple


Variables = dict[str, list[str]]

_REFERENCE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(\[[@*]\])?(?::?([-=?+])([^{}]*))?\}|([@*])|\{([@*])\})")
_PIECE = re.compile(
    r"(?P<reference>\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*(?:\[[@*]\])?(?::?[-=?+][^{}]*)?\}|[@*]|\{[@*]\}))"
    r"|(?P<joined>\\\r?\n)"
    r"|\\(?P<escaped>.)"
    r"|'(?P<single>[^']*)'"
    r"|\"(?P<double>(?:[^\"\\]|\\.)*)\""
    r"|(?P<run>\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`)"
    r"|(?P<bare>[^\\'\"$`]+|[$`])",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:\r?\n|([\\\"$`]))")


class Expanded(NamedTuple):
    """A word after expansion; `quoted`: some of it stood in quotes."""

    text: str
    quoted: bool


def expand(raw: str, variables: Variables) -> list[Expanded]:
    """The words that one written word becomes: an unquoted variable may hold several, or none."""
    gathered = _Gathered()
    at = 0
    while at < len(raw):
        match = _PIECE.match(raw, at)
        if match is None:  # a backslash or a quote at the very end
            gathered.add(raw[at:])
            break
        _piece(match, variables, gathered)
        at = match.end()
    return gathered.words()


class _Gathered:
    """Words that are complete, and the one that is growing (None: none has begun)."""

    def __init__(self) -> None:
        self.done: list[Expanded] = []
        self.growing: str | None = None
        self.quoted = False

    def add(self, text: str, *, quoted: bool = False) -> None:
        self.growing = (self.growing or "") + text
        self.quoted = self.quoted or quoted

    def cut(self) -> None:
        if self.growing is not None:
            self.done.append(Expanded(self.growing, self.quoted))
        self.growing, self.quoted = None, False

    def elements(self, parts: list[str], *, quoted: bool) -> None:
        """Several words: the first joins what grows, the last goes on growing."""
        for number, part in enumerate(parts):
            if number:
                self.cut()
            self.add(part, quoted=quoted)

    def words(self) -> list[Expanded]:
        self.cut()
        return self.done


def _piece(match: re.Match[str], variables: Variables, gathered: _Gathered) -> None:
    kind = match.lastgroup or ""
    if kind in ("escaped", "single"):
        gathered.add(match[kind], quoted=True)
    elif kind == "double":
        _double(match["double"], variables, gathered)
    elif kind == "reference":
        _unquoted(match[0], variables, gathered)
    elif kind in ("run", "bare"):
        gathered.add(match[0])


def _double(text: str, variables: Variables, gathered: _Gathered) -> None:
    whole = _REFERENCE.fullmatch(text)
    elements = _elements(whole, variables) if whole else None
    if elements is None:
        gathered.add(substitute(_ESCAPE.sub(lambda m: m[1] or "", text), variables), quoted=True)
    else:
        gathered.elements(elements, quoted=True)


def _elements(match: re.Match[str], variables: Variables) -> list[str] | None:
    """The elements of `"${NAME[@]}"`, none for `"$@"`; None where it is no list."""
    if match[6] or match[7]:
        return []
    return variables.get(match[2]) if match[3] else None


def _unquoted(text: str, variables: Variables, gathered: _Gathered) -> None:
    """A bare `$NAME`: its value is split at blanks."""
    value = substitute(text, variables)
    if value == text:
        gathered.add(text)
        return
    if value[:1].isspace():
        gathered.cut()
    gathered.elements(value.split(), quoted=False)
    if value[-1:].isspace():
        gathered.cut()


def substitute(text: str, variables: Variables) -> str:
    """`text` with every variable that is known, or has a default, replaced; the rest stays as written."""

    def value(match: re.Match[str]) -> str:
        name, operator, word = match[1] or match[2], match[4], match[5]
        if match[6] or match[7]:
            return ""
        if name in variables:
            return word if operator == "+" else " ".join(variables[name])
        if operator in ("-", "="):
            return word
        return "" if operator == "+" else match[0]

    return _REFERENCE.sub(value, text)
