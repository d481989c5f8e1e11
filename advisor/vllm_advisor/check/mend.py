"""Changes that mend a command: set an option, leave one out, add one, set a variable; and the findings that carry them.

A change keeps the user's own spelling (`-tp`, `--flag=value`), touches the setting that counts (the last one), and adds
at the end.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from vllm_advisor.check.finding import Change, Finding
from vllm_advisor.check.ids import BY_ID


if TYPE_CHECKING:
    from vllm_advisor.check.configuration import Asked


def put(given: Asked, name: str, value: str) -> Change:
    """Give an option that value, in place where it stands, else at the end."""
    setting = given.last(name)
    if setting is None or setting.flag is None:
        return add(given, name, value)
    if setting.end - setting.word == 1 and setting.value is not None:
        return Change(setting.word, setting.end, (f"{setting.spelling}={value}",))
    return Change(setting.word, setting.end, (setting.spelling, value))


def add(given: Asked, *words: str) -> Change:
    """Words at the end of the command."""
    at = len(given.reading.invocation.argv)
    return Change(at, at, words)


def drop(given: Asked, *names: str) -> Change | None:
    """Leave an option out; None where it is not given, or in several places that one change cannot reach."""
    found = [s for s in given.reading.settings if s.flag and s.flag.name in names]
    if not found or any(a.end != b.word for a, b in pairwise(found)):
        return None
    return Change(found[0].word, found[-1].end)


def variable(name: str, value: str | None) -> Change:
    """Set a variable, or take it away (None)."""
    return Change(env=((name, value),))


def said(
    finding_id: str,
    text: str,
    given: Asked,
    *subjects: str,
    hint: str = "",
    change: Change | None = None,
    level: str = "",
    source: str = "",
) -> Finding:
    """A finding about the first of `subjects` (options by full name, variables) that the command gives."""
    row = BY_ID[finding_id]
    setting = next((s for name in subjects if name.startswith("--") and (s := given.last(name))), None)
    named = setting.flag.name if setting and setting.flag else ""
    variables = [s for s in subjects if not s.startswith("--") and given.variable(s)]
    subject = named or next(iter(variables), subjects[0] if subjects else "")
    word = setting.word if setting else -1
    return Finding(finding_id, level or row.level, text, source or row.source, hint, subject, word, change)
