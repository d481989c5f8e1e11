"""The container unit on real engines: Docker's and Podman's own daemons, with containers that serve over HTTP."""

import signal
from pathlib import Path

import pytest

from vllm_advisor.errors import EngineError, UsageError
from vllm_advisor.plan import LaunchCommand
from vllm_tuner.daemon.testing_engines import ENTRY
from vllm_tuner.daemon.units import engine_api
from vllm_tuner.daemon.units.container import Container
from vllm_tuner.daemon.units.managed import FOREIGN, State


pytestmark = pytest.mark.slow

OWN = ["/bin/vllm", "serve", "m", "--max-num-seqs", "8"]
PLAN = LaunchCommand(("/bin/vllm", "serve", "m", "--max-num-seqs", "4"), (("VLLM_X", "1"), ("NEW", "a b")))
OTHER = LaunchCommand(("/bin/vllm", "serve", "m", "--max-num-seqs", "2"))
DIES = LaunchCommand(("/bin/vllm", "serve", "m", "--die"))
SERVED, PLANNED = "serve m --max-num-seqs 8", "serve m --max-num-seqs 4"
ALWAYS = {"HostConfig": {"RestartPolicy": {"Name": "always"}}}


def test_a_life(engine):
    """Looked at, replaced, replaced again, and back: one serves at a time, and the own one is the very same again."""
    own = engine.run("vllm", OWN, **ALWAYS)
    unit = Container("vllm", engine.path)
    assert (State(up=True), tuple(OWN), SERVED) == (unit.running(), unit.command().argv, engine.serves())
    unit.start(PLAN, "abc")
    assert (State(up=True, profile="abc"), PLANNED) == (unit.running(), engine.serves())
    assert (tuple(OWN), {"vllm": True, "vllm-before": False}) == (unit.command().argv, engine.names())
    unit.start(OTHER, "def")
    assert (State(up=True, profile="def"), "serve m --max-num-seqs 2") == (unit.running(), engine.serves())
    assert (own, {"vllm": True, "vllm-before": False}) == (engine.see("vllm-before")["Id"], engine.names())
    unit.restore()
    assert (State(up=True), SERVED, {"vllm": True}) == (unit.running(), engine.serves(), engine.names())
    assert (own, "always") == (engine.see("vllm")["Id"], engine.see("vllm")["HostConfig"]["RestartPolicy"]["Name"])


def test_it_makes_way_and_comes_back(engine):
    """Whatever its restart policy: stopped it stays down; the own one and ours come back as they were."""
    own = engine.run("vllm", OWN, **ALWAYS)
    unit = Container("vllm", engine.path)
    unit.stop()
    assert (False, {"vllm": False}) == (unit.running().up, engine.names())
    unit.restore()
    assert (own, SERVED) == (engine.see("vllm")["Id"], engine.serves())
    unit.start(PLAN, "abc")
    unit.stop()
    assert State(up=False, profile="abc") == unit.running()._replace(why="")
    unit.start(PLAN, "abc")
    assert (State(up=True, profile="abc"), PLANNED) == (unit.running(), engine.serves())


def test_its_processes(engine):
    """The shell and its server; none of another container."""
    engine.run("other", ["/bin/sleep", "60"])
    engine.run("vllm", OWN)
    engine.serves()
    seen = [Path(f"/proc/{one.number}/cmdline").read_text() for one in Container("vllm", engine.path).processes()]
    assert [True, True] == [any(word in text for text in seen) for word in ("/bin/vllm\0serve", "httpd\0-f")]
    assert [False] * len(seen) == ["sleep" in text for text in seen]


class Cut(Exception):
    """The daemon is gone."""


def cut_after(unit, most):
    """Let a unit change that many things, and then nothing more."""
    ask, made = unit._engine._ask, []

    def counted(method, path, *rest, **more):
        if method != "GET":
            made.append(path)
            if len(made) > most:
                raise Cut
        return ask(method, path, *rest, **more)

    unit._engine._ask = counted
    return unit


def scene(engine, second):
    """The operator's container, and ours in its place already where it is the second change; its id."""
    own = engine.run("vllm", OWN, **ALWAYS)
    if second:
        Container("vllm", engine.path).start(OTHER, "def")
    return own


ORDERS = {"start": lambda unit: unit.start(PLAN, "abc"), "restore": lambda unit: unit.restore()}


@pytest.mark.parametrize("after", ["start", "restore"])
@pytest.mark.parametrize(("order", "second"), [("start", False), ("start", True), ("restore", True)])
def test_cut_off_after_each_change(engine, order, second, after):
    """Killed between any two calls: never two serve, the own one is there, and the next daemon gets where it wants."""
    for most in range(20):
        own = scene(engine, second)
        whole = True
        try:
            ORDERS[order](cut_after(Container("vllm", engine.path), most))
        except Cut:
            whole = False
        assert (sum(engine.names().values()) <= 1, own) == (True, engine.see(own)["Id"])
        ORDERS[after](Container("vllm", engine.path))
        said, profile = (PLANNED, "abc") if after == "start" else (SERVED, "")
        assert (State(up=True, profile=profile), said) == (Container("vllm", engine.path).running(), engine.serves())
        left = {"vllm": True, "vllm-before": False} if after == "start" else {"vllm": True}
        assert (left, True) == (engine.names(), bool(engine.see(own)))
        assert "always" == engine.see("vllm")["HostConfig"]["RestartPolicy"]["Name"]
        engine.clear()
        if whole:
            break
    assert most >= 3


@pytest.mark.parametrize("policy", ["no", "always"])
def test_a_command_that_dies_at_once(engine, policy):
    """Down, with its exit code and its last words; also while the engine starts it again and again."""
    engine.run("vllm", OWN, HostConfig={"RestartPolicy": {"Name": policy}})
    unit = Container("vllm", engine.path)
    unit.start(DIES, "abc")
    looks = (unit.running() for _ in range(1000))
    found = next((one for one in looks if not one.up and "memory" in one.why), unit.running())
    assert (False, "abc") == (found.up, found.profile)
    assert "exit code 3: OutOfMemoryError: no memory left" in found.why
    unit.restore()
    assert (State(up=True), SERVED) == (unit.running(), engine.serves())


def test_an_entry_point_of_the_image(engine):
    """It is part of the command and is not repeated; another program takes its place."""
    engine.run("vllm", OWN[1:], image=ENTRY)
    unit = Container("vllm", engine.path)
    assert tuple(OWN) == unit.command().argv
    unit.start(PLAN, "abc")
    assert (PLANNED, list(PLAN.argv[1:])) == (engine.serves(), engine.see("vllm")["Config"]["Cmd"])
    unit.start(LaunchCommand(("/bin/sh", "/bin/vllm", "serve", "x")), "def")
    assert "serve x" == engine.serves()


def test_an_entry_point_that_the_operator_took_away(engine):
    """`--entrypoint ""`: the image's does not come back with the new arguments, nor with the way back."""
    if engine.kind == "docker":
        engine.run("vllm", ["/bin/sh", *OWN], image=ENTRY, Entrypoint=[""])
    else:
        limits = ["--ulimit", "nofile=512:1024", "--ulimit", "nproc=512:1000", "--network", "host"]
        engine.podman("run", "-d", "--name", "vllm", *limits, "--entrypoint", "", ENTRY, "/bin/sh", *OWN)
    unit = Container("vllm", engine.path)
    assert ("/bin/sh", *OWN) == unit.command().argv
    unit.start(LaunchCommand((*unit.command().argv[:-1], "4")), "abc")
    assert PLANNED == engine.serves()
    engine.ask("POST", "/containers/prune")
    unit.restore()
    assert (SERVED, ("/bin/sh", *OWN)) == (engine.serves(), unit.command().argv)


def test_a_name_that_does_not_exist(engine):
    """Down and foreign to look at; what is ordered says so."""
    unit = Container("nobody", engine.path)
    assert State(up=False, profile=FOREIGN, why="there is no container nobody") == unit.running()
    for order in (unit.command, unit.restore, lambda: unit.start(PLAN, "abc")):
        with pytest.raises(EngineError, match="there is no container nobody"):
            order()
    assert () == unit.processes()


def test_one_that_would_be_gone_when_stopped(engine):
    """`--rm`: refused, and it serves on."""
    engine.run("vllm", OWN, HostConfig={"AutoRemove": True})
    with pytest.raises(UsageError, match="--rm"):
        Container("vllm", engine.path).start(PLAN, "abc")
    with pytest.raises(UsageError, match="--rm"):
        Container("vllm", engine.path).stop()
    assert (SERVED, {"vllm": True}) == (engine.serves(), engine.names())


def test_the_operator_made_it_anew(engine):
    """His new one is the own one now, and is never removed; what was put aside before stays under a longer name."""
    first = scene(engine, second=True)
    engine.ask("DELETE", "/containers/vllm?force=true")
    engine.run("vllm", [*OWN, "--port", "9"])
    unit = Container("vllm", engine.path)
    unit.restore()
    assert ((*OWN, "--port", "9"), {"vllm": True, "vllm-before": False}) == (unit.command().argv, engine.names())
    unit.start(PLAN, "abc")
    unit.restore()
    assert {"vllm": True, f"vllm-before-{first[:12]}": False} == engine.names()
    assert f"{SERVED} --port 9" == engine.serves()


def test_an_engine_that_stands_still(engine, monkeypatch):
    """Stopped in the middle of its life: one line within the limit, and afterwards everything is as it was."""
    monkeypatch.setattr(engine_api, "LOOK_S", 1.0)
    engine.run("vllm", OWN)
    unit = Container("vllm", engine.path)
    engine.daemon.send_signal(signal.SIGSTOP)
    while not Path(f"/proc/{engine.daemon.pid}/stat").read_text().rpartition(") ")[2].startswith("T"):
        pass
    try:
        for order in (unit.running, unit.restore, lambda: unit.start(PLAN, "abc")):
            with pytest.raises(EngineError, match="does not answer: nothing within 1 s"):
                order()
    finally:
        engine.daemon.send_signal(signal.SIGCONT)
    assert (State(up=True), SERVED, {"vllm": True}) == (unit.running(), engine.serves(), engine.names())


def test_the_own_one_was_pruned_away(engine):
    """A nightly prune removes what is stopped: the way back makes it again, whole."""
    scene(engine, second=True)
    code, said = engine.ask("POST", "/containers/prune")
    assert (200, {"vllm": True}) == (code, engine.names()), said
    unit = Container("vllm", engine.path)
    unit.start(PLAN, "abc")
    assert ({"vllm": True}, PLANNED, tuple(OWN)) == (engine.names(), engine.serves(), unit.command().argv)
    unit.restore()
    made = engine.see("vllm")
    assert (State(up=True), SERVED, {"vllm": True}) == (unit.running(), engine.serves(), engine.names())
    assert ("always", {}) == (made["HostConfig"]["RestartPolicy"]["Name"], made["Config"]["Labels"] or {})


def test_after_the_machine_was_started_again(engine):
    """A policy of "always" starts what was stopped by hand as well: not the one that was put aside."""
    if engine.kind != "docker":
        pytest.skip("Podman starts nothing by itself")
    scene(engine, second=True)
    engine.stop()
    engine.begin()
    assert ({"vllm": True, "vllm-before": False}, "serve m --max-num-seqs 2") == (engine.names(), engine.serves())


def test_two_that_run(engine):
    """Somebody started the one that was put aside: what serves cannot be told."""
    engine.run("vllm", ["/bin/sleep", "600"])
    Container("vllm", engine.path).start(PLAN, "abc")
    engine.ask("POST", "/containers/vllm-before/start")
    assert State(True, FOREIGN, "vllm-before runs beside it") == Container("vllm", engine.path).running()
