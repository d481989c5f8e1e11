"""When the service may tune: windows of local time, `Mon-Fri 02:00-05:30`, `22:00-06:00`, `0 2 * * 1-5 for 3h`.

A window is a span from its first to its last moment, not a set of clock readings, so that it opens once on the night
when an hour comes twice (at the first of the two) and not at all where all of it lies in an hour that is left out; a
start or an end in such an hour means the moment when the clocks are set. Windows that touch or overlap are one.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import BadInput
from vllm_tuner.daemon.permit import GRANTED, Permit
from vllm_tuner.daemon.windows_cron import Cron, read_cron


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_ENTRY = re.compile(r"(?:(?P<days>[a-z,\- ]+?)\s+)?(?P<start>\d{1,2}:\d\d)\s*-\s*(?P<end>\d{1,2}:\d\d)", re.IGNORECASE)
_DAY = 24 * 60
_LONGEST_DAYS = 8  # a span that goes on for longer is not followed: it is always open
_AHEAD_DAYS = 8 * 366  # a 29 February at most, over a century's end
_HINT = 'write "Mon-Fri 02:00-05:30", "Sat,Sun 00:00-24:00", "22:00-06:00" or "0 2 * * 1-5 for 3h"'


class Weekly(NamedTuple):
    """The same minutes on some days of the week (0: Monday); `end` beyond 1440 lies in the next day."""

    days: frozenset[int]
    start: int
    end: int

    @property
    def reaches_days(self) -> int:
        """How many days before a moment it may have begun."""
        return 1

    def on(self, day: date) -> tuple[tuple[int, int], ...]:
        """(start, end) in minutes of that day."""
        return ((self.start, self.end),) if day.weekday() in self.days else ()


class Windows(NamedTuple):
    """All windows of a service, in one time zone. Moments are UTC seconds."""

    entries: tuple[Weekly | Cron, ...]
    zone: tzinfo

    @classmethod
    def parse(cls, texts: Sequence[str], zone: str = "UTC") -> Windows:
        """From their texts. Raises BadInput."""
        if not texts:
            raise BadInput("there is no window, so nothing would ever be tuned", 'write "00:00-24:00" for any time')
        return cls(tuple(_entry(text) for text in texts), zone_of(zone))

    def open_at(self, utc: float) -> bool:
        """Whether a window is open."""
        return any(start <= utc < end for start, end in self._spans(utc))

    def closes_at(self, utc: float) -> float | None:
        """When the window that is open now closes; None: none is open, or they never close."""
        if not self.open_at(utc):
            return None
        last = utc
        while last - utc < _LONGEST_DAYS * 86400:
            ends = [end for start, end in self._spans(last) if start <= last < end]
            if not ends:
                return last
            last = max(ends)
        return None

    def next_open(self, utc: float) -> float | None:
        """When the next window opens, `utc` itself where one is open; None: none does within years."""
        if self.open_at(utc):
            return utc
        today = datetime.fromtimestamp(utc, self.zone).date()
        for ahead in range(-1, _AHEAD_DAYS):
            starts = [start for start, end in self._on(today + timedelta(days=ahead)) if utc < start < end]
            if starts:
                return min(starts)
        return None

    def permit(self, utc: float) -> Permit:
        """Leave, or when the next window opens."""
        if self.open_at(utc):
            return GRANTED
        opens = self.next_open(utc)
        when = f"{datetime.fromtimestamp(opens, self.zone):%a %Y-%m-%d %H:%M}" if opens is not None else "never"
        return Permit(granted=False, by="window", why=f"the next window opens {when}")

    def offset_s(self, utc: float) -> float:
        """Local time minus UTC."""
        offset = datetime.fromtimestamp(utc, self.zone).utcoffset()
        return offset.total_seconds() if offset else 0.0

    def _spans(self, utc: float) -> Iterator[tuple[float, float]]:
        """Those that may hold a moment."""
        today = datetime.fromtimestamp(utc, self.zone).date()
        for back in range(max(entry.reaches_days for entry in self.entries) + 1):
            yield from self._on(today - timedelta(days=back))

    def _on(self, day: date) -> Iterator[tuple[float, float]]:
        """The spans that begin on a local day."""
        for entry in self.entries:
            for start, end in entry.on(day):
                yield moment(day, start, self.zone), moment(day, end, self.zone)


def moment(day: date, minutes: int, zone: tzinfo) -> float:
    """The UTC seconds of a local time: the first of two, and for one that is left out when the clocks are set."""
    wall = datetime.combine(day, datetime.min.time()) + timedelta(minutes=minutes)
    first, second = wall.replace(tzinfo=zone, fold=0), wall.replace(tzinfo=zone, fold=1)
    utc = first.timestamp()
    if second.utcoffset() == first.utcoffset() or datetime.fromtimestamp(utc, zone).replace(tzinfo=None) == wall:
        return utc
    return _clocks_set(second.timestamp(), utc, zone)


def _clocks_set(before: float, after: float, zone: tzinfo) -> float:
    """The second between two moments at which the offset changes."""
    offset = datetime.fromtimestamp(before, zone).utcoffset()
    low, high = int(before), int(after)
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return float(high)


def zone_of(name: str) -> tzinfo:
    """A time zone by its IANA name. Raises BadInput, with what to install where there are none at all."""
    if name.upper() == "UTC":
        return UTC
    from zoneinfo import ZoneInfo, available_timezones

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # no such file, not a name, a folder
        known = available_timezones()
    if not known:
        raise BadInput(f"no time zone {name!r}: this machine has none", "pip install tzdata, or write UTC")
    from vllm_advisor.check.nearest import nearest

    meant = nearest(name, known)
    raise BadInput(f"no time zone {name!r}", f"did you mean {meant}?" if meant else "write it as Europe/Berlin")


def _entry(text: str) -> Weekly | Cron:
    found = _ENTRY.fullmatch(text.strip())
    if found is None:
        return read_cron(text, tuple(day[:3] for day in DAYS), _HINT)
    start, end = _minutes(found["start"], text), _minutes(found["end"], text)
    if start in (_DAY, end):
        raise BadInput(f"the window {text!r} has no time in it", _HINT)
    return Weekly(_days(found["days"] or "mon-sun", text), start, end if end > start else end + _DAY)


def _minutes(clock: str, text: str) -> int:
    hours, minutes = (int(part) for part in clock.split(":"))
    if minutes > 59 or 60 * hours + minutes > _DAY:
        raise BadInput(f"{clock} in the window {text!r} is no time of a day", _HINT)
    return 60 * hours + minutes


def _days(words: str, text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in re.split(r"[,\s]+", re.sub(r"\s*-\s*", "-", words.strip().lower())):
        first, _, last = part.partition("-")
        if part == "daily":
            first, last = DAYS[0], DAYS[-1]
        begin, end = _day(first), _day(last or first)
        if begin is None or end is None:
            raise BadInput(f"{part!r} in the window {text!r} is no day of the week", _HINT)
        found.update((begin + step) % 7 for step in range((end - begin) % 7 + 1))
    return frozenset(found)


def _day(word: str) -> int | None:
    """`mon`, `monday` and what lies between; None for what is no day."""
    found = [number for number, day in enumerate(DAYS) if len(word) >= 3 and day.startswith(word)]
    return found[0] if found else None
