"""An Invocation as one version's own parser reads it: which words are options, which their values, which the model.

Follows argparse and vLLM's FlexibleArgumentParser (utils/argparse_utils.py of 0.24.0 to 0.33.0), but never stops: what
the parser would refuse is kept (a Setting without a flag, a surplus word), for the findings to name.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from vllm_advisor.check import options
from vllm_advisor.check.invocation import Reading, Setting
from vllm_advisor.check.start import CLI, SERVERS


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.check.invocation import Invocation
    from vllm_advisor.vllm.surface import Flag, Surface


def parse(invocation: Invocation, surface: Surface) -> Reading:
    """What that version reads in the command; total, whatever the words are."""
    parser = _Parser(invocation, surface)
    parser.run()
    return Reading(invocation, *_model(parser))


def _model(parser: _Parser) -> tuple[str | None, tuple[Setting, ...], tuple[int, ...]]:
    """The model, the settings and the surplus words.

    `vllm serve` moves --model to the front, where it beats a first word; a config file's loses to one. The API server's
    module takes --model only: nothing reads its first word (entrypoints/openai/api_server.py).
    """
    argv, settings, positional = parser.argv, tuple(parser.settings), tuple(parser.positional)
    named = [s for s in settings if s.flag and s.flag.name == "--model" and s.value is not None]
    typed = [s for s in named if s.word not in parser.invocation.joined]
    serves = argv[start_length(argv) - 1 :][:1] == ("serve",)
    if typed and serves:
        return typed[0].value, settings, positional
    if positional and serves:
        return argv[positional[0]], settings, positional[1:]
    return (named[-1].value if named else None), settings, positional


def start_length(argv: Sequence[str]) -> int:
    """How many words start vLLM: 2 for `vllm serve`, 3 for `python -m …api_server`, 4 for `python -m …main serve`."""
    for index, word in enumerate(argv[:4]):
        if word == "serve" and (index == 1 or argv[index - 1] == CLI):
            return index + 1
        if word in SERVERS:
            return index + 1
    return 0


class _Parser:
    """One pass over argv: the model and other positional words, and the settings in order."""

    def __init__(self, invocation: Invocation, surface: Surface) -> None:
        self.invocation, self.argv, self.surface = invocation, invocation.argv, surface
        self.at = start_length(self.argv)
        self.settings: list[Setting] = []
        self.positional: list[int] = []

    def run(self) -> None:
        while self.at < len(self.argv):
            word = self.argv[self.at]
            option = options.read(word, self.surface) if word != "--" else None
            if word == "--":
                self.positional += range(self.at + 1, len(self.argv))
                return
            if option is None:
                self.positional.append(self.at)
                self.at += 1
            elif not self._dropped(option):
                self._take(option)

    def _dropped(self, option: options.Option) -> bool:
        """An `x: false` of a config whose option has no `--no-x`: vLLM drops it too."""
        if self.at not in self.invocation.falses or option.flag is not None:
            return False
        self.at += 1
        return True

    def _take(self, option: options.Option) -> None:
        """One option with its values."""
        begin = self.at
        self.at += 1
        value = option.value
        if value is None:
            texts = self._following(self._takes(option))
            value = " ".join(texts) if texts else None
        self.settings.append(Setting(self._spelling(begin), value, option.flag, begin, self.at))

    def _spelling(self, index: int) -> str:
        """As typed, without a value that is attached."""
        word = self.argv[index]
        return "-O" if word.startswith("-O") else word.partition("=")[0]

    def _takes(self, option: options.Option) -> str:
        if option.keys:
            return "1"
        if option.name == "-O":  # two words only as `-O 2`
            return "1" if self.argv[self.at : self.at + 1] in (("0",), ("1",), ("2",), ("3",)) else "0"
        if option.flag is not None:
            return options.takes(option.flag)
        return "0" if option.name in options.HELP else self._guess(option.name)

    def _guess(self, name: str) -> str:
        """An option that this version lacks: as another version has it, else one value if one can be spared."""
        other = elsewhere(name)
        if other is not None:
            return options.takes(other)
        words = self.argv[self.at :]
        values = [w for w in words if options.read(w, self.surface) is None]
        return "1" if self.positional or self._names_model() or len(values) > 1 else "0"

    def _names_model(self) -> bool:
        return any(w == "--model" or w.startswith("--model=") for w in self.argv)

    def _following(self, count: str) -> list[str]:
        """The values that stand next: up to as many as the option takes."""
        most = {"0": 0, "1": 1, "?": 1, "+": len(self.argv)}[count]
        texts: list[str] = []
        while len(texts) < most and self.at < len(self.argv):
            word = self.argv[self.at]
            if word == "--" or options.read(word, self.surface) is not None:
                break
            texts.append(word)
            self.at += 1
        return texts


@functools.cache
def elsewhere(name: str) -> Flag | None:
    """The flag of that option string in the newest other version that has it; None: no version has."""
    from vllm_advisor.vllm import surface as surfaces  # noqa: PLC0415

    for version in reversed(surfaces.versions()):
        meant = options.strings(surfaces.load(version)).get(name)
        if meant:
            return meant[0]
    return None
