"""The loop on real HTTP, files, processes and a store: what a tick does, and what it makes of everything broken."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from vllm_advisor.errors import BadInput
from vllm_advisor.profile import Trial, TrialState
from vllm_advisor.store.profile_store import ProfileStore
from vllm_tuner.daemon import config as configs
from vllm_tuner.daemon import kept, orphans
from vllm_tuner.daemon.drift import Drift
from vllm_tuner.daemon.drift_reason import Kind, Part, Reason
from vllm_tuner.daemon.look import Look
from vllm_tuner.daemon.loop import Daemon
from vllm_tuner.daemon.policy_state import Phase, State, dumps, loads
from vllm_tuner.daemon.tenure import lease_name
from vllm_tuner.daemon.testing import FAST, Clock, Exporter, profile, world


REASON = Reason(Kind.SLA, "sla:1", "a tenth of requests is late", (Part.SERVER,))


class Told(Look):
    """A question that is always answered with the machine of the tests' profiles."""

    busy = True

    def answer(self):
        """Its readings, as the child prints them."""
        here = profile().fingerprint
        return {"strict": dict(here.strict), "loose": dict(here.loose), "vllm": "0.33.0"}


class Scene:
    """A daemon in advise whose fast configuration tunes at any time, and everything around it."""

    def __init__(self, folder):
        self.folder, self.clock, self.exporter, self.lines = folder, Clock(), Exporter(), []
        self.store = ProfileStore.open(folder / "advisor.db", lambda: self.clock.at)
        self.begin()

    def begin(self, text=FAST):
        """Another daemon, as after a kill."""
        made = world(self.store, self.folder, self.exporter.url, text, clock=self.clock, lines=self.lines)
        self.service = Daemon(made, self.clock.clocks)

    def tick(self, requests=3, seconds=15.0):
        """Time passes with traffic, then one tick."""
        self.clock.pass_(seconds)
        self.exporter.serve(requests, 100)
        return self.service.tick()

    def until(self, done, seconds=120):
        """Quiet ticks until something is so, each with a moment of real time for children."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.tick(0)
            if done():
                return
            self.service.world.watch.client.read()
        raise AssertionError(f"never: {self.service.state}")

    def stands(self, monkeypatch):
        """From now on a reason stands."""
        monkeypatch.setattr(Drift, "see", lambda *_: (REASON,))

    def left(self):
        """Processes in the folder of the runs."""
        return orphans.inside(self.service.world.folder)

    def close(self):
        """Children end with the test."""
        self.service.hands.stop(0.5)
        self.service.world.watch.client.close()
        self.exporter.close()
        self.store.close()


@pytest.fixture
def scene(tmp_path):
    """All of it, on disk and on sockets."""
    made = Scene(tmp_path)
    yield made
    made.close()


def test_a_quiet_tick_orders_nothing_and_keeps_its_state(scene):
    """With healthy traffic it watches, holds its own lease, and leaves the node's to searches."""
    for _ in range(3):
        assert () == scene.tick()
    assert (True, Phase.WATCHING, 1) == (
        scene.service.leased,
        scene.service.state.phase,
        scene.service.hands.drift.left_out,
    )
    assert (True, None) == (scene.store.holder(lease_name("box")) is not None, scene.store.holder("box"))
    assert State() == loads(scene.store.kept(kept.POLICY, "box"))._replace(phase_s=0.0)


def test_a_reason_leads_to_a_search_and_a_candidate(scene, monkeypatch):
    """advise: reported at once, searched in a child, the winner stored as a candidate, the unit left alone."""
    winner = scene.store.save_profile(profile())
    monkeypatch.setenv("FAKE_TUNER_PROFILE", winner)
    scene.tick()
    scene.stands(monkeypatch)
    scene.until(lambda: scene.service.state.candidate == winner and scene.service.state.phase is Phase.WATCHING)

    kinds = [event.kind for event in scene.store.events()]
    assert {"drift", "state"} <= set(kinds)
    assert "candidate" in " ".join(scene.lines)
    assert (1, "") == (scene.service.state.attempt, scene.service.state.incumbent)
    assert () == scene.left()
    words = json.loads((scene.service.world.folder / "attempt-1/words.json").read_text())
    assert ["serve", "m", "--json-lines"] == words[:3]
    assert "--requests" in words


@pytest.mark.parametrize(("how", "phase", "failures"), [("none", Phase.WATCHING, 0), ("fail", Phase.DUE, 1)])
def test_other_ends_of_a_search(scene, monkeypatch, how, phase, failures):
    """Nothing better keeps what runs; a failure waits, and is tried again."""
    monkeypatch.setenv("FAKE_TUNER", how)
    scene.tick()
    scene.stands(monkeypatch)
    scene.until(lambda: scene.service.hands.ended.attempt == 1)
    assert (phase, failures, "") == (
        scene.service.state.phase,
        scene.service.state.failures,
        scene.service.state.candidate,
    )


@pytest.mark.parametrize("how", ["crash", "garbage"])
def test_a_search_that_breaks_is_a_failure_with_its_reason(scene, monkeypatch, how):
    """A child that is killed or prints nonsense leaves a reason, and none of its processes."""
    monkeypatch.setenv("FAKE_TUNER", how)
    scene.tick()
    scene.stands(monkeypatch)
    scene.until(lambda: scene.service.hands.ended.attempt == 1)
    assert "failed" == scene.service.hands.ended.state
    assert ("SIGKILL" in scene.service.hands.ended.says) == (how == "crash")
    assert () == scene.left()


def test_traffic_stops_a_search(scene, monkeypatch):
    """Requests at the watched server end the run, all of its processes too."""
    monkeypatch.setenv("FAKE_TUNER", "hang")
    scene.tick()
    scene.stands(monkeypatch)
    scene.until(lambda: len(scene.left()) == 2)
    scene.exporter.engine.running = 3
    scene.until(lambda: scene.service.hands.run is None)
    assert (Phase.DUE, ()) == (scene.service.state.phase, scene.left())


def test_a_person_who_searches_comes_first(scene, monkeypatch):
    """While somebody else measures on the node, no run starts."""
    assert scene.store.acquire("box", "other:1:1", seconds=1e6)
    scene.tick()
    scene.stands(monkeypatch)
    for _ in range(3):
        scene.tick()
    assert (Phase.DUE, 0, None) == (scene.service.state.phase, scene.service.state.attempt, scene.service.hands.run)
    assert b"another search measures here" in scene.service.board.pages.status


def test_a_killed_daemons_search_is_stopped_and_lost(scene, monkeypatch):
    """The next daemon stops what is left, fails the trial that ran, and goes back to due."""
    begun = State(phase=Phase.TUNING, attempt=4, answering=((Kind.SLA, "sla:1"),))
    scene.store.keep(kept.POLICY, "box", dumps(begun))
    number = scene.store.add_trial(Trial("study", "serve", node="box"))
    scene.store.start(number, by=f"{os.uname().nodename}:999999:1")
    place = scene.service.world.folder / "attempt-4/servers/001"
    place.mkdir(parents=True)
    left = subprocess.Popen(["/bin/sleep", "600"], cwd=place, start_new_session=True)
    scene.stands(monkeypatch)
    scene.tick()
    assert (-signal.SIGTERM, TrialState.FAILED) == (left.wait(), scene.store.trial(number).state)
    assert (Phase.DUE, 4) == (scene.service.state.phase, scene.service.state.attempt)
    assert any(f"stopped process {left.pid}" in line for line in scene.lines)


@pytest.mark.parametrize(
    "answer", ["<html>busy</html>", "vllm:num_requests_running NaN\n", "\x00\xff" * 1000, "vllm:" * 9]
)
def test_garbage_for_counters_is_left_out(scene, answer):
    """A page of nonsense is no sample and no reason, and the next good page counts again."""
    scene.tick()
    scene.exporter.answer = answer
    scene.tick()
    scene.exporter.answer = ""
    scene.tick()
    assert () == scene.tick()
    assert (Phase.WATCHING, 2) == (scene.service.state.phase, scene.service.hands.drift.left_out)


def test_a_server_that_is_gone_is_said_once(scene):
    """Three silent ticks in a row are one warning, and its return is one line."""
    scene.tick()
    scene.exporter.healthy, scene.exporter.status = False, 500
    for _ in range(8):
        scene.tick(0)
    scene.exporter.healthy, scene.exporter.status = True, 200
    scene.tick(0)
    told = [line for line in scene.lines if "event=server" in line]
    assert (2, True) == (len(told), "500" in told[0])


def test_a_clock_that_jumps_costs_one_reading(scene):
    """Hours ahead, back again, and a machine that slept: the reading is left out, the lease is held."""
    scene.tick()
    for jump in (3600.0, -3600.0, 8 * 3600.0):
        scene.clock.at += jump
        scene.tick()
        scene.tick()
    assert (True, Phase.WATCHING, 4) == (
        scene.service.leased,
        scene.service.state.phase,
        scene.service.hands.drift.left_out,
    )


def test_a_locked_store_orders_nothing(scene, monkeypatch):
    """What cannot be saved is not done; once the lock is gone the same tick is made again."""
    monkeypatch.setenv("FAKE_TUNER", "hang")
    scene.tick()
    scene.stands(monkeypatch)
    monkeypatch.setattr(scene.store, "keep", _locked)
    scene.tick()
    scene.tick()
    assert (Phase.WATCHING, None) == (scene.service.state.phase, scene.service.hands.run)
    assert b"locked" in scene.service.board.pages.status
    monkeypatch.undo()
    monkeypatch.setenv("FAKE_TUNER", "hang")
    scene.stands(monkeypatch)
    scene.until(lambda: scene.service.hands.run is not None)


def _locked(*_):
    from vllm_advisor.errors import StoreError

    raise StoreError("advisor.db is locked")


@pytest.mark.slow
def test_a_lock_that_is_held_by_another_program(scene):
    """A real lock for as long as the store waits: a tick that is late and orders nothing, then all is well."""
    scene.tick()
    other = sqlite3.connect(scene.folder / "advisor.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    scene.tick()
    assert (True, True) == (scene.service.leased, any("locked" in text for text in scene.service.trouble.values()))
    other.execute("ROLLBACK")
    other.close()
    scene.tick()
    assert {} == scene.service.trouble


def test_another_daemon_has_the_node(scene):
    """The second one waits and touches nothing; it takes over when the first gives the lease back."""
    assert scene.store.acquire(lease_name("box"), "elsewhere:1:1", seconds=1e6)
    for _ in range(3):
        scene.tick()
    assert (False, 1) == (scene.service.leased, sum("another daemon has box" in line for line in scene.lines))
    scene.store.release(lease_name("box"), "elsewhere:1:1")
    scene.tick()
    assert scene.service.leased


def test_a_lost_lease_stops_the_run(scene, monkeypatch):
    """Whoever has the node now must not be measured against."""
    monkeypatch.setenv("FAKE_TUNER", "hang")
    scene.tick()
    scene.stands(monkeypatch)
    scene.until(lambda: scene.service.hands.run is not None)
    scene.clock.at += 1e6
    scene.store.acquire(lease_name("box"), "elsewhere:1:1", seconds=1e6)
    scene.until(lambda: scene.service.hands.run is None)
    assert (False, ()) == (scene.service.leased, scene.left())


@pytest.mark.parametrize("text", ["", "{", '{"version": 99}', '{"version": 1, "phase": "odd"}', "[]"])
def test_a_state_that_cannot_be_read_is_begun_anew(scene, text):
    """It is named in one line, and the daemon runs."""
    for kind in (kept.POLICY, kept.ALLOWANCE, kept.DRIFT):
        scene.store.keep(kind, "box", text)
    scene.tick()
    assert (3, State()) == (
        sum("begun anew" in line for line in scene.lines),
        scene.service.state._replace(phase_s=0.0),
    )


def test_a_broken_configuration_keeps_the_old_one(scene):
    """SIGHUP: one line, and everything as before; a good one is taken."""

    def broken():
        raise BadInput("daemon.toml: no key 'mod'")

    scene.service.reload(broken)
    assert ("advise", True) == (scene.service.world.config.mode, "old configuration stays" in scene.lines[-1])
    scene.service.reload(lambda: configs.parse(FAST.replace("[windows]", 'mode = "observe"\n[windows]', 1)))
    assert "observe" == scene.service.world.config.mode


def test_a_stop_gives_everything_back(scene, monkeypatch):
    """No child, no lease, and what was learnt is saved."""
    monkeypatch.setenv("FAKE_TUNER", "ignore")
    scene.tick()
    scene.stands(monkeypatch)
    scene.until(lambda: len(scene.left()) == 2)
    monkeypatch.setattr("vllm_tuner.daemon.loop._STOP_GRACE_S", 0.2)
    scene.service.stop()
    assert (None, ()) == (scene.store.holder(lease_name("box")), scene.left())
    assert None is not scene.store.kept(kept.DRIFT, "box")


def test_neither_torch_nor_a_search_is_loaded(scene, tmp_path):
    """A tick in a fresh process: no torch, triton, optuna, textual or vllm among its modules."""
    code = (
        "import sys; from pathlib import Path; from vllm_advisor.store.profile_store import ProfileStore\n"
        "from vllm_tuner.daemon.testing import Clock, daemon, world\n"
        f"store, clock = ProfileStore.open(Path({str(tmp_path / 'a.db')!r})), Clock()\n"
        f"with daemon(world(store, Path({str(tmp_path)!r}), {scene.exporter.url!r}, clock=clock), clock) as service:\n"
        "    service.tick(); service.tick()\n"
        "heavy = {'torch', 'triton', 'optuna', 'textual', 'vllm', 'transformers', 'numpy'} & set(sys.modules)\n"
        "print(service.leased, sorted(heavy))\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert "True []\n" == done.stdout


def runs(scene):
    """Which profile the service takes for what runs, after a look at the machine."""
    scene.service.world.watch.look = Told()
    scene.tick()
    scene.tick()
    return scene.service.hands.drift.reference.profile


def test_what_runs_is_guessed_once(scene):
    """Without a unit the best match is taken for it; what is stored later does not run, after a restart neither."""
    first = scene.store.save_profile(profile(seqs=2))
    assert first == runs(scene)
    scene.store.save_profile(profile(seqs=8, tpot_ms=1.0))
    assert first == runs(scene)
    scene.begin()
    assert first == runs(scene)


def test_nothing_in_the_store_runs_nothing_of_it(scene):
    """What a search stores after the first look is a candidate, not what runs."""
    assert "" == runs(scene)
    scene.store.save_profile(profile(seqs=8))
    assert "" == runs(scene)
    scene.begin()
    assert "" == runs(scene)
