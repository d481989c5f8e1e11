"""A plan that nobody recommended, with what is known of those that are: its memory and its predicted speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.facts import Ranked
from vllm_advisor.memory.budget import budget
from vllm_advisor.plan import LaunchCommand
from vllm_advisor.throughput.estimate import estimate


if TYPE_CHECKING:
    from vllm_advisor.facts import Facts
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.plan import Plan


def ranked(plan: Plan, model: ModelSpec, facts: Facts) -> Ranked:
    """The plan as the space has those that are recommended. `model` is the checkpoint that it loads."""
    memory = budget(model, plan, facts.node, facts.vllm)
    predicted = estimate(model, plan, memory, facts.node, facts.vllm, facts.workload)
    return Ranked(plan, model, memory, predicted, (), LaunchCommand(()), 0.0)
