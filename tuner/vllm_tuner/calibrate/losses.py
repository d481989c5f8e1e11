"""What a 4- or 8-bit format would cost: each linear layer on what really flows through it, and each decoder layer.

A weight's own rounding error says little: what counts is how wrong its output becomes on real activations, and how
much of that reaches the residual stream. Weights are quantized by the kernels' reference and multiplied in float32.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from vllm_tuner import kernels
from vllm_tuner.calibrate.forward import Hooks
from vllm_tuner.calibrate.proposals import LayerLoss, ModuleLoss


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vllm_tuner.calibrate.forward import Layer

_ROWS = 64  # tokens that a module's output is compared on
_HELD = 3  # gate, up and down of a feed-forward layer are multiplied in turn


class ModuleLosses(Hooks):
    """Beside an exact pass: the error that each format would bring into each linear layer's output."""

    def __init__(self, formats: Sequence[str]) -> None:
        self._formats = tuple(formats)
        self._held: dict[str, dict[str, torch.Tensor]] = {}
        self._sums: dict[tuple[str, str], list[float]] = {}
        self._fixed: dict[tuple[str, str], tuple[float, int]] = {}

    def weight(self, module: str, weight: torch.Tensor) -> torch.Tensor:
        """Quantize it; the pass goes on with the exact one."""
        while len(self._held) >= _HELD:
            del self._held[next(iter(self._held))]
        self._held[module] = {fmt: kernels.rounded(weight, fmt) for fmt in self._formats}
        for fmt, wrong in self._held[module].items():
            self._fixed[module, fmt] = (relative(wrong, weight), weight.numel())
        return weight

    def linear(self, module: str, x: torch.Tensor, y: torch.Tensor) -> None:
        """Compare outputs on a few tokens, evenly spaced."""
        step = -(-x.shape[0] // _ROWS)
        some, exact = x[::step], y[::step]
        for fmt, wrong in self._held[module].items():
            sums = self._sums.setdefault((module, fmt), [0.0, 0.0])
            sums[0] += float((some @ wrong.T - exact).double().square().sum())
            sums[1] += float(exact.double().square().sum())

    def losses(self) -> tuple[ModuleLoss, ...]:
        """In the order in which the modules were met."""
        return tuple(
            ModuleLoss(module, fmt, self._fixed[module, fmt][0], _root(*sums), self._fixed[module, fmt][1])
            for (module, fmt), sums in self._sums.items()
        )


class Quantized(Hooks):
    """A pass with quantized weights. `wrong_scale` multiplies chosen modules: a broken model, to try a gate on."""

    def __init__(self, fmt: str, wrong_scale: Mapping[str, float] | None = None) -> None:
        self._fmt, self._wrong_scale = fmt, wrong_scale or {}

    def weight(self, module: str, weight: torch.Tensor) -> torch.Tensor:
        """The matrix as it comes back from the format."""
        return kernels.rounded(weight, self._fmt) * self._wrong_scale.get(module, 1.0)


def layer_loss(layer: Layer, before: Sequence[torch.Tensor], after: Sequence[torch.Tensor], fmt: str) -> LayerLoss:
    """‖h(quantized) − h‖ / ‖h‖ where only this layer is quantized; states are [tokens, hidden] a prompt."""
    wrong, exact = torch.cat(layer.forward(before, Quantized(fmt))), torch.cat(list(after))
    return LayerLoss(layer.index, fmt, relative(wrong, exact))


def relative(wrong: torch.Tensor, exact: torch.Tensor) -> float:
    """‖wrong − exact‖ / ‖exact‖, 0 where exact is all zeros."""
    return _root(float((wrong - exact).double().square().sum()), float(exact.double().square().sum()))


def _root(noise: float, signal: float) -> float:
    return math.sqrt(noise / signal) if signal else 0.0
