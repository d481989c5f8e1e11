"""The option strings that one version's parser answers to, and what a written word means among them.

argparse's own rules, which vLLM keeps (utils/argparse_utils.py adds `_` = `-` in names, `-O3` and dotted JSON keys):
an exact option, `option=value`, then a prefix that fits one option only; a negative number or a word with a blank is
a value.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from vllm_advisor.vllm.surface import Flag, Surface

_NUMBER = r"-(?:\d+|\d*\.\d+)"
# Registered by argparse itself; no configuration of a server.
HELP = ("--help", "-h")
# Lists of one value: a JSON list, or the option again (entrypoints/openai/cli_args.py, 0.33.0 common/cli_args.py).
_ONE_VALUE = ("--allowed-origins", "--allowed-methods", "--allowed-headers", "--middleware")
_SWITCHES = ("bool", "switch")


class Option(NamedTuple):
    """What a word says. `name`: as the parser sees it, underscores turned; `value`: after `=`, None without one.

    `flag` None: no such option. `negated`: its `--no-` (or opposite) form. `keys`: of a dotted JSON key. `candidates`:
    the options that an abbreviation could mean, if several.
    """

    name: str
    value: str | None = None
    flag: Flag | None = None
    negated: bool = False
    keys: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()


@functools.cache
def strings(surface: Surface) -> dict[str, tuple[Flag, bool]]:
    """Every option string to its flag, and whether it negates it."""
    found: dict[str, tuple[Flag, bool]] = {}
    for flag in surface.flags.values():
        names = (flag.name, *flag.aliases)
        found |= dict.fromkeys(names, (flag, False))
        if flag.kind == "bool":
            long = [n[2:] for n in names if n.startswith("--")]
            found |= {f"--no-{name}": (flag, True) for name in long}
            found |= {opposite: (flag, True) for name in long if (opposite := _opposite(name, surface))}
    return found


def _opposite(name: str, surface: Surface) -> str:
    """Since 0.33, `--enable-x` has `--disable-x` beside it, and the reverse (argparse_utils.py EnableDisableAction)."""
    for one, other in (("enable-", "disable-"), ("disable-", "enable-")):
        if name.startswith(one) and surface.at_least(0, 33):
            return f"--{other}{name.removeprefix(one)}"
    return ""


def read(word: str, surface: Surface) -> Option | None:
    """The option that a word is; None: it is a value or a positional word."""
    if not word.startswith("-") or word == "-" or re.fullmatch(_NUMBER, word):
        return None
    name, equals, text = word.partition("=")
    value = text if equals else None
    if word.startswith("-O"):
        level = (text if word[2:3] == "=" else word[2:]) or None
        return Option("-O", level, surface.flags.get("--optimization-level"))
    if word.startswith("--"):
        head, dot, tail = name.partition(".")
        name = head.replace("_", "-") + dot + tail
    return _named(name, value, word, surface)


def _named(name: str, value: str | None, word: str, surface: Surface) -> Option | None:
    known = strings(surface)
    if name in known:
        return Option(name, value, *known[name])
    if name in HELP:
        return Option(name, value)
    if "." in name:
        head, *keys = name.removesuffix("+").split(".")
        return Option(name, value, known[head][0] if head in known else None, keys=tuple(keys))
    fitting = _fitting(name, value, known)
    if len({flag.name for _, _, (flag, _) in fitting}) == 1:
        _, explicit, (flag, negated) = fitting[0]
        return Option(name, explicit, flag, negated)
    if not fitting and " " in word:
        return None
    return Option(name, value, candidates=tuple(option for option, _, _ in fitting))


def _fitting(
    name: str, value: str | None, known: dict[str, tuple[Flag, bool]]
) -> list[tuple[str, str | None, tuple[Flag, bool]]]:
    """Abbreviations (`--tensor`), and a one-letter option with its value attached (`-qfp8`)."""
    found = [(option, value, meant) for option, meant in known.items() if option.startswith(name)]
    if not name.startswith("--") and name[:2] in known and len(name) > 2:
        found.append((name[:2], name[2:] if value is None else f"{name[2:]}={value}", known[name[:2]]))
    return found


def takes(flag: Flag) -> str:
    """How many values follow: "0", "1", "?" or "+"."""
    if flag.kind in _SWITCHES:
        return "0"
    if flag.kind == "list" and flag.name not in _ONE_VALUE:
        return "+"
    return "?" if flag.kind == "optional-str" else "1"
