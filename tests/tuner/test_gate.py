"""Candidate against incumbent: who wins, how sure, and what noise can't do."""

import random
from math import inf, nan

import pytest

from vllm_advisor.units import Interval
from vllm_advisor.workload import Sensitivity
from vllm_tuner.gate import Outcome, Pair, decide, evidence_of, median_gain, order
from vllm_tuner.quality import Compared, judge


def better(rounds, by=0.1):
    return [Pair(100.0, 100.0 * (1 + by))] * rounds


def quality(kl):
    prompt = Compared((kl,) * 8, (True,) * 8, (-1.0,) * 8, (-1.0,) * 8)
    return judge([prompt] * 8, Sensitivity.NORMAL)


def test_seven_wins_in_a_row_decide_at_95_percent():
    """After six the ratio is 18.1, below 20; after seven it is 31.9."""
    six, seven = decide(None, better(6)), decide(None, better(7))

    assert (Outcome.MEASURE_MORE, Outcome.ADOPT) == (six.outcome, seven.outcome)
    assert pytest.approx(127 / 7) == six.evidence
    assert (True, 7, 7) == (seven.adopted, seven.wins, seven.rounds)


@pytest.mark.parametrize(
    ("wins", "rounds", "expected"), [(0, 0, 1.0), (3, 4, 1.3), (0, 4, 0.2), (10, 13, 3.9745254745)]
)
def test_evidence_is_the_integral(wins, rounds, expected):
    """Values of 2 ∫ (2p)^w (2(1−p))^l dp over (1/2, 1), from numerical quadrature."""
    assert pytest.approx(expected) == evidence_of(wins, rounds)


@pytest.mark.parametrize("rounds", range(9))
def test_evidence_is_a_martingale(rounds):
    """Under fair coins the mean of the next round's evidence is this round's, so looking often costs nothing."""
    for wins in range(rounds + 1):
        after = (evidence_of(wins + 1, rounds + 1) + evidence_of(wins, rounds + 1)) / 2

        assert pytest.approx(evidence_of(wins, rounds)) == after


def test_equal_servers_are_rarely_told_apart():
    """Of 400 contests of equals with a look after every round, at most 5 % adopt (here with no margin)."""
    chance = random.Random(1)  # noqa: S311
    adopted = 0
    for _ in range(400):
        pairs = [Pair(chance.lognormvariate(0, 0.1), chance.lognormvariate(0, 0.1)) for _ in range(20)]
        adopted += any(decide(None, pairs[:n], margin=0).adopted for n in range(1, 21))

    assert 0 < adopted <= 400 * 0.05


def test_gain_within_the_margin_is_kept_out():
    """A candidate that is always 0.5 % better never beats a margin of 1 %, and seven rounds say so."""
    decision = decide(None, better(7, by=0.005))

    assert (Outcome.KEEP, 0) == (decision.outcome, decision.wins)
    assert "not better by more than 1.0%" in decision.reason


def test_used_up_rounds_keep_the_incumbent():
    """Without proof at the end of the budget nothing changes."""
    pairs = [Pair(100, 110), Pair(100, 90)] * 5

    assert Outcome.MEASURE_MORE is decide(None, pairs).outcome
    assert Outcome.KEEP is decide(None, pairs, most_rounds=10).outcome


def test_correctness_comes_first():
    """A candidate that is twice as fast and wrong is refused, with the figure."""
    refused = decide(quality(0.5), better(20, by=1.0))
    adopted = decide(quality(0.001), better(20, by=1.0))

    assert (Outcome.KEEP, Outcome.ADOPT) == (refused.outcome, adopted.outcome)
    assert "KL divergence is 0.5" in refused.reason


def test_nothing_measured_is_no_quality():
    """A quality verdict without figures refuses, too."""
    assert "nothing was measured" in decide(judge([], Sensitivity.NORMAL), better(20)).reason


@pytest.mark.parametrize("pair", [Pair(0, 1), Pair(1, nan), Pair(inf, 1), Pair(-1, 1)])
def test_scores_are_positive_numbers(pair):
    """Zero, NaN and infinity are failed measurements, not results."""
    with pytest.raises(ValueError, match="positive scores"):
        decide(None, [pair])


def test_median_gain_is_between_order_statistics():
    """Of ten pairs the second and the ninth hold the median with 97.9 %; of five no pair holds it with 95 %."""
    ten = [Pair(100, 100 + n) for n in range(10)]

    assert pytest.approx((0.01, 0.045, 0.08)) == median_gain(ten)
    assert (-inf, inf) == (median_gain(ten[:5]).low, median_gain(ten[:5]).high)
    assert isinstance(median_gain(ten), Interval)


def test_order_alternates():
    """The one that was second is first in the next round."""
    assert (("incumbent", "candidate"), ("candidate", "incumbent")) == order(2)
