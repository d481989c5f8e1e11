"""Adopting and rolling back a systemd unit, the service itself a unit beside it: real drop-ins, a real manager."""

import os
import socket

import pytest

from vllm_advisor.store.profile_store import ProfileStore
from vllm_tuner.daemon import kept
from vllm_tuner.daemon.testing import profile
from vllm_tuner.daemon.testing_service import UNIT, Installed, Load
from vllm_tuner.daemon.units.managed import State
from vllm_tuner.stand_in import install
from vllm_tuner.testing import facts


# Batch limits. By the stand-in's law, eight clients get 2.3 times as much out of three as out of one, and half of it
# out of eight: so clear that no busy machine hides it.
OWN, GOOD, BAD = 1, 3, 8
ADOPT = """
[unit]
kind = "systemd"
name = "{unit}"
[adopt]
start_minutes = 0.5
canary_minutes = 0.5
"""


@pytest.fixture
def port():
    """A free one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def server(unit, tmp_path, port):
    """A stand-in of vLLM, as a unit; facts of its model and of a better one."""
    facts(tmp_path / "m")
    command = f"{install(tmp_path / 'bin')}/vllm serve m --port {port} --max-num-seqs {OWN}"
    return unit(f"ExecStart={command}", "Restart=always")


@pytest.fixture
def profiles(tmp_path):
    """A bad plan and a good one, stored; the search finds the good one first, then the bad one, and so on."""
    with ProfileStore.open(tmp_path / "advisor.db") as store:
        return tuple(store.save_profile(profile(str(tmp_path / "m"), seqs=seqs)) for seqs in (BAD, GOOD))


@pytest.fixture
def search(profiles, tmp_path):
    """Its variables, and the stand-in where vLLM is looked for."""
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {"FAKE_TUNER_PROFILE": ",".join(profiles), "FAKE_TUNER_S": "0.2", "PATH": path}


@pytest.fixture(params=[False, True], ids=["user", "system"])
def adopting(request, manager, server, search, port):
    """The service in mode adopt for that unit; not started yet."""
    made = Installed(manager, request.getfixturevalue("tmp_path"), f"http://127.0.0.1:{port}", of_system=request.param)
    made.configure('mode = "adopt"\n', ADOPT.format(unit=server.name), "most_ttft_ms = 10\n")
    made.install()
    made.env |= search
    made.adapt(*made.fake())
    yield made
    made.end()


@pytest.fixture
def load(port):
    """Clients of the server."""
    made = Load(port)
    yield made
    made.close()


def drive(made, load, wanted):
    """Busy until something of a kind was recorded, quiet only while the search is to run.

    A run that is due waits for forty ticks: what is compared with is a load that goes on, not one that begins.
    """
    before, due = events(made).count(wanted), []

    def done():
        seen = made.status()
        phase = seen.get("phase")
        due[:] = due or [seen["ticks"]] if phase in ("due", "tuning") else []
        load.wanted = 0 if due and seen["ticks"] - due[0] > 40 else 8
        return phase == "watching" and events(made).count(wanted) > before

    made.until(done, 120)


def events(made):
    """Kinds of what was recorded, the oldest first."""
    with ProfileStore.open(made.folder / "advisor.db") as store:
        return [found.kind for found in store.events()[::-1]]


@pytest.mark.slow
def test_it_adopts_and_rolls_back_a_unit(manager, adopting, server, profiles, load):
    """A better plan runs by a real drop-in and stays; a worse one goes back to it; the operator's wish undoes all."""
    made, good = adopting, profiles[1]
    own = manager.argv(server.name)
    manager.call("start", UNIT)
    manager.until(lambda: made.status().get("leased"))
    drive(made, load, "adopted")
    manager.until_runs(server, good)
    assert f"--max-num-seqs {GOOD}" in " ".join(manager.argv(server.name))
    drive(made, load, "rolled back")
    manager.until_runs(server, good)
    with ProfileStore.open(made.folder / "advisor.db") as store:
        store.keep(kept.ASKED, "box", kept.Ask.ROLLBACK)
    made.until(lambda: not server.drop_in.exists() and server.running() == State(up=True))
    assert own == manager.argv(server.name)
