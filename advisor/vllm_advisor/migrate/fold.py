"""JSON options said twice, made one: vLLM takes the last, and a dotted key hides a whole JSON value.

`--attention-config '{"a": 1}' --attention-config.b 2` reaches vLLM as `{"b": 2}` alone (utils/argparse_utils.py
parse_args), so what a translation adds beside an option of the user's is folded into it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from vllm_advisor.check import fix
from vllm_advisor.check.finding import Change
from vllm_advisor.check.parse import parse


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.check.invocation import Invocation, Reading, Setting
    from vllm_advisor.vllm.surface import Surface


def folded(before: Reading, after: Invocation, new: Surface) -> Invocation:
    """The command with one setting of each JSON option that the translation gave a second one."""
    reading = parse(after, new)
    names = dict.fromkeys(s.flag.name for s in reading.settings if s.flag)
    changes = [change for name in names for change in _changes(name, before, reading)]
    return fix.apply(after, changes)


def _changes(name: str, before: Reading, after: Reading) -> Iterator[Change]:
    settings = [s for s in after.settings if s.flag and s.flag.name == name]
    had = [s for s in before.settings if s.flag and s.flag.name == name]
    whole = [s for s in settings if "." not in s.spelling and _mapping(s.value) is not None]
    if not whole or len(settings) < 2 or len(settings) <= len(had):
        return
    value: dict[str, Any] = {}
    for setting in settings:
        _update(value, _mapping(setting.value) or {} if "." not in setting.spelling else _nested(setting))
    first = whole[0]
    yield Change(first.word, first.end, (first.spelling, json.dumps(value)))
    yield from (Change(s.word, s.end) for s in settings if s is not first)


def _mapping(text: str | None) -> dict[str, Any] | None:
    try:
        value = json.loads(text or "")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _nested(setting: Setting) -> dict[str, Any]:
    """{"b": {"c": 2}} of `--a.b.c 2`."""
    try:
        value: Any = json.loads(setting.value or "")
    except ValueError:
        value = setting.value
    for key in reversed(setting.spelling.split(".")[1:]):
        value = {key.replace("-", "_"): value}
    return dict(value)


def _update(value: dict[str, Any], other: dict[str, Any]) -> None:
    for key, new in other.items():
        old = value.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            _update(old, new)
        else:
            value[key] = new
