"""`[tuning] stop_unit`: a server that fills its devices makes way for a run, and comes back whatever happens."""

import json
import time

import pytest

from vllm_advisor.errors import BadInput, EngineError
from vllm_advisor.plan import LaunchCommand
from vllm_advisor.store.profile_store import ProfileStore
from vllm_tuner.daemon import config as configs
from vllm_tuner.daemon import kept
from vllm_tuner.daemon.drift import Drift
from vllm_tuner.daemon.drift_reason import Kind, Part, Reason
from vllm_tuner.daemon.loop import Daemon
from vllm_tuner.daemon.permits import window
from vllm_tuner.daemon.plans import budget_s
from vllm_tuner.daemon.policy_state import Health, Phase
from vllm_tuner.daemon.testing import FAST, MONDAY, Clock, Exporter, profile, world
from vllm_tuner.daemon.told import lines
from vllm_tuner.daemon.units.managed import FOREIGN, State


ADOPT = FAST.replace("tick_seconds", 'mode = "adopt"\ntick_seconds', 1) + '[unit]\nkind = "systemd"\nname = "vllm"\n'
STOPS = ADOPT + "[tuning]\nstop_unit = true\n"
REASON = Reason(Kind.SLA, "sla:1", "a tenth of requests is late", (Part.SERVER,))


class Unit:
    """A unit as systemd has it: nobody but us starts again what we stopped. What happened to it, in order."""

    supervised = False

    def __init__(self):
        self.up, self.said, self.broken, self.profile = True, [], "", ""

    def running(self):
        return State(self.up, self.profile)

    def command(self):
        return LaunchCommand(("vllm", "serve", "m", "--max-num-seqs", "1"))

    def start(self, _command, profile):
        self.said.append(f"start {profile}")
        self.up = True

    def restore(self):
        self._or_break("restore")
        self.up = True

    def stop(self):
        self._or_break("stop")
        self.up = False

    def _or_break(self, what):
        if self.broken == what:
            raise EngineError(f"systemctl {what}: refused")
        self.said.append(what)

    def processes(self):
        return ()

    def leave(self):
        """It stays."""


class Scene:
    """A daemon over that unit, with a reason that stands; the exporter is the server's /metrics while it is up."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.clock, self.exporter, self.lines, self.unit = folder, Clock(), Exporter(), [], Unit()
        self.store = ProfileStore.open(folder / "advisor.db", lambda: self.clock.at)
        monkeypatch.setattr(Drift, "see", lambda *_: (REASON,))
        self.begin()

    def begin(self, text=STOPS):
        """Another daemon, as after a kill."""
        parts = {"clock": self.clock, "lines": self.lines, "unit": self.unit}
        self.service = Daemon(world(self.store, self.folder, self.exporter.url, text, **parts), self.clock.clocks)

    def tick(self):
        self.clock.pass_(15.0)
        return self.service.tick()

    def until(self, done):
        """Ticks until something is so, each with a moment of real time for children."""
        end = time.monotonic() + 60
        while not done():
            assert time.monotonic() < end, (self.service.state, self.lines[-5:])
            self.tick()
            time.sleep(0.02)

    @property
    def phase(self):
        return self.service.state.phase

    @property
    def away(self):
        return self.store.kept(kept.AWAY, "box")


@pytest.fixture
def scene(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_TUNER", "hang")
    made = Scene(tmp_path, monkeypatch)
    yield made
    made.service.hands.stop(0.5)
    made.service.world.watch.client.close()
    made.exporter.close()
    made.store.close()


def test_the_unit_makes_way_and_comes_back(scene, monkeypatch):
    """1. due, 2. stopped before the run, 3. down as long as it runs, 4. restored once; the candidate waits for it."""
    winner = scene.store.save_profile(profile(seqs=4))
    monkeypatch.setenv("FAKE_TUNER", "better")
    monkeypatch.setenv("FAKE_TUNER_PROFILE", winner)
    monkeypatch.setenv("FAKE_TUNER_S", "1")
    scene.until(lambda: scene.phase is Phase.TUNING)
    assert (["stop"], "yes") == (scene.unit.said, scene.away)
    scene.tick()
    assert (False, Phase.TUNING) == (scene.unit.up, scene.phase)
    assert any("makes way" in line for line in lines(json.loads(scene.service.board.pages.status)))
    scene.until(lambda: scene.phase is Phase.CANDIDATE and scene.unit.up)
    scene.tick()
    assert (["stop", "restore"], None, winner) == (scene.unit.said, scene.away, scene.service.state.candidate)
    assert not any("server" in line and "warning" in line for line in scene.lines)


@pytest.mark.parametrize("how", ["none", "fail", "crash", "garbage"])
def test_whatever_becomes_of_the_run(scene, monkeypatch, how):
    """Nothing better, a failure, a killed search: the unit is up again."""
    monkeypatch.setenv("FAKE_TUNER", how)
    scene.until(lambda: scene.unit.said)
    scene.until(lambda: scene.unit.up and scene.away is None)
    assert ["stop", "restore"] == scene.unit.said[:2]


def test_a_daemon_that_was_killed_leaves_it_to_the_next(scene):
    """The new one knows that the unit is down because of us."""
    scene.until(lambda: scene.phase is Phase.TUNING)
    scene.service.hands.run.stop(0.5)
    scene.begin(ADOPT)  # and the operator has changed his mind meanwhile
    scene.until(lambda: scene.unit.up and scene.away is None)
    assert ["stop", "restore"] == scene.unit.said


def test_a_daemon_that_is_told_to_stop_brings_it_back(scene):
    """SIGTERM in the middle of a run."""
    scene.until(lambda: scene.phase is Phase.TUNING)
    scene.service.stop()
    assert (["stop", "restore"], True) == (scene.unit.said, scene.unit.up)


def test_a_start_that_fails_is_tried_again(scene, monkeypatch):
    """systemd refuses once: the error stands in the log, and the unit is not forgotten."""
    monkeypatch.setenv("FAKE_TUNER", "none")
    scene.unit.broken = "restore"
    scene.until(lambda: any("restore: refused" in line for line in scene.lines))
    assert (False, "yes") == (scene.unit.up, scene.away)
    scene.unit.broken = ""
    scene.until(lambda: scene.unit.up and scene.away is None)


def test_a_unit_that_does_not_stop_is_no_run(scene):
    """The search would find no memory: a failure with systemd's words, and the unit serves on."""
    scene.unit.broken = "stop"
    scene.until(lambda: any("stop: refused" in line for line in scene.lines))
    scene.tick()
    assert (None, True, []) == (scene.service.hands.run, scene.unit.up, scene.unit.said)


def test_what_somebody_else_stopped_stays_down(scene, monkeypatch):
    """A unit in maintenance: the run has its devices, and nothing is started after it."""
    monkeypatch.setenv("FAKE_TUNER", "none")
    scene.unit.up = False
    scene.until(lambda: scene.phase is Phase.TUNING)
    scene.until(lambda: scene.phase is Phase.WATCHING)
    for _ in range(3):
        scene.tick()
    assert (False, [], None) == (scene.unit.up, scene.unit.said, scene.away)


def test_what_nobody_told_of_is_not_stopped(scene):
    """Another command than the own one or a profile's could not be brought back."""
    scene.unit.profile = FOREIGN
    scene.until(lambda: any("it is not stopped" in line for line in scene.lines))
    assert (True, [], None) == (scene.unit.up, scene.unit.said, scene.away)


def test_somebody_who_starts_it_meanwhile_is_not_overruled(scene, monkeypatch):
    """What is up is left alone when the run ends: no second start."""
    scene.until(lambda: scene.phase is Phase.TUNING)
    scene.unit.up = True
    scene.service.hands.run.abort()
    monkeypatch.setattr(Drift, "see", lambda *_: ())
    scene.until(lambda: scene.service.hands.run is None and scene.away is None)
    assert (["stop"], True) == (scene.unit.said, scene.unit.up)


def test_a_unit_that_died_by_itself_is_systemds(scene, monkeypatch):
    """Only what we stopped is ours to start."""
    monkeypatch.setattr(Drift, "see", lambda *_: ())
    scene.begin()
    scene.unit.up = False
    for _ in range(5):
        scene.tick()
    assert ([], Health.DOWN) == (scene.unit.said, scene.service.keeper.look(None, "").health)


def test_it_is_up_again_before_the_window_closes():
    """A run ends as long before as a start may take; one that would be too short is not begun."""
    text = STOPS.replace('"00:00-24:00"', '"01:00-05:00"') + "[adopt]\nstart_minutes = 30\n"
    config = configs.parse(text)
    one = MONDAY - MONDAY % 86400 + 3600
    assert 3600.0 == budget_s(config._replace(tuning=config.tuning._replace(effort="thorough")), 1e9, one + 2.5 * 3600)
    early, late = (window(config, one + hours * 3600, Phase.DUE, None) for hours in (1, 3.4))
    assert (True, False, "window") == (early.granted, late.granted, late.by)
    assert "it closes in 36 min" in late.why
    assert window(config, one + 3.4 * 3600, Phase.TUNING, None).granted


@pytest.mark.parametrize("text", [STOPS.replace('"adopt"', '"advise"'), STOPS + "beside_server = true\n"])
def test_what_does_not_go_together_is_refused(text):
    with pytest.raises(BadInput, match="stop_unit"):
        configs.parse(text)
