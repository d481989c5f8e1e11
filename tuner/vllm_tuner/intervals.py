"""What repeats leave open: the mean with its interval.

Student's t, two-sided 95 %: repeats are few, so the normal distribution would promise too much. Whether one
server beats another is the gate's question, not that of two such intervals.
"""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from vllm_advisor.units import Interval


if TYPE_CHECKING:
    from collections.abc import Sequence

# The 0.975 quantiles of Student's t for 1 to 30 degrees of freedom (NIST/SEMATECH e-Handbook, 1.3.6.7.2).
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def half_width(values: Sequence[float]) -> float:
    """Half of the mean's 95 % interval; infinite for fewer than two values."""
    if len(values) < 2:
        return math.inf
    quantile = _T[len(values) - 2] if len(values) - 2 < len(_T) else _T[-1]
    return quantile * stdev(values) / math.sqrt(len(values))


def mean(values: Sequence[float]) -> Interval:
    """The mean and its 95 % interval, cut at 0; of one value, that value alone (its spread is not known)."""
    middle = fmean(values)
    half = half_width(values) if len(values) > 1 else 0.0
    return Interval(max(0.0, middle - half), middle, middle + half)


def is_tight(values: Sequence[float], share: float) -> bool:
    """Whether the mean is known to `share` of itself."""
    return half_width(values) <= share * abs(fmean(values))
