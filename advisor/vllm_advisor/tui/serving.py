"""What the launch step watches: a server's log as it grows, read by the doctor; then its counters. For worker threads.

Nothing here is judged: the doctor's room reads the log, the estimate's room says what was expected, the live room asks
the server.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from textual.message import Message

from vllm_advisor.errors import AdvisorError
from vllm_advisor.tui.processes import Lines, Shown, Tail, patiently


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.doctor.comparison import Comparison
    from vllm_advisor.doctor.diagnosis import Finding
    from vllm_advisor.doctor.live import Answer as Told
    from vllm_advisor.doctor.live_facts import Observed
    from vllm_advisor.doctor.phases import Phase
    from vllm_advisor.doctor.remedies import Fix
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.tui.processes import Child
    from vllm_advisor.tui.screens.planned import Chosen
    from vllm_advisor.vllm.live import Live
    from vllm_advisor.vllm.logs_facts import Facts

_LOG_S, _HEALTH_S, METRICS_S = 0.25, 0.5, 2.0
_SHARE = 8  # reading a log anew takes at most this part of the time
_KEPT = 5000


class Expected(NamedTuple):
    """What the log is compared with: the machine, the version, and the model that the plan loads."""

    node: Node
    vllm: str
    model: ModelSpec


def expected(chosen: Chosen | None) -> Expected | None:
    """Of the chosen plan; for a server that was found, the plan that the state means."""
    if chosen is None:
        return None
    facts = chosen.answer.found.facts
    return Expected(facts.node, facts.vllm.version, chosen.ranked.model)


class Reading(NamedTuple):
    """What a log comes to so far."""

    finding: Finding
    phases: tuple[Phase, ...]
    compared: Comparison
    fixes: tuple[Fix, ...]


class Grew(Message):
    """The log has new lines."""

    def __init__(self, child: Child, lines: tuple[Shown, ...], reading: Reading) -> None:
        super().__init__()
        self.child, self.lines, self.reading = child, lines, reading


class Ended(Message):
    """The server is gone: how, and "" where that cannot be known."""

    def __init__(self, child: Child, how: str) -> None:
        super().__init__()
        self.child, self.how = child, how


class Answering(Message):
    """It answers /health."""

    def __init__(self, child: Child) -> None:
        super().__init__()
        self.child = child


class Measured(Message):
    """A reading of its counters, or why there is none."""

    def __init__(self, child: Child, seen: Observed | None, told: tuple[Told, ...] = (), why_not: str = "") -> None:
        super().__init__()
        self.child, self.seen, self.told, self.why_not = child, seen, told, why_not


def follow(
    child: Child,
    against: Callable[[], Expected | None],
    tell: Callable[[Message], object],
    cancelled: Callable[[], bool],
) -> None:
    """Tell `Grew` while the log grows, at last `Ended`; returns when nobody listens any more."""
    from vllm_advisor.doctor.diagnosis import Watch

    tail, lines, watch, comparing = Tail(child.log), Lines(), Watch(), _Comparing(against)
    while not cancelled():
        how = child.ended()  # before the reading: so the last words are read, too
        fresh, grew = deque[Shown](maxlen=_KEPT), False
        while (block := tail.read()) and not cancelled():
            grew = True
            watch.feed(block)
            fresh.extend(lines.take(block))
        begun = time.monotonic()
        if grew or how is not None:
            tell(Grew(child, tuple(fresh), comparing.read(watch.finding())))
        if how is not None:
            child.sweep()
            tell(Ended(child, how))
            return
        pause(max(_LOG_S, _SHARE * (time.monotonic() - begun)), cancelled)


class _Comparing:
    """The estimate beside what is printed, made anew only where something was printed that it has."""

    def __init__(self, against: Callable[[], Expected | None]) -> None:
        self._against = against
        self._key: object = None
        self._compared: Comparison | None = None

    def read(self, finding: Finding) -> Reading:
        """All of it."""
        from vllm_advisor.doctor import remedies
        from vllm_advisor.doctor.phases import phases

        facts, cause = finding.start.facts, finding.cause
        against = self._against()
        key = (against, tuple(facts.ranks.values()), tuple(facts.pools.values()), facts.model, facts.max_model_len)
        if self._compared is None or key != self._key:
            self._key, self._compared = key, self._compare(facts, against)
        fixes = remedies.fixes(cause, facts, self._compared.estimated) if cause else ()
        return Reading(finding, phases(facts, answers=False), self._compared, fixes)

    def _compare(self, facts: Facts, against: Expected | None) -> Comparison:
        from vllm_advisor.doctor import comparison

        if against is None:
            return comparison.Comparison(why_not="the plan of this server is not known here")
        return comparison.compare(
            facts, against.node, facts.version or against.vllm, lambda name: self._model(against, name)
        )

    @staticmethod
    def _model(against: Expected, name: str) -> ModelSpec:
        from vllm_advisor.catalog import hub

        return against.model if against.model.name == name else hub.resolve(name, offline=True)


def measure(child: Child, tell: Callable[[Message], object], cancelled: Callable[[], bool]) -> None:
    """Tell `Answering` once it answers, then `Measured` every two seconds, until it ends or nobody listens any more."""
    from vllm_advisor.launch.client import is_healthy

    while not is_healthy(child.url):
        if cancelled() or child.ended() is not None:
            return
        pause(_HEALTH_S, cancelled)
    tell(Answering(child))
    seen: Live | None = None
    last = 0.0
    while not cancelled() and child.ended() is None:
        try:
            now = time.monotonic()
            seen = _again(child.url, seen, now - last)
            last = now
            tell(_told(child, seen))
        except AdvisorError as error:
            seen = None
            tell(Measured(child, None, (), error.message))
        pause(METRICS_S, cancelled)


def _again(url: str, before: Live | None, seconds: float) -> Live:
    from vllm_advisor.vllm import live

    if before is None:
        return live.read(url, interval_s=0.0)
    return before._replace(first=before.second, second=live.reading(url), seconds=seconds)


def _told(child: Child, seen: Live) -> Measured:
    from vllm_advisor.doctor.live import answers
    from vllm_advisor.doctor.live_facts import observe
    from vllm_advisor.hardware import Unknown

    found = observe(seen)
    return Measured(child, found, answers(seen, found, Unknown("the log is compared instead")))


def pause(seconds: float, cancelled: Callable[[], bool]) -> None:
    """Wait, but not for those who are gone."""
    end, never = time.monotonic() + seconds, threading.Event()
    while (left := end - time.monotonic()) > 0 and not cancelled():
        never.wait(min(left, 0.1))


TOKENS = 32  # of a first completion, at most


def completion(child: Child, prompt: str, cancelled: Callable[[], bool]) -> str:
    """What the server makes of a prompt; "" where nobody waits any more. Raises EngineError."""
    from vllm_advisor.launch import complete

    said, failed = list[str](), list[AdvisorError]()

    def ask() -> None:
        try:
            said.append(complete(child, prompt, TOKENS))
        except AdvisorError as error:
            failed.append(error)

    patiently(ask, cancelled)
    if failed:
        raise failed[0]
    return said[0] if said else ""
