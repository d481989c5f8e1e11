"""What real start-ups printed, over families, devices and versions: scores that may not fall.

The figures are in-sample: the model's estimates were chosen with these rows in sight (docs/memory-model.md).
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from vllm_advisor.catalog import gpus, models
from vllm_advisor.hardware import Node
from vllm_advisor.memory.budget import budget
from vllm_advisor.plan import Plan
from vllm_advisor.units import GIB
from vllm_advisor.vllm.history import surface_for


if TYPE_CHECKING:
    from vllm_advisor.facts import MemoryBudget


DATA = Path(__file__).parents[1] / "data" / "startups" / "printed.json"
STARTUPS: list[dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))["startups"]


def node_of(row: dict[str, Any]) -> Node:
    devices = [gpus.find(name) for name in row["gpus"]]
    if row["memory_bytes"]:
        devices = [replace(g, memory_bytes=row["memory_bytes"]) for g in devices]
    return Node(tuple(devices))


def predicted(row: dict[str, Any], kv_gib: float | None = None) -> MemoryBudget:
    """The budget of a row; with `kv_gib`, of the cache that vLLM printed."""
    spec = models.find(row["model"])
    assert spec is not None
    env = tuple((name, value) for name, value in row["plan"].get("env", ()))
    wish = Plan(row["model"], **{**row["plan"], "env": env})
    if kv_gib is not None:
        wish = replace(wish, kv_cache_memory_bytes=int(kv_gib * GIB))
    return budget(spec, wish, node_of(row), surface_for(row["vllm"]))


@cache
def pairs(name: str) -> tuple[tuple[float, MemoryBudget], ...]:
    """(printed, budget) of all rows that print a figure."""
    return tuple((row["printed"][name], predicted(row)) for row in STARTUPS if name in row["printed"])


def errors(found: list[tuple[float, float]]) -> list[float]:
    """Absolute errors in percent, smallest first."""
    return sorted(abs(got - want) / abs(want) * 100 for want, got in found)


def p90(sorted_errors: list[float]) -> float:
    return sorted_errors[min(len(sorted_errors) - 1, int(0.9 * len(sorted_errors)))]


def test_weights_are_within_half_a_percent_for_most_start_ups():
    """Median and 90th percentile of the error."""
    found = errors([(want, b.weights / GIB) for want, b in pairs("weights_gib")])
    assert len(found) >= 30
    assert median(found) < FLOOR["weights"][0]
    assert p90(found) < FLOOR["weights"][1]


def test_the_kv_cache_that_is_left_is_predicted_from_nothing():
    """Median and 90th percentile of the error in GiB available for KV."""
    found = errors([(want, b.kv_cache.mid / GIB) for want, b in pairs("kv_gib")])
    assert len(found) >= 30
    assert median(found) < FLOOR["kv"][0]
    assert p90(found) < FLOOR["kv"][1]


def test_concurrency_is_predicted_from_nothing():
    """Median and 90th percentile of the error in requests of max_model_len."""
    found = errors([(want, b.max_concurrency) for want, b in pairs("concurrency")])
    assert median(found) < FLOOR["concurrency"][0]
    assert p90(found) < FLOOR["concurrency"][1]


def test_tokens_follow_from_the_cache_that_vllm_printed():
    """Given the KV cache in GiB, the token line of each version is met within rounding by most rows."""
    rows = [r for r in STARTUPS if {"kv_gib", "tokens"} <= set(r["printed"]) and r["printed"]["kv_gib"] > 0]
    found = errors([(r["printed"]["tokens"], predicted(r, r["printed"]["kv_gib"]).kv_tokens) for r in rows])
    assert len(found) >= 20
    assert median(found) < FLOOR["tokens"][0]
    assert p90(found) < FLOOR["tokens"][1]


def test_intervals_cover_nine_of_ten_and_stay_narrow():
    """Low to high of the KV cache, and the median of their half-width."""
    found = pairs("kv_gib")
    inside = [b.kv_cache.low / GIB <= want <= b.kv_cache.high / GIB for want, b in found]
    width = [(b.kv_cache.high - b.kv_cache.low) / abs(b.kv_cache.high + b.kv_cache.low) * 100 for _, b in found]
    assert sum(inside) / len(inside) >= FLOOR["coverage"]
    assert median(width) < FLOOR["width"]


def test_who_started_is_said_to_start_and_who_lacked_memory_is_not():
    """The verdicts of rows that memory decided."""
    judged = [(r["verdict"], predicted(r).verdict) for r in STARTUPS if r["verdict"]]
    started = [got == "fits" for want, got in judged if want == "fits"]
    lacked = [got == "does not fit" for want, got in judged if want != "fits"]
    assert sum(started) / len(started) >= FLOOR["fits"]
    assert sum(lacked) / len(lacked) >= FLOOR["lacks"]


# Upper bounds of errors in percent (median, 90th percentile), lower bounds of shares: what is met today, rounded.
FLOOR: dict[str, Any] = {
    "weights": (0.4, 3.4), "kv": (2.0, 18.0), "concurrency": (1.9, 12.5), "tokens": (0.05, 1.5),
    "coverage": 0.95, "width": 11.2, "fits": 0.97, "lacks": 0.85,
}  # fmt: skip
