"""An FP8 KV cache, simulated: keys and values are rounded as a cache would round them, attention stays exact.

vLLM's kernels saturate at the largest value when they convert; so does this.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

from vllm_tuner import kernels
from vllm_tuner.calibrate.forward import Hooks, attend


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_tuner.calibrate.scales import LayerScales

_DTYPES = {"E4M3FN": torch.float8_e4m3fn, "E4M3FNUZ": torch.float8_e4m3fnuz, "E5M2": torch.float8_e5m2}


class CacheLoss(NamedTuple):
    """‖attention(rounded cache) − attention‖ / ‖attention‖ of one layer."""

    layer: int
    error: float


def through_cache(x: torch.Tensor, scale: float, fmt: str = "E4M3FN") -> torch.Tensor:
    """X as it comes back from the cache. `scale` is what the kernel uses: on gfx94x twice the checkpoint's."""
    largest = kernels.largest(fmt)
    return (x / scale).clamp(-largest, largest).to(_DTYPES[fmt]).to(x.dtype) * scale


class SimulatedCache(Hooks):
    """Keys and values through a cache; `scales` is asked once a layer, None: 1, as vLLM does without calibration."""

    def __init__(self, scales: Callable[[int], LayerScales] | None = None, fmt: str = "E4M3FN") -> None:
        self._scales, self._fmt = scales, fmt

    def cached(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Both, rounded."""
        del q
        found = self._scales(layer) if self._scales else None
        k_scale, v_scale = (found.k, found.v) if found else (1.0, 1.0)
        return through_cache(k, k_scale, self._fmt), through_cache(v, v_scale, self._fmt)


class CacheLosses(Hooks):
    """Beside an exact pass: what a rounded cache would change in each layer's attention, by that layer alone."""

    def __init__(self, scales: Callable[[int], LayerScales], window: int = 0) -> None:
        self._cache = SimulatedCache(scales)
        self._window = window
        self._sums: dict[int, list[float]] = {}

    def cached(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compare, and change nothing."""
        exact = attend(q, k, v, self._window)
        wrong = attend(q, *self._cache.cached(layer, q, k, v), self._window)
        sums = self._sums.setdefault(layer, [0.0, 0.0])
        sums[0] += float((wrong - exact).double().square().sum())
        sums[1] += float(exact.double().square().sum())
        return k, v

    def losses(self) -> tuple[CacheLoss, ...]:
        """In the order of the layers."""
        return tuple(CacheLoss(n, math.sqrt(noise / signal) if signal else 0.0)
                     for n, (noise, signal) in sorted(self._sums.items()))  # fmt: skip
