"""Whether devices are nobody's: several readings in a row, what is not known, heat, and a run of our own."""

import pytest

from vllm_advisor.hardware import Unknown
from vllm_advisor.units import GIB
from vllm_tuner.daemon.idle import Device, Idle, IdleLimits, Reading, busy, guard, observe, permit


LIMITS = IdleLimits()
NOT = Unknown("not supported")
QUIET = Device(0, 0.0, 0, 0, 40.0, 60.0, 700.0, 700.0)


def after(*readings, ours_runs=False, idle=None):
    idle = idle or Idle()
    for reading in readings:
        idle = observe(idle, reading, LIMITS, ours_runs=ours_runs)
    return idle


def test_several_in_a_row():
    """Three idle readings are not enough, four are, and a busy one begins anew."""
    quiet, loud = Reading((QUIET,)), Reading((QUIET._replace(utilization=0.5),))

    assert (False, "idle", "idle for 3 of 4 readings") == permit(after(quiet, quiet, quiet), LIMITS)
    assert permit(after(*[quiet] * 4), LIMITS).granted
    assert permit(after(*[quiet] * 40), LIMITS).granted
    assert (False, "idle", "GPU 0: 50% utilized") == permit(after(*[quiet] * 9, loud), LIMITS)
    assert not permit(after(*[quiet] * 9, loud, quiet), LIMITS).granted


def test_no_reading_is_not_idle():
    """Before the first reading nothing is known."""
    assert (False, "idle", "no reading yet") == permit(Idle(), LIMITS)


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (Reading((QUIET,)), ""),
        (Reading((QUIET,), requests=2), "the server has 2 requests"),
        (Reading((QUIET,), requests=Unknown("it does not answer")), "the server's requests are not known: it does not"),
        (Reading((QUIET, QUIET._replace(number=3, others_bytes=2 * GIB))), "GPU 3: other processes hold 2.0 GiB"),
        (Reading((QUIET._replace(others=1, others_bytes=GIB // 4),)), ""),  # a display manager
        (Reading((QUIET._replace(utilization=NOT),)), ""),
        (Reading((QUIET._replace(utilization=NOT, others=2),)), "GPU 0: 2 other processes, and its utilization is not"),
        (Reading((QUIET._replace(utilization=NOT, others=NOT),)), "GPU 0: neither its utilization nor its processes"),
        (Reading((Device(0),)), "GPU 0: neither"),
        (Reading(host_load=0.1), ""),
        (Reading(host_load=0.7), "others keep 70% of the processors busy"),
        (Reading(), "the host's load is not known"),
    ],
)
def test_busy(reading, expected):
    """Each kind of use speaks for itself; what is not known is not taken for idle."""
    found = busy(reading, LIMITS)

    assert expected == "" == found or (expected and found.startswith(expected))


def test_our_own_run():
    """While our run keeps a device busy only others and their requests stop it."""
    ours = QUIET._replace(utilization=1.0)

    assert permit(after(Reading((ours,)), ours_runs=True), LIMITS).granted
    assert permit(after(Reading(), ours_runs=True), LIMITS).granted
    assert not permit(after(Reading((ours,), requests=1), ours_runs=True), LIMITS).granted
    assert not permit(after(Reading((ours._replace(others_bytes=GIB),)), ours_runs=True), LIMITS).granted


def test_a_page_that_cannot_be_read_ends_no_run():
    """A run goes on while fewer readings in a row than began it could not be had; requests end it at once."""
    good, lost = Reading((QUIET,)), Reading((QUIET,), requests=Unknown("garbage"))

    def goes_on(*readings):
        return permit(after(*readings, ours_runs=True), LIMITS, ours_runs=True).granted

    assert goes_on(good, lost, lost, lost)
    assert not goes_on(good, lost, lost, lost, lost)
    assert goes_on(good, *[lost, lost, lost, good] * 5)
    assert not goes_on(good, good._replace(requests=1))


def test_heat_has_hysteresis():
    """A device that got too hot must cool well below the limit."""

    def hot(*degrees):
        return guard(after(*[Reading((QUIET._replace(celsius=d),)) for d in degrees]))

    assert hot(84).granted
    assert (False, "guard", "GPU 0 has 85 °C, 85 °C is the limit") == hot(84, 85)
    assert not hot(85, 78).granted
    assert hot(85, 76).granted
    assert hot(85, 76, 84).granted


def test_power_cap():
    """A lowered cap makes measurements that do not hold later; an unknown one is no refusal."""
    assert "GPU 0 is capped at 400 W instead of 700 W" == guard(after(Reading((QUIET._replace(cap_watts=400.0),)))).why
    assert guard(after(Reading((QUIET._replace(cap_watts=650.0),)))).granted
    assert guard(after(Reading((QUIET._replace(cap_watts=NOT, celsius=NOT),)))).granted
