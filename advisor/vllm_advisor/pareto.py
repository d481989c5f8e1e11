"""Speed for everyone against speed for one: every plan at every load, and those that nothing beats in both.

Pure: the same facts give the same points. Each load is judged anew, since batch limits, memory and rules follow it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.recommend import recommend
from vllm_advisor.units import Interval


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.candidates import Restrictions
    from vllm_advisor.facts import Facts, Ranked
    from vllm_advisor.model import ModelSpec

LEVELS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_PLANS = 24  # of each load: far more than can lie on the frontier


class Point(NamedTuple):
    """One plan under one load, predicted: output tokens a second a device, and those that one user sees."""

    concurrency: int
    ranked: Ranked
    per_gpu: Interval
    per_user: Interval


def points(
    facts: Facts, siblings: tuple[ModelSpec, ...], restrictions: Restrictions | None, levels: Sequence[int] = LEVELS
) -> tuple[Point, ...]:
    """Every plan that stands at each number of requests in flight; () where none stands at any."""
    return tuple(
        _point(level, ranked)
        for level in levels
        for ranked in recommend(_at(facts, level), siblings, restrictions, _PLANS).plans
    )


def _at(facts: Facts, concurrency: int) -> Facts:
    return facts._replace(workload=replace(facts.workload, concurrency=concurrency, request_rate=None))


def _point(concurrency: int, ranked: Ranked) -> Point:
    speed = ranked.estimate
    per_user = Interval(1000 / speed.tpot_ms.high, 1000 / speed.tpot_ms.mid, 1000 / speed.tpot_ms.low)
    return Point(concurrency, ranked, speed.output_tok_s.scaled(1 / ranked.plan.world_size), per_user)


def frontier(found: Sequence[Point]) -> tuple[Point, ...]:
    """The points that no other beats in both figures, from the most a device to the most a user."""
    best: list[Point] = []
    for point in sorted(found, key=lambda p: (-p.per_gpu.mid, -p.per_user.mid)):
        if not best or point.per_user.mid > best[-1].per_user.mid:
            best.append(point)
    return tuple(best)


def label(point: Point) -> str:
    """`TP4 EP4, fp8_per_channel online, KV fp8`: what tells plans of one chart apart."""
    plan = point.ranked.plan
    weights = f"{plan.quantization} online" if plan.quantization else point.ranked.model.quantization.scheme
    return ", ".join((plan.layout, weights, *((f"KV {plan.kv_cache_dtype}",) if plan.kv_cache_dtype != "auto" else ())))
