"""Scales of an FP8 KV cache: amax / 448, on every target.

A value is stored as e4m3(x / scale), largest 448. The chips of gfx94x have e4m3fnuz, largest 240, whose codes stand
for half as much: vLLM doubles a checkpoint's scales there itself (model_executor/layers/quantization/kv_cache.py,
BaseKVCacheMethod.process_weights_after_loading, 0.24 to 0.33). Halving or doubling them here would do it twice.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from vllm_tuner import kernels


PERCENTILES = (99.0, 99.9, 99.99)
NO_SCALE = 1.0


class Spread(NamedTuple):
    """Magnitudes of one tensor in one layer: the largest, and `PERCENTILES`."""

    amax: float
    percentiles: tuple[float, ...]

    @property
    def outlier_ratio(self) -> float:
        """The largest against the 99.9th percentile: how far a few elements stretch the scale for all others."""
        typical = self.percentiles[1]
        return self.amax / typical if typical else 1.0


class LayerStats(NamedTuple):
    """What one attention layer's keys, values and queries looked like."""

    layer: int
    k: Spread
    v: Spread
    q: Spread


class LayerScales(NamedTuple):
    """k, v and q scale of one layer, as a checkpoint holds them: the same number for e4m3fn and e4m3fnuz."""

    layer: int
    k: float
    v: float
    q: float


def scale_of(amax: float) -> float:
    """`amax` / 448 in float32's range; 1 for a tensor of zeros. Raises ValueError for what is no magnitude."""
    if not (math.isfinite(amax) and amax >= 0):
        raise ValueError(f"{amax} is no largest magnitude")
    scale = amax / kernels.largest("E4M3FN")
    return scale if scale >= 2.0**-126 else NO_SCALE  # below lie float32's subnormals


def scales_of(stats: LayerStats) -> LayerScales:
    """The scales with which nothing that was seen saturates."""
    return LayerScales(stats.layer, scale_of(stats.k.amax), scale_of(stats.v.amax), scale_of(stats.q.amax))
