"""The load that a row names, in the words of public measurements, and the row in the words of a row about memory.

isl, osl (or the measured mean_isl_actual, mean_osl_actual), concurrency, request_rate, num_prompts, dataset and
spec_decode. What is not given is assumed and said.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.errors import BadInput
from vllm_advisor.throughput.load import Load


if TYPE_CHECKING:
    from collections.abc import Mapping

_FIELDS = ("isl", "osl", "mean_isl_actual", "mean_osl_actual", "concurrency", "request_rate", "num_prompts", "dataset")
# Means of ShareGPT as load generators sample it, prompts of at most 1024 tokens (public runs that print them).
_CONVERSATION = (215.0, 200.0)
_NOT_STATED = (1024.0, 512.0)
_DECODED = 2048.0  # of a test that only decodes, for half a minute, behind a context that is already cached
_QUESTION = 100.0  # tokens that such a test asks behind its context (an estimate)
_ALL_AT_ONCE = 1000.0
_UNLIMITED = ("inf", "infinity", "unlimited")
_TOGETHER = re.compile(r"num[-_]scheduler[-_]steps?\D{1,3}(\d{1,3})\b")
_GUESSES = re.compile(r"(?:num_speculative_tokens\D{0,4}|\bk\s*=\s*|mtp\D{0,3})(\d{1,2})\b", re.IGNORECASE)
_MOST_GUESSES = 16
_PLACEHOLDER = re.compile(r"[-\w]+\s+default\b", re.IGNORECASE)


class Asked(NamedTuple):
    """A row's load, how many tokens a draft guesses a step, V0's steps at once, and in words what was assumed.

    `command`: the row shows with which flags the server ran, so that what it does not show was left at its default.
    """

    load: Load
    draft: int = 0
    steps_together: int = 1
    assumed: tuple[str, ...] = ()
    command: bool = False


def names_a_load(row: Mapping[str, Any]) -> bool:
    """Whether a row says anything of lengths or of load."""
    return any(row.get(name) is not None for name in _FIELDS)


def asked(row: Mapping[str, Any]) -> Asked:
    """The load of a row. Raises BadInput that names the field."""
    dataset, flags = str(row.get("dataset") or "").lower(), str(row.get("other_flags") or "")
    talk, decoding = "sharegpt" in dataset, "decode test" in dataset
    usual = _CONVERSATION if talk else (_NOT_STATED[0], _DECODED) if decoding else _NOT_STATED
    assumed: list[str] = []
    isl = _length(row, ("mean_isl_actual", "isl"), usual[0], assumed)
    osl = _length(row, ("mean_osl_actual", "osl"), usual[1], assumed)
    concurrency, rate = _number(row, "concurrency"), _rate(row)
    prompts = _number(row, "num_prompts") or (concurrency if decoding else None)
    if not (concurrency or rate or prompts):
        prompts = _ALL_AT_ONCE
        assumed.append(f"{_ALL_AT_ONCE:.0f} prompts at once: no load is given")
    together = _TOGETHER.search(flags)
    question = _QUESTION if decoding else 0.0
    cached = isl if decoding else 0.0
    load = Load(isl + question, max(1.0, osl), concurrency or None, rate, prompts, float(talk), cached)
    return Asked(
        load, guesses(row), int(together[1]) if together else 1, tuple(assumed), "--" in flags or "vllm serve" in flags
    )


def as_memory_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row in the words of a row about memory: the version under its name, a draft among the flags."""
    plain, flags, env = dict(row), row.get("other_flags"), row.get("env")
    if plain.get("vllm_version") is None and isinstance(row.get("vllm_version_or_commit"), str):
        plain["vllm_version"] = row["vllm_version_or_commit"]
    words = [_PLACEHOLDER.sub(" ", flags) if isinstance(flags, str) else ""]
    words += [env] if isinstance(env, str) and "=" in env else []
    words += ["mtp"] if guesses(row) else []
    plain["other_flags"] = " ".join(words)
    return plain


def guesses(row: Mapping[str, Any]) -> int:
    """Tokens that speculative decoding guesses a step."""
    text = str(row.get("spec_decode") or "")
    if text.lower() in ("", "none", "off", "false", "0"):
        return 0
    found = _GUESSES.search(text)
    return min(_MOST_GUESSES, int(found[1])) if found else 1


def _length(row: Mapping[str, Any], names: tuple[str, ...], usual: float, assumed: list[str]) -> float:
    for name in names:
        value = _number(row, name)
        if value is not None:
            return value
    assumed.append(f"{names[-1]} {usual:.0f}: not given")
    return usual


def _rate(row: Mapping[str, Any]) -> float | None:
    """Requests a second; unlimited is none."""
    value = row.get("request_rate")
    if value == math.inf or (isinstance(value, str) and value.strip().lower() in _UNLIMITED):
        return None
    return _number(row, "request_rate") or None


def _number(row: Mapping[str, Any], name: str) -> float | None:
    value = row.get(name)
    if value is None:
        return None
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < _MOST:
        raise BadInput(f"{name} is {str(value)[:60]!r}, not a number from 0")
    return number


_MOST = 1e9
