"""From a candidate to what serves, and back: a real stand-in server, restarted, watched, and taken back."""

import os
import socket
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from vllm_advisor.errors import StoreError
from vllm_advisor.hardware import Unknown
from vllm_advisor.plan import LaunchCommand
from vllm_advisor.store.profile_store import ProfileStore
from vllm_advisor.workload import Sla, Workload
from vllm_tuner.daemon import canary, kept, look
from vllm_tuner.daemon.canary import Baseline, Pulse, Trial
from vllm_tuner.daemon.drift_reason import Reference
from vllm_tuner.daemon.drift_sample import Lengths, Sample, Times
from vllm_tuner.daemon.loop import Daemon
from vllm_tuner.daemon.plans import budget_s, jobs
from vllm_tuner.daemon.policy_state import Mode, Phase, State, Tune, Verdict, dumps
from vllm_tuner.daemon.testing import FAST, Clock, profile, world
from vllm_tuner.daemon.units.child import Child
from vllm_tuner.daemon.units.managed import FOREIGN
from vllm_tuner.daemon.units.managed import State as Up
from vllm_tuner.stand_in import install
from vllm_tuner.testing import facts


ADOPT = FAST.replace("tick_seconds", 'mode = "adopt"\ntick_seconds', 1) + '[unit]\nkind = "child"\n'


def sample(tpot_ms=20.0, running=4.0, requests=10.0, rejections=0.0):
    """A reading of live traffic."""
    lengths = Lengths((requests,), 100.0 * requests)
    timed = Times(requests, requests * tpot_ms / 1000)
    return Sample(15.0, lengths, lengths, running, rejections=rejections, tpot=timed)


def judged(*readings, baseline=20.0):
    """The verdict after such readings of a candidate."""
    before = Baseline(tuple(canary.pulse(sample(baseline)) for _ in range(20)))
    trial = Trial(1)
    for reading in readings:
        trial = trial.with_(reading, before)
    return trial.verdict()


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [
        ([], Verdict.RUNNING),
        ([sample()] * 5, Verdict.RUNNING),
        ([sample()] * 12, Verdict.PASSED),
        ([sample(21.0)] * 12, Verdict.PASSED),
        ([sample(23.0)] * 12, Verdict.WORSE),
        ([sample(18.0), sample(23.0)] * 20, Verdict.RUNNING),
        ([sample(rejections=2.0)], Verdict.WORSE),
        ([Unknown("silence")] * 50, Verdict.RUNNING),
        ([sample(requests=0.0)] * 50, Verdict.RUNNING),
    ],
)
def test_verdicts_of_a_canary(readings, verdict):
    """Within a tenth passes, beyond is worse, noise and silence decide nothing, and rejections end it."""
    assert verdict is judged(*readings).verdict


def test_a_canary_is_compared_at_its_own_load():
    """As many in flight, as many a second: both are told; a load that was not seen says nothing."""
    before = Baseline((*[Pulse(0.0, 1.0, 10.0)] * 3, *[Pulse(3.0, 2.0, 40.0)] * 3, Pulse(9.0, 9.0, 1.0)))
    loads = ((0.3, 0.8), (3.2, 1.3), (6.0, 2.4), (6.0, 6.0), (9.0, 9.0))
    assert [(10.0, 10.0), (40.0, 10.0), (40.0,), (), ()] == [before.expected(Pulse(*load, 1.0)) for load in loads]


def test_what_cannot_be_compared_is_no_win():
    """Without a baseline, or at another load than it has, no number of readings proves a candidate."""
    calm = Baseline(tuple(canary.pulse(sample(20.0, running=64.0, requests=500.0)) for _ in range(20)))
    for before in (Baseline(), calm):
        trial = Trial(1)
        for _ in range(50):
            trial = trial.with_(sample(1.0), before)
        assert Verdict.RUNNING is trial.verdict().verdict


def test_clients_that_wait_for_a_slow_plan_show_it():
    """Fewer a second with more in flight is a load that the incumbent never had: it was faster while it served more."""
    before = Baseline(tuple(Pulse(1.0, 2.7, 100.0 + n) for n in range(8)))
    slow, calm, quick = Pulse(2.0, 0.9, 900.0), Pulse(0.0, 0.9, 900.0), Pulse(2.0, 0.9, 90.0)
    assert [True, False, False] == [p.ms > before.bound(p) for p in (slow, calm, quick)]
    busy = Baseline(tuple(canary.pulse(sample(running=2.0, requests=60.0)) for _ in range(8)))  # 4 a second
    trial, fast = Trial(1), Trial(1)
    for _ in range(12):  # 0.7 a second
        trial, fast = (one.with_(sample(ms, running=4.0), busy) for one, ms in ((trial, 200.0), (fast, 2.0)))
    assert (Verdict.WORSE, Verdict.RUNNING) == (trial.verdict().verdict, fast.verdict().verdict)  # it proves no win


@pytest.mark.parametrize(("before", "after"), [(4.0, 0.0), (0.0, 4.0), (4.0, 1.0), (0.0, 0.0)])
def test_the_moment_of_a_reading_does_not_matter(before, after):
    """Four clients that always wait for an answer are four in flight, whatever the gauges say when they are read."""
    busy = Baseline(tuple(canary.pulse(_of_clients(0.5, before)) for _ in range(10)))
    trial, fast = Trial(1), Trial(1)
    for _ in range(12):
        trial, fast = (one.with_(_of_clients(took, after), busy) for one, took in ((trial, 0.8), (fast, 0.3)))
    assert (Verdict.WORSE, Verdict.PASSED) == (trial.verdict().verdict, fast.verdict().verdict)


def test_long_requests_are_counted_by_the_gauge():
    """One that ends after four intervals brings the seconds of all four: as many are in flight as the server says."""
    seen = sample(running=2.0)._replace(latency=Times(1.0, 60.0), outputs=Lengths((1.0,), 100.0))
    assert (1.0, 0.0) == (canary.pulse(seen).flight, canary.pulse(seen._replace(running=1.0)).flight)


def _of_clients(took, running, clients=4):
    """A reading in which so many clients asked again and again, each answer after `took` seconds."""
    ended = clients * 15.0 / took
    counted, timed = Lengths((ended,), 4 * ended), Times(ended, clients * 15.0)
    return sample(running=running)._replace(prompts=counted, outputs=counted, latency=timed)


def test_a_candidate_that_lets_nobody_in_is_worse():
    """Its tokens are fast and its users wait: latency by token counts, not the time of a token."""
    fast, slow = (Times(10.0, seconds) for seconds in (0.1, 0.2))
    before = Baseline(tuple(canary.pulse(_waited(slow, 2.0)) for _ in range(20)))
    trial = Trial(1)
    for _ in range(12):
        trial = trial.with_(_waited(fast, 6.0), before)
    assert Verdict.WORSE is trial.verdict().verdict


def _waited(tpot, seconds):
    """A reading whose ten requests took so long altogether."""
    return sample()._replace(tpot=tpot, latency=Times(10.0, seconds), outputs=Lengths((10.0,), 100.0))


def test_a_baseline_outlives_a_restart():
    """As text and back; anything else is an empty one."""
    before = Baseline().with_(canary.pulse(sample())).with_(None)
    assert before == canary.loads(canary.dumps(before))
    assert [Baseline()] * 4 == [
        canary.loads(text) for text in ("", "{}", '{"pulses": [[1]]}', '{"pulses": [[1, 1, -5]]}')
    ]


class Scene:
    """A daemon in adopt over a stand-in of vLLM that takes one of four clients at a time; candidates take all."""

    def __init__(self, folder, text=ADOPT):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder, self.clock, self.lines = folder, Clock(), []
        self.url = f"http://127.0.0.1:{self.port}"
        self.store = ProfileStore.open(folder / "advisor.db", lambda: self.clock.at)
        self.unit = Child(
            folder / "unit", self.url, LaunchCommand(("vllm", "serve", "m", "--max-num-seqs", "1")), grace_s=2.0
        )
        self.begin(text)

    def begin(self, text=ADOPT):
        """A daemon, as after a kill."""
        made = world(self.store, self.folder, self.url, text, clock=self.clock, lines=self.lines, unit=self.unit)
        self.service = Daemon(made, self.clock.clocks)

    def candidate(self):
        """A profile that won its gate, as the state that a search leaves."""
        found = self.store.save_profile(profile(seqs=4))
        self.store.keep(kept.POLICY, "box", dumps(State(Phase.CANDIDATE, candidate=found, attempt=1)))
        for _ in range(canary.LEAST + 1):  # what runs is seen under load first
            self.tick()
            assert Phase.CANDIDATE is self.service.state.phase
        return found

    def serves(self):
        """Until the server answers, or is down; whether it answers."""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            if self.service.world.watch.client.read().healthy:
                return True
            if not self.unit.running().up:
                return False
            time.sleep(0.02)
        raise AssertionError("it does not answer")

    def request(self, tokens=6):
        """One request, streamed to its end."""
        body = f'{{"model": "m", "prompt": [1, 2, 3], "max_tokens": {tokens}, "stream": true}}'.encode()
        urllib.request.urlopen(f"{self.url}/v1/completions", body, 10).read()  # noqa: S310 - our own stand-in

    def tick(self, requests=2):
        """Traffic, then a tick, fifteen seconds later."""
        with ThreadPoolExecutor(4) as clients:
            list(clients.map(lambda _: self.request(), range(2 * requests)))
        self.clock.pass_(15.0)
        return self.service.tick()

    def until(self, phase, requests=2):
        """Ticks with traffic until a phase is reached."""
        for _ in range(80):
            self.tick(requests if self.serves() else 0)
            if self.service.state.phase is phase:
                return
            time.sleep(0.02)
        raise AssertionError(f"never {phase}: {self.service.state} {self.lines[-5:]}")

    def close(self):
        """Nothing outlives the test."""
        self.unit.leave()
        self.service.world.watch.client.close()
        self.store.close()


@pytest.fixture
def scene(tmp_path, monkeypatch):
    """All of it."""
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN_ORPHAN", "1")
    made = Scene(tmp_path)
    made.unit.restore()
    assert made.serves()
    yield made
    made.close()


def test_a_candidate_is_adopted_after_its_canary(scene):
    """Restarted, watched on live traffic, adopted; the way back is the command that it came with."""
    found = scene.candidate()
    scene.tick()
    assert (Phase.SWITCHING, found) == (scene.service.state.phase, scene.unit.running().profile)
    scene.until(Phase.CANARY)
    scene.until(Phase.WATCHING)
    assert (found, "", Up(up=True, profile=found)) == (
        scene.service.state.incumbent, scene.service.state.previous, scene.unit.running(),
    )  # fmt: skip
    assert "adopted" in [event.kind for event in scene.store.events()]
    assert found == scene.service.hands.drift.reference.profile


def test_a_worse_candidate_is_taken_back(scene):
    """Slower on live traffic than what ran before: rolled back by itself, and never tried again."""
    found = scene.candidate()
    scene.tick()
    scene.until(Phase.CANARY)
    fast = scene.service.hands.baseline.pulses
    scene.service.hands.baseline = Baseline(tuple(pulse._replace(ms=pulse.ms / 50) for pulse in fast))
    scene.until(Phase.ROLLING_BACK)
    scene.until(Phase.WATCHING)
    assert ("", (found,), Up(up=True)) == (
        scene.service.state.incumbent, scene.service.state.refused, scene.unit.running(),
    )  # fmt: skip
    assert "rolled back" in [event.kind for event in scene.store.events()]


def test_a_candidate_that_does_not_start_is_taken_back(scene, monkeypatch):
    """It dies while it loads: what is proven serves again."""
    found = scene.candidate()
    monkeypatch.setattr("vllm_tuner.daemon.actions.commands", lambda *_: LaunchCommand(("vllm", "bench", "x")))
    monkeypatch.setattr("vllm_tuner.daemon.units.child.child_argv", lambda *_: ["/bin/false"])
    scene.tick()
    monkeypatch.undo()
    monkeypatch.setenv("PATH", f"{scene.folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    scene.until(Phase.WATCHING)
    assert ((found,), Up(up=True)) == (scene.service.state.refused, scene.unit.running())


def test_a_daemon_killed_in_its_canary_goes_on(scene):
    """The next one finds the candidate running, watches on, and adopts it."""
    found = scene.candidate()
    scene.tick()
    scene.until(Phase.CANARY)
    scene.service.world.watch.client.close()
    scene.begin()
    scene.until(Phase.WATCHING)
    assert (found, Up(up=True, profile=found)) == (scene.service.state.incumbent, scene.unit.running())


def test_a_daemon_that_stops_in_a_canary_takes_it_back(scene):
    """Nobody would watch it: the proven one is ordered, and a managed child ends with its daemon."""
    scene.candidate()
    scene.tick()
    scene.until(Phase.CANARY)
    scene.service.stop()
    assert (Phase.ROLLING_BACK, ()) == (scene.service.state.phase, scene.unit.processes())


@pytest.mark.parametrize(("asked", "phase"), [("adopt", Phase.SWITCHING), ("rollback", Phase.WATCHING)])
def test_an_operators_wish(scene, asked, phase):
    """Taken up at the next tick, or refused with a word, and then forgotten."""
    found = scene.store.save_profile(profile(seqs=4))
    scene.store.keep(kept.POLICY, "box", dumps(State(candidate=found)))
    scene.store.keep(kept.ASKED, "box", asked)
    scene.tick()
    assert (phase, None) == (scene.service.state.phase, scene.store.kept(kept.ASKED, "box"))
    assert (asked == "rollback") == any("nothing to go back to" in line for line in scene.lines)


def test_a_foreign_server_is_not_taken_for_a_candidate(scene, monkeypatch):
    """Somebody starts something else in its place: the candidate is not adopted."""
    scene.candidate()
    monkeypatch.setattr(scene.unit, "running", lambda: Up(up=True, profile=FOREIGN))
    for _ in range(3):
        scene.tick()
    assert (Phase.CANDIDATE, "") == (scene.service.state.phase, scene.service.state.incumbent)


def test_jobs_of_a_run(scene):
    """Kernels before the server; the live load as a file and as figures; the least of all budgets."""
    scene.tick()
    for _ in range(40):
        scene.request()
    scene.tick(0)
    made, config = scene.service.world, scene.service.world.config
    runs = Reference(FOREIGN, workload=Workload(context=256))
    kernels, server = jobs(Tune(1, ("kernels", "server"), ()), made, scene.folder / "attempt", 300.0, runs)
    assert ("kernels", "--retime", "300s") == (*kernels.words[:2], kernels.words[-1])
    assert ("serve", "m") == server.words[:2]
    assert FOREIGN == server.words[server.words.index("--against") + 1]
    assert {"--input-tokens", "--concurrency", "--context", "--requests"} <= set(server.words)
    tuning = config.tuning._replace(options=("--sensitivity", "sensitive"))
    made = made._replace(config=config._replace(tuning=tuning))
    (server,) = jobs(Tune(1, ("server",), ()), made, scene.folder / "attempt", 300.0, Reference())
    assert "sensitive" == server.words[server.words.index("--sensitivity") + 1]
    assert "vllm serve m --max-num-seqs 1" == server.words[server.words.index("--against") + 1]
    assert (scene.folder / "attempt/load.json").exists()
    assert [60.0, 120.0, 7200.0] == [budget_s(config, left, scene.clock.at) for left in (1.0, 120.0, 1e9)]
    assert Mode.ADOPT is config.mode


def test_a_run_is_for_the_limits_and_the_objective_that_the_configuration_sets(scene):
    """They count beside and before what the profile was tuned for."""
    made, runs = scene.service.world, Reference(FOREIGN, workload=Workload(objective="cost", sla=Sla(None, 50.0)))

    def words(config, limits):
        found = made._replace(config=config)
        asked = runs._replace(sla=limits)
        (server,) = jobs(Tune(1, ("server",), ()), found, scene.folder / "attempt", 300.0, asked)
        return dict(zip(server.words, server.words[1:], strict=False))

    plain = words(made.config, None)
    assert ("cost", "50.0", False) == (plain["--objective"], plain["--tpot-ms"], "--ttft-ms" in plain)
    config = made.config._replace(tuning=made.config.tuning._replace(objective="latency"))
    asked = words(config, Sla(700.0, 50.0))
    assert ("latency", "700.0", "50.0") == (asked["--objective"], asked["--ttft-ms"], asked["--tpot-ms"])


@pytest.mark.parametrize(
    "words", ["vllm serve other --max-num-seqs 4", "vllm serve m --max-num-seqs ${SEQS}", "sh -c run"]
)
def test_a_command_that_says_too_little_is_not_compared_with(scene, words):
    """Another model's name, a variable of systemd's, no server: the search is against vLLM's defaults then."""
    scene.unit._own = LaunchCommand(tuple(words.split()))
    (server,) = jobs(Tune(1, ("server",), ()), scene.service.world, scene.folder / "attempt", 300.0, Reference())
    assert "--against" not in server.words


def test_a_look_in_a_process_of_its_own(tmp_path, monkeypatch):
    """Fingerprint and command come from another process, and match what `tuner serve` would make of them."""
    found = facts(tmp_path / "model")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    env = {"ADVISOR_DATABASE_URL": f"sqlite:///{tmp_path / 'advisor.db'}"}
    with ProfileStore.open(tmp_path / "advisor.db") as store:
        number, slow = (store.save_profile(profile(found.model.name, seqs=seqs)) for seqs in (4, 1))
    assert ("vllm", "serve", found.model.name) == look.plan_of(number, "", env).argv[:3]
    assert "--max-num-seqs" in look.plan_of(number, "", env).argv
    asked = look.Look(env)
    asked.ask("fingerprint", found.model.name, slow)
    made = look.found(asked.wait(60.0))
    assert (found.model.architecture, False) == (dict(made.fingerprint.loose)["architecture"], asked.busy)
    assert made.prior.id.startswith("advisor:")
    with pytest.raises(StoreError, match="there is no profile"):
        look.plan_of("0" * 12, "", env)
    hurried = look.Look(env, 0.0)
    hurried.ask("fingerprint", found.model.name)
    assert "no answer within 0 s" == hurried.wait(5.0).why
