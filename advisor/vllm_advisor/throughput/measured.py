"""What was measured on this very machine corrects what is predicted for it: a Bayesian update in the logarithm.

A measurement says how far the model is off here. Part of that is shared by all that this machine runs (its clocks, its
links, its host), part by one kernel path (a weight format on these devices), the rest is the configuration's own. All
three are Gaussian in the logarithm; a prediction is moved by the posterior mean, and its interval narrows to what stays
unknown. Pure: measurements in, corrections out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.units import Interval


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.facts import Estimate
    from vllm_advisor.throughput.traits import Traits

# Standard deviations of the logarithm, all estimates: of what one machine shares, what one kernel path shares, what one
# configuration has of its own, and one measurement about its repetition (builds of one version differ by 5 to 15 %).
_MACHINE, _PATH, _OWN, _NOISE = 0.20, 0.15, 0.20, 0.07
_SIDE = 1.5  # standard deviations that an interval spans either way (0.87 of a Gaussian)
_LIMIT = math.log(8.0)  # a measurement further off than that is of something else, and is not learnt from


class Measurement(NamedTuple):
    """One figure of a server that ran here: what it was, and what was predicted. `plan` names the configuration."""

    plan: str
    path: str
    measured: float
    predicted: float

    @property
    def off(self) -> float:
        """Logarithm of measured over predicted."""
        return math.log(self.measured / self.predicted)


class Correction(NamedTuple):
    """Logarithms to add: mean, and the standard deviation that stays; `behind`: how many measurements it rests on."""

    mean: float
    deviation: float
    behind: int

    def applied(self, interval: Interval) -> Interval:
        """The interval moved by the mean, and never wider than it was."""
        if not self.behind:
            return interval
        mid = interval.mid * math.exp(self.mean)
        side = math.exp(_SIDE * self.deviation)
        below, above = min(side, interval.mid / interval.low), min(side, interval.high / interval.mid)
        return Interval(mid / below, mid, mid * above)


NOTHING = Correction(0.0, math.sqrt(_MACHINE**2 + _PATH**2 + _OWN**2), 0)


def path_of(read: Traits) -> str:
    """The kernel path that configurations share: how linear layers and experts are computed."""
    return f"{read.dense.kind}/{read.experts.kind}" if read.num_experts else read.dense.kind


def correction(measurements: Sequence[Measurement], plan: str, path: str) -> Correction:
    """The posterior of what the model is off for `plan` on `path`, after all measurements on this machine.

    The offset of a configuration is machine + path + own; a measurement adds noise. With K the covariance of the
    measured configurations and k that of the asked one to them: mean k·K⁻¹·off, variance prior − k·K⁻¹·k.
    """
    known = [m for m in measurements if m.measured > 0 and m.predicted > 0 and abs(m.off) <= _LIMIT]
    if not known:
        return NOTHING
    shared = [[_shared(a, b.plan, b.path) + (_NOISE**2 if a is b else 0.0) for b in known] for a in known]
    toward = [_shared(m, plan, path) for m in known]
    gains = _solved(shared, toward)
    mean = sum(g * m.off for g, m in zip(gains, known, strict=True))
    left = NOTHING.deviation**2 - sum(g * k for g, k in zip(gains, toward, strict=True))
    return Correction(mean, math.sqrt(max(left, 0.0) + _NOISE**2), len(known))


def _shared(one: Measurement, plan: str, path: str) -> float:
    """Covariance of two configurations' offsets on one machine."""
    same_path = _PATH**2 if one.path == path else 0.0
    return _MACHINE**2 + same_path + (_OWN**2 if one.plan == plan and one.path == path else 0.0)


def _solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss elimination: the matrix is small, symmetric and positive."""
    n = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(n):
        for j in range(i + 1, n):
            share = rows[j][i] / rows[i][i]
            rows[j] = [x - share * y for x, y in zip(rows[j], rows[i], strict=True)]
    found = [0.0] * n
    for i in reversed(range(n)):
        found[i] = (rows[i][n] - sum(rows[i][j] * found[j] for j in range(i + 1, n))) / rows[i][i]
    return found


def corrected(estimate: Estimate, rates: Correction, first: Correction, token: Correction) -> Estimate:
    """An estimate moved by what was measured here, each figure by its own correction."""
    count = max(rates.behind, first.behind, token.behind)
    if not count:
        return estimate
    note = f"corrected by {count} measurement{'s' * (count > 1)} on this machine"
    return estimate._replace(
        output_tok_s=rates.applied(estimate.output_tok_s),
        total_tok_s=rates.applied(estimate.total_tok_s),
        ttft_ms=first.applied(estimate.ttft_ms),
        tpot_ms=token.applied(estimate.tpot_ms),
        notes=(*estimate.notes, note),
    )
