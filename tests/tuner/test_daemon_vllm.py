"""The service over the real vLLM on a processor: drift is reported, a better plan searched for, adopted, and undone.

The test makes the ticks, each once enough requests have ended, so that nothing depends on how fast the machine is.
"""

import itertools
import json
import os
import signal
import socket
import sqlite3
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from vllm_advisor.launch.client import is_healthy
from vllm_advisor.plan import LaunchCommand, Plan
from vllm_advisor.store.profile_store import ProfileStore
from vllm_tuner.daemon import config as configs
from vllm_tuner.daemon import kept, orphans, start
from vllm_tuner.daemon.drift_reason import Kind
from vllm_tuner.daemon.logs import Log
from vllm_tuner.daemon.policy_state import Phase, dumps
from vllm_tuner.daemon.testing import profile
from vllm_tuner.daemon.units.child import Child


pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]
FEW_TOKENS = 16
CONFIG = """
mode = "{mode}"
tick_seconds = 0.05
[deployment]
url = "{url}"
model = "{model}"
node = "box"
{unit}
[windows]
open = "00:00-24:00"
[idle]
most_host_load_share = 1.0
[drift]
block_minutes = 0.001
least_requests = 4
warm_up_hours = 0
[tuning]
effort = "quick"
most_trials = 1
most_minutes = 12
options = ["--enforce-eager", "--only", "1", "--tool", "own"]
[allowance]
back_off_minutes = 0
[adopt]
canary_minutes = 4
"""


class Place:
    """A served model, and requests for it: `clients` at once, as long as a block lasts."""

    def __init__(self, folder, python, model):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder, self.model, self.url = folder, model, f"http://127.0.0.1:{self.port}"
        limits = ("--max-num-seqs", "1", "--max-model-len", "1024", "--kv-cache-memory-bytes", str(1 << 30))
        # In FP32, for BF16 is emulated on many processors; in steps of so few tokens, slow on all of them.
        slow = ("--dtype", "float32", "--max-num-batched-tokens", str(FEW_TOKENS))
        self.own = ("vllm", "serve", str(model), "--enforce-eager", *slow, *limits)
        self.unit = Child(start.folder("box") / "unit", self.url, LaunchCommand(self.own), Path(python))
        self.prompt, self.stopped, self.ended = 8, threading.Event(), itertools.count()
        self.asked = itertools.count()
        self.lines, self.daemons, self.found = [], [], ""

    def config(self, mode):
        """The service's, which manages the server as its child."""
        unit = f'[unit]\nkind = "child"\ncommand = {json.dumps(list(self.own))}'
        return configs.parse(CONFIG.format(mode=mode, url=self.url, model=self.model, unit=unit))

    def ready(self):
        """Until it serves."""
        for _ in range(6000):
            if not self.unit.running().up:
                raise AssertionError(self.unit.running().why)
            if is_healthy(self.url):
                return
            time.sleep(0.1)
        raise AssertionError(self.unit.log.read_text()[-3000:])

    def _client(self):
        while not self.stopped.is_set():
            prompt = [100 + next(self.asked) % 9000] * self.prompt  # none of them begins as another does
            body = {"model": str(self.model), "prompt": prompt, "max_tokens": 4, "ignore_eos": True}
            try:
                httpx.post(f"{self.url}/v1/completions", json=body, timeout=60).raise_for_status()
                next(self.ended)
            except httpx.HTTPError:  # it is being restarted
                time.sleep(0.1)

    def load(self, clients=4):
        """Requests until `quiet`."""
        self.stopped.clear()
        self.threads = [threading.Thread(target=self._client, daemon=True) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def quiet(self):
        """No request any more."""
        self.stopped.set()
        for thread in self.threads:
            thread.join(120)

    def some(self, number=6, seconds=300.0):
        """Until so many more requests have ended; fewer where a server is being restarted."""
        begun, end = self.count(), time.monotonic() + seconds
        while self.count() < begun + number and time.monotonic() < end:
            time.sleep(0.05)

    def count(self):
        """How many have ended."""
        return int(repr(self.ended)[6:-1])


@pytest.fixture(scope="module")
def place(vllm_python, made_model, tmp_path_factory):
    """A server of one sequence and a few tokens at a time, started as the service would."""
    folder = tmp_path_factory.mktemp("daemon")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STATE_DIRECTORY", str(folder / "state"))
        patch.setenv("VLLM_CPU_CI_ENV", "1")
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        made = Place(folder, str(vllm_python), made_model("smollm2"))
        made.unit.restore()
        made.ready()
        yield made
        made.stopped.set()
        made.unit.leave()
        for unit in (made.unit, *(service.world.unit for service in made.daemons)):
            unit.running()  # reaps its child


@pytest.fixture(autouse=True)
def _environment(place, monkeypatch):
    monkeypatch.setenv("STATE_DIRECTORY", str(place.folder / "state"))
    monkeypatch.setenv("ADVISOR_DATABASE_URL", f"sqlite:///{place.folder / 'advisor.db'}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(entry for entry in sys.path if entry))
    monkeypatch.setenv("VLLM_CPU_CI_ENV", "1")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")


def test_drift_is_reported_and_searched_for(place):
    """Prompts eight times as long: a reason within three ticks; with the load gone a search, and a better plan.

    Four clients wait for a server of one sequence and a few tokens at a time: there is something to be found.
    """
    with start.made(place.config("advise"), Log(place.lines.append)) as service:
        place.daemons.append(service)  # killed, as it were: its child lives on
        place.load()
        for _ in range(6):
            place.some()
            service.tick()
        assert () == service.hands.drift.reasons()
        place.prompt = 64
        place.some(8)  # those that were under way
        service.tick()
        ticks = 0
        while not service.hands.drift.reasons() and ticks < 3:
            place.some()
            service.tick()
            ticks += 1
        assert [Kind.WORKLOAD] == [reason.kind for reason in service.hands.drift.reasons()]
        assert Phase.DUE is service.state.phase
        place.some(24)  # a time of its own: what is tuned for is the load since it moved
        service.tick()
        place.quiet()
        service.tick()
        while service.state.phase in (Phase.DUE, Phase.TUNING):
            time.sleep(0.2)
            service.tick()
        place.found = service.state.candidate
    with ProfileStore.open(place.folder / "advisor.db") as store:
        events = [event.kind for event in store.events(1000, None, "box")][::-1]
        assert ["drift", "waiting", "candidate"] == [kind for kind in events if kind != "state"], place.lines
        assert 1 < store.profile(place.found).plan.max_num_seqs
        store.keep(kept.ASKED, "box", "adopt")
    assert "" == place.unit.running().profile


def candidate(place, seqs, state):
    """A profile of the served model with other batch limits, as a search would leave it to the policy."""
    limits = {"max_model_len": 1024, "max_num_seqs": seqs, "max_num_batched_tokens": FEW_TOKENS}
    plan = Plan(str(place.model), enforce_eager=True, **limits)
    with ProfileStore.open(place.folder / "advisor.db") as store:
        made = profile(str(place.model))
        number = store.save_profile(made._replace(plan=replace(plan), id=""))
        store.keep(kept.DRIFT, "box", None)  # a newer reason would come before a candidate
        store.keep(kept.POLICY, "box", dumps(state._replace(phase=Phase.CANDIDATE, candidate=number)))
    return number


def until_watching(place, service):
    """Ticks under load until the switch has ended, one way or the other."""
    for _ in range(10):  # what ran before is felt first
        place.some()
        service.hands.feel(service._see().sighting.sample, steady=True)
    service.tick()
    assert Phase.SWITCHING is service.state.phase
    for _ in range(600):
        place.some(6, 5.0)
        service.tick()
        if service.state.phase is Phase.WATCHING:
            return
    raise AssertionError(f"{service.state} {place.lines[-10:]}")


def test_a_better_plan_is_adopted_and_a_worse_one_undone(place):
    """What was found is adopted on the operator's word; one sequence at a time is worse, and is taken back."""
    config = place.config("adopt")
    config = config._replace(drift=config.drift._replace(block_s=1e6))
    place.prompt = 8
    better = place.found
    place.load()
    with start.made(config, Log(place.lines.append)) as service:
        place.daemons.append(service)  # killed, as it were: its child lives on
        service.tenure.hold(service.clocks.steady(), 0.05)
        assert service.recover()
        until_watching(place, service)
        assert (better, better) == (service.state.incumbent, service.world.unit.running().profile), place.lines[-10:]
        after = service.state
    worse = candidate(place, 1, after._replace(attempt=11))
    with start.made(config, Log(place.lines.append)) as service:
        place.daemons.append(service)
        service.tenure.hold(service.clocks.steady(), 0.05)
        assert service.recover()
        until_watching(place, service)
        assert (better, (worse,)) == (service.state.incumbent, service.state.refused), place.lines[-10:]
        told = "\n".join(place.lines)
        assert "worse on live traffic" in told, told  # by its readings, not for want of them
        assert better == service.world.unit.running().profile
        place.ready()
        place.quiet()


def test_ten_faults(place):
    """Daemon, load, clock, store and server are hit in turn: in order after two ticks, and nothing is lost or left."""
    config = place.config("adopt")
    config = config._replace(drift=config.drift._replace(block_s=1e6))
    with ProfileStore.open(place.folder / "advisor.db") as store:
        before = {found.id for found in store.profiles()}
    for fault in ("daemon", "load", "clock", "daemon", "store", "daemon", "load", "clock", "daemon", "server"):
        place.load(2)
        place.some(3)
        with start.made(config, Log(place.lines.append)) as service:
            place.daemons.append(service)
            service.tick()
            hit(fault, place, service)
            service.tick()
            place.ready()
            service.tick()
            service.tick()
            assert ({}, Phase.WATCHING, True) == (service.trouble, service.state.phase, service.leased), place.lines[
                -5:
            ]
            assert (service.state.incumbent, 1) == (
                service.world.unit.running().profile,
                len({process.group for process in place.unit.processes()}),
            )
            assert () == orphans.inside(service.world.folder)
        place.quiet()
    with ProfileStore.open(place.folder / "advisor.db") as store:
        assert (before, "ok") == ({found.id for found in store.profiles()}, store.integrity())
    place.daemons[-1].keeper.leave()
    assert () == place.unit.processes()


def hit(fault, place, service):
    """One fault, and the end of its cause. A daemon that is killed is one whose `with` ends without a stop."""
    if fault == "load":
        place.stopped.set()
    elif fault == "clock":
        real, service.clocks = service.clocks, service.clocks._replace(now=lambda: time.time() + 86400)
        service.tick()
        service.clocks = real
    elif fault == "store":
        other = sqlite3.connect(place.folder / "advisor.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        service.tick()
        other.execute("ROLLBACK")
        other.close()
    elif fault == "server":
        for process in place.unit.processes():
            orphans.signal_group(process, signal.SIGKILL)
        while place.unit.processes():
            time.sleep(0.05)
