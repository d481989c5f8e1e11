"""Answers as figures: ours by name, and the JSON document of `vllm bench serve` (benchmarks/serve.py, 0.33.0).

Percentiles are interpolated between neighbours and deviations are of the population, as numpy does by default.
"""

from __future__ import annotations

import math
import time
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

from vllm_advisor.errors import EngineError


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.workload import Sla
    from vllm_tuner.load import Answer, Played, Target

PERCENTILES = (50, 90, 99)
# vLLM's names and ours are the same four.
_NAMES = ("ttft", "tpot", "itl", "e2el")
# Of more failures than this a run says nothing about speed.
_MOST_FAILED = 0.05


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` percent lie; 0 for no values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = (len(ordered) - 1) * share / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def figures(played: Played, sla: Sla) -> dict[str, float]:
    """The figures of one run by the names of `Measurement`. Raises EngineError where too many requests failed."""
    good = _checked(played)
    output = sum(answer.output_tokens for answer in good)
    total = output + sum(answer.input_tokens for answer in good)
    found = {
        "output_tok_s": output / played.seconds,
        "total_tok_s": total / played.seconds,
        "request_s": len(good) / played.seconds,
        "goodput_s": sum(within(answer, sla) for answer in good) / played.seconds,
    }
    for name, values in _times(good).items():
        found[f"{name}_ms"] = fmean(values) * 1000 if values else 0.0
        found |= {f"p{share}_{name}_ms": percentile(values, share) * 1000 for share in PERCENTILES}
    return found


def _checked(played: Played) -> list[Answer]:
    good = [answer for answer in played.answers if answer.good]
    failed = len(played.answers) - len(good)
    if not good or failed > _MOST_FAILED * len(played.answers):
        first = next((answer.error for answer in played.answers if answer.error), "nothing was sent")
        raise EngineError(f"{failed} of {len(played.answers)} requests failed; the first: {first}", "read the log")
    return good


def lateness_ms(played: Played) -> float:
    """How late this client sent requests that have their own times, 99th percentile: far below a TTFT, or it counts."""
    return percentile([answer.late for answer in played.answers], 99) * 1000


def within(answer: Answer, sla: Sla) -> bool:
    """Whether an answer kept the limits that were asked for."""
    first = sla.ttft_ms is None or answer.ttft * 1000 <= sla.ttft_ms
    return first and (sla.tpot_ms is None or answer.tpot * 1000 <= sla.tpot_ms)


def _times(good: Sequence[Answer]) -> dict[str, list[float]]:
    """Seconds by kind, each request one value, the gaps between tokens each their own."""
    values = (
        [answer.ttft for answer in good],
        [answer.tpot for answer in good if answer.output_tokens > 1],
        [gap for answer in good for gap in answer.itls],
        [answer.latency for answer in good],
    )
    return dict(zip(_NAMES, values, strict=True))


def document(
    played: Played, target: Target, sla: Sla, *, rate: float | None, concurrency: int | None
) -> dict[str, Any]:
    """One run as `vllm bench serve --save-result --save-detailed` writes it, key for key.

    `tokenizer_id` repeats the model: lengths are the server's own counts.
    """
    good = [answer for answer in played.answers if answer.good]
    head = {
        "date": time.strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": "vllm",
        "backend": "vllm",
        "label": None,
        "model_id": target.model,
        "tokenizer_id": target.model,
        "num_prompts": len(played.answers),
        "request_rate": rate if rate is not None else "inf",
        "burstiness": 1.0,
        "max_concurrency": concurrency,
    }
    return head | _totals(played, good, sla) | _details(played) | _peaks(good) | _statistics(good)


def _totals(played: Played, good: Sequence[Answer], sla: Sla) -> dict[str, Any]:
    taken, given = (sum(answer.input_tokens for answer in good), sum(answer.output_tokens for answer in good))
    limited = sla.ttft_ms is not None or sla.tpot_ms is not None
    return {
        "duration": played.seconds,
        "completed": len(good),
        "failed": len(played.answers) - len(good),
        "total_input_tokens": taken,
        "total_output_tokens": given,
        "request_throughput": len(good) / played.seconds,
        "request_goodput": sum(within(answer, sla) for answer in good) / played.seconds if limited else None,
        "output_throughput": given / played.seconds,
        "total_token_throughput": (taken + given) / played.seconds,
    }


def _details(played: Played) -> dict[str, Any]:
    return {
        "input_lens": [answer.input_tokens for answer in played.answers],
        "output_lens": [answer.output_tokens for answer in played.answers],
        "ttfts": [answer.ttft for answer in played.answers],
        "itls": [list(answer.itls) for answer in played.answers],
        "generated_texts": [answer.text for answer in played.answers],
        "errors": [answer.error for answer in played.answers],
    }


def _peaks(good: Sequence[Answer]) -> dict[str, Any]:
    """The fullest second, in tokens and in requests that were in flight during it."""
    first = min((answer.start for answer in good), default=0.0)
    tokens: dict[int, int] = {}
    flying: dict[int, int] = {}
    for answer in good:
        begun = answer.start - first
        at = begun + answer.ttft
        for gap in (0.0, *answer.itls):
            at += gap
            tokens[int(at)] = tokens.get(int(at), 0) + 1
        for second in range(int(begun), int(begun + answer.latency) + 1):
            flying[second] = flying.get(second, 0) + 1
    return {
        "max_output_tokens_per_s": float(max(tokens.values(), default=0)),
        "max_concurrent_requests": max(flying.values(), default=0),
        "rtfx": 0.0,
    }


def _statistics(good: Sequence[Answer]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, values in _times(good).items():
        found[f"mean_{name}_ms"] = fmean(values) * 1000 if values else 0.0
        found[f"median_{name}_ms"] = percentile(values, 50) * 1000
        found[f"std_{name}_ms"] = pstdev(values) * 1000 if values else 0.0
        found |= {f"p{share}_{name}_ms": percentile(values, share) * 1000 for share in PERCENTILES}
    return found
