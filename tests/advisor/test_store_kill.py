"""kill -9 at any moment loses at most the trial that was running."""

import os
import random
import select
import signal

import pytest

from vllm_advisor.plan import Plan
from vllm_advisor.profile import Fingerprint, Measurement, Origin, Profile, Provenance, Trial, TrialState
from vllm_advisor.store import owner
from vllm_advisor.store.profile_store import ProfileStore
from vllm_advisor.units import Interval


PLAN = Plan("org/model", tensor_parallel_size=2)
MEASURED = Measurement((("output_tok_s", Interval(1.0, 2.0, 3.0)),))
FINGERPRINT = Fingerprint((("gpus", "cpu"),), (("gpus", "cpu"),))


def _tune(path, out):
    """A tuner without a server: trials one after another, and profiles; each is told after it was committed."""
    with ProfileStore.open(path) as store:
        for i in range(1_000_000):
            number = store.add_trial(Trial("study", "serve", PLAN, node="box", fingerprint=FINGERPRINT))
            store.start(number)
            measured = MEASURED._replace(at=float(number))
            store.finish(number, TrialState.COMPLETE, measured)
            os.write(out, f"t{number}\n".encode())
            if i % 3 == 0:
                origin = Provenance(Origin.MEASURED, at=float(number), node="box")
                kept = store.save_profile(Profile(FINGERPRINT, PLAN, measured, provenance=origin), (number,))
                os.write(out, f"p{kept}\n".encode())


def _killed_after(path, seconds):
    """What a child told before SIGKILL, some time after its first word."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            _tune(path, writing)
        finally:
            os._exit(1)
    os.close(writing)
    told = os.read(reading, 1 << 16)
    select.select([], [], [], seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(reading, 1 << 16):
        told += more
    os.close(reading)
    return told.decode().rpartition("\n")[0].split("\n")


def _check(path, told):
    with ProfileStore.open(path) as store:
        assert "ok" == store.integrity()
        lost = store.recover_stale("box", owner.alive)
        assert len(lost) <= 1
        states = {trial.id: trial for trial in store.trials()}
        running = [trial for trial in states.values() if trial.state is TrialState.RUNNING]
        assert [] == running
        ends = [states[int(word[1:])] for word in told if word.startswith("t")]
        assert [TrialState.COMPLETE] * len(ends) == [trial.state for trial in ends]
        assert all(trial.measurement.at == trial.id for trial in ends)
        profiles = {profile.id: profile for profile in store.profiles()}
        assert all(len(profile.provenance.trials) == 1 for profile in profiles.values())
        assert {word[1:] for word in told if word.startswith("p")} <= set(profiles)


@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_kill_9_loses_at_most_the_running_trial(tmp_path, rounds):
    """Integrity is ok, every end that was told is there with its figures, nothing is RUNNING after recovery."""
    path, chance = tmp_path / "advisor.db", random.Random(7)  # noqa: S311 - moments, no secrets
    ProfileStore.open(path).close()
    told = 0
    for _ in range(rounds):
        words = _killed_after(path, chance.uniform(0.0, 0.02))
        told += len(words)
        _check(path, words)
    assert told >= rounds


def test_a_kill_in_the_first_opening_leaves_a_store_that_opens(tmp_path):
    """The migrations are one transaction: a child that dies inside leaves nothing or everything."""
    chance = random.Random(11)  # noqa: S311 - moments, no secrets
    for i in range(8):
        path = tmp_path / f"{i}.db"
        child = os.fork()
        if child == 0:
            try:
                ProfileStore.open(path)
            finally:
                os._exit(0)
        select.select([], [], [], chance.uniform(0.0, 0.15))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with ProfileStore.open(path) as store:
            assert ("ok", ()) == (store.integrity(), store.trials())
