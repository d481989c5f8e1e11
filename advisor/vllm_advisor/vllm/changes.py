"""What replaces a flag, variable or value that a vLLM version does not take.

The table (`changes_table`) does not know a direction: a name that the target lacks is looked up, and the first row
whose successors the target has is the answer, be the target newer or older.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.vllm.changes_table import CHOICES, ENV, FLAGS, Row


if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_advisor.vllm.surface import Surface

# Where a surface lists the values of a flag that its parser passes through unchecked.
_LISTS = {
    "--quantization": "quantizations",
    "--kv-cache-dtype": "kv_cache_dtypes",
    "--attention-backend": "attention_backends",
    "--moe-backend": "moe_backends",
    "--linear-backend": "linear_backends",
    "--all2all-backend": "all2all_backends",
}
_MARK = "VALUE"
_TRUE, _FALSE = ("1", "true", "on", "yes"), ("0", "false", "off", "no")


class Successor(NamedTuple):
    """What stands in the place of a setting; neither words nor env: leave it out.

    `words` are words of the command (flag and value), `env` variables to set. `keeps`: nothing that was asked for is
    lost. `condition`: when the replacement holds, "" always, "unquantized" for a checkpoint without quantization.
    `VALUE` stands in `words` and `env` where no value was given to the look-up.
    """

    words: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    text: str
    source: str
    keeps: bool = True
    condition: str = ""


def choices_of(flag: str, surface: Surface) -> tuple[str | int, ...]:
    """The values that this version takes for a flag, by its full name; () means any, or that it has no such flag."""
    if flag == "--attention-backend":
        return (*surface.attention_backends, "auto") if surface.attention_backends else ()
    listed: tuple[str | int, ...] = getattr(surface, _LISTS[flag]) if flag in _LISTS else ()
    known = surface.flags.get(flag)
    return listed or (known.choices if known else ())


def successor_of_flag(name: str, surface: Surface, value: str | None = None) -> Successor | None:
    """What replaces a flag that this version lacks; None where we know nothing of it.

    `name` as typed, with or without `=value`, underscores or the `--no-` form of a switch.
    """
    bare, _, inline = name.partition("=")
    bare = bare.replace("_", "-")
    given = value if value is not None else inline or None
    found = _first(FLAGS, bare, given, surface)
    if found is None and bare.startswith("--no-"):
        return _first(FLAGS, "--" + bare[5:], "false", surface)
    return found


def successor_of_env(name: str, surface: Surface, value: str | None = None) -> Successor | None:
    """What replaces a variable that this version does not read; None where we know nothing of it."""
    return _first(ENV, name, value, surface)


def successor_of_choice(flag: str, value: str, surface: Surface) -> Successor | None:
    """What replaces one value of a flag (full name) that this version refuses, or deprecates; None: unknown to us.

    `words` are the flag and its new value.
    """
    return _first((r for r in CHOICES if r.name == flag), flag, value.lower(), surface)


def _first(rows: Iterable[Row], name: str, value: str | None, surface: Surface) -> Successor | None:
    return next((_filled(r, value) for r in rows if r.name == name and _fits(r, value) and _holds(r, surface)), None)


def _fits(row: Row, value: str | None) -> bool:
    """Whether a row is about this value: "" any, "on" and "off" as vLLM reads a switch, else the value itself."""
    if not row.value:
        return True
    lower = (value if value is not None else "true").lower()
    if row.value in ("on", "off"):
        return lower in (_TRUE if row.value == "on" else _FALSE)
    return row.value.lower() == lower


def _holds(row: Row, surface: Surface) -> bool:
    """Whether the target has all that the row would put in place."""
    if (row.since and not surface.at_least(*row.since)) or (row.until and surface.at_least(*row.until)):
        return False
    flags = [w for w in row.words if w.startswith("--")]
    values = (_takes(f, v, surface) for f, v in zip(row.words, row.words[1:], strict=False) if f.startswith("--"))
    return all(map(surface.has_flag, flags)) and all(surface.has_env(n) for n, _ in row.env) and all(values)


def _takes(flag: str, value: str, surface: Surface) -> bool:
    known = choices_of(flag, surface)
    return _MARK in value or value.startswith("--") or not known or value in known


def _filled(row: Row, value: str | None) -> Successor:
    """The row with the value in its place."""
    text = value if value is not None else _MARK
    words = tuple(w.replace(_MARK, text) for w in row.words)
    env = tuple((n, v.replace(_MARK, text)) for n, v in row.env)
    return Successor(words, env, row.text, row.source, row.keeps, row.condition)
