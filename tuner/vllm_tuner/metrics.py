"""What a server counted while it was measured: the reasons behind its speed, read from /metrics before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

from vllm_advisor.hardware import Unknown
from vllm_advisor.vllm.metrics import Metrics, grown, parse


if TYPE_CHECKING:
    from vllm_advisor.profile import Settings

_TIMEOUT_S = 20.0


def read(url: str) -> Metrics:
    """The counters now; none where the server does not tell: a measurement needs no reasons."""
    try:
        answer = httpx.get(f"{url}/metrics", timeout=_TIMEOUT_S, trust_env=False).raise_for_status()
    except httpx.HTTPError:
        return Metrics({})
    return parse(answer.text)


def between(before: Metrics, after: Metrics) -> Settings:
    """What explains a speed, as far as it is told.

    Preemptions, the share of prompt tokens that the prefix cache had, the share of drafted tokens that were accepted,
    and the mean wait in the queue.
    """
    found = {
        "preemptions": grown(before.total("num_preemptions"), after.total("num_preemptions")),
        "prefix_hits": _share(before, after, "prefix_cache_hits", "prefix_cache_queries"),
        "drafts_accepted": _share(before, after, "spec_decode_num_accepted_tokens", "spec_decode_num_draft_tokens"),
        "queue_ms": _queue_ms(before, after),
    }
    return tuple((name, round(value, 4)) for name, value in found.items() if not isinstance(value, Unknown))


def _share(before: Metrics, after: Metrics, part: str, whole: str) -> float | Unknown:
    """The growth of one counter over that of another."""
    some, every = (grown(before.total(name), after.total(name)) for name in (part, whole))
    if isinstance(some, Unknown) or isinstance(every, Unknown):
        return some if isinstance(some, Unknown) else every
    return some / every if every else Unknown("nothing was asked of it")


def _queue_ms(before: Metrics, after: Metrics) -> float | Unknown:
    name = "request_queue_time_seconds"
    first, second = before.histogram(name), after.histogram(name)
    if isinstance(second, Unknown):
        return second
    mean = (second if isinstance(first, Unknown) else second.since(first)).mean
    return mean if isinstance(mean, Unknown) else mean * 1000
