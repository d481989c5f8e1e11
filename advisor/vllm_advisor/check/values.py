"""Values of options: whether the parser can read them, and whether the configuration then takes them.

Only what vLLM itself enforces. A value that holds a variable of the shell is left alone: a run decides it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from vllm_advisor.check import options
from vllm_advisor.check.choices import elsewhere, is_judged, named, near_choice
from vllm_advisor.check.finding import Change, Finding
from vllm_advisor.check.ids import BY_ID
from vllm_advisor.check.json_text import around, expanded, human, json_hint, mapping
from vllm_advisor.check.ranges import RANGES
from vllm_advisor.vllm import plugin
from vllm_advisor.vllm.changes import successor_of_choice


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vllm_advisor.check.invocation import Reading, Setting
    from vllm_advisor.vllm.changes import Successor
    from vllm_advisor.vllm.surface import Flag, Surface

__all__ = ["findings", "is_judged", "is_unresolved", "mapping", "number"]

# Options that take 32k and 10G, and since when (0.24.0 engine/arg_utils.py:357-366, 0.33.0:397-407).
_HUMAN = {
    "--max-model-len": (0, 24),
    "--max-num-batched-tokens": (0, 24),
    "--kv-cache-memory-bytes": (0, 24),
    "--safetensors-prefetch-block-size": (0, 24),
    "--max-num-scheduled-tokens": (0, 26),
    "--max-num-queued-tokens": (0, 29),
}
# The parser hands on what is no mapping as text (engine/arg_utils.py union_dict_and_str).
_JSON_OR_TEXT = ("--pt-load-map-location", "--hf-overrides", "--model-loader-extra-config", "--additional-config")
# Fields whose default is None though their type has no None in it.
_NEVER_NONE = ("--max-model-len", "--block-size", "--max-num-seqs", "--max-num-batched-tokens")
_INT_LISTS = ("--cudagraph-capture-sizes", "--numa-bind-nodes")
_JSON_LISTS = ("--allowed-origins", "--allowed-methods", "--allowed-headers")
_LONGEST_SHOWN = 60


def findings(reading: Reading, surface: Surface) -> tuple[Finding, ...]:
    """Every value that the parser or the configuration of that version refuses, in the order of the command."""
    return tuple(f for s in reading.settings if s.flag for f in _of_setting(s, s.flag, reading, surface))


def is_unresolved(text: str | None) -> bool:
    """Whether only a run can tell the value: `$NAME`, `$(…)` and `{{ … }}` are left as they are."""
    return text is not None and any(mark in text for mark in ("$", "`", "{{"))


def _of_setting(setting: Setting, flag: Flag, reading: Reading, surface: Surface) -> Iterator[Finding]:
    count = options.takes(flag)
    if "." in setting.spelling:
        if flag.kind != "json":
            yield _finding("VAL-05", setting, f"{flag.name} is no JSON option: it has no keys")
    elif count == "0":
        if setting.value is not None and not reading.invocation.config:
            yield _switch(setting, flag)
    elif setting.value is None:
        if count in ("1", "+"):
            yield _finding("VAL-01", setting, f"{setting.spelling} is given no value", _expects(flag, surface))
    elif not is_unresolved(setting.value):
        yield from _of_value(setting, flag, setting.value, reading, surface)


def _expects(flag: Flag, surface: Surface) -> str:
    allowed = flag.choices or named(flag.name, surface)
    if allowed:
        return f"it takes {_listed(allowed)}"
    return {"int": "it takes a whole number", "float": "it takes a number", "json": "it takes JSON"}.get(flag.kind, "")


def _switch(setting: Setting, flag: Flag) -> Finding:
    """`--enforce-eager=true`: argparse refuses any value."""
    off = (setting.value or "").lower() in ("false", "0", "no", "off")
    written = f"--no-{flag.name[2:]}" if off and flag.kind == "bool" else flag.name
    words = () if off and flag.kind == "switch" else (written,)
    hint = f"write {written} alone" if words else "leave it out"
    text = f"{flag.name} is a switch and takes no value"
    return _finding("VAL-02", setting, text, hint, Change(setting.word, setting.end, words))


def _of_value(setting: Setting, flag: Flag, value: str, reading: Reading, surface: Surface) -> Iterator[Finding]:
    if value in ("", "None") and flag.default is None and flag.name not in _NEVER_NONE:
        return  # no value (engine/arg_utils.py optional_type)
    if flag.choices:
        values = value.split() if options.takes(flag) == "+" else [value]
        for one in values:
            yield from _choice("VAL-06", setting, flag.choices, one, surface)
    elif flag.kind in ("int", "float"):
        yield from _number(setting, flag, value, surface)
    elif flag.name in _INT_LISTS:
        yield from (f for one in value.split() for f in _number(setting, flag, one, surface))
    elif flag.kind == "json" or flag.name in _JSON_LISTS:
        yield from _json(setting, flag, value)
    else:
        yield from _name(setting, flag, value, reading, surface)


def _choice(
    finding_id: str, setting: Setting, allowed: Iterable[str | int], value: str, surface: Surface
) -> Iterator[Finding]:
    names = [str(a) for a in allowed]
    name = setting.flag.name if setting.flag else ""
    if value in names:
        return
    successor = successor_of_choice(name, value, surface)
    text = f"vLLM {surface.version} has no {setting.spelling} {_shown(value)}{elsewhere(setting, value, surface)}"
    if successor is not None:
        hint, change = _successor(setting, successor)
        yield _finding(finding_id, setting, text, hint, change)._replace(source=successor.source)
        return
    near = near_choice(value, names)
    hint = f"did you mean {near}?" if near else f"it takes {_listed(names)}"
    yield _finding(finding_id, setting, text, hint, _replaced(setting, near) if near else None)


def _successor(setting: Setting, successor: Successor) -> tuple[str, Change | None]:
    """What stands in the place of the option and its value; no change where that depends on the checkpoint."""
    new = " ".join(successor.words)
    hint = f"write {new}: {successor.text}" if new else f"leave it out: {successor.text}"
    if successor.condition:
        return f"{hint} (if the checkpoint is {successor.condition})", None
    return hint, Change(setting.word, setting.end, successor.words, successor.env)


def _replaced(setting: Setting, value: str) -> Change:
    """The same option with another value, as one or two words as before."""
    if setting.end - setting.word == 1:
        return Change(setting.word, setting.end, (f"{setting.spelling}={value}",))
    return Change(setting.end - 1, setting.end, (value,))


def number(name: str, text: str, surface: Surface) -> int | None:
    """The whole number that the version reads in the text, None where it reads none; `auto` is -1.

    `32k` and `10G` only for the options that take them; a capital is binary and takes no decimals.
    """
    text = text.strip()
    if name == "--max-model-len" and (text == "-1" or text.lower() == "auto"):
        return -1
    if surface.at_least(*_HUMAN.get(name, (1 << 30,))) and (read := human(text)) is not None:
        return read
    try:
        return int(text)
    except ValueError:
        return None


def _number(setting: Setting, flag: Flag, value: str, surface: Surface) -> Iterator[Finding]:
    read = _float(value) if flag.kind == "float" else number(flag.name, value, surface)
    if read is None:
        kind = "a number" if flag.kind == "float" else "a whole number"
        hint, change = _readable(setting, value)
        text = f"{setting.spelling} {_shown(value)} is not {kind}"
        yield _finding("VAL-04" if flag.kind == "float" else "VAL-03", setting, text, hint, change)
        return
    bounds = RANGES.get(flag.name)
    if bounds and surface.at_least(*bounds.since) and not bounds.holds(read):
        text = f"{setting.spelling} {_shown(value)}: it must be {bounds}"
        yield _finding("VAL-08", setting, text)._replace(source=bounds.source)


def _readable(setting: Setting, value: str) -> tuple[str, Change | None]:
    """For `16k`, `16,384`, `8.0` of an option that takes plain numbers: the number."""
    text = value.replace(",", "").replace(" ", "")
    plain = human(text)
    if plain is None:
        plain = _whole(text)
    if plain is None:
        return "", None
    return f"write {plain}", _replaced(setting, str(plain))


def _whole(text: str) -> int | None:
    read = _float(text)
    return int(read) if read is not None and abs(read) < 1 << 53 and read == int(read) else None


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _json(setting: Setting, flag: Flag, value: str) -> Iterator[Finding]:
    if flag.name in _JSON_OR_TEXT and not re.fullmatch(r"\s*\{.*\}\s*", value, re.DOTALL):
        return
    try:
        read = json.loads(expanded(value))
    except json.JSONDecodeError as error:
        text = f"{setting.spelling}: broken JSON at character {error.pos + 1} ({error.msg}): {around(value, error.pos)}"
        yield _finding("VAL-05", setting, text, json_hint(value))
        return
    except (ValueError, RecursionError):  # a number of thousands of digits, a thousand brackets
        yield _finding("VAL-05", setting, f"{setting.spelling}: JSON that cannot be read")
        return
    expected = list if flag.name in _JSON_LISTS else dict
    if not isinstance(read, expected) and read is not None:
        what = "a list" if expected is list else "an object"
        yield _finding("VAL-05", setting, f"{setting.spelling} {_shown(value)}: it must be {what}")


def _name(setting: Setting, flag: Flag, value: str, reading: Reading, surface: Surface) -> Iterator[Finding]:
    allowed = named(flag.name, surface)
    if not allowed or _is_extended(flag.name, value, reading):
        return
    known = value.upper() in allowed if flag.name == "--attention-backend" and value.lower() != "auto" else False
    if not known and value.lower() != "none":
        yield from _choice("VAL-07", setting, allowed, value.lower() if value.lower() == "auto" else value, surface)
    if flag.name == "--quantization":
        yield from _deprecated_quantization(setting, value, reading, surface)


def _is_extended(name: str, value: str, reading: Reading) -> bool:
    """Whether a plugin may know the name; a tool parser is looked up only with --enable-auto-tool-choice."""
    if name == "--quantization":
        return value.lower() == plugin.NAME  # `check.plugin` says what there is to say
    if name == "--reasoning-parser":
        return not value or reading.value("--reasoning-parser-plugin") is not None
    if name == "--tool-call-parser":
        return not reading.on("--enable-auto-tool-choice") or reading.value("--tool-parser-plugin") is not None
    return False


def _deprecated_quantization(setting: Setting, value: str, reading: Reading, surface: Surface) -> Iterator[Finding]:
    if value in surface.deprecated_quantizations and not reading.on("--allow-deprecated-quantization"):
        text = f"{setting.spelling} {value} is deprecated: vLLM {surface.version} refuses it"
        at = len(reading.invocation.argv)
        change = Change(at, at, ("--allow-deprecated-quantization",))
        yield _finding("VAL-09", setting, text, "add --allow-deprecated-quantization, or use another method", change)


def _finding(finding_id: str, setting: Setting, text: str, hint: str = "", change: Change | None = None) -> Finding:
    row = BY_ID[finding_id]
    subject = setting.flag.name if setting.flag else setting.spelling
    return Finding(finding_id, row.level, text, row.source, hint, subject, setting.word, change)


def _shown(value: str) -> str:
    """A value in a sentence: one line, not endless."""
    text = " ".join(value.split()) or "''"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(str, names))
