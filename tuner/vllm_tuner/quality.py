"""Is a candidate as good as the reference? Figures with intervals, limits by sensitivity, and one verdict.

A figure passes when the bad end of its interval is within the limit, so too few prompts fail instead of passing by
luck. Intervals come from resampling whole prompts: positions of one prompt are not independent.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import compress
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from vllm_advisor.units import Interval
from vllm_advisor.workload import Sensitivity
from vllm_tuner.quality_tasks import lost


if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vllm_tuner.quality_tasks import Kept

Row = TypeVar("Row")
RESAMPLES = 1000
# Near ties flip at the least rounding and mean nothing. Of SmolLM2's positions 70 % are clear by this; with FP8 weights
# it keeps its first choice in 91.5 % of all and 98.1 % of the clear ones, in MXFP4 in 57 % and 65 % (measured here).
CLEAR = 1.5
CONFIDENCE = 0.95


class Compared(NamedTuple):
    """One prompt on both models, an entry a predicted token.

    `kl` in nats; `agreed`: the same token is the most likely; log-probabilities of the prompt's own next tokens;
    `clear`: the reference's first choice is more than `CLEAR` times as likely as its second (empty: all are).
    """

    kl: tuple[float, ...]
    agreed: tuple[bool, ...]
    reference_logprobs: tuple[float, ...]
    candidate_logprobs: tuple[float, ...]
    clear: tuple[bool, ...] = ()


class Limits(NamedTuple):
    """What a class of work may lose.

    `kl`: nats a token; `agreement`: of first choices that were clear; `perplexity`: a factor; `kept`: of what was
    solved before.
    """

    kl: float
    agreement: float
    perplexity: float
    kept: float


# Anchors: llama.cpp's scoreboard of Llama 3 8B against f16 (tools/perplexity/README.md), KL in nats a token:
# Q8_0 0.0014, Q6_K 0.0055, Q5_K_M 0.011, Q4_K_M 0.031, Q3_K_M 0.10. Where to draw a line between them, and all limits
# of the other figures, are our judgement, not a measurement: chat lives with 4 bits, code and maths with 6 and more.
LIMITS: Mapping[Sensitivity, Limits] = {
    #                               kl     agreement  perplexity  kept
    Sensitivity.TOLERANT:    Limits(0.100, 0.90,      1.10,       0.85),
    Sensitivity.NORMAL:      Limits(0.040, 0.95,      1.05,       0.90),
    Sensitivity.SENSITIVE:   Limits(0.015, 0.97,      1.02,       0.95),
    Sensitivity.RETRIEVAL:   Limits(0.015, 0.97,      1.02,       0.98),
}  # fmt: skip


class Figure(NamedTuple):
    """One measured quantity: `value` with its interval, its limit, and whether that is an upper or a lower one.

    `where`: in which lengths and depths needles were lost.
    """

    name: str
    value: Interval
    limit: float
    at_most: bool
    where: str = ""

    @property
    def passed(self) -> bool:
        """Whether even the bad end of the interval is within the limit. NaN is never."""
        return self.value.high <= self.limit if self.at_most else self.value.low >= self.limit

    @property
    def settled(self) -> bool:
        """Whether more samples could not change the verdict: the whole interval is on one side of the limit."""
        return self.value.high <= self.limit or self.value.low > self.limit


@dataclass(frozen=True, slots=True)
class Quality:
    """The verdict. A plan whose quality has not passed is never stored as validated."""

    sensitivity: Sensitivity
    figures: tuple[Figure, ...]
    limits: Limits
    prompts: int
    positions: int

    @property
    def passed(self) -> bool:
        """Whether every figure passed; nothing measured is no pass."""
        return bool(self.figures) and all(figure.passed for figure in self.figures)

    @property
    def settled(self) -> bool:
        """Whether the answer is final: it passed, or a figure fails whatever more samples would say."""
        return self.passed or any(figure.settled and not figure.passed for figure in self.figures)

    def reasons(self) -> tuple[str, ...]:
        """A line for each figure that did not pass."""
        return tuple(_reason(figure) for figure in self.figures if not figure.passed)


def _reason(figure: Figure) -> str:
    low, mid, high = figure.value
    bound = "at most" if figure.at_most else "at least"
    more = "" if figure.settled else "; more prompts could settle it"
    where = f"; {figure.where}" if figure.where else ""
    return f"{figure.name} is {mid:.4g} ({low:.4g} to {high:.4g}), {bound} {figure.limit:g} is allowed{more}{where}"


def judge(
    compared: Sequence[Compared], sensitivity: Sensitivity, tasks: Mapping[str, Sequence[Kept]] | None = None, *,
    seed: int = 0,
) -> Quality:  # fmt: skip
    """Both models on the same prompts → verdict. `tasks`: by name, what each solved (`quality_tasks`)."""
    limits = LIMITS[sensitivity]
    kept = [p for p in compared if p.kl]
    figures = (*_figures(kept, limits, seed), *_kept(tasks or {}, limits, seed))
    return Quality(sensitivity, figures, limits, len(kept), sum(len(p.kl) for p in kept))


def _figures(compared: Sequence[Compared], limits: Limits, seed: int) -> tuple[Figure, ...]:
    if not compared:
        return ()
    return (
        Figure("KL divergence", bootstrap(compared, mean_kl, seed=seed), limits.kl, at_most=True),
        Figure("top-1 agreement", bootstrap(compared, agreement, seed=seed), limits.agreement, at_most=False),
        Figure("perplexity ratio", bootstrap(compared, perplexity_ratio, seed=seed), limits.perplexity, at_most=True),
    )


def _kept(tasks: Mapping[str, Sequence[Kept]], limits: Limits, seed: int) -> tuple[Figure, ...]:
    """Only what the reference solved counts, and only where it solves most: what it guesses, any rounding flips."""
    solved = {name: [k.candidate for k in results if k.reference] for name, results in tasks.items()}
    return tuple(
        Figure(f"{name} kept", bootstrap(rows, share, seed=seed), limits.kept, at_most=False, where=lost(tasks[name]))
        for name, rows in solved.items()
        if len(rows) > len(tasks[name]) / 2
    )


def mean_kl(compared: Sequence[Compared]) -> float:
    """Nats a token, each position counting once."""
    return fmean(value for prompt in compared for value in prompt.kl)


def agreement(compared: Sequence[Compared]) -> float:
    """Of the positions where the reference's first choice is clear, the share where it is the candidate's, too.

    NaN where none is clear.
    """
    kept = [same for p in compared for same in compress(p.agreed, p.clear or [True] * len(p.agreed))]
    return fmean(kept) if kept else math.nan


def perplexity_ratio(compared: Sequence[Compared]) -> float:
    """The candidate's perplexity / the reference's, on the same tokens."""
    losses = (r - c for p in compared for r, c in zip(p.reference_logprobs, p.candidate_logprobs, strict=True))
    return math.exp(min(fmean(losses), 700.0))


def perplexity(logprobs: Sequence[float]) -> float:
    """exp(−mean log-probability)."""
    return math.exp(min(-fmean(logprobs), 700.0))


def share(rows: Sequence[bool]) -> float:
    """Of True."""
    return fmean(rows)


def bootstrap(
    rows: Sequence[Row], statistic: Callable[[Sequence[Row]], float], *, confidence: float = CONFIDENCE, seed: int = 0,
) -> Interval:  # fmt: skip
    """Percentile interval of a statistic over resampled rows; one row alone gives no certainty: (−∞, value, ∞)."""
    value = statistic(rows)
    if math.isnan(value):
        return Interval(value, value, value)  # NaN has no order; resamples without the bad row must not hide it
    if len(rows) < 2:
        return Interval(-math.inf, value, math.inf)
    chance = random.Random(seed)  # noqa: S311  repeatable
    drawn = sorted(statistic(chance.choices(rows, k=len(rows))) for _ in range(RESAMPLES))
    tail = (1 - confidence) / 2
    return Interval(drawn[math.floor(tail * RESAMPLES)], value, drawn[math.ceil((1 - tail) * RESAMPLES) - 1])
