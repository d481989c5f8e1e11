"""Speed of one plan under one load: a roofline of each step, then continuous batching in closed form. An estimate.

`traits` reads off what the plan does, `step` gives its seconds, `load` what users see; `parameters` are the only fitted
numbers. `spread` says how wide the interval is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vllm_advisor.facts import Estimate
from vllm_advisor.throughput.fitted import FITTED
from vllm_advisor.throughput.load import Load, Speed, serve
from vllm_advisor.throughput.spread import spread
from vllm_advisor.throughput.step import machine
from vllm_advisor.throughput.traits import Traits, traits
from vllm_advisor.units import Interval


if TYPE_CHECKING:
    from vllm_advisor.facts import MemoryBudget
    from vllm_advisor.hardware import Node
    from vllm_advisor.model.spec import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.throughput.parameters import Parameters
    from vllm_advisor.throughput.work import Work
    from vllm_advisor.vllm.surface import Surface
    from vllm_advisor.workload import Workload


def estimate(  # noqa: PLR0917 - the engine calls all its parts with these
    model: ModelSpec,
    plan: Plan,
    budget: MemoryBudget,
    node: Node,
    surface: Surface,
    workload: Workload,
    parameters: Parameters = FITTED,
) -> Estimate:
    """Predicted speed of the whole deployment at the workload's load, `budget` being the plan's own memory.

    `workload.request_rate` (requests/s, whole deployment) is used where given, else `concurrency` in flight together.
    """
    read, load = traits(model, plan, node, surface), load_of(workload)
    return under_load(read, load, seats(plan, budget, load, read.work), parameters)


def load_of(workload: Workload) -> Load:
    """The load that a workload means: a rate where one is given, else so many requests in flight."""
    rate = workload.request_rate
    return Load(
        workload.input_tokens,
        workload.output_tokens,
        None if rate is not None else workload.concurrency,
        rate,
        cached=workload.shared_prefix_tokens,
    )


def under_load(read: Traits, load: Load, places: float, parameters: Parameters = FITTED) -> Estimate:
    """Predicted speed of a plan whose traits are known; `places`: requests that one replica can run together."""
    found = serve(machine(read, parameters), load, places, parameters)
    width = spread(read, load, places)
    total = found.output * (load.input_tokens + load.output_tokens) / max(1.0, load.output_tokens)
    return Estimate(
        output_tok_s=_around(found.output, width.rate),
        total_tok_s=_around(total, width.rate),
        ttft_ms=_around(1000 * found.ttft, width.first),
        tpot_ms=_around(1000 * found.tpot, width.token),
        running=found.running,
        bound=found.step.bound,
        notes=(*_notes(found), *width.notes),
    )


def seats(plan: Plan, budget: MemoryBudget, load: Load, work: Work, limit: float | None = None) -> float:
    """Requests that one replica can run together: max_num_seqs, or what the KV cache holds at the load's lengths.

    vLLM counts a sliding window as filled by a whole batch besides; a short request takes what it has tokens for.
    `limit` takes the place of max_num_seqs.
    """
    most = float(plan.max_num_seqs) if limit is None else limit
    if budget.max_concurrency <= 0:
        return 1.0
    whole = budget.kv_cache.mid / budget.max_concurrency
    fixed = max(0.0, whole - budget.kv_bytes_per_token * plan.max_model_len)
    length = load.context
    if work.windows and not work.state_bytes:
        fixed = min(fixed, sum(b * min(length, window) for b, window in work.windows) / plan.pipeline_parallel_size)
    each = min(whole, fixed + budget.kv_bytes_per_token * length)
    held = budget.kv_cache.mid / each if each > 0 else most
    return max(1.0, min(held, most))


def _around(value: float, factor: float) -> Interval:
    return Interval(value / factor, value, value * factor)


def _notes(found: Speed) -> tuple[str, ...]:
    if found.offered <= found.running:
        return ()
    return (f"{math.floor(found.offered)} requests in flight, {math.floor(found.running)} run at once",)
