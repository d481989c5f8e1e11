"""Requests that others wrote down: traces and logs with lengths, access logs with times alone, conversations.

Files are read line by line and a bounded number of rows is kept, the last ones of a log, so that a log of a gigabyte
costs no more memory than one of ten megabytes. A few torn lines (rotation, a full disk) are passed over; a file of
mostly something else is refused with its first bad line.
"""

from __future__ import annotations

import csv
import json
import re
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_tuner.workloads import Lengths, gaps, seeded


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from vllm_tuner.load import Request
    from vllm_tuner.workloads import Shape, Source

_MOST_ROWS = 100_000
_MOST_PAIRS = 20_000
_LONGEST_LINE = 1 << 20
_CHUNK, _LONGEST_ROW = 1 << 20, 64 << 20
_TORN = 0.01  # of the lines: what rotation tears, a choice of ours
# Names of the columns in public traces (Azure's LLM inference traces, Mooncake's), in OpenAI's usage, and in ours.
_INPUT = ("input_tokens", "prompt_tokens", "ContextTokens", "input_length", "prompt_len")
_OUTPUT = ("output_tokens", "completion_tokens", "GeneratedTokens", "output_length", "output_len")
_AT = ("at", "timestamp", "TIMESTAMP", "@timestamp", "time", "ts", "created")
_EPOCH_S, _EPOCH_MS = 1e9, 1e11  # seconds since 1970 lie between, milliseconds above


def lines(path: Path) -> Iterator[str]:
    """Lines without their ends; one that is longer than a mebibyte comes in pieces."""
    with path.open("rb") as stream:
        while line := stream.readline(_LONGEST_LINE):
            yield line.decode("utf-8", "replace").rstrip("\r\n")


class Rows(NamedTuple):
    """What a file holds: (input, output, seconds or None), the last ones, and what could not be read."""

    kept: deque[tuple[int, int, float | None]]
    seen: int
    bad: int
    first_bad: str


def trace(path: Path, shape: Shape) -> Lengths:
    """Lengths, and times where every row has one, in their order. Raises ValueError where it is no trace."""
    rows = csv.DictReader(lines(path)) if path.suffix == ".csv" else _objects(path)
    found = _rows(rows)
    if not found.kept:
        raise ValueError(found.first_bad or "it has no rows")
    if found.bad > _TORN * found.seen:
        raise ValueError(f"{found.bad} of {found.seen} rows are no requests; the first: {found.first_bad}")
    timed = all(at is not None for _, _, at in found.kept)
    rows_in_order = sorted(((a, b, at or 0.0) for a, b, at in found.kept), key=lambda row: row[2])
    return Lengths(path.name, tuple(rows_in_order), timed, shape)


def _objects(path: Path) -> Iterator[Any]:
    for line in lines(path):
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                yield line


def _rows(rows: Iterable[Any]) -> Rows:
    kept: deque[tuple[int, int, float | None]] = deque(maxlen=_MOST_ROWS)
    seen = bad = 0
    first_bad = ""
    for number, row in enumerate(rows, 1):
        seen = number
        try:
            kept.append(_row(row))
        except (ValueError, TypeError, OverflowError) as error:
            bad, first_bad = bad + 1, first_bad or f"row {number}: {error}"
    return Rows(kept, seen, bad, first_bad)


def _row(row: Any) -> tuple[int, int, float | None]:
    if not isinstance(row, dict):
        raise TypeError("no JSON object")
    usage = row.get("usage")
    flat = {**usage, **row} if isinstance(usage, dict) else row
    return _int(flat, _INPUT), _int(flat, _OUTPUT), _seconds(flat)


def _int(row: Mapping[str, Any], names: Sequence[str]) -> int:
    value = next((row[name] for name in names if row.get(name) not in (None, "")), None)
    if value is None or not 1 <= int(value) < 1 << 31:
        raise ValueError(f"no positive {names[0]}")
    return int(value)


def _seconds(row: Mapping[str, Any]) -> float | None:
    """Seconds, of a number or a date. Small numbers under `timestamp` are Mooncake's, in milliseconds."""
    name = next((name for name in _AT if row.get(name) not in (None, "")), None)
    if name is None:
        return None
    try:
        value = float(row[name])
    except (TypeError, ValueError):
        return date(str(row[name]))
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name} is no time")
    thousandth = value >= _EPOCH_MS or (name == "timestamp" and value < _EPOCH_S)
    return value / 1000 if thousandth else value


def date(text: str) -> float:
    """Seconds since 1970 of an ISO date; without a zone it is UTC. Raises ValueError."""
    found = datetime.fromisoformat(text.strip())
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


# uvicorn's line as vLLM prints it (uvicorn/config.py:94): INFO:  10.0.0.7:532 - "POST /v1/completions HTTP/1.1" 200 OK
_POST = '"POST /'
_ACCESS = re.compile(r'"POST /(?:v1/)?(?:(?:chat/)?completions|responses|messages|generate)(?:[ ?][^"]*)?" 200\b')
# vLLM's own lines carry a time (logger.py:30); so do all of `docker logs -t`, of journald (-o short-iso) and of nginx.
_VLLM_TIME = re.compile(r"\b(?:DEBUG|INFO|WARNING|ERROR) (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\b")
_ISO_TIME = re.compile(r"^(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)")
_NGINX_TIME = re.compile(r"\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\]")
_HALF_YEAR_S, _YEAR_S = 180 * 86400.0, 366 * 86400.0


class Arrivals(NamedTuple):
    """Recorded times; lengths are another source's. `exact` False: known to the next timed line, and spread between.

    A server writes such a line when its answer begins: what was long in the queue comes that much late.
    """

    label: str
    at: tuple[float, ...]
    lengths: Source
    exact: bool

    @property
    def timed(self) -> bool:
        """That is what it is for."""
        return True

    def requests(self, number: int, seed: int) -> tuple[Request, ...]:
        """A stretch that begins somewhere, round the end."""
        start = seeded(seed).randrange(len(self.at))
        made, times = self.lengths.requests(number, seed), gaps(self.at, start, number)
        return tuple(request._replace(at=at) for request, at in zip(made, times, strict=True))


def access_log(path: Path, lengths: Source) -> Arrivals:
    """When requests came, by an access log. Raises ValueError where it holds none, or no line has a time."""
    clock = _Clock()
    for line in lines(path):
        if _POST in line and _ACCESS.search(line):
            clock.request(_own_time(line))
        elif found := _VLLM_TIME.search(line):
            clock.tick(_in_year(found))
    if not clock.times:
        counted = f"{clock.waiting} requests without a time" if clock.waiting else "no line of a served request"
        raise ValueError(counted)
    return Arrivals(path.name, tuple(sorted(clock.times)), lengths, clock.exact)


class _Clock:
    """Times of requests, from their own lines or from the timed lines around them."""

    def __init__(self) -> None:
        self.times: deque[float] = deque(maxlen=_MOST_ROWS)
        self.waiting = 0  # requests since the last timed line
        self.exact = True
        self._last: float | None = None
        self._years = 0.0

    def request(self, at: float | None) -> None:
        """One more; None: its line has no time."""
        if at is None:
            self.waiting += 1
        else:
            self.times.append(at)

    def tick(self, at: float) -> None:
        """A line with a time: those that waited came between the last one and this."""
        if self._last is not None and at + self._years < self._last - _HALF_YEAR_S:
            self._years += _YEAR_S  # New Year: vLLM's lines have no year
        now = at + self._years
        if self._last is not None and self.waiting:
            kept = min(self.waiting, _MOST_ROWS)
            step = max(0.0, now - self._last) / (kept + 1)
            self.times.extend(self._last + step * (i + 1) for i in range(kept))
            self.exact = False
        self.waiting, self._last = 0, now


def _own_time(line: str) -> float | None:
    if found := _ISO_TIME.match(line):
        return date(found[1].replace(",", "."))
    if found := _NGINX_TIME.search(line):
        return datetime.strptime(found[1], "%d/%b/%Y:%H:%M:%S %z").timestamp()
    return None


def _in_year(found: re.Match[str]) -> float:
    """Seconds within a leap year, the only one that has every day."""
    month, day, hour, minute, second = (int(part) for part in found.groups())
    return datetime(2000, month, day, hour, minute, second, tzinfo=UTC).timestamp()


def conversations(path: Path) -> tuple[tuple[str, str], ...]:
    """The first two turns of conversations that have them, the first 20,000. Raises ValueError, TypeError, KeyError."""
    pairs: list[tuple[str, str]] = []
    for row in elements(path):
        turns = [turn.get("value", turn.get("content")) for turn in row["conversations"][:2]]
        if len(turns) > 1 and all(isinstance(x, str) and x for x in turns):
            pairs.append((turns[0], turns[1]))
        if len(pairs) == _MOST_PAIRS:
            break
    if not pairs:
        raise ValueError("no conversation has a question and an answer")
    return tuple(pairs)


def elements(path: Path) -> Iterator[Any]:
    """The elements of a JSON array, one after the other, with one in memory. Raises ValueError for anything else."""
    decoder, held, opened = json.JSONDecoder(), "", False
    with path.open(encoding="utf-8") as stream:
        while chunk := stream.read(_CHUNK):
            held = (held + chunk).lstrip() if not opened else held + chunk
            if not opened:
                if not held.startswith("["):
                    raise ValueError("it is no JSON array")
                held, opened = held[1:], True
            while (held := held.lstrip(" \t\r\n,")) and not held.startswith("]"):
                try:
                    element, end = decoder.raw_decode(held)
                except ValueError:
                    break  # cut by the chunk, or broken: the end tells
                held = held[end:]
                yield element
            if len(held) > _LONGEST_ROW:
                raise ValueError("one conversation is larger than 64 MiB")
    if not held.lstrip().startswith("]"):
        raise ValueError("it ends within an element")
