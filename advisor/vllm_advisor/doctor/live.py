"""What a running server shows, question by question: enough room, pressure, queues, prefixes, lengths, speed. Pure.

Each answer has its figures; what this version does not count is said to be unknown. Nothing is judged of a server that
had too few requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.doctor.live_facts import ENOUGH, LIFETIME, Counted, Distribution, observe
from vllm_advisor.doctor.live_gain import Considered, consider
from vllm_advisor.doctor.live_plan import Inferred, infer, tokens
from vllm_advisor.hardware import Unknown
from vllm_advisor.units import Interval, count, milliseconds, rate, significant


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.doctor.live_facts import Observed
    from vllm_advisor.hardware import Node
    from vllm_advisor.model.spec import ModelSpec
    from vllm_advisor.vllm.live import Live
    from vllm_advisor.vllm.surface import Surface

OK, WATCH, ACT, UNKNOWN = "ok", "watch", "act", "unknown"
# Above this share a burst of new tokens meets a full cache: a convention of ours, requests are preempted at 1.
_FULL = 0.9
# A request that waits longer than this part of its life mostly waits: a convention of ours.
_MOSTLY_WAITS = 0.2


class Answer(NamedTuple):
    """One question: `level` is ok, watch, act or unknown; `hint` what may be done about it."""

    topic: str
    level: str
    text: str
    hint: str = ""


class Diagnosis(NamedTuple):
    """All that is said of a server. `judged` Unknown: too little to judge by. `inferred` Unknown: no plan, and why."""

    live: Live
    seen: Observed
    answers: tuple[Answer, ...]
    judged: bool | Unknown
    inferred: Inferred | Unknown
    considered: Considered | Unknown


class Setting(NamedTuple):
    """What stands beside the server's own figures: the model, the machine and the version, each perhaps not known."""

    model: ModelSpec | Unknown
    node: Node | Unknown
    surface: Surface | Unknown


def diagnose(live: Live, setting: Setting) -> Diagnosis:
    """Everything, from two readings and what is known of the machine."""
    seen = observe(live)
    judged, inferred = traffic(seen), _inferred(seen, setting)
    considered: Considered | Unknown
    if isinstance(judged, Unknown) or isinstance(inferred, Unknown):
        considered = judged if isinstance(judged, Unknown) else Unknown(_why(inferred))
    elif not inferred.is_it:
        considered = Unknown(_not_it(inferred))
    else:
        considered = consider(inferred, None if isinstance(seen.tpot, Unknown) else 1000 * seen.tpot.mean)
    return Diagnosis(live, seen, answers(live, seen, inferred), judged, inferred, considered)


def _why(inferred: Inferred | Unknown) -> str:
    return inferred.why if isinstance(inferred, Unknown) else ""


def _not_it(inferred: Inferred) -> str:
    if isinstance(inferred.off, Unknown):
        return f"{inferred.off.why}, so that no plan of ours can be held against it"
    return (
        f"its KV cache is {significant(inferred.off)} times what {inferred.plan.layout} on {inferred.node.label} "
        "should have: it runs something else than was inferred"
    )


def traffic(seen: Observed) -> bool | Unknown:
    """True where there was enough to judge by; else Unknown with what is missing."""
    if isinstance(seen.finished, Unknown):
        return Unknown("the server does not count its requests")
    if seen.finished.lifetime < ENOUGH:
        return Unknown(f"too little traffic to judge: {count(seen.finished.lifetime)} requests have ended so far")
    idle = not seen.in_flight and not seen.output_rate
    if idle:
        return Unknown(
            f"too little traffic to judge: nothing ran for {significant(seen.seconds)} s. Ask again under load"
        )
    return True


def _inferred(seen: Observed, setting: Setting) -> Inferred | Unknown:
    model, node, surface = setting
    if isinstance(model, Unknown):
        return model
    if isinstance(node, Unknown):
        return node
    return surface if isinstance(surface, Unknown) else infer(seen, model, node, surface)


def answers(live: Live, seen: Observed, inferred: Inferred | Unknown) -> tuple[Answer, ...]:
    """One line a question, in the order in which they matter to each other."""
    return (
        _server(live, seen),
        _capacity(seen, inferred),
        _pressure(seen),
        _preemptions(seen),
        _queue(seen),
        *_rejections(seen),
        _prefixes(seen),
        _lengths(seen),
        _latency(seen, inferred),
        _batch(seen),
    )


def _server(live: Live, seen: Observed) -> Answer:
    version = "a version it does not tell" if isinstance(seen.version, Unknown) else seen.version
    engines = f", {seen.replicas} data-parallel engines" if seen.replicas > 1 else ""
    text = f"vLLM {version} serves {seen.name or 'a model it does not name'}{engines}"
    if live.healthy is not True:
        return Answer(
            "server", ACT, f"{text}; /health does not say that it is well", "read its log: `advisor doctor LOG`"
        )
    return Answer("server", OK, text)


def _capacity(seen: Observed, inferred: Inferred | Unknown) -> Answer:
    held = tokens(seen)
    if isinstance(held, Unknown):
        return Answer("capacity", UNKNOWN, held.why)
    cache = seen.cache
    each = " on each engine" if seen.replicas > 1 else ""
    text = f"the KV cache holds {count(held)} tokens{each}"
    if not isinstance(cache.concurrency, Unknown):
        length = seen.served.max_model_len if seen.served else Unknown("")
        asked = "" if isinstance(length, Unknown) else f" of {count(length)} tokens"
        text += f", {cache.concurrency:.1f} requests of full length{asked}"
    known = (
        ("dtype", cache.dtype),
        ("blocks", cache.blocks),
        ("block size", cache.block_size),
        ("utilization", cache.utilization),
    )
    text += "".join(f"; {name} {_shown(value)}" for name, value in known if not isinstance(value, Unknown))
    return _against(Answer("capacity", OK, text), inferred)


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else count(value) if isinstance(value, int) else f"{value:g}"


def _against(answer: Answer, inferred: Inferred | Unknown) -> Answer:
    """With what we expect of the inferred plan."""
    if isinstance(inferred, Unknown):
        return answer._replace(text=f"{answer.text}. No estimate: {inferred.why}")
    if isinstance(inferred.off, Unknown):
        return answer
    budget = inferred.predicted
    mid = budget.kv_cache.mid or 1.0
    low, high = (count(budget.kv_tokens * end / mid) for end in (budget.kv_cache.low, budget.kv_cache.high))
    text = (
        f"{answer.text}. Our estimate for {inferred.plan.layout}: {count(budget.kv_tokens)} ({low} to {high}); "
        f"the server has {significant(inferred.off)} times that"
    )
    if inferred.is_it:
        return answer._replace(text=text)
    hint = "another process on the device, another layout, or quantization while loading: compare with its command"
    return Answer(answer.topic, WATCH, text, hint)


def _pressure(seen: Observed) -> Answer:
    if isinstance(seen.usage, Unknown):
        return Answer("KV pressure", UNKNOWN, seen.usage.why)
    where = "the fullest engine's" if seen.replicas > 1 else "the"
    text = f"{100 * seen.usage:.0f} % of {where} KV cache is in use"
    if seen.usage >= _FULL:
        return Answer("KV pressure", WATCH, text, "new requests wait for blocks: fewer at once, or a larger cache")
    return Answer("KV pressure", OK, text)


def _preemptions(seen: Observed) -> Answer:
    found = seen.preemptions
    if isinstance(found, Unknown):
        return Answer("preemptions", UNKNOWN, found.why)
    text = f"{_times(found, seen)}: a preempted request computes its tokens again"
    if found.window:
        return Answer("preemptions", ACT, text, "lower --max-num-seqs to what the KV cache holds, or enlarge the cache")
    return Answer("preemptions", WATCH if found.lifetime else OK, text if found.lifetime else "none")


def _times(found: Counted, seen: Observed) -> str:
    return f"{count(found.window)} in {significant(seen.seconds)} s, {count(found.lifetime)} {LIFETIME}"


def _queue(seen: Observed) -> Answer:
    if isinstance(seen.waiting, Unknown):
        return Answer("queue", UNKNOWN, seen.waiting.why)
    reasons = ", ".join(f"{count(value)} {reason}" for reason, value in seen.waiting_by.items())
    text = f"{significant(seen.waiting)} requests wait" + (f" ({reasons})" if reasons else "")
    level = WATCH if seen.waiting else OK
    if isinstance(seen.queue, Distribution):
        text += f"; a request waited {_spread(seen.queue, 1000, milliseconds)}"
        mostly = isinstance(seen.latency, Distribution) and seen.queue.mean > _MOSTLY_WAITS * seen.latency.mean
        level = ACT if mostly and seen.queue.scope != LIFETIME else level
    hint = "more places in the batch (--max-num-seqs), a larger KV cache, or more devices" if level != OK else ""
    return Answer("queue", level, text, hint)


def _rejections(seen: Observed) -> tuple[Answer, ...]:
    """Only where there are any: versions before 0.33 never turn a request away at admission."""
    found = {reason: counted for reason, counted in seen.rejections.items() if counted.lifetime}
    if not found:
        return ()
    text = ", ".join(f"{reason}: {_times(counted, seen)}" for reason, counted in found.items())
    level = ACT if any(counted.window for counted in found.values()) else WATCH
    return (Answer("rejections", level, text, "its queue limits turn requests away: raise them, or add capacity"),)


def _prefixes(seen: Observed) -> Answer:
    if seen.cache.prefix_caching is False:
        return Answer(
            "prefix cache", WATCH, "off: what prompts share is not counted then, so that no gain can be predicted",
            "prompts with a common beginning? then drop --no-enable-prefix-caching",
        )  # fmt: skip
    if isinstance(seen.prefix_hits, Unknown):
        return Answer("prefix cache", UNKNOWN, seen.prefix_hits.why)
    share, scope = seen.prefix_hits
    return Answer("prefix cache", OK, f"{100 * share:.1f} % of the prompt tokens were found in it {scope}")


def _lengths(seen: Observed) -> Answer:
    if isinstance(seen.input_tokens, Unknown) or isinstance(seen.output_tokens, Unknown):
        return Answer("lengths", UNKNOWN, "no request has ended yet")
    prompt, answer = seen.input_tokens, seen.output_tokens
    text = f"prompts {_spread(prompt, 1, count)} tokens; answers {_spread(answer, 1, count)} tokens"
    return Answer("lengths", OK, f"{text}; {count(prompt.requests)} requests {prompt.scope}")


def _spread(found: Distribution, factor: float, shown: Callable[[float], str]) -> str:
    mean, middle, high = (shown(factor * value) for value in (found.mean, found.p50, found.p95))
    return f"{mean} in the mean (half up to {middle}, 95 % up to {high})"


def _latency(seen: Observed, inferred: Inferred | Unknown) -> Answer:
    rows = [
        f"{name} {_spread(found, 1000, milliseconds)}" if isinstance(found, Distribution) else f"{name} unknown"
        for name, found in (("first token", seen.ttft), ("each later token", seen.tpot))
    ]
    if all(isinstance(found, Unknown) for found in (seen.ttft, seen.tpot)):
        return Answer("latency", UNKNOWN, "no request has ended yet")
    scope = next(found.scope for found in (seen.tpot, seen.ttft) if isinstance(found, Distribution))
    text = f"{'; '.join(rows)}; {scope}"
    if isinstance(inferred, Unknown) or not inferred.is_it or traffic(seen) is not True:
        return Answer("latency", OK, text)
    return Answer("latency", OK, f"{text}. Our estimate: {_range(inferred.speed.tpot_ms)} a token")


def _range(found: Interval) -> str:
    return f"{milliseconds(found.mid)} ({milliseconds(found.low)} to {milliseconds(found.high)})"


def _batch(seen: Observed) -> Answer:
    if isinstance(seen.running, Unknown):
        return Answer("batch", UNKNOWN, seen.running.why)
    text = f"{significant(seen.running)} requests run together"
    rates = (("out", seen.output_rate), ("of prompts", seen.prompt_rate))
    text += "".join(f", {rate(value)} {name}" for name, value in rates if not isinstance(value, Unknown))
    return Answer("batch", OK, text)
