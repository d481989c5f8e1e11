"""JSON on a command line: read as vLLM reads it, merged from dotted keys, and what is wrong with it in words."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from vllm_advisor.check.invocation import Reading, Setting

_HUMAN_NUMBER = r"(\d+(?:\.\d+)?)([kKmMgGtT])"
_POWER = {"k": 1, "m": 2, "g": 3, "t": 4}


def mapping(reading: Reading, name: str) -> dict[str, object]:
    """The JSON given to an option as vLLM merges it: dotted keys together replace a whole value given before.

    {} where nothing is given, or nothing that can be read.
    """
    given = [s for s in reading.settings if s.flag and s.flag.name == name and s.value is not None]
    dotted = [s for s in given if "." in s.spelling]
    if not dotted:
        value = _loaded(given[-1].value or "") if given else None
        return value if isinstance(value, dict) else {}
    merged: dict[str, object] = {}
    for setting in dotted:
        _put(merged, setting.spelling.removesuffix("+").split(".")[1:], setting)
    return merged


def _put(into: dict[str, object], keys: list[str], setting: Setting) -> None:
    for key in keys[:-1]:
        inner = into.setdefault(key, {})
        if not isinstance(inner, dict):
            return
        into = inner
    text = setting.value or ""
    if setting.spelling.endswith("+"):
        before = into.get(keys[-1])
        into[keys[-1]] = [*(before if isinstance(before, list) else []), *text.split(",")]
    else:
        loaded = _loaded(text)
        into[keys[-1]] = text if loaded is None and text != "null" else loaded


def _loaded(text: str) -> object:
    try:
        return json.loads(expanded(text))
    except (ValueError, RecursionError):
        return None


def human(text: str) -> int | None:
    """The number of `32k` or `10G`; None for any other text: small letters are decimal, capitals binary and whole."""
    match = re.fullmatch(_HUMAN_NUMBER, text)
    if match is None:
        return None
    digits, suffix = match.groups()
    power = _POWER[suffix.lower()]
    if suffix.islower():
        return int(float(digits) * 1000**power)
    return int(digits) * 1024**power if digits.isdecimal() else None


def expanded(text: str) -> str:
    """JSON with `80m` outside quotes written out (engine/arg_utils.py _expand_json_human_readable_numbers)."""
    parts = re.split(r'("(?:[^"\\]|\\.)*")', text)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b", _written_out, parts[i])
    return "".join(parts)


def _written_out(match: re.Match[str]) -> str:
    read = human(match[0])
    return match[0] if read is None else str(read)


def around(text: str, at: int) -> str:
    """The place of a fault with what stands beside it."""
    return repr(text[max(0, at - 12) : at + 12])


def json_hint(value: str) -> str:
    """What most likely broke it."""
    if "'" in value:
        return "JSON takes double quotes only; put the whole in single quotes"
    if '"' not in value and ":" in value:
        return "the shell took the quotes away: put the whole in single quotes"
    return "put the whole in single quotes, names in double quotes"
