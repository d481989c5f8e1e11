"""A Gaussian process over the points of a space: what it expects of the points that were not timed, and how sure it is.

Times are modelled by a logarithm that tells the good apart as well as the bad (`warped`). The covariance is the sum of
one Matérn-5/2 term an axis (main effects: learnt from few points), one over all axes (interactions), and a line in the
logarithm of the roofline bound, so that a good bound is a good prior and a useless one costs nothing. Length scales and
shares are those of some random draws that make what was seen most likely (Rasmussen and Williams, "Gaussian Processes
for Machine Learning", 2006, chapters 2, 4 and 5).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_tuner.kernels import needed


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_tuner.kernel_tuning.points import Space

_DRAWS = 40  # of hyperparameters; the best stay as rivals of the next draws
_KEPT = 3
_NEAR = 0.1  # parts of the best: differences below it count as they are, those far above it as their logarithm
_JITTER = 1e-6
LEAST = math.log(_NEAR)  # the best that was seen, as the process has it


class Hyper(NamedTuple):
    """Length scales in axes scaled to 0…1, and the shares of the variance. Arrays or floats."""

    lengths: Any  # [D]
    main: float
    joint: float
    line: float
    noise: float


class Surrogate:
    """The process for one space. Points are known by their number in it."""

    def __init__(self, space: Space, seed: int) -> None:
        self._np = np = needed("numpy")
        self._rng = np.random.default_rng(seed)
        self._at = np.array([space.positions(point) for point in space.points]).reshape(-1, len(space.axes))
        self._gaps = [_gaps(len(axis.values)) for axis in space.axes]
        bound = np.log(np.maximum([space.bounds[p] for p in space.points], 1e-9))
        self._line = (bound - bound.mean()) / (bound.std() or 1.0)
        self._best: list[Hyper] = []

    def predict(self, seen: Sequence[int], times: Sequence[float], *, learn: bool) -> tuple[Any, Any]:
        """(mean, deviation) [N] of every point, in the units of `warped`.

        `learn`: draw hyperparameters anew first.
        """
        np = self._np
        y = warped(times)
        centre, spread = np.median(y), y.std() or 1.0
        y = (y - centre) / spread
        index = np.array(seen)
        if learn or not self._best:
            self._learn(index, y)
        every = [self._posterior(hyper, index, y) for hyper in self._best]
        means = np.array([mean for mean, _ in every])
        mean = means.mean(0)
        variance = np.array([v for _, v in every]).mean(0) + means.var(0)
        return mean * spread + centre, np.sqrt(variance) * spread

    def _learn(self, index: Any, y: Any) -> None:
        draws = [*self._best, *(self._draw() for _ in range(_DRAWS))]
        scored = [(self._likelihood(hyper, index, y), number) for number, hyper in enumerate(draws)]
        self._best = [draws[number] for _, number in sorted(scored, key=lambda s: -s[0])[:_KEPT]]

    def _draw(self) -> Hyper:
        rng = self._rng
        main, joint, line = (float(share) for share in rng.dirichlet((1.0, 1.0, 0.5)))
        lengths = self._np.exp(rng.uniform(-1.6, 1.4, len(self._gaps)))  # 0.2 to 4 widths of an axis
        return Hyper(lengths, main, joint, line, float(10 ** rng.uniform(-3.5, -0.5)))

    def _covariance(self, hyper: Hyper, a: Any, b: Any) -> Any:
        """[A, B] between points a and b. An axis has few values, so that its part is looked up in a small table."""
        np = self._np
        main, far = np.zeros((len(a), len(b))), np.zeros((len(a), len(b)))
        for axis, (gaps, length) in enumerate(zip(self._gaps, hyper.lengths, strict=True)):
            scaled = gaps * (math.sqrt(5) / length)
            ours, theirs = self._at[a, axis][:, None], self._at[b, axis][None, :]
            main += _matern(scaled)[ours, theirs]
            far += np.square(scaled)[ours, theirs]
        line = self._line[a][:, None] * self._line[b][None, :]
        return hyper.main / len(self._gaps) * main + hyper.joint * _matern(np.sqrt(far)) + hyper.line * line

    def _factor(self, hyper: Hyper, index: Any) -> Any:
        np = self._np
        own = self._covariance(hyper, index, index)
        return np.linalg.cholesky(own + (hyper.noise + _JITTER) * np.eye(len(index)))

    def _likelihood(self, hyper: Hyper, index: Any, y: Any) -> float:
        np = self._np
        factor = self._factor(hyper, index)
        half = np.linalg.solve(factor, y)
        return float(-0.5 * half @ half - np.log(np.diag(factor)).sum())

    def _posterior(self, hyper: Hyper, index: Any, y: Any) -> tuple[Any, Any]:
        np = self._np
        factor = self._factor(hyper, index)
        cross = np.linalg.solve(factor, self._covariance(hyper, index, np.arange(len(self._at))))
        mean = cross.T @ np.linalg.solve(factor, y)
        prior = hyper.main + hyper.joint + hyper.line * self._line**2
        return mean, np.maximum(prior - (cross**2).sum(0), 1e-12)


def warped(times: Sequence[float]) -> Any:
    """log(t / best − 1 + 0.1): what is good differs by per cent, what is bad by factors; both should be told apart."""
    np = needed("numpy")
    return np.log(np.array(times) / min(times) - 1 + _NEAR)


def _gaps(values: int) -> Any:
    """[V, V]: how far two values of an axis are apart, the whole axis being 1."""
    np = needed("numpy")
    positions = np.arange(values) / max(1, values - 1)
    return np.abs(positions[:, None] - positions[None, :])


def _matern(far: Any) -> Any:
    """Matérn 5/2 of distances times the root of 5."""
    return (1 + far + far**2 / 3) * needed("numpy").exp(-far)
