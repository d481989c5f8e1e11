"""What queries, keys and values look like, layer by layer: the largest magnitude, and where most of them lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from vllm_tuner.calibrate.forward import Hooks
from vllm_tuner.calibrate.scales import PERCENTILES, LayerStats, Spread


if TYPE_CHECKING:
    from collections.abc import Iterator

# A histogram of log2 |x|, so that batches add up and memory stays the same whatever the length of the prompts.
_LOWEST, _HIGHEST, _AN_OCTAVE = -24, 24, 16
_BINS = (_HIGHEST - _LOWEST) * _AN_OCTAVE


class Magnitudes:
    """Of everything added so far; percentiles are right within 1/16 of an octave (4 %)."""

    def __init__(self) -> None:
        self.amax = 0.0
        self._counts = torch.zeros(_BINS, dtype=torch.int64)

    def add(self, x: torch.Tensor) -> None:
        """Any shape. Raises ValueError for NaN or infinity: no scale could be right."""
        size = x.abs().flatten().float()
        largest = float(size.max()) if size.numel() else 0.0
        if not torch.isfinite(size).all():
            raise ValueError("NaN or infinity")
        self.amax = max(self.amax, largest)
        place = ((size.log2() - _LOWEST) * _AN_OCTAVE).clamp(0, _BINS - 1).long()
        self._counts += torch.bincount(place, minlength=_BINS)

    def spread(self) -> Spread:
        """The largest magnitude and the percentiles."""
        total = self._counts.cumsum(0)
        wanted = [max(round(float(total[-1]) * p / 100), 1) for p in PERCENTILES]
        places = torch.searchsorted(total, torch.tensor(wanted)).clamp(max=_BINS - 1).tolist()
        tops = (2.0 ** (_LOWEST + (place + 1) / _AN_OCTAVE) for place in places)
        return Spread(self.amax, tuple(min(top, self.amax) for top in tops))


class KvObserver(Hooks):
    """Collects |q|, |k| and |v| of every layer that it is shown."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Magnitudes, Magnitudes, Magnitudes]] = {}

    def cached(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Look, and change nothing. Raises ValueError, naming the layer, for NaN or infinity."""
        held = self._seen.setdefault(layer, (Magnitudes(), Magnitudes(), Magnitudes()))
        for name, magnitudes, x in zip("qkv", held, (q, k, v), strict=True):
            try:
                magnitudes.add(x)
            except ValueError as error:
                raise ValueError(f"layer {layer}: {name} holds {error}") from error
        return k, v

    def layer(self, layer: int) -> LayerStats:
        """Of one layer, as far as it has been seen."""
        q, k, v = (magnitudes.spread() for magnitudes in self._seen[layer])
        return LayerStats(layer, k, v, q)

    def __iter__(self) -> Iterator[LayerStats]:
        return (self.layer(layer) for layer in sorted(self._seen))
