"""Continuous batching in closed form: from the seconds of a step to the speed that users see under a load.

In the time in which every running request gets its whole answer, each of them also spends its prefill, so that
    cycle = running × prefill + decode steps × step(running).
Of that, what comes before a request's own first token is time to first token, the rest is time per output token. What
does not fit the batch waits. A load is a number of requests in flight together, or a rate, or a burst of prompts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.throughput.step import Machine, Step, step


if TYPE_CHECKING:
    from vllm_advisor.throughput.parameters import Parameters

_ITERATIONS = 6
_FIRST_WAVE = 0.1  # load generators send ten times the concurrency where nobody says
_BUSIEST = 0.95
_AT_MOST = 0.9  # of the others' prompts come before one's own first token, where prompts are nearly all that is done
_GAPS = 0.1  # more requests than the mean length leaves room for, under a long queue (an estimate)


class Load(NamedTuple):
    """Lengths in tokens, and what arrives at the whole deployment.

    `concurrency` requests in flight together, or `request_rate` requests a second, or `prompts` all at once; None: not
    limited. `spread`: how much output lengths differ, 0 all equal, 1 like people's conversations. `cached`: tokens of a
    prompt that are already in the prefix cache.
    """

    input_tokens: float
    output_tokens: float
    concurrency: float | None = None
    request_rate: float | None = None
    prompts: float | None = None
    spread: float = 0.0
    cached: float = 0.0

    @property
    def context(self) -> float:
        """Tokens that a running request has, in the mean: half of an answer where all are equal.

        Where they differ, who runs is likelier a long one: of lengths like those of an exponential, all of the mean.
        """
        return self.input_tokens + self.output_tokens / 2 * (1 + self.spread)


class Speed(NamedTuple):
    """Whole deployment: tokens a second, requests running and offered; one request: seconds. `step`: of decode."""

    output: float
    ttft: float
    tpot: float
    running: float
    offered: float
    step: Step


class _Replica(NamedTuple):
    """One data-parallel replica under its share of the load."""

    machine: Machine
    load: Load
    seats: float
    first: float
    frontend: float
    bunching: float
    tail: float
    skew: float
    wait: float
    steps: float
    context: float

    def decode(self, running: float) -> Step:
        """A decode step; pipeline stages work on a part of the requests each."""
        return step(self.machine, max(1.0, running / self.machine.traits.pp), self.context)


def serve(m: Machine, load: Load, seats: float, p: Parameters) -> Speed:
    """What users see. `seats`: requests that one replica's batch and KV cache hold."""
    dp = m.traits.dp
    most = min(load.concurrency or math.inf, load.prompts or math.inf)
    busy = min(dp, most)  # fewer requests than replicas leave some of them idle
    share = load._replace(
        concurrency=None if load.concurrency is None else max(1.0, load.concurrency / dp),
        request_rate=None if load.request_rate is None else load.request_rate / dp,
        prompts=None if load.prompts is None else max(1.0, load.prompts / dp),
    )
    steps = max(1.0, load.output_tokens) / m.token_factor
    r = _Replica(
        m,
        share,
        max(1.0, min(seats, _kept_fed(m, load, steps))),
        p.first_token_ms * 1e-3 + load.input_tokens * p.tokenize_us * 1e-6,
        p.frontend_ms * 1e-3,
        p.bunching,
        p.spread_tail,
        p.spread_skew,
        1 + p.dp_wait * (dp - 1) if m.traits.exchanged else 1.0,
        steps,
        load.context,
    )
    found = _at_rate(r, share.request_rate) if share.request_rate is not None else _together(r)
    return found._replace(output=found.output * busy, running=found.running * busy, offered=found.offered * busy)


def _kept_fed(m: Machine, load: Load, steps: float) -> float:
    """Requests that decode at once when each step is full: as many leave as prompts come in through what is left of it.

    A step of B tokens has n that decode and B - n of prompts: n / steps = (B - n) / prompt.
    """
    prompt = max(1.0, load.input_tokens - load.cached)
    return m.traits.max_batched_tokens * steps / (prompt + steps * (m.traits.draft + 1))


def _prefill(r: _Replica, running: float, together: float) -> tuple[float, float]:
    """(seconds that a prompt takes from the others, seconds of its own steps), `together` prompts being there."""
    load, t = r.load, r.machine.traits
    tokens = max(1.0, load.input_tokens - load.cached)
    room = max(64.0, t.max_batched_tokens - running)
    chunk = min(room, tokens * max(1.0, together))
    before = load.input_tokens - tokens / 2
    others = max(0.0, running / t.pp - 1)
    whole = step(r.machine, others, r.context, chunk, before).seconds
    alone = step(r.machine, others, r.context).seconds if others else 0.0
    extra = max(whole - alone, 0.2 * whole) * tokens / chunk / t.pp * r.wait + r.frontend
    own = whole * max(1.0, tokens / chunk) + (t.pp - 1) * whole / t.pp
    return extra, own


def _together(r: _Replica) -> Speed:
    """A fixed number in flight, or all prompts at once."""
    load = r.load
    offered = load.concurrency or load.prompts or r.seats
    if load.prompts:
        offered = min(offered, load.prompts)
    seated = min(offered, r.seats)
    running = _filled(offered, r.seats)
    start = min(1.0, running / load.prompts) if load.prompts else _FIRST_WAVE
    decode = r.decode(running * (1 - 0.4 * load.spread * start))
    many, _ = _prefill(r, running, running)
    few, own = _prefill(r, running, max(1.0, running / r.steps))
    extra = start * many + (1 - start) * few
    busy = r.steps * decode.seconds
    cycle = running * extra + busy
    ahead = (running - 1) * many / 2
    used = min(_BUSIEST, running * extra / cycle)
    queued = min(_AT_MOST * (running - 1), r.bunching * used / (1 - used) / 2) * few
    steady = queued * seated / offered  # who waits for a seat is let in late
    first = own + (1 - start) * steady + start * ahead
    stalls = max(cycle - first, 0.3 * busy) - busy
    lap = r.first + first + busy + stalls
    tpot = (busy + stalls * (1 + load.spread * r.skew * (stalls > 0))) / max(1.0, load.output_tokens)
    waits = (offered / seated - 1) * lap * (1 - 0.5 * (offered / load.prompts if load.prompts else _FIRST_WAVE))
    output = running * load.output_tokens / lap
    if load.prompts and load.spread:
        tail = load.spread * r.tail * r.steps * r.decode(max(1.0, running / 6)).seconds
        total = load.prompts / running * lap
        output *= total / (total + tail)
    return Speed(output, r.first + first + waits, tpot, seated, offered, decode)


def _filled(offered: float, seats: float) -> float:
    """Requests that run: all, or where they queue, the seats and a few more, since short ones fit into gaps."""
    return offered if offered <= seats else seats * (1 + _GAPS * (1 - seats / offered))


def _at_rate(r: _Replica, rate: float) -> Speed:
    """Requests that arrive by themselves: what is in flight follows from how long each takes (Little's law)."""
    load, out = r.load, max(1.0, r.load.output_tokens)
    most = min(r.seats, load.concurrency or r.seats, load.prompts or r.seats)
    running = 1.0
    for _ in range(_ITERATIONS):
        decode = r.decode(running)
        extra, own = _prefill(r, running, 1.0)
        used = min(_BUSIEST, rate * extra)
        first = own + r.bunching * used / (1 - used) * extra / 2
        tpot = r.steps / out * decode.seconds / (1 - used)
        wanted = rate * (first + out * tpot)
        running = max(1.0, min(most, wanted))
    if wanted > most or rate * extra > _BUSIEST:
        return _overloaded(r, rate, most)
    latency = r.first + first + out * tpot
    output = rate * out
    if load.prompts:
        output *= (load.prompts / rate) / (load.prompts / rate + latency)
    return Speed(output, r.first + first, tpot, running, running, decode)


def _overloaded(r: _Replica, rate: float, most: float) -> Speed:
    """More arrives than is served: a burst, that is stretched over the time of arrival."""
    burst = _together(r._replace(load=r.load._replace(request_rate=None), seats=most))
    if not r.load.prompts:
        return burst
    served = burst.output / max(1.0, r.load.output_tokens)
    backlog = max(0.0, r.load.prompts * (1 - served / rate) - burst.running)
    waits = backlog / 2 / served
    floor = min(burst.ttft, r.first + step(r.machine, burst.running, r.context, r.load.input_tokens, 0.0).seconds)
    return burst._replace(ttft=floor + waits, offered=burst.running + backlog)
