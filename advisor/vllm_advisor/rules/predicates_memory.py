"""Does it fit: weights, KV cache, and what others hold of the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_advisor.hardware import Unknown
from vllm_advisor.units import count, gib


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.facts import Case


def weights_exceed_memory(case: Case) -> Mapping[str, Any] | None:
    """The weights of one rank are more than vLLM may take."""
    weights, usable = case.budget.weights, _usable(case)
    return {"need": gib(weights), "have": gib(usable), "layout": case.plan.layout} if weights > usable else None


def _usable(case: Case) -> int:
    """What vLLM may take, and never more than there is (a given KV cache asks for what it holds)."""
    return min(case.budget.requested, case.budget.total)


def cache_too_small(case: Case) -> Mapping[str, Any] | None:
    """The weights fit, one request of the asked length does not."""
    budget = case.budget
    if budget.verdict != "does not fit" or budget.weights > _usable(case) or _holds_one_request(case):
        return None
    return {
        "asked": count(case.plan.max_model_len),
        "holds": count(budget.max_context),
        "left": gib(max(0.0, budget.kv_cache.mid)),
        "limits": "; ".join(budget.limits) or "no more than that is left beside weights, activations and graphs",
    }


def _holds_one_request(case: Case) -> bool:
    return case.budget.max_context >= case.plan.max_model_len


def other_limits(case: Case) -> Mapping[str, Any] | None:
    """Weights and one request fit, and something else does not: the host's memory, state blocks, what others hold."""
    budget = case.budget
    if budget.verdict != "does not fit" or budget.weights > _usable(case) or not _holds_one_request(case):
        return None
    return {"limits": "; ".join(budget.limits)}


def cannot_tell(case: Case) -> Mapping[str, Any] | None:
    """The memory model does not know this architecture well enough."""
    if case.budget.verdict != "cannot tell":
        return None
    return {"missing": "; ".join(case.facts.model.unknowns) or "the architecture is not known"}


def fits_only_on_average(case: Case) -> Mapping[str, Any] | None:
    """The middle of the estimate fits and its pessimistic end does not."""
    budget = case.budget
    if budget.verdict != "fits" or budget.kv_cache.low >= _one_request(case):
        return None
    return {"low": gib(max(0.0, budget.kv_cache.low)), "mid": gib(budget.kv_cache.mid), "one": gib(_one_request(case))}


def _one_request(case: Case) -> float:
    """Bytes of one request of max_model_len, from what the budget says that the cache holds."""
    budget = case.budget
    return budget.kv_cache.mid / budget.max_concurrency if budget.max_concurrency > 0 else 0.0


def cache_limits_the_load(case: Case) -> Mapping[str, Any] | None:
    """Fewer of the workload's requests are in the cache at once than are in flight."""
    budget, load = case.budget, case.facts.workload
    if budget.verdict != "fits":
        return None
    length = load.input_tokens + load.output_tokens
    wanted = -(-load.concurrency // case.plan.data_parallel_size)
    held = budget.kv_tokens // length if length else wanted
    if held >= wanted:
        return None
    return {"held": count(held), "wanted": count(wanted), "length": count(length)}


def room_for_the_load(case: Case) -> Mapping[str, Any] | None:
    """All of the workload's requests are in the cache at once."""
    budget, load = case.budget, case.facts.workload
    length = load.input_tokens + load.output_tokens
    wanted = -(-load.concurrency // case.plan.data_parallel_size)
    held = budget.kv_tokens // length if length else 0
    if budget.verdict != "fits" or held < wanted:
        return None
    return {"left": gib(budget.kv_cache.mid), "held": count(held), "wanted": count(wanted), "length": count(length)}


def others_hold_memory(case: Case) -> Mapping[str, Any] | None:
    """Free memory is below what vLLM will ask for: it refuses to start."""
    requested = case.budget.requested
    free = [g.free_bytes for g in case.facts.node.gpus if not isinstance(g.free_bytes, Unknown)]
    least = min(free, default=requested)
    if least >= requested:
        return None
    return {
        "free": gib(least),
        "requested": gib(requested),
        "utilization": max(0, int(least / case.budget.total * 100) - 1) / 100,
    }
