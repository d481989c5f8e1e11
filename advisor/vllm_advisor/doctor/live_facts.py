"""What two readings of a server's counters say: load, lengths, speeds, the cache and what went wrong. Pure.

Distributions are those of the time between the readings where enough requests ended in it, else of the server's whole
life, and each says which. What a version does not count is Unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.hardware import Unknown
from vllm_advisor.vllm.metrics import grown, grown_by, number


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.vllm.live import Live, Served
    from vllm_advisor.vllm.metrics import Histogram, Metrics

WINDOW, LIFETIME = "between the two readings", "since the server started"
# From here on a mean is worth more than an anecdote: a convention of ours.
ENOUGH = 20


class Distribution(NamedTuple):
    """Mean and percentiles (within buckets, so rough), of so many requests, and of which time."""

    mean: float
    p50: float
    p95: float
    requests: float
    scope: str


class Counted(NamedTuple):
    """A counter's growth between the readings, and its whole value."""

    window: float
    lifetime: float


class Cache(NamedTuple):
    """The labels of vllm:cache_config_info. `tokens` and `concurrency` are of one engine, `blocks` of all together.

    0.33.0 v1/engine/core_client.py:872-891. `utilization` is what was set; `memory_bytes` takes its place where set.
    """

    blocks: int | Unknown
    tokens: int | Unknown
    concurrency: float | Unknown
    block_size: int | Unknown
    dtype: str | Unknown
    utilization: float | Unknown
    memory_bytes: int | Unknown
    prefix_caching: bool | Unknown


class Observed(NamedTuple):
    """A server's state. Times in seconds, lengths in tokens, `usage` a share of the KV cache (the fullest engine).

    `running` and `waiting` are means of the two readings over all engines together; `waiting_by`, `rejections` and
    `finished` by reason. `prefix_hits`: share of the prompt tokens that were found in the prefix cache.
    """

    name: str
    served: Served | None
    version: str | Unknown
    engines: tuple[str, ...]
    seconds: float
    cache: Cache
    running: float | Unknown
    waiting: float | Unknown
    waiting_by: Mapping[str, float]
    usage: float | Unknown
    preemptions: Counted | Unknown
    rejections: Mapping[str, Counted]
    finished: Counted | Unknown
    prompt_rate: float | Unknown
    output_rate: float | Unknown
    prefix_hits: tuple[float, str] | Unknown
    input_tokens: Distribution | Unknown
    output_tokens: Distribution | Unknown
    ttft: Distribution | Unknown
    tpot: Distribution | Unknown
    queue: Distribution | Unknown
    latency: Distribution | Unknown

    @property
    def replicas(self) -> int:
        """Data-parallel engines that report here."""
        return max(1, len(self.engines))

    @property
    def in_flight(self) -> float:
        """Requests running and waiting; by Little's law where both readings fell into a gap of a busy server."""
        held = sum(value for value in (self.running, self.waiting) if not isinstance(value, Unknown))
        if held or isinstance(self.output_rate, Unknown) or isinstance(self.tpot, Unknown):
            return held
        return self.output_rate * self.tpot.mean


def observe(live: Live) -> Observed:
    """The two readings as one state."""
    a, b = live.first, live.second
    names = b.model_names()
    name = live.models[0].id if live.models else next(iter(names), "")
    return Observed(
        name=name,
        served=live.models[0] if live.models else None,
        version=live.version,
        engines=b.engines(),
        seconds=live.seconds,
        cache=_cache(b),
        running=_between(a, b, "num_requests_running"),
        waiting=_between(a, b, "num_requests_waiting"),
        waiting_by={k: v for k, v in b.by("reason", "num_requests_waiting_by_reason").items() if v},
        usage=_usage(a, b),
        preemptions=_counted(a, b, "num_preemptions"),
        rejections=_counted_by(a, b, "reason", "admission_rejections"),
        finished=_counted(a, b, "request_success"),
        prompt_rate=_rate(a, b, live.seconds, "prompt_tokens"),
        output_rate=_rate(a, b, live.seconds, "generation_tokens"),
        prefix_hits=_hits(a, b),
        input_tokens=_distribution(a, b, "request_prompt_tokens"),
        output_tokens=_distribution(a, b, "request_generation_tokens"),
        ttft=_distribution(a, b, "time_to_first_token_seconds"),
        tpot=_distribution(a, b, "request_time_per_output_token_seconds", "time_per_output_token_seconds"),
        queue=_distribution(a, b, "request_queue_time_seconds"),
        latency=_distribution(a, b, "e2e_request_latency_seconds"),
    )


def _cache(reading: Metrics) -> Cache:
    found = reading.lines("cache_config_info")
    labels = found[0].labels if found else {}
    return Cache(
        blocks=_whole(labels, "num_gpu_blocks"),
        tokens=_whole(labels, "kv_cache_size_tokens"),
        concurrency=_real(labels, "kv_cache_max_concurrency"),
        block_size=_whole(labels, "block_size"),
        dtype=labels.get("cache_dtype") or Unknown("vllm:cache_config_info has no cache_dtype"),
        utilization=_real(labels, "gpu_memory_utilization"),
        memory_bytes=_whole(labels, "kv_cache_memory_bytes"),
        prefix_caching=_switch(labels, "enable_prefix_caching"),
    )


def _real(labels: Mapping[str, str], name: str) -> float | Unknown:
    value = number(labels.get(name, ""))
    return value if value is not None and 0 < value < 1e15 else Unknown(f"vllm:cache_config_info has no {name}")


def _whole(labels: Mapping[str, str], name: str) -> int | Unknown:
    value = _real(labels, name)
    return value if isinstance(value, Unknown) else int(value)


def _switch(labels: Mapping[str, str], name: str) -> bool | Unknown:
    said = labels.get(name, "")
    return said == "True" if said in ("True", "False") else Unknown(f"vllm:cache_config_info has no {name}")


def _between(a: Metrics, b: Metrics, name: str) -> float | Unknown:
    values = [v for v in (a.total(name), b.total(name)) if not isinstance(v, Unknown)]
    return sum(values) / len(values) if values else b.total(name)


def _usage(a: Metrics, b: Metrics) -> float | Unknown:
    """The fullest engine at either reading; the name changed with 0.10."""
    names = ("kv_cache_usage_perc", "gpu_cache_usage_perc")
    values = [s.value for reading in (a, b) for s in reading.lines(*names)]
    return max(values) if values else b.total(*names)


def _counted(a: Metrics, b: Metrics, name: str) -> Counted | Unknown:
    whole = b.total(name)
    window = grown(a.total(name), whole)
    if isinstance(whole, Unknown) or isinstance(window, Unknown):
        return Unknown(f"this server has no vllm:{name}")
    return Counted(window, whole)


def _counted_by(a: Metrics, b: Metrics, label: str, name: str) -> dict[str, Counted]:
    whole = b.by(label, name)
    window = grown_by(a.by(label, name), whole)
    return {reason: Counted(window[reason], value) for reason, value in whole.items() if value}


def _rate(a: Metrics, b: Metrics, seconds: float, name: str) -> float | Unknown:
    window = grown(a.total(name), b.total(name))
    return window if isinstance(window, Unknown) else window / max(seconds, 1e-3)


def _hits(a: Metrics, b: Metrics) -> tuple[float, str] | Unknown:
    """(share, of which time). Versions before 0.10 wrote `gpu_prefix_cache_…`."""
    queries = ("prefix_cache_queries", "gpu_prefix_cache_queries")
    hits = ("prefix_cache_hits", "gpu_prefix_cache_hits")
    asked, found = grown(a.total(*queries), b.total(*queries)), grown(a.total(*hits), b.total(*hits))
    scope = WINDOW
    if not asked or isinstance(found, Unknown):
        asked, found, scope = b.total(*queries), b.total(*hits), LIFETIME
    if isinstance(asked, Unknown) or isinstance(found, Unknown) or asked <= 0:
        return Unknown("no prompt was looked up in a prefix cache")
    return min(1.0, found / asked), scope


def _distribution(a: Metrics, b: Metrics, *names: str) -> Distribution | Unknown:
    whole, before = b.histogram(*names), a.histogram(*names)
    if isinstance(whole, Unknown):
        return whole
    window = whole if isinstance(before, Unknown) else whole.since(before)
    if window.observed >= ENOUGH and not isinstance(before, Unknown):
        return _summary(window, WINDOW)
    return _summary(whole, LIFETIME)


def _summary(found: Histogram, scope: str) -> Distribution | Unknown:
    mean, middle, high = found.mean, found.quantile(0.5), found.quantile(0.95)
    if isinstance(mean, Unknown):
        return mean
    known = [mean if isinstance(q, Unknown) else q for q in (middle, high)]  # a histogram without buckets has a mean
    return Distribution(mean, known[0], known[1], found.observed, scope)
