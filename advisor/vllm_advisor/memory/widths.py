"""Widths of a weight group's linear layers: what a format with a scale for a run of inputs splits into."""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from vllm_advisor.model.spec import ModelSpec, WeightGroup


def inputs(group: WeightGroup, model: ModelSpec, tensor_parallel: int, expert_split: int) -> tuple[int, ...]:
    """Input widths of the group's layers on one rank, () where they are not known.

    `expert_split` ranks slice each expert (1 with expert parallelism).
    """
    hidden = model.hidden_size
    if group.role == "attention":
        return (hidden, *(c.q_heads * c.v_dim // tensor_parallel for c in model.caches if c.q_heads and c.v_dim))
    if group.role == "experts" and model.moe:
        return hidden, model.moe.intermediate_size // expert_split
    return (hidden, model.intermediate_size // tensor_parallel) if group.role == "mlp" else ()


def mean_row(group: WeightGroup, model: ModelSpec) -> float:
    """Elements of a row, on average: gate and up have the hidden size, down has the intermediate one."""
    hidden = model.hidden_size
    inner = {"mlp": model.intermediate_size, "experts": model.moe.intermediate_size if model.moe else 0}
    wide = inner.get(group.role, 0)
    return 3 * wide * hidden / (2 * wide + hidden) if wide else hidden
