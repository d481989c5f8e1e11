"""What tokens cost, and which trials nothing beats, in two figures or in all."""

import pytest

from vllm_advisor.plan import Plan
from vllm_advisor.profile import Measurement, Trial
from vllm_advisor.throughput.cost import per_million_output
from vllm_advisor.units import Interval
from vllm_advisor.workload import Sla, Workload
from vllm_tuner import cost, pareto


def trial(number, sla=None, devices=1, **figures):
    """A measured trial."""
    found = tuple(sorted((name, Interval(x * 0.9, x, x * 1.1)) for name, x in figures.items()))
    measured = Measurement(found, Workload(sla=sla or Sla()))
    return Trial("s", "serve", Plan("m", tensor_parallel_size=devices), measurement=measured, id=number)


FAST = trial(1, output_tok_s=1000, tpot_ms=50, ttft_ms=900, e2el_ms=5000)
QUICK = trial(2, output_tok_s=400, tpot_ms=10, ttft_ms=100, e2el_ms=1000)
WORSE = trial(3, output_tok_s=300, tpot_ms=20, ttft_ms=200, e2el_ms=2000)
WIDE = trial(4, devices=4, output_tok_s=1200, tpot_ms=60, ttft_ms=1000, e2el_ms=6000)
BARE = Trial("s", "serve", Plan("m"), id=5)
ALL = (FAST, QUICK, WORSE, WIDE, BARE)


def numbers(trials):
    return [t.id for t in trials]


def test_a_million_tokens_cost_devices_and_seconds():
    """500 tok/s on four devices at 2.50 an hour: 8,000 device seconds, which cost 5.56; as the advisor predicts it."""
    found = cost.figures({"output_tok_s": 500.0}, 4, 2.5)
    predicted = per_million_output(type("E", (), {"output_tok_s": Interval(500, 500, 500)}), 4, 2.5).mid

    assert {"device_s_per_mtok": 8000.0, "usd_per_mtok": pytest.approx(5.5556, rel=1e-4)} == found
    assert pytest.approx(predicted) == found["usd_per_mtok"]


def test_without_a_price_there_are_device_seconds_alone():
    """No price is made up; nothing that came out has no cost; a free device costs nothing."""
    assert {"device_s_per_mtok": 1000.0} == cost.figures({"output_tok_s": 1000.0}, 1, None)
    assert {} == cost.figures({"output_tok_s": 0.0}, 1, 2.5)
    assert 0.0 == cost.figures({"output_tok_s": 1.0}, 1, 0.0)["usd_per_mtok"]


def test_the_chart_s_frontier_is_that_of_its_two_figures():
    """The fastest device and the fastest user; what is worse in both, and four devices for a fifth more, are not."""
    best = pareto.frontier(pareto.points(ALL))

    assert [1, 2] == numbers(p.trial for p in best)
    assert [(1000.0, 20.0), (400.0, 100.0)] == [(p.per_device, p.per_user) for p in best]
    assert [1, 2] == [p.trial.id for p in pareto.plot(ALL) if p.best]


def test_another_axis_is_another_frontier():
    """In tokens a second of the whole deployment the four devices count; a figure that less is better of is turned."""
    assert [1, 2, 4] == numbers(pareto.unbeaten(ALL, ("ttft_ms", "output_tok_s")))
    assert [4] == numbers(pareto.unbeaten(ALL, ("output_tok_s",)))
    assert [2] == numbers(pareto.unbeaten(ALL, ("ttft_ms",)))


def test_equal_trials_do_not_beat_each_other():
    """Both stay."""
    twin = FAST._replace(id=9)

    assert [1, 9] == numbers(pareto.unbeaten((FAST, twin), ("per_device", "per_user")))


def test_a_plot_has_every_measured_trial_with_its_intervals():
    """In their order, and those without figures left out; a shorter gap is a higher speed."""
    found = pareto.plot(ALL)

    assert [1, 2, 3, 4] == numbers(p.trial for p in found)
    assert pytest.approx((1000 / 55, 20, 1000 / 45)) == found[0].x
    assert pytest.approx((270, 300, 330)) == found[3].y


def test_every_objective_that_was_measured_is_shown():
    """Throughput against one user's speed, the first token and the whole answer; cost and goodput where they are."""
    plain = [("per_user", "per_device"), ("ttft_ms", "output_tok_s"), ("e2el_ms", "output_tok_s")]
    more = {"goodput_s": 1, "usd_per_mtok": 2, "device_s_per_mtok": 3}
    full = [trial(n, sla=Sla(ttft_ms=9), output_tok_s=n, tpot_ms=n, ttft_ms=n, e2el_ms=n, **more) for n in (1, 2)]

    assert plain == list(pareto.shown(ALL))
    assert [*plain, ("e2el_ms", "goodput_s"), ("per_user", "usd_per_mtok")] == list(pareto.shown(full))
    assert () == pareto.shown((FAST,))


def test_goodput_without_limits_is_no_objective():
    """It would be the rate of requests again."""
    free = [trial(n, output_tok_s=n, tpot_ms=n, e2el_ms=n, goodput_s=n) for n in (1, 2)]

    assert ("e2el_ms", "goodput_s") not in pareto.shown(free)
