"""Candidate against incumbent: correctness first, then a margin beyond noise.

Both are measured in turn, A B then B A, so that a drifting machine hurts both alike, and each round gives one pair. A
pair is won when the candidate is better by more than the margin. Under the null hypothesis the candidate wins at most
half of the pairs, whatever the noise looks like; the evidence against it is a test martingale, the likelihood ratio of
"wins more than half", averaged evenly over all such shares, to "wins half". By Ville's inequality it passes 1 / α with
probability at most α, however often one looks, so it is right to stop at the first round that is clear (Ville 1939;
Ramdas et al., "Game-theoretic statistics and safe anytime-valid inference", 2023). At 95 % seven wins in a row decide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from vllm_advisor.units import Interval


if TYPE_CHECKING:
    from collections.abc import Sequence

    class Checked(Protocol):
        """A verdict on accuracy (`quality.Quality`, `quality_gate.Accuracy`)."""

        @property
        def passed(self) -> bool: ...

        def reasons(self) -> tuple[str, ...]: ...


CONFIDENCE = 0.95
MARGIN = 0.01  # below one per cent nobody changes a server; ours


class Outcome(StrEnum):
    """What to do."""

    ADOPT = "adopt"
    KEEP = "keep"
    MEASURE_MORE = "measure more"


class Pair(NamedTuple):
    """One round: what both scored, in the same unit, positive; more is better (tokens/s, requests/s, 1 / latency)."""

    incumbent: float
    candidate: float

    @property
    def gain(self) -> float:
        """0.05: the candidate is 5 % better."""
        return self.candidate / self.incumbent - 1


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome and its numbers. `evidence` and `against` are likelihood ratios: 1 / (1 − confidence) decides.

    `gain` is the median of the pairs with a distribution-free interval; None without pairs.
    """

    outcome: Outcome
    reason: str
    rounds: int
    wins: int
    evidence: float
    against: float
    gain: Interval | None
    margin: float
    confidence: float

    @property
    def adopted(self) -> bool:
        """Whether the candidate replaces the incumbent."""
        return self.outcome is Outcome.ADOPT


def order(rounds: int) -> tuple[tuple[str, str], ...]:
    """Who is measured first in each round: incumbent, candidate; candidate, incumbent; and so on."""
    both = ("incumbent", "candidate")
    return tuple(both if number % 2 == 0 else both[::-1] for number in range(rounds))


def decide(
    quality: Checked | None, pairs: Sequence[Pair], *, margin: float = MARGIN, confidence: float = CONFIDENCE,
    most_rounds: int = 20,
) -> Decision:  # fmt: skip
    """After each round. `quality` None: the candidate computes the same thing, so there is nothing to lose.

    Raises ValueError for a measurement that is not positive and finite.
    """
    _check(pairs, margin, confidence)
    wins = sum(pair.gain > margin for pair in pairs)
    evidence, against = evidence_of(wins, len(pairs)), evidence_of(len(pairs) - wins, len(pairs))
    enough = 1 / (1 - confidence)
    outcome, reason = _outcome(quality, evidence >= enough, against >= enough, len(pairs) >= most_rounds, margin)
    gain = median_gain(pairs, confidence) if pairs else None
    return Decision(outcome, reason, len(pairs), wins, evidence, against, gain, margin, confidence)


def _outcome(
    quality: Checked | None, better: bool, not_better: bool, ended: bool, margin: float
) -> tuple[Outcome, str]:
    beyond = f"by more than {margin:.1%}"
    if quality is not None and not quality.passed:
        return Outcome.KEEP, f"the accuracy gate refused it: {'; '.join(quality.reasons()) or 'nothing was measured'}"
    if better:
        return Outcome.ADOPT, f"better {beyond} in most rounds"
    if not_better:
        return Outcome.KEEP, f"not better {beyond} in most rounds"
    if ended:
        return Outcome.KEEP, f"no proof that it is better {beyond}: the rounds are used up"
    return Outcome.MEASURE_MORE, "not clear yet"


def _check(pairs: Sequence[Pair], margin: float, confidence: float) -> None:
    for pair in pairs:
        if not all(math.isfinite(score) and score > 0 for score in pair):
            raise ValueError(f"{pair} is no pair of positive scores")
    if not (0 <= margin < 1 and 0.5 <= confidence < 1):
        raise ValueError(f"margin {margin} and confidence {confidence}: shares are expected")


def evidence_of(wins: int, rounds: int) -> float:
    """Likelihood ratio of a win share evenly spread over (1/2, 1) to 1/2: 2 ∫ (2p)^w (2(1−p))^l dp. 1 without rounds.

    The integral is a binomial tail: with n = w + l, ∫ p^w (1−p)^l over (1/2, 1) is P(X ≤ w) / ((n + 1) C(n, w)) for X
    of n + 1 fair coins.
    """
    tail = sum(math.comb(rounds + 1, k) for k in range(wins + 1))  # times 2^(n + 1), which cancels
    return tail / ((rounds + 1) * math.comb(rounds, wins))


def median_gain(pairs: Sequence[Pair], confidence: float = CONFIDENCE) -> Interval:
    """The median gain between two of the sorted gains, the closest that hold it with this confidence.

    Distribution-free, for a number of rounds fixed in advance; with too few rounds for the confidence the ends are
    infinite. (After early stopping it describes; the decision rests on the evidence.)
    """
    gains = sorted(pair.gain for pair in pairs)
    n = len(gains)
    mid = (gains[(n - 1) // 2] + gains[n // 2]) / 2
    outside = 0.0
    for cut in range(n // 2 + 1):
        outside += 2 * math.comb(n, cut) / 2**n
        if outside > 1 - confidence:
            return Interval(gains[cut - 1], mid, gains[n - cut]) if cut else Interval(-math.inf, mid, math.inf)
    return Interval(gains[0], mid, gains[-1])
