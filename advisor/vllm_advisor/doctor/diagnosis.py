"""From a log to its failures: the cause first, then what else stands; nothing where nothing is recognised.

Processes repeat each other, and most last lines only point at an earlier one. So the first line that explains wins; a
true but general one (a validation error) stands back behind it; what healthy starts print too counts only alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.doctor.failure import (
    CAUSE,
    CONSEQUENCE,
    GENERIC,
    GRAPHS,
    LOAD,
    PROFILE,
    SERVING,
    SYMPTOM,
    Change,
    Diagnosis,
)
from vllm_advisor.doctor.failures import FAILURES, FRAMES
from vllm_advisor.doctor.mask import mask
from vllm_advisor.vllm import logs


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from vllm_advisor.doctor.failure import Failure
    from vllm_advisor.vllm.logs import Log, Start
    from vllm_advisor.vllm.logs_lines import Line

HEALTHY, FAILED, UNKNOWN, UNFINISHED, NO_LOG = "healthy", "failed", "unknown failure", "unfinished", "no vLLM log"
_LONGEST = 4000  # characters of a line that patterns look at
_HANGS = 3  # times that the symptom of a hang must stand: a compilation prints it once or twice
_ORDER = {CAUSE: 0, GENERIC: 1, SYMPTOM: 2, CONSEQUENCE: 3}


class Finding(NamedTuple):
    """What a log comes to. `start` is the one that is judged, `failures` the cause first; `errors` are masked lines."""

    verdict: str
    start: Start
    failures: tuple[Diagnosis, ...]
    errors: tuple[str, ...]
    earlier: bool
    log: Log

    @property
    def cause(self) -> Diagnosis | None:
        """The failure that explains the others."""
        return self.failures[0] if self.failures else None


def marks() -> tuple[str, ...]:
    """All literals that a log is searched for."""
    frames = (mark for mark, _ in FRAMES)
    return tuple(dict.fromkeys((*(mark for failure in FAILURES for mark in failure.marks), *frames)))


def read(stream: BinaryIO, progress: Callable[[int], None] | None = None) -> Finding:
    """Read a whole log and judge its last start. Raises BadInput for a compressed file."""
    return judge(logs.read(stream, marks(), progress))


class Watch:
    """The same of a log that is still written: fed what is new, judged at any time."""

    def __init__(self) -> None:
        self._log = logs.Growing(marks())

    def feed(self, block: bytes) -> None:
        """The next bytes."""
        self._log.feed(block)

    def finding(self) -> Finding:
        """What the log comes to so far."""
        return judge(self._log.log())


def judge(log: Log) -> Finding:
    """The last start's failures; the one before where the last has not got far enough to tell."""
    start, earlier = log.starts[-1], False
    found = failures(start)
    if not found and not start.facts.ready and not start.errors and len(log.starts) > 1:
        before = failures(log.starts[-2])
        if before:
            start, found, earlier = log.starts[-2], before, True
    errors = tuple(dict.fromkeys(mask(line.text.strip()) for line in start.errors if _counts(start, line)))
    return Finding(_verdict(log, start, found, errors), start, found, errors, earlier, log)


def _counts(start: Start, line: Line) -> bool:
    return not start.facts.ready or line.number > start.facts.ready_line


def _verdict(log: Log, start: Start, found: tuple[Diagnosis, ...], errors: tuple[str, ...]) -> str:
    if found:
        return FAILED
    if not log.is_vllm:
        return NO_LOG
    if start.facts.ready or start.facts.init_s is not None:  # a program that serves nobody has only the second
        return HEALTHY
    return UNKNOWN if errors else UNFINISHED


def failures(start: Start) -> tuple[Diagnosis, ...]:
    """Every failure of a start once, the cause first."""
    first: dict[str, tuple[int, int, Diagnosis]] = {}
    times: dict[str, int] = {}
    for place, found in enumerate(_matches(start)):
        times[found.failure.id] = times.get(found.failure.id, 0) + 1
        first.setdefault(found.failure.id, (_ORDER[found.failure.weight], place, found))
    kept = [
        entry for entry in first.values() if entry[2].failure.weight != SYMPTOM or times[entry[2].failure.id] >= _HANGS
    ]
    ranked = [found for _, _, found in sorted(kept, key=lambda entry: entry[:2])]
    if start.facts.ready or any(found.failure.weight in (CAUSE, GENERIC) for found in ranked):
        ranked = [found for found in ranked if found.failure.weight != SYMPTOM]
    explained = any(found.failure.weight != CONSEQUENCE for found in ranked)
    return tuple(found for found in ranked if not explained or found.failure.weight != CONSEQUENCE)


def _matches(start: Start) -> Iterator[Diagnosis]:
    for line in start.evidence:
        if not _counts(start, line):
            continue
        text = line.text[:_LONGEST]
        stage = ""
        for failure in FAILURES:
            if not _may(failure, line, text):
                continue
            if failure.stage:
                stage = stage or _stage(start, line)
                if stage != failure.stage:
                    continue
            found = _found(failure, text)
            if found is not None:
                yield _diagnosis(failure, line, text, found)
                break


def _may(failure: Failure, line: Line, text: str) -> bool:
    loud = failure.warns or line.level in ("", "ERROR", "CRITICAL", "FATAL")
    return loud and any(mark in text for mark in failure.marks)


def _found(failure: Failure, text: str) -> dict[str, str] | None:
    """The named groups of the first pattern that holds; {} where a mark is enough."""
    for pattern in failure.patterns:
        found = re.search(pattern, text)
        if found:
            return {name: value.strip() for name, value in found.groupdict().items() if value is not None}
    return None if failure.patterns else {}


class _Blank(dict[str, str]):
    """A figure that the line does not give reads as its name in brackets."""

    def __missing__(self, key: str) -> str:
        return f"<{key}>"


def _diagnosis(failure: Failure, line: Line, text: str, found: dict[str, str]) -> Diagnosis:
    shown = _Blank({name: mask(value, 200) for name, value in found.items()})
    said = (failure.cause.format_map(shown), failure.fix.format_map(shown))
    read = tuple(sorted(found.items()))
    return Diagnosis(
        failure, *said, _change(failure.change, shown), line.number, line.process, mask(text.strip()), read
    )


def _change(change: Change, shown: _Blank) -> Change:
    """The change with its figures; what the line does not give is left out."""

    def filled(pairs: tuple[tuple[str, str | None], ...]) -> tuple[tuple[str, str | None], ...]:
        out = [(name.format_map(shown), None if value is None else value.format_map(shown)) for name, value in pairs]
        return tuple((n, v) for n, v in out if not n.startswith("<") and (v is None or not re.fullmatch(r"<\w+>", v)))

    return Change(filled(change.flags), filled(change.env))


def _stage(start: Start, line: Line) -> str:
    """Where memory ran out: by the frames of the same process before the line, else by how far the start got."""
    if start.facts.ready and line.number > start.facts.ready_line:
        return SERVING
    if "warming up" in line.text:
        return FRAMES[0][1]
    before = [e for e in start.evidence if e.number < line.number and e.process == line.process]
    held = {stage for mark, stage in FRAMES for e in before if mark in e.text}
    for _, stage in FRAMES:
        if stage in held and stage != SERVING:
            return stage
    return _reached(start)


def _reached(start: Start) -> str:
    facts = start.facts
    if facts.pools or facts.blocks:
        return GRAPHS
    return PROFILE if any(rank.weights_gib is not None for rank in facts.ranks.values()) else LOAD
