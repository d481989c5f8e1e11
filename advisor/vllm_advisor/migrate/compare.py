"""The same command's memory under both versions, and what of the difference comes from which change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.check import configuration
from vllm_advisor.check.parse import parse
from vllm_advisor.errors import AdvisorError
from vllm_advisor.migrate.item import Memory


if TYPE_CHECKING:
    from vllm_advisor.check.configuration import Judged
    from vllm_advisor.check.invocation import Invocation
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.vllm.surface import Surface


def judged(invocation: Invocation, surface: Surface, node: Node, model: ModelSpec) -> Judged | None:
    """What a command comes to under one version; None where no length is known."""
    try:
        return configuration.judged(configuration.asked(parse(invocation, surface), surface), node, model)
    except AdvisorError:
        return None


def memory(found: Judged, version: str) -> Memory:
    """The figures that an upgrade can move."""
    plan, budget = found.case.plan, found.case.budget
    share = budget.kv_cache.mid / budget.max_concurrency if budget.max_concurrency else 0.0
    return Memory(
        version,
        budget.verdict,
        budget.weights,
        budget.activation.mid,
        budget.graphs.mid,
        budget.kv_cache.mid,
        budget.kv_tokens,
        budget.max_concurrency,
        share,
        plan.max_num_batched_tokens,
        plan.max_num_seqs,
    )
