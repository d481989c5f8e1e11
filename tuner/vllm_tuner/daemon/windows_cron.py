"""A cron expression with a duration: `0 2 * * 1-5 for 3h`, five fields as in crontab(5) and how long it stays open."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import BadInput, UsageError
from vllm_tuner.effort import seconds


if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FIELD = re.compile(r"(\*|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/(\d+))?")
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_LONGEST_S = 7 * 86400.0


class Cron(NamedTuple):
    """Minutes, hours, days, months and weekdays (0: Monday) at which a window of `length` minutes opens.

    `either`: day and weekday are both restricted, and one of them is enough (crontab(5)).
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool
    length: int

    @property
    def reaches_days(self) -> int:
        """How many days before a moment it may have begun."""
        return self.length // (24 * 60) + 1

    def on(self, day: date) -> tuple[tuple[int, int], ...]:
        """(start, end) in minutes of that day."""
        by_day, by_week = day.day in self.days, day.weekday() in self.weekdays
        if day.month not in self.months or not (by_day or by_week if self.either else by_day and by_week):
            return ()
        return _joined(sorted(60 * hour + minute for hour in self.hours for minute in self.minutes), self.length)


def _joined(starts: Sequence[int], length: int) -> tuple[tuple[int, int], ...]:
    """Spans that touch or overlap as one: `* * * * *` is no thousand windows."""
    spans: list[tuple[int, int]] = []
    for start in starts:
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], start + length)
        else:
            spans.append((start, start + length))
    return tuple(spans)


def read_cron(text: str, weekdays: Sequence[str], hint: str) -> Cron:
    """From its text. Raises BadInput."""
    expression, _, length = text.lower().partition(" for ")
    fields = expression.split()
    if len(fields) != len(_BOUNDS) or not length.strip():
        raise BadInput(f"{text!r} is no window", hint)
    try:
        minutes, hours, days, months, weekly = (
            _field(field, low, high, names)
            for field, (low, high), names in zip(fields, _BOUNDS, ((), (), (), _MONTHS, _week(weekdays)), strict=True)
        )
    except ValueError as error:
        raise BadInput(f"{error} in {text!r}", hint) from None
    either = not fields[2].startswith("*") and not fields[4].startswith("*")
    monday_first = frozenset((number - 1) % 7 for number in weekly)
    return Cron(minutes, hours, days, months, monday_first, either, _length(length, text, hint))


def _week(monday_first: Sequence[str]) -> tuple[str, ...]:
    """Cron's weeks begin on Sunday, its 0."""
    return (monday_first[6], *monday_first[:6])


def _length(words: str, text: str, hint: str) -> int:
    """`3h`, `90m`, `1h30m` in minutes."""
    try:
        found = sum(seconds(part) for part in re.findall(r"[\d.]+[a-z]*|\S+", words.strip()))
    except UsageError as error:
        raise BadInput(f"{text!r}: {error.message}", hint) from None
    if not 60 <= found <= _LONGEST_S:
        raise BadInput(f"{text!r}: a window stays open for a minute to a week", hint)
    return int(found // 60)


def _field(field: str, low: int, high: int, names: Sequence[str]) -> frozenset[int]:
    """The numbers that a field allows. Raises ValueError with what is none."""
    found: set[int] = set()
    for part in field.split(","):
        match = _FIELD.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is no field of cron")
        first, last, step = match.groups()
        begin = low if first == "*" else _number(first, low, names)
        end = _number(last, low, names) if last else high if first == "*" or step else begin
        if not (low <= begin <= end <= high) or step == "0":
            raise ValueError(f"{part!r} is not within {low}-{high}")
        found.update(range(begin, end + 1, int(step or 1)))
    return frozenset(found)


def _number(word: str, low: int, names: Sequence[str]) -> int:
    """A number or a name; -1 for neither, which no field allows."""
    if word.isdigit():
        return int(word[:9])
    return names.index(word) + low if word in names else -1
