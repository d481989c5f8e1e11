"""Commands of units, and the child; systemd and containers have files of their own."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vllm_advisor.errors import UsageError
from vllm_advisor.plan import LaunchCommand
from vllm_advisor.vllm import command
from vllm_tuner.daemon.units.child import Child
from vllm_tuner.daemon.units.container import Container
from vllm_tuner.daemon.units.managed import FOREIGN, State
from vllm_tuner.daemon.units.rewrite import OURS, name_of, parse, rewrite
from vllm_tuner.daemon.units.systemd import Systemd
from vllm_tuner.stand_in import install


OWN = LaunchCommand(("vllm", "serve", "m", "--max-num-seqs", "8"))
PLAN = LaunchCommand(("vllm", "serve", "m", "--max-num-seqs", "4"), (("VLLM_X", "1"),))


def words(text):
    """A command as typed."""
    return LaunchCommand(tuple(text.split()))


@pytest.mark.parametrize(
    ("own", "plan", "made"),
    [
        ("vllm serve m --port 9 --max-num-seqs 8", "vllm serve m --max-num-seqs 4",
         "vllm serve m --port 9 --max-num-seqs 4"),
        ("vllm serve m --max_num_seqs=8 --api-key k", "vllm serve m", "vllm serve m --api-key k"),
        ("/opt/v/bin/vllm serve m -tp 2 --port=9", "vllm serve m --tensor-parallel-size 4",
         "/opt/v/bin/vllm serve m --port=9 --tensor-parallel-size 4"),
        ("vllm serve m --no-enable-prefix-caching --lora-modules a=1 b=2", "vllm serve m --enforce-eager",
         "vllm serve m --lora-modules a=1 b=2 --enforce-eager"),
        ("vllm serve m --seed -1 --enforce-eager", "vllm serve m", "vllm serve m --seed -1"),
        ("vllm serve big --port 9", "vllm serve big-fp8", "vllm serve big-fp8 --port 9 --served-model-name big"),
        ("vllm serve big --served-model-name chat", "vllm serve big-fp8",
         "vllm serve big-fp8 --served-model-name chat"),
        ("python3 -m vllm.entrypoints.openai.api_server --model m --port 9", "vllm serve m --max-num-seqs 4",
         "python3 -m vllm.entrypoints.openai.api_server --model m --port 9 --max-num-seqs 4"),
        ("vllm serve --port 9 --model m", "vllm serve m", "vllm serve m --port 9"),
        ("vllm serve m --dtype half", "vllm serve m --max-num-seqs 4", "vllm serve m --dtype half --max-num-seqs 4"),
        ("vllm serve m --dtype half", "vllm serve m --dtype float32", "vllm serve m --dtype float32"),
    ],
)  # fmt: skip
def test_a_plan_in_an_operators_command(own, plan, made):
    """Knobs of the plan replace, or go with, those that stood there; everything else stays, names included."""
    assert words(made).argv == rewrite(words(own), words(plan)).argv


@pytest.mark.parametrize("text", ["sleep 600", "vllm bench throughput", "vllm serve --port 9", "nginx -g x"])
def test_what_is_no_server_is_refused(text):
    """A unit of something else is never restarted with a plan."""
    with pytest.raises(UsageError):
        parse(text.split())


def test_names_of_flags():
    """Underscores, values and short forms are one flag; a switch's other side is told apart."""
    assert ["--max-num-seqs", "--max-num-seqs", "--tensor-parallel-size", "--no-enable-eplb"] == [
        name_of(word) for word in ("--max_num_seqs=8", "--max-num-seqs", "-tp", "--no-enable-eplb")
    ]


def test_every_flag_of_a_plan_is_known():
    """What `vllm.command` may write for a plan is what a plan takes away: one of them forgotten would stay for ever."""
    written = set(re.findall(r'Setting\("(--[a-z-]+)"', Path(command.__file__).read_text()))
    assert {"--nnodes", "--node-rank", "--master-addr"} == written - OURS
    assert len(written) > 15


def test_the_environment_of_a_plan_wins():
    """Variables that the plan sets replace the operator's of the same name."""
    own = LaunchCommand(OWN.argv, (("VLLM_X", "0"), ("HF_HOME", "/d")))
    assert (("HF_HOME", "/d"), ("VLLM_X", "1")) == rewrite(own, PLAN).env


@pytest.fixture
def child(tmp_path, monkeypatch):
    """A managed child on a stand-in of vLLM."""
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN_ORPHAN", "1")
    made = Child(tmp_path / "unit", "http://127.0.0.1:18391", OWN, grace_s=2.0)
    yield made
    made.leave()


def argv_of(unit):
    """What runs, word by word."""
    (process,) = unit.processes()
    return Path(f"/proc/{process.number}/cmdline").read_text().split("\0")


def test_a_child_is_started_replaced_and_restored(child):
    """The profile is told by the folder, the address is ours, and one group runs at a time."""
    assert State(up=False, why="it was not started") == child.running()
    child.start(OWN, "")
    assert State(up=True) == child.running()
    child.start(PLAN, "abc123")
    assert (State(up=True, profile="abc123"), True) == (child.running(), "4" in argv_of(child))
    child.restore()
    assert (State(up=True), "18391") == (child.running(), argv_of(child)[-2])
    child.leave()
    assert () == child.processes()


def test_a_child_that_makes_way_comes_back(child):
    """Stopped whole, and started again with the profile that it ran."""
    child.start(PLAN, "abc123")
    child.stop()
    assert (State(up=False, why="it was not started"), ()) == (child.running(), child.processes())
    child.start(PLAN, "abc123")
    assert State(up=True, profile="abc123") == child.running()


def test_a_child_outlives_its_daemon(child, tmp_path):
    """Another adapter of the same folder finds it, with its profile, and can stop it."""
    child.start(PLAN, "abc123")
    other = Child(tmp_path / "unit", "http://127.0.0.1:18391", OWN, grace_s=2.0)
    assert State(up=True, profile="abc123") == other.running()
    other.leave()
    assert () == child.processes()


def test_two_servers_in_one_folder_are_nobodys(child, tmp_path):
    """What cannot be told is foreign, never taken for a profile."""
    child.start(PLAN, "abc123")
    (tmp_path / "unit/other").mkdir()
    second = subprocess.Popen(["/bin/sleep", "60"], cwd=tmp_path / "unit/other", start_new_session=True)
    assert FOREIGN == child.running().profile
    second.kill()
    second.wait()


def test_a_child_that_dies_says_why(child, monkeypatch):
    """The last words of its log."""
    monkeypatch.setenv("STAND_IN_LIMIT", "100")
    child.start(LaunchCommand((*OWN.argv, "--max-num-batched-tokens", "200")), "abc")
    child._child.wait()
    found = child.running()
    assert (False, True) == (found.up, "out of memory" in found.why)


def test_an_engine_without_its_server_is_down(child, tmp_path):
    """What the leader left behind in its group does not count, and goes with the next start."""
    (tmp_path / "unit/abc").mkdir(parents=True)
    forks = "import os, time; os.fork() and os._exit(0); time.sleep(600)"
    subprocess.run([sys.executable, "-S", "-c", forks], cwd=tmp_path / "unit/abc", start_new_session=True, check=True)
    assert (1, False) == (len(child.processes()), child.running().up)
    child.start(OWN, "")
    assert (State(up=True), 1) == (child.running(), len(child.processes()))


def test_a_child_that_another_daemon_replaced(child, tmp_path):
    """Its own child is gone, another one stands in the folder: that one counts."""
    child.start(OWN, "")
    other = Child(tmp_path / "unit", "http://127.0.0.1:18391", OWN, grace_s=2.0)
    other.start(PLAN, "abc123")
    assert State(up=True, profile="abc123") == child.running()
    other.leave()


def test_a_child_without_a_command(tmp_path):
    """It says what to configure."""
    with pytest.raises(UsageError, match="has no command"):
        Child(tmp_path, "http://127.0.0.1:1", None).restore()


@pytest.mark.parametrize("name", ["", "../etc/passwd", "a b", "x;reboot"])
def test_names_that_are_none(name, tmp_path):
    """Neither a path nor a command."""
    for kind in (Systemd, Container):
        with pytest.raises(UsageError, match="is no name"):
            kind(name, tmp_path)


def test_units_are_fast_to_look_at(child):
    """A look at a child is a walk over /proc: it stays far below a tick, whatever the machine (20 looks in 10 s)."""
    child.start(OWN, "")
    begun = time.monotonic()
    for _ in range(20):
        child.running()
    assert time.monotonic() - begun < 10
