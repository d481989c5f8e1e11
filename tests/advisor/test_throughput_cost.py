"""What tokens cost, and which plans the model cannot tell apart."""

from __future__ import annotations

import pytest

from vllm_advisor.facts import Estimate, Ranked
from vllm_advisor.plan import Plan
from vllm_advisor.score import settled_by, ties, worth
from vllm_advisor.throughput.cost import per_million_output, per_million_total
from vllm_advisor.units import Interval
from vllm_advisor.workload import Objective, Workload


def estimate(output: float, ttft: float = 100.0, tpot: float = 10.0) -> Estimate:
    """An estimate a factor two wide."""
    out, first, token = (Interval(x / 2, x, x * 2) for x in (output, ttft, tpot))
    return Estimate(out, out.scaled(3), first, token, 8.0, "weights")


def ranked(output: float, tp: int = 1) -> Ranked:
    """A plan of which only speed and devices matter."""
    plan = Plan("m", tensor_parallel_size=tp)
    return Ranked(plan, None, None, estimate(output), (), None, output)  # type: ignore[arg-type]


def test_a_million_tokens_cost_the_time_that_they_take():
    """Two devices at 3.6 an hour are 0.002 a second: a thousand tokens a second make a million for 2."""
    cost = per_million_output(estimate(1000.0), 2, 3.6)
    assert (1, 2, 4) == tuple(pytest.approx(x) for x in cost)
    assert 2 / 3 == pytest.approx(per_million_total(estimate(1000.0), 2, 3.6).mid)


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_a_price_is_a_number_from_zero(price):
    """Anything else is a mistake of the caller."""
    with pytest.raises(ValueError, match="an hour"):
        per_million_output(estimate(1.0), 1, price)


def test_cost_ranks_by_tokens_a_device():
    """Twice the devices have to be twice as fast."""
    load = Workload(objective=Objective.COST)
    assert worth(load, estimate(1000.0), 1) == worth(load, estimate(2000.0), 2)


def test_plans_within_a_tenth_are_ties():
    """1,000 and 950 cannot be told apart; 800 can."""
    load = Workload(objective=Objective.THROUGHPUT)
    plans = [ranked(1000.0), ranked(950.0), ranked(800.0)]
    assert (0, 1) == ties(plans, load)
    assert "measure these two: tuner serve --only 1,2" == settled_by((0, 1))
    assert "measure these 3: tuner serve --only 1,2,3" == settled_by((0, 1, 2))


def test_a_clear_winner_has_no_ties():
    """Nothing to measure, nothing to say."""
    load = Workload(objective=Objective.THROUGHPUT)
    assert () == ties([ranked(1000.0), ranked(500.0)], load)
    assert () == ties([], load)
    assert "" == settled_by(())


def test_ties_follow_the_objective():
    """At equal speed, half the devices cost half: by cost they are no tie."""
    plans = [ranked(1000.0, tp=1), ranked(1000.0, tp=2)]
    assert (0, 1) == ties(plans, Workload(objective=Objective.THROUGHPUT))
    assert () == ties(plans, Workload(objective=Objective.COST))
