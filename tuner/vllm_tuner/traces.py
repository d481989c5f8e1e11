"""A load as a server itself counted it: its histograms of lengths, its rate, its requests in flight, its prefix hits.

Recorded from one reading of /metrics or, better, from two, it makes a Workload to plan for and a Source to load with.
Input and output lengths are drawn apart, for the histograms do not say which went with which; within a bucket they lie
evenly. What two readings cannot tell (one reading has no rate) is None, never a guess.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.doctor.live_facts import ENOUGH, WINDOW, observe
from vllm_advisor.errors import BadInput
from vllm_advisor.hardware import Unknown
from vllm_advisor.vllm.live import Live
from vllm_advisor.vllm.metrics import Histogram
from vllm_tuner.workloads import arrivals, request, seeded, tokens


if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vllm_advisor.doctor.live_facts import Observed
    from vllm_advisor.vllm.metrics import Metrics
    from vllm_advisor.workload import Workload
    from vllm_tuner.load import Request
    from vllm_tuner.workloads import Shape

_SCHEMA = 1
_KIND = "vllm-advisor load"
_INPUT, _OUTPUT = "request_prompt_tokens", "request_generation_tokens"
HINT = "take it from a server that has served some: curl -s http://host:8000/metrics > metrics.txt"
_PREFIX_SEED = 7
# Requests beyond this many in flight are more than one client plays: a bound of ours.
_MOST_IN_FLIGHT = 4096


class Recorded(NamedTuple):
    """One recorded load. `rate`: requests a second; `in_flight`: running and waiting together; None: not known.

    `prefix_hits`: the share of prompt tokens that a prefix cache had. `requests` ended in it.
    """

    label: str
    inputs: Histogram
    outputs: Histogram
    rate: float | None = None
    in_flight: float | None = None
    prefix_hits: float = 0.0

    @property
    def requests(self) -> float:
        """How many it stands on."""
        return self.inputs.observed

    def workload(self, base: Workload) -> Workload:
        """The load to plan for: its means in place of the base's lengths, concurrency, rate and prefix.

        Without a rate the server is taken as kept busy by as many clients as were in flight.
        """
        taken, given = _mean(self.inputs), _mean(self.outputs)
        busy = base.concurrency if self.in_flight is None else min(_MOST_IN_FLIGHT, max(1, round(self.in_flight)))
        return replace(
            base,
            name=self.label,
            input_tokens=max(1, round(taken)),
            output_tokens=max(1, round(given)),
            concurrency=busy,
            request_rate=self.rate or None,
            shared_prefix_tokens=self.prefix_tokens(_even(self.inputs, 256)),
        )

    def prefix_tokens(self, lengths: Sequence[int]) -> int:
        """The length of a prefix, common to all, of which such prompts would hit that share of their tokens."""
        wanted, low, high = self.prefix_hits * sum(lengths), 0, max(lengths, default=0)
        while low < high:
            middle = (low + high) // 2
            if sum(min(middle, n) for n in lengths) < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    def source(self, shape: Shape) -> Drawn:
        """Requests like it."""
        return Drawn(self, shape)


def _mean(histogram: Histogram) -> float:
    mean = histogram.mean
    return 1.0 if isinstance(mean, Unknown) else mean


def _even(histogram: Histogram, number: int) -> list[int]:
    """Lengths at evenly spaced shares: the distribution itself, not a draw from it."""
    found = [histogram.quantile((i + 0.5) / number) for i in range(number)]
    return [max(1, round(value)) for value in found if not isinstance(value, Unknown)]


class Drawn(NamedTuple):
    """Random tokens to the lengths of a recorded load, behind a prefix that hits as often."""

    load: Recorded
    shape: Shape

    @property
    def label(self) -> str:
        """Where it was recorded."""
        return self.load.label

    @property
    def timed(self) -> bool:
        """Where the rate is known."""
        return bool(self.load.rate)

    def requests(self, number: int, seed: int) -> tuple[Request, ...]:
        """Every repeat has the same lengths in another order, as far as a number of requests shows a distribution."""
        random = seeded(seed)
        taken, given = _even(self.load.inputs, number), _even(self.load.outputs, number)
        random.shuffle(taken)
        random.shuffle(given)
        prefix = tokens(self.load.prefix_tokens(taken), self.shape, seeded(_PREFIX_SEED))
        times = arrivals(self.load.rate or None, number, random)
        pairs = zip(taken, given, strict=True)
        return tuple(request(pair, at, self.shape, random, prefix) for pair, at in zip(pairs, times, strict=True))


def of_metrics(label: str, metrics: Metrics) -> Recorded:
    """What one reading tells: the server's whole life, and no rate. Raises BadInput where nothing was served."""
    return of_live(Live(label, True, Unknown("one reading"), (), metrics, metrics, 0.0))


def of_live(live: Live) -> Recorded:
    """What happened between the two readings, where enough ended in it, else in the server's life.

    Raises BadInput where no request ended yet, or the server keeps no such histograms (--disable-log-stats).
    """
    inputs, outputs = _between(live, _INPUT), _between(live, _OUTPUT)
    seen = observe(live)
    window = seen.finished.window if live.seconds > 0 and not isinstance(seen.finished, Unknown) else 0.0
    hits = 0.0 if isinstance(seen.prefix_hits, Unknown) else seen.prefix_hits[0]
    return Recorded(
        live.url,
        inputs,
        outputs,
        rate=window / live.seconds if window >= ENOUGH else None,
        in_flight=_in_flight(seen, window / live.seconds if window >= ENOUGH else 0.0),
        prefix_hits=hits,
    )


def _in_flight(seen: Observed, rate: float) -> float | None:
    """The mean over the time, by Little's law, where enough ended in it; else what the gauges held at its ends."""
    if rate and not isinstance(seen.latency, Unknown) and seen.latency.scope == WINDOW:
        return rate * seen.latency.mean
    return seen.in_flight or None


def _between(live: Live, name: str) -> Histogram:
    before, whole = live.first.histogram(name), live.second.histogram(name)
    if isinstance(whole, Unknown):
        raise BadInput(f"{live.url} has no histograms of request lengths", HINT)
    window = whole if isinstance(before, Unknown) else whole.since(before)
    found = window if window.observed >= ENOUGH else whole
    if found.observed <= 0 or not found.buckets:
        raise BadInput(f"{live.url} counted no request yet", HINT)
    return found


def save(load: Recorded, path: Path) -> None:
    """Write a recorded load, to be measured with later or elsewhere; it holds lengths and counts, no content."""
    path.write_text(json.dumps(document(load), indent=1) + "\n", encoding="utf-8")


def document(load: Recorded) -> dict[str, Any]:
    """A recorded load as JSON has it; `load` reads it."""
    return {
        "kind": _KIND,
        "schema": _SCHEMA,
        "label": load.label,
        "request_rate": load.rate,
        "in_flight": load.in_flight,
        "prefix_hits": load.prefix_hits,
        "input_tokens": _written(load.inputs),
        "output_tokens": _written(load.outputs),
    }


def _written(histogram: Histogram) -> dict[str, Any]:
    finite = [[bound, seen] for bound, seen in histogram.buckets if bound != float("inf")]
    return {"sum": histogram.total, "count": histogram.observed, "buckets": finite}


def is_load(document: object) -> bool:
    """Whether a JSON document says that it is one."""
    return isinstance(document, dict) and document.get("kind") == _KIND


def load(document: Any) -> Recorded:
    """A document that `save` wrote. Raises ValueError, KeyError and TypeError for what is none."""
    if document["schema"] != _SCHEMA:
        raise ValueError(f"schema {document['schema']} is not {_SCHEMA}")
    rate, busy, hits = document["request_rate"], document["in_flight"], float(document["prefix_hits"])
    if not 0 <= hits <= 1 or any(value is not None and not 0 < value < float("inf") for value in (rate, busy)):
        raise ValueError("a rate, a number in flight or a share of hits that cannot be")
    inputs, outputs = _read(document["input_tokens"]), _read(document["output_tokens"])
    return Recorded(str(document["label"])[:200], inputs, outputs, rate, busy, hits)


def _read(row: Any) -> Histogram:
    buckets = tuple((float(bound), float(seen)) for bound, seen in row["buckets"])
    total, count = float(row["sum"]), float(row["count"])
    rising = all(a[0] < b[0] and 0 <= a[1] <= b[1] for a, b in pairwise(buckets))
    if not (rising and buckets and 0 < count < float("inf") and 0 <= total < float("inf") and buckets[-1][1] <= count):
        raise ValueError("a histogram that does not rise")
    return Histogram((*buckets, (float("inf"), count)), total, count)
