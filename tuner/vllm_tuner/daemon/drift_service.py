"""Whether the service suffers: late answers, preemptions, queues, a full cache, rejections, slower tokens.

Each is judged over spells of enough requests. Trouble adds its time to a sum and health takes a quarter of its time
away, so that the peak hour of each day is forgiven and a bad afternoon is not. A reason stands once the trouble adds up
to `hold_s`, and until all of it has been made up for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.hardware import Unknown
from vllm_advisor.units import significant
from vllm_tuner.daemon.drift_reason import Evidence, Kind, Part, Reason


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.workload import Workload
    from vllm_tuner.daemon.drift_reason import DriftLimits, Reference
    from vllm_tuner.daemon.drift_sample import Sample, Times

ENOUGH = 20.0  # requests of a spell, as in doctor/live_facts.py
_SPELL_S = 3600.0  # a spell that found fewer by then is judged by its gauges alone
_FORGIVEN = 0.25
_COMPARABLE = 0.25  # of the load, and of mean lengths, that a speed was measured at: an estimate of ours


class Spell:
    """Sums over some minutes; the gauges are weighted by time. `flight`: requests running × seconds."""

    __slots__ = (
        "flight", "flight_s", "latency_s", "output_tokens", "outputs", "preemptions", "prompt_tokens", "queue_s",
        "rejections", "requests", "seconds", "tpot_late", "tpot_n", "tpot_s", "ttft_late", "ttft_n", "usage", "usage_s",
        "waiting",
    )  # fmt: skip

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0.0)

    seconds: float
    requests: float
    prompt_tokens: float
    outputs: float
    output_tokens: float
    flight: float
    flight_s: float
    ttft_n: float
    ttft_late: float
    tpot_n: float
    tpot_late: float
    tpot_s: float
    queue_s: float
    latency_s: float
    preemptions: float
    rejections: float
    usage: float
    usage_s: float
    waiting: float

    def add(self, sample: Sample) -> None:
        """One more interval."""
        self.seconds += sample.seconds
        self._lengths(sample)
        self._times(sample)
        self.preemptions += _known(sample.preemptions)
        self.rejections += _known(sample.rejections)
        self.waiting += _known(sample.waiting) * sample.seconds
        if not isinstance(sample.usage, Unknown):
            self.usage += sample.usage * sample.seconds
            self.usage_s += sample.seconds

    def _lengths(self, sample: Sample) -> None:
        if not isinstance(sample.prompts, Unknown):
            self.requests += sample.prompts.requests
            self.prompt_tokens += sample.prompts.tokens
        if not isinstance(sample.outputs, Unknown):
            self.outputs += sample.outputs.requests
            self.output_tokens += sample.outputs.tokens
        if not isinstance(sample.running, Unknown):
            self.flight += sample.running * sample.seconds
            self.flight_s += sample.seconds

    def _times(self, sample: Sample) -> None:
        if not isinstance(sample.ttft, Unknown):
            self.ttft_n += sample.ttft.requests
            self.ttft_late += sample.ttft.late
        if not isinstance(sample.tpot, Unknown):
            self.tpot_n += sample.tpot.requests
            self.tpot_s += sample.tpot.seconds
            self.tpot_late += sample.tpot.late
        self.queue_s += _seconds(sample.queue)
        self.latency_s += _seconds(sample.latency)


def _known(value: float | Unknown) -> float:
    return 0.0 if isinstance(value, Unknown) else value


def _seconds(times: Times | Unknown) -> float:
    return 0.0 if isinstance(times, Unknown) else times.seconds


class Seen(NamedTuple):
    """One judgement: `bad` or not, with the figure, its limit and their unit; `times` slower for a speed."""

    bad: bool
    now: float
    then: float
    unit: str


def _late(spell: Spell, limits: DriftLimits, reference: Reference) -> Seen | None:
    sla = reference.limits
    if sla is None or (sla.ttft_ms is None and sla.tpot_ms is None):
        return None
    rows = ((sla.ttft_ms, spell.ttft_late, spell.ttft_n), (sla.tpot_ms, spell.tpot_late, spell.tpot_n))
    shares = [late / n for limit, late, n in rows if limit is not None and n >= ENOUGH]
    return _above(max(shares), limits.late_share, "of requests late") if shares else None


def _preempted(spell: Spell, limits: DriftLimits, _reference: Reference) -> Seen | None:
    return _of_requests(spell, spell.preemptions, limits.preempted_share, "preemptions a request")


def _rejected(spell: Spell, limits: DriftLimits, _reference: Reference) -> Seen | None:
    return _of_requests(spell, spell.rejections, limits.rejected_share, "rejections a request")


def _of_requests(spell: Spell, count: float, limit: float, unit: str) -> Seen | None:
    requests = spell.requests
    if not requests and not count:
        return None
    return _above(count / max(1.0, requests), limit, unit)


def _queued(spell: Spell, limits: DriftLimits, _reference: Reference) -> Seen | None:
    if spell.latency_s <= 0:
        return None
    return _above(spell.queue_s / spell.latency_s, limits.queued_share, "of a request's time in the queue")


def _full(spell: Spell, limits: DriftLimits, _reference: Reference) -> Seen | None:
    return _above(spell.usage / spell.usage_s, limits.kv_usage, "of the KV cache in use") if spell.usage_s else None


def _slower(spell: Spell, limits: DriftLimits, reference: Reference) -> Seen | None:
    """A token's mean time against the profile's, where load and lengths are those that it was measured at."""
    measured, load = reference.tpot_ms, reference.workload
    if measured is None or load is None or spell.tpot_n < ENOUGH or not _comparable(spell, load):
        return None
    now = 1000 * spell.tpot_s / spell.tpot_n
    return Seen(now > limits.slower * measured.high, now, measured.mid, "ms a token")


def _comparable(spell: Spell, load: Workload) -> bool:
    pairs = (
        (spell.flight / max(spell.flight_s, 1e-9), load.concurrency),
        (spell.prompt_tokens / max(spell.requests, 1e-9), load.input_tokens),
        (spell.output_tokens / max(spell.outputs, 1e-9), load.output_tokens),
    )
    return all(abs(now - then) <= _COMPARABLE * then for now, then in pairs)


def _above(now: float, limit: float, unit: str) -> Seen:
    return Seen(now > limit, now, limit, unit)


class Trouble(NamedTuple):
    """A row: what is judged and what its reason says."""

    kind: Kind
    judge: Callable[[Spell, DriftLimits, Reference], Seen | None]
    says: str


TROUBLES = (
    Trouble(Kind.SLA, _late, "the limits of the service are missed"),
    Trouble(Kind.PREEMPTIONS, _preempted, "requests are preempted"),
    Trouble(Kind.QUEUE, _queued, "requests wait in the queue"),
    Trouble(Kind.KV_USAGE, _full, "the KV cache is nearly full"),
    Trouble(Kind.REJECTIONS, _rejected, "requests are rejected"),
    Trouble(Kind.SPEED, _slower, "tokens take longer than the profile measured"),
)


class Service:
    """The sums of all troubles, and the open spell. `muted`: a re-tune has answered it, it must go first."""

    def __init__(self, limits: DriftLimits) -> None:
        self.limits = limits
        self.spell = Spell()
        self.sums = [0.0] * len(TROUBLES)
        self.last: list[Seen | None] = [None] * len(TROUBLES)
        self.raised = [False] * len(TROUBLES)
        self.muted = [False] * len(TROUBLES)
        self.since = [0.0] * len(TROUBLES)
        self.count = [0] * len(TROUBLES)

    def see(self, at: float, sample: Sample, reference: Reference) -> bool:
        """One interval; True where it closed a spell."""
        spell = self.spell
        spell.add(sample)
        if spell.requests < ENOUGH and spell.seconds < min(_SPELL_S, self.limits.hold_s):
            return False
        for number, trouble in enumerate(TROUBLES):
            seen = trouble.judge(spell, self.limits, reference)
            if seen is not None:
                self._add_up(number, seen, min(spell.seconds, _SPELL_S), at)
        self.spell = Spell()
        return True

    def _add_up(self, number: int, seen: Seen, seconds: float, at: float) -> None:
        hold, before = self.limits.hold_s, self.sums[number]
        total = min(before + seconds, 2 * hold) if seen.bad else max(0.0, before - _FORGIVEN * seconds)
        self.sums[number] = total
        if seen.bad:
            self.last[number] = seen
            self.since[number] = at if not before else self.since[number]
        if total <= 0:
            self.raised[number] = self.muted[number] = False
        elif total >= hold and not self.raised[number]:
            self.raised[number] = True
            self.count[number] += 1

    def reasons(self) -> tuple[Reason, ...]:
        """Those that stand and were not answered."""
        return tuple(
            self._reason(number, trouble)
            for number, trouble in enumerate(TROUBLES)
            if self.raised[number] and not self.muted[number]
        )

    def _reason(self, number: int, trouble: Trouble) -> Reason:
        seen = self.last[number] or Seen(True, 0.0, 0.0, "")
        now, then = float(significant(seen.now).replace(",", "")), float(significant(seen.then).replace(",", ""))
        evidence = Evidence(trouble.kind.value, then, now, seen.unit)
        says = f"{trouble.says}: {now:g} {seen.unit}, {then:g} expected at most"
        key = f"{trouble.kind.value}:{self.count[number]}"
        return Reason(trouble.kind, key, says, (Part.SERVER,), (evidence,), self.since[number])

    def settle(self, kinds: frozenset[Kind]) -> None:
        """A re-tune answered these: silent until they have gone away once."""
        for number, trouble in enumerate(TROUBLES):
            if trouble.kind in kinds and self.sums[number] > 0:
                self.muted[number] = True

    def plain(self) -> list[list[object]]:
        """Sum, flags, start, count and last figure of each, for a JSON text; the open spell is let go."""
        rows = zip(TROUBLES, self.sums, self.raised, self.muted, self.since, self.count, self.last, strict=True)
        return [
            [row.kind.value, round(total, 1), raised, muted, since, count, list(last) if last else None]
            for row, total, raised, muted, since, count, last in rows
        ]

    @classmethod
    def read(cls, plain: list[list[Any]], limits: DriftLimits) -> Service:
        """From that; troubles that a later version has begin at 0. Raises ValueError or TypeError for anything else."""
        service, rows = cls(limits), {str(kind): rest for kind, *rest in plain}
        for number, trouble in enumerate(TROUBLES):
            if trouble.kind.value in rows:
                total, raised, muted, since, count, last = rows[trouble.kind.value]
                service.sums[number], service.since[number] = float(total), float(since)
                service.raised[number], service.muted[number] = bool(raised), bool(muted)
                service.count[number] = int(count)
                service.last[number] = _seen(last)
        return service


def _seen(plain: list[Any] | None) -> Seen | None:
    return Seen(bool(plain[0]), float(plain[1]), float(plain[2]), str(plain[3])) if plain else None
