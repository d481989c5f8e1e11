"""How far a measurement may lie from the estimate, as a factor either way: wider where fewer measurements were near.

`spreads` holds, for each kind of load, the factor inside which predictions of rows that were not fitted stayed. A kind
that few campaigns (one source, model and device) have measured is pulled towards what holds of all, and widened.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.throughput.spreads import SPREADS


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.throughput.load import Load
    from vllm_advisor.throughput.traits import Traits

HOLDS = 0.875  # the part of measurements that an interval means to hold
_WIDEST = 8.0  # beyond that an interval says nothing; a queue of unknown length can be further off
_ENOUGH, _FEW = 5, 3  # campaigns: from here a kind speaks for itself; below, its interval is widened and that is said
_WIDENED = 1.25
_PROMPTS = 6.0  # from so many prompt tokens for one of output on, prefill decides


class Spread(NamedTuple):
    """Factors either way of the rate, of the time to first token, and of the time per output token."""

    rate: float
    first: float
    token: float
    notes: tuple[str, ...] = ()


def spread(read: Traits, load: Load, seats: float) -> Spread:
    """The factors for one plan under one load."""
    kind = cell(read, load, seats)
    few = SPREADS.get((0, kind), (0.0, 0))[1] < _FEW
    notes = ("wide interval: few public measurements are near this configuration and load",) if few else ()
    return Spread(factor(SPREADS, 0, kind), factor(SPREADS, 1, kind), factor(SPREADS, 2, kind), notes)


def cell(read: Traits, load: Load, seats: float) -> str:
    """The kind of a load on a plan: how it arrives, whether requests queue or prompts decide, and the old engine."""
    if load.request_rate is not None:
        arrives = "rate"
    elif load.concurrency is None:
        arrives = "burst"
    else:
        arrives = "queue" if load.concurrency > seats * read.dp else "steady"
    prompts = load.input_tokens - load.cached > _PROMPTS * load.output_tokens
    return arrives + (" V0" if read.engine_v0 else " prompts" if prompts else "")


def factor(widths: Mapping[tuple[int, str], tuple[float, int]], figure: int, kind: str) -> float:
    """The factor either way of one figure: of its kind, of all, and between them by how many campaigns there are."""
    common = widths[figure, ""][0]
    own, campaigns = widths.get((figure, kind), (common, 0))
    trust = min(1.0, campaigns / _ENOUGH)
    joined = math.exp(trust * math.log(own) + (1 - trust) * math.log(common)) if campaigns else common
    return min(_WIDEST, joined * (_WIDENED if campaigns < _FEW else 1.0))
