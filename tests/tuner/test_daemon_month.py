"""Months of a simulated deployment: days, weekends, bursts and noise are no reason to tune again, a shift is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_tuner.daemon.drift import Drift, DriftLimits, Kind, Reference
from vllm_tuner.daemon.policy_state import Mode, Notify, WorkState
from vllm_tuner.daemon.simulate import DAY, HOUR, MONDAY, Deployment, Scene, Service


def through(service, days):
    """The service after so many days."""
    while service.deployment.at < MONDAY + days * DAY:
        service.tick()
    return service


def after(service, shift_at):
    """Hours from the shift to each run."""
    return [(fact.at - MONDAY - shift_at) / HOUR for fact in service.tunes()]


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_month_without_a_reason(seed):
    """Thirty days of daily and weekly swing with noise and bursts lead to no re-tune and to no news."""
    service = through(Service(Scene(seed, tick_s=600, rate=0.3)), 30)

    assert ((), []) == (service.tunes(), [f for f in service.facts if isinstance(f.action, Notify)])
    assert 200 < service.drift.blocks


# Seeds by hours of onset: on the second day, in its night, on a first Saturday, and once weeks are known.
ONSETS = (26.0, 28.5, 53.0, 128.0, 333.0)


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("onset", ONSETS)
def test_a_doubling_is_caught_within_a_day(seed, onset):
    """Prompts that are twice as long from one hour on lead to one re-tune within a day, and to no second one."""
    shift_at = onset * HOUR
    service = through(Service(Scene(seed, tick_s=600, rate=0.3, shift_at=shift_at, prompts=2.0)), onset / 24 + 2)

    found = after(service, shift_at)
    assert 1 == len(found)
    assert 0 < found[0] <= 24
    assert 1 == len(service.reported(Kind.WORKLOAD))


@pytest.mark.parametrize(("seed", "scene"), [(6, {"outputs": 2.0}), (7, {"prompts": 0.5}), (8, {"prompts": 3.0})])
def test_other_shifts_are_caught_too(seed, scene):
    """Outputs twice, prompts half and three times as long."""
    shift_at = 200 * HOUR
    service = through(Service(Scene(seed, tick_s=600, rate=0.3, shift_at=shift_at, **scene)), 11)

    found = after(service, shift_at)
    assert 1 == len(found)
    assert 0 < found[0] <= 24


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("onset", [126.5, 128.0, 140.0, 150.0])
def test_a_halving_within_the_first_weekend_is_caught(seed, onset):
    """The weekend's own lengths, a quarter longer, hide a third of it; how that day began shows it all the same."""
    shift_at = onset * HOUR
    service = through(Service(Scene(seed, tick_s=600, rate=0.3, shift_at=shift_at, prompts=0.5)), onset / 24 + 2)

    found = after(service, shift_at)
    assert 1 == len(found)
    assert 0 < found[0] <= 24


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_first_weekend_of_longer_prompts_is_no_shift(seed):
    """Half as long again on weekends: no run, on the first one or later."""
    assert () == through(Service(Scene(seed, tick_s=600, rate=0.3, weekend_lengths=1.5)), 16).tunes()


def test_a_shift_that_stays_is_tuned_for_once():
    """For three weeks after it, weekends included, there is one re-tune and one candidate."""
    scene = Scene(3, tick_s=600, rate=0.3, shift_at=100 * HOUR, prompts=2.0)
    service = through(Service(scene, outcome=WorkState.WON), 26)

    assert 1 == len(service.tunes())
    assert 1 == len([f for f in service.facts if isinstance(f.action, Notify) and f.action.kind == "candidate"])


def test_observe_reports_once():
    """In observe the shift is told once, and nothing is run, however long it stands."""
    service = through(Service(Scene(1, tick_s=600, rate=0.3, shift_at=60 * HOUR, prompts=2.0), mode=Mode.OBSERVE), 12)

    assert ((), 1) == (service.tunes(), len([f for f in service.facts if isinstance(f.action, Notify)]))


def test_weekends_of_another_kind_lead_to_one_run():
    """Where weekends are three times as long the first one is news; from then on both kinds of day are usual."""
    service = through(Service(Scene(2, tick_s=600, rate=0.3, weekend_lengths=3.0)), 30)

    assert 1 == len(service.tunes())
    assert 5 <= (service.tunes()[0].at - MONDAY) / DAY < 7


def test_restarts_and_clocks_lose_nothing():
    """A shift is caught within a day by a service that is killed each hour and whose clock is set now and then."""
    deployment, drift, reasons = Deployment(Scene(4, tick_s=600, rate=0.3, shift_at=60 * HOUR, prompts=2.0)), None, ()
    text, ticks = "", 0
    while deployment.at < MONDAY + 84 * HOUR and not reasons:
        ticks += 1
        sighting = deployment.tick()
        jump = -5000.0 if ticks % 50 == 0 else 0.0
        if ticks % 6 == 0 or drift is None:
            drift = Drift.loads(text, Reference()) if text else Drift(Reference())
        reasons = drift.see(sighting._replace(at=sighting.at + jump))
        text = drift.dumps()

    assert [Kind.WORKLOAD] == [reason.kind for reason in reasons]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12])
def test_a_month_at_fifteen_seconds(seed):
    """The same at the service's own tick, for a month whose second half is shifted: one re-tune, within a day."""
    shift_at = 20.3 * DAY
    service = through(Service(Scene(seed, rate=0.3, shift_at=shift_at, prompts=2.0)), 30)

    found = after(service, shift_at)
    assert 1 == len(found)
    assert 0 < found[0] <= 24


MEMORY = """
import sys
from vllm_tuner.daemon.simulate import Scene, Service, resident_bytes
warm, ticks = int(sys.argv[1]), int(sys.argv[2])
service = Service(Scene(1, rate=0.3, shift_at=86400.0 * 10, prompts=2.0))
for _ in range(warm):
    service.tick()
before = resident_bytes()
for _ in range(ticks):
    service.tick()
print(resident_bytes() - before, len(service.facts), len(service.drift.dumps()))
"""


def grown(warm, ticks):
    """Bytes of resident memory, orders kept and size of the state after so many ticks."""
    paths = os.pathsep.join(str(Path(__file__).parents[2] / name) for name in ("tuner", "advisor"))
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(warm), str(ticks)],
        env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=True, timeout=500,
    )  # fmt: skip
    return [int(word) for word in done.stdout.split()]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc/self/statm")
@pytest.mark.parametrize(("warm", "ticks"), [(10_000, 20_000), pytest.param(20_000, 200_000, marks=pytest.mark.slow)])
def test_memory_is_bounded(warm, ticks):
    """After a warm-up, ticks leave resident memory within 2 MiB, the orders and the saved state bounded."""
    bytes_more, facts, state = grown(warm, ticks)

    assert bytes_more <= 2 << 20
    assert facts <= 1000
    assert state < 40_000


def test_limits_are_what_the_months_were_run_with():
    """The defaults that these months speak for."""
    limits = DriftLimits()

    assert (3 * HOUR, DAY, 28 * DAY) == (limits.block_s, limits.warm_up_s, limits.learn_s)
