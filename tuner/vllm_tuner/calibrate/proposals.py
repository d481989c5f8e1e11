"""What the measured errors suggest to leave alone: a proposal, by rules of ours, for the accuracy gate to confirm."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from vllm_tuner import kernels


if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Ours, not measured on many models: only what stands out is kept, and only so much that the memory is still saved.
STANDS_OUT = 2.0  # times the median error
KEPT_SHARE = 0.10  # of the quantized parameters
CACHE_STANDS_OUT = 3.0
CACHE_LEAST = 0.01  # of the attention's output; smaller errors are nobody's problem
SKIPPED_SHARE = 0.25  # of the layers


class ModuleLoss(NamedTuple):
    """One linear layer in one format: relative error of the weight, and of its output on real activations."""

    module: str
    fmt: str
    weight_error: float
    output_error: float
    parameters: int


class LayerLoss(NamedTuple):
    """One decoder layer in one format: relative error that it brings into the residual stream."""

    layer: int
    fmt: str
    error: float


def by_sensitivity(losses: Iterable[ModuleLoss], fmt: str) -> list[ModuleLoss]:
    """One format's modules, the most sensitive first."""
    return sorted((m for m in losses if m.fmt == fmt), key=lambda m: (-m.output_error, m.module))


def ignore_list(losses: Sequence[ModuleLoss], fmt: str) -> tuple[str, ...]:
    """Modules best left in bf16; what vLLM stacks into one layer (q, k, v; gate, up) is named together."""
    ordered = by_sensitivity(losses, fmt)
    if not ordered:
        return ()
    limit = STANDS_OUT * median(m.output_error for m in ordered)
    room = KEPT_SHARE * sum(m.parameters for m in ordered)
    stack_of = kernels.module("checkpoint_rules").stack_of
    stacks: dict[str, list[ModuleLoss]] = {}
    for loss in ordered:
        stacks.setdefault(stack_of(loss.module), []).append(loss)
    chosen: list[str] = []
    for members in stacks.values():
        room -= sum(m.parameters for m in members)
        if members[0].output_error <= limit or room < 0:
            break
        chosen += [m.module for m in members]
    return tuple(sorted(chosen))


def skip_layers(errors: Sequence[tuple[int, float]]) -> tuple[int, ...]:
    """Layers whose attention suffers far more from an FP8 cache than the others', for --kv-cache-dtype-skip-layers."""
    if not errors:
        return ()
    limit = max(CACHE_STANDS_OUT * median(error for _, error in errors), CACHE_LEAST)
    worst = sorted((layer for layer in errors if layer[1] > limit), key=lambda layer: -layer[1])
    return tuple(sorted(layer for layer, _ in worst[: int(SKIPPED_SHARE * len(errors))]))
