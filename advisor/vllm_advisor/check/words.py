"""Shell text as simple commands of words, with the line of each and the variables exported by then; nothing is run.

Enough of the shell's grammar for the scripts that start servers: comments, continued lines, quotes, assignments,
arrays, `export`, `set -a`, redirections, here-documents (skipped), and every operator that ends a command.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from vllm_advisor.check.expansion import Variables, expand
from vllm_advisor.check.word import Word, assignment


class Command(NamedTuple):
    """A simple command, the variables exported when it starts, and those of vLLM that are set but not exported."""

    words: tuple[Word, ...]
    exported: tuple[tuple[str, str], ...]
    unexported: tuple[tuple[str, str], ...] = ()


_TOKEN = re.compile(
    r"(?P<space>(?:[ \t\r\f\v]|\\\r?\n)+)"
    r"|(?P<comment>(?<![^\s;&|()])\#[^\n]*)"
    r"|(?P<heredoc><<-?[ \t]*(?P<quote>['\"]?)(?P<end>\w+)(?P=quote))"
    r"|(?P<redirect>\d*(?:&>>?|>>?\|?|<<<|<>?)(?:&[\d-]+)?[ \t]*)"
    r"|(?P<operator>\n|;;?&?|&&?|\|[|&]?|\(|\))"
)
_ARRAY = re.compile(r"([A-Za-z_]\w*)(\+?)=\(")
_INSIDE = re.compile(
    r"\\\r?\n|\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"|\$\((?:[^()]|\([^()]*\))*\)|\$\{[^{}]*\}|`[^`]*`|[^\\'\"$`\s;&|()<>]+|[$`]",
    re.DOTALL,
)
_KEYWORDS = frozenset(("if", "then", "else", "elif", "do", "while", "until", "!", "{", "time"))
_DECLARATIONS = frozenset(("export", "declare", "local", "readonly", "typeset"))


def commands(text: str, line: int = 1, exported: tuple[tuple[str, str], ...] = ()) -> list[Command]:
    """The simple commands of a shell text, in order; `exported`: what is set before it starts.

    Raises ValueError for a quote that is never closed.
    """
    return _Reader(text, line, dict(exported)).run()


class _Reader:
    """One pass over the text: words are gathered until an operator ends the command."""

    def __init__(self, text: str, line: int, exported: dict[str, str]) -> None:
        self.text, self.at, self.line = text, 0, line
        self.exported = exported
        self.variables: Variables = {name: [value] for name, value in exported.items()}
        self.words: list[Word] = []
        self.found: list[Command] = []
        self.heredocs: list[str] = []
        self.exports_all = False

    def run(self) -> list[Command]:
        while self.at < len(self.text):
            match = _TOKEN.match(self.text, self.at)
            if match is None:
                self._word()
            else:
                self._token(match)
        self._end()
        return self.found

    def _token(self, match: re.Match[str]) -> None:
        """Space, comment, redirection or operator."""
        self.at = match.end()
        self.line += match[0].count("\n")
        if match["heredoc"] is not None:
            self.heredocs.append(match["end"])
        elif match["redirect"] is not None:
            self._drop_target(match[0])
        elif match["operator"] is not None:
            self._end()
            if match[0] == "\n":
                self._skip_heredocs()

    def _drop_target(self, redirect: str) -> None:
        """The word after `>` is read and forgotten; `2>&1` has none."""
        if "&" not in redirect.rstrip()[1:] and self.at < len(self.text):
            kept = list(self.words)
            self._word()
            self.words = kept

    def _skip_heredocs(self) -> None:
        for end in self.heredocs:
            stop = re.compile(rf"^[ \t]*{re.escape(end)}[ \t\r]*$", re.MULTILINE).search(self.text, self.at)
            stop_at = stop.end() if stop else len(self.text)
            self.line += self.text.count("\n", self.at, stop_at)
            self.at = stop_at
        self.heredocs = []

    def _word(self) -> None:
        """One word, or an array's assignment."""
        array = _ARRAY.match(self.text, self.at)
        if array and all(not w.quoted and (assignment(w.text) or w.text in _DECLARATIONS) for w in self.words):
            self._array(array)
            return
        line, raw = self.line, self._raw()
        self.line += raw.count("\n")
        self.words += [Word(word.text, line, word.quoted) for word in expand(raw, self.variables)]

    def _raw(self) -> str:
        """The text up to an unquoted blank or operator. Raises ValueError for an open quote."""
        start = self.at
        while match := _INSIDE.match(self.text, self.at):
            self.at = match.end()
        if self.at < len(self.text) and self.text[self.at] in "\\'\"":
            raise ValueError(f"line {self.line}: a quote is never closed")
        if self.at == start:  # nothing that we know how to read: step over it
            self.at += 1
            return ""
        return self.text[start : self.at]

    def _array(self, match: re.Match[str]) -> None:
        """`NAME=(…)` and `NAME+=(…)`."""
        self.at = match.end()
        outer, self.words = self.words, []
        while self.at < len(self.text) and self.text[self.at] != ")":
            token = _TOKEN.match(self.text, self.at)
            if token is None:
                self._word()
            else:
                self.at = token.end()
                self.line += token[0].count("\n")
        self.at += 1
        before = self.variables.get(match[1], []) if match[2] else []
        self.variables[match[1]] = before + [w.text for w in self.words]
        self.words = outer

    def _end(self) -> None:
        """The command is complete: take its assignments, or keep it."""
        words, self.words = self.words, []
        while words and words[0].text in _KEYWORDS and not words[0].quoted:
            words = words[1:]
        if not words:
            return
        if words[0].text in _DECLARATIONS:
            self._assign(words[1:], exported=words[0].text == "export" or any(w.text == "-x" for w in words))
        elif all(assignment(w.text) for w in words):
            self._assign(words, exported=self.exports_all)
        elif words[0].text in ("set", "unset"):
            self._option(words)
        else:
            self.found.append(Command(tuple(words), tuple(self.exported.items()), self._unexported()))

    def _unexported(self) -> tuple[tuple[str, str], ...]:
        names = [name for name in self.variables if name.startswith("VLLM_") and name not in self.exported]
        return tuple((name, " ".join(self.variables[name])) for name in names)

    def _option(self, words: list[Word]) -> None:
        if words[0].text == "set":
            options = {w.text for w in words[1:]}
            self.exports_all = "+a" not in options and (self.exports_all or bool(options & {"-a", "allexport"}))
            return
        for word in words[1:]:
            self.exported.pop(word.text, None)
            self.variables.pop(word.text, None)

    def _assign(self, words: list[Word], *, exported: bool) -> None:
        for word in words:
            given = assignment(word.text)
            name = given.name if given else word.text
            if given:
                before = " ".join(self.variables.get(name, [])) if given.adds else ""
                self.variables[name] = [before + given.value]
            if (exported or name in self.exported) and name in self.variables:
                self.exported[name] = " ".join(self.variables[name])
