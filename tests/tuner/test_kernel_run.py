"""The loop over a made-up device with a store on disk: what it asks, keeps, refuses, and how it ends."""

import math

import pytest


pytest.importorskip("numpy")

from vllm_advisor.errors import EngineError
from vllm_advisor.profile import TrialState
from vllm_advisor.store.profile_store import ProfileStore
from vllm_tuner.budget import Budget
from vllm_tuner.kernel_tuning import run as loop
from vllm_tuner.kernel_tuning.attempt import Bench
from vllm_tuner.kernel_tuning.contract import CONTEST, KIND
from vllm_tuner.kernel_tuning.effort import EFFORTS, LOOK
from vllm_tuner.kernel_tuning.points import point_of
from vllm_tuner.kernel_tuning.synthetic import GPU, Range
from vllm_tuner.kernel_tuning.testing import MACHINE, FakeKernels, Problem


SMALL = (Range("block_m", (16, 32, 64)), Range("num_warps", (2, 4, 8)))
DEFAULT = (16, 4)
QUICK = EFFORTS["quick"]


def law(best, worst=40.0):
    """Ten µs at the best point and five more for each step from it."""

    def us(point):
        steps = sum(abs(math.log2(a / b)) for a, b in zip(point, best, strict=True))
        return min(worst, 10 + 5 * steps)

    return us


class Clock:
    """A clock that goes on only where a test says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def store(tmp_path):
    """A store in a file."""
    with ProfileStore.open(tmp_path / "s.db") as opened:
        yield opened


def small(best=(64, 8), **more):
    return FakeKernels(SMALL, law(best), default=DEFAULT, **more)


def tuner(store, kernels, *, seconds=600.0, clock=None, machine=MACHINE, row=QUICK, strategy="", told=None):
    tell = (lambda _: None) if told is None else told.append
    bench = Bench(kernels, row, store, tell, "node", jobs=2)
    return loop.Run(bench, store, lambda _: machine, Budget(seconds, clock or Clock()), strategy)


def settings(point, axes=SMALL):
    return tuple(sorted(zip((a.name for a in axes), point, strict=True)))


def test_the_best_launch_beats_the_default_and_is_kept(store):
    """Ten µs against thirty: every point timed once, seven rounds, kept by the whole key with the gain's interval."""
    [result] = tuner(store, small()).tune([Problem()])
    kept = store.kernel(result.about.key)

    assert loop.BETTER == result.verdict
    assert 9 == result.timed == len([t for t in store.trials() if t.kind == KIND])
    assert (settings((64, 8)), True) == (tuple(sorted(kept.settings)), kept.kept)
    assert 10.0 == pytest.approx(kept.median_us, rel=0.02)
    assert 25.0 == pytest.approx(kept.default_us, rel=0.02)
    assert 7 == result.fought.decision.rounds
    assert 2.4 < result.fought.speedup.low <= result.fought.speedup.mid <= result.fought.speedup.high < 2.6
    assert ("mxfp4.w4a16", "m<=16 n4096 k4096", "sm90", "0123456789abcdef", *MACHINE) == tuple(kept.key)


def test_a_default_that_is_best_stays(store):
    """A null result: said as one, kept as one, and nothing is fought."""
    [result] = tuner(store, small(best=DEFAULT)).tune([Problem()])
    kept = store.kernel(result.about.key)

    assert loop.NOT_BETTER == result.verdict
    assert "the default is the fastest of 9" in result.says
    assert (False, settings(DEFAULT)) == (kept.kept, tuple(sorted(kept.settings)))
    assert [] == [t for t in store.trials() if t.kind == CONTEST]


def test_what_is_better_only_by_noise_does_not_replace_the_default(store):
    """All points are equal up to noise of 5 %: some other one looks best, and the comparison says that it is not."""
    flat = FakeKernels(SMALL, lambda _: 10.0, default=DEFAULT, noise=0.05)
    [result] = tuner(store, flat).tune([Problem()])

    assert loop.NOT_BETTER == result.verdict
    assert not store.kernel(result.about.key).kept


def test_what_does_not_compile_or_computes_wrongly_cannot_win(store):
    """The two fastest points: one spills, one is wrong. Neither is timed, both are kept with the reason."""
    kernels = small(uncompilable=[(64, 8)], wrong=[(64, 4)])
    [result] = tuner(store, kernels).tune([Problem()])
    reasons = {t.settings: t.reason for t in store.trials(state=TrialState.INFEASIBLE)}

    assert {settings((64, 8)): "4 bytes of spills", settings((64, 4)): "wrong: 3 of 4 elements differ"} == reasons
    assert not {(64, 8), (64, 4)} & set(kernels.timed)
    assert (64, 8) not in kernels.checked
    assert settings((32, 8)) == tuple(sorted(result.config.settings))
    assert 2 == result.infeasible


def test_a_default_that_does_not_run_is_replaced_by_what_does(store):
    """It spills here: the best of the others is kept, without a comparison, and the reason is said."""
    [result] = tuner(store, small(uncompilable=[DEFAULT])).tune([Problem()])

    assert loop.NO_DEFAULT == result.verdict
    assert "the default does not run here (4 bytes of spills)" in result.says
    assert (True, 0.0) == (result.config.kept, result.config.default_us)


def test_nothing_that_runs_is_said(store):
    """Every point fails the compiler: no winner, and the first reason."""
    every = [(m, w) for m in SMALL[0].values for w in SMALL[1].values]
    [result] = tuner(store, small(uncompilable=every)).tune([Problem()])

    assert loop.NOTHING == result.verdict
    assert "4 bytes of spills" in result.says
    assert store.kernel(result.about.key) is None


def test_the_compiler_sees_points_before_the_device_and_never_what_cannot_win(store):
    """A bound at or above the default's time spares compiling; every timed point was compiled before."""
    kernels = small(best=(32, 4))
    kernels.bound_us = lambda _problem, point, _peaks: 16.0 if point[1] == 8 else 1.0
    tuner(store, kernels).tune([Problem()])

    assert 15.0 == law((32, 4))(DEFAULT)
    assert [] == [p for p in kernels.gated if p[1] == 8]
    assert set(kernels.timed) <= set(kernels.gated)


def test_a_bound_never_drops_what_could_still_win(store):
    """The bound of the best point lies a little below its true time: it is tried, whatever else was measured."""
    kernels = small()
    kernels.bound_us = lambda problem, point, _peaks: 0.99 * kernels.us(problem, point)
    [result] = tuner(store, kernels, row=QUICK._replace(trials=4)).tune([Problem()])

    assert settings((64, 8)) == tuple(sorted(result.config.settings))


def test_what_is_known_is_not_measured_again(store):
    """A second run answers everything from the store: no launch, no new trial, the same winner."""
    tuner(store, small()).tune([Problem()])
    before, again = len(store.trials()), small()
    [result] = tuner(store, again).tune([Problem()])

    assert loop.KNOWN == result.verdict
    assert ([], [], before) == (again.timed, again.checked, len(store.trials()))
    assert settings((64, 8)) == tuple(sorted(result.config.settings))


@pytest.mark.slow
def test_a_model_search_goes_on_where_it_was_stopped(store, tmp_path):
    """Stopped at the tenth candidate, then run again: the same points in all as a search that was never stopped."""
    row = QUICK._replace(trials=20)

    def stop(_point):
        if len({t.settings for t in store.trials(state=TrialState.COMPLETE)}) == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuner(store, FakeKernels(noise=0.0, before_launch=stop), row=row).tune([Problem()])
    stopped = [t for t in store.trials() if t.state is TrialState.ABORTED]
    tuner(store, FakeKernels(noise=0.0), row=row).tune([Problem()])
    with ProfileStore.open(tmp_path / "whole.db") as other:
        tuner(other, FakeKernels(noise=0.0), row=row).tune([Problem()])
        whole = timed(other)

    assert ["stopped: KeyboardInterrupt"] == [t.reason for t in stopped]
    assert whole == timed(store)


def timed(store):
    found = [point_of(GPU, t.settings) for t in store.trials(state=TrialState.COMPLETE) if t.kind == KIND]
    assert len(found) == len(set(found))
    return set(found)


def slow(clock):
    """Kernels whose launches take a second or more of the clock."""

    def seconds(point):
        return 1 + abs(math.log2(point[0] / 64)) + point[1] / 10

    axes = (Range("block_m", tuple(range(16, 80))), Range("num_warps", (1, 2, 4, 8)))
    return FakeKernels(
        axes,
        lambda point: 1e6 * seconds(point),
        default=DEFAULT,
        before_launch=lambda point: setattr(clock, "now", clock.now + seconds(point)),
    )


@pytest.mark.parametrize("limit", [5.0, 40.0, 200.0, 1000.0])
def test_the_budget_is_hard(store, limit):
    """Launches take seconds: the search ends in time but for one launch or look, and leaves no trial running."""
    clock = Clock()
    [result] = tuner(store, slow(clock), seconds=limit, clock=clock).tune([Problem()])

    assert 0 < clock.now <= limit + 20
    assert TrialState.RUNNING not in {t.state for t in store.trials()}
    assert (result.config is None) == (result.verdict == loop.UNDECIDED)
    if limit < 100:
        assert (loop.UNDECIDED, None) == (result.verdict, store.kernel(result.about.key))


def test_problems_share_the_time(store):
    """Three problems: each of them gets to measure, inside the limit of all."""
    clock = Clock()
    found = tuner(store, slow(clock), seconds=900.0, clock=clock).tune([Problem(m=m) for m in (16, 256, 4096)])

    assert [True, True, True] == [result.timed >= 1 for result in found]
    assert clock.now <= 900 + 20


def test_a_failing_launch_is_a_failure_and_several_end_the_run(store):
    """One driver error is a failed trial; three in a row are no candidate's fault."""

    def fail(point):
        if point[0] == 64:
            raise RuntimeError("an illegal memory access was encountered\nat somewhere")

    with pytest.raises(EngineError, match="3 launches in a row failed: RuntimeError: an illegal memory access"):
        tuner(store, small(before_launch=fail), strategy="exhaustive").tune([Problem()])

    assert 3 == len(store.trials(state=TrialState.FAILED))


def test_a_hopeless_launch_gets_a_look_only(store):
    """Forty µs against ten: a look; what is near the best is launched as often as fits the slice."""
    kernels = FakeKernels(SMALL, lambda p: 1000.0 if p[0] == 16 else 4000.0, default=DEFAULT, noise=0.0)
    tuner(store, kernels).tune([Problem()])
    repeats = {point_of(SMALL, t.settings): t.measurement.repeats for t in store.trials() if t.kind == KIND}

    assert {16: 20, 32: LOOK, 64: LOOK} == {point[0]: count for point, count in repeats.items()}


def test_progress_says_what_is_left(store):
    """Every event carries the seconds that are left; the result is said last."""
    told = []
    tuner(store, small(), told=told).tune([Problem()])

    assert all("left_s" in dict(event.details) for event in told)
    assert "1 of 1: mxfp4.w4a16, 16 tokens, 4096 x 4096, 9 points" == told[0].message
    assert "result" == told[-1].kind
