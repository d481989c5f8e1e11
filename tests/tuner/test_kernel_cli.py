"""`tuner kernels` as typed: what it prints, what it keeps, how it fails, and that a kill loses one trial at most."""

import json
import os
import re
import signal
import socket
import subprocess
import sys

import pytest
from typer.testing import CliRunner


pytest.importorskip("numpy")

from vllm_advisor import tuned_kernels
from vllm_advisor.errors import UsageError
from vllm_advisor.model import ModelSpec
from vllm_advisor.model.spec import CacheGroup, Moe, WeightGroup
from vllm_advisor.profile import TrialState
from vllm_advisor.store import owner
from vllm_advisor.store.profile_store import ProfileStore
from vllm_tuner.kernel_tuning import cli, shapes
from vllm_tuner.kernel_tuning import door as doors
from vllm_tuner.kernel_tuning.contract import KIND
from vllm_tuner.kernel_tuning.shapes import Shape
from vllm_tuner.kernel_tuning.synthetic import Range
from vllm_tuner.kernel_tuning.testing import FakeKernels, door


AXES = (Range("block_m", (16, 32, 64)), Range("num_warps", (2, 4, 8)))
SHAPE = ("--shapes", "4096,4096", "--tokens", "16", "--effort", "quick")


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    """Kernels whose best launch is twice as fast as the default, on every machine that tests run on."""
    kernels = FakeKernels(AXES, lambda p: 1000.0 if p == (64, 8) else 2000.0, default=(16, 4))
    monkeypatch.setattr(doors, "here", lambda **_: door(kernels))
    return kernels


def typed(*words):
    return CliRunner().invoke(cli.app, list(words), catch_exceptions=False)


def test_a_winner_is_shown_kept_and_handed_over(tmp_path):
    """The table, the variable with the file, a file with the launch; then the list says the same."""
    out, store = tmp_path / "configs.json", str(tmp_path / "s.db")
    done = typed(*SHAPE, "--store", store, "--out", str(out))
    listed = typed("--list", "--store", store)

    assert 0 == done.exit_code
    assert "1 problems, 1 with a launch that beats the default" in done.stdout
    assert f"ADVISOR_KERNEL_CONFIGS={out}" in done.stdout
    assert [[64, 8]] == [entry["launch"] for entry in json.loads(out.read_text())["entries"]]
    assert re.search(r"mxfp4.w4a8 +m<=16 n4096 k4096 +Test GPU +2,0\d\d +1,00\d +\+(99|100)", listed.stdout)
    assert "left] trial 1 started (a start): block_m 16, num_warps 4" in done.stderr


def test_without_a_file_named_the_state_folder_has_it(tmp_path):
    """`kernel-configs.json`, where the advisor looks for it."""
    done = typed(*SHAPE, "--store", str(tmp_path / "s.db"), "--json")
    found = json.loads(done.stdout)

    assert str(tuned_kernels.place()) == found["file"] == found["env"]["ADVISOR_KERNEL_CONFIGS"]
    assert tuned_kernels.place().is_file()
    assert [("better", True, 9)] == [(p["verdict"], p["config"]["kept"], p["points"]) for p in found["problems"]]


def test_a_null_result_hands_nothing_over(fake, tmp_path):
    """The default is best: exit 0, said as such, and an old file of winners goes away."""
    fake._law = lambda p: 1000.0 if p == (16, 4) else 2000.0
    out = tmp_path / "configs.json"
    out.write_text("{}")
    done = typed(*SHAPE, "--store", str(tmp_path / "s.db"), "--out", str(out))

    assert 0 == done.exit_code
    assert "0 with a launch that beats the default" in done.stdout
    assert "nothing to hand over" in done.stdout
    assert not out.exists()


def test_json_lines_are_events_and_a_result(tmp_path):
    """One JSON value a line, the last is the result; nothing else on stdout."""
    done = typed(*SHAPE, "--store", str(tmp_path / "s.db"), "--json-lines", "--out", str(tmp_path / "c.json"))
    lines = [json.loads(line) for line in done.stdout.splitlines()]

    assert ["problem", "trial"] == [line["event"] for line in lines[:2]]
    assert ("result", 1) == (lines[-1]["event"], lines[-1]["winners"])
    assert all("left_s" in line for line in lines[:-1])


def test_retime_needs_no_shape(tmp_path):
    """The stored winner is timed again, and only it; without winners there is nothing to decide."""
    where = ("--store", str(tmp_path / "s.db"), "--out", str(tmp_path / "c.json"))
    assert 1 == typed("--retime", *where).exit_code
    typed(*SHAPE, *where)
    done = typed("--retime", "--json", *where)

    assert 0 == done.exit_code
    assert [("better", 2)] == [(p["verdict"], p["timed"]) for p in json.loads(done.stdout)["problems"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to tune: give a model or a shape"),
        (("--shapes", "4096"), "'4096' is no shape"),
        (("--shapes", "64,64,4"), "'64,64,4' is no shape of a product"),
        (("--shapes", "64,64,2,4"), "'64,64,2,4' is no shape of a product"),
        (("--shapes", "64,64", "--tokens", "1,x"), "'1,x' is no list of batch sizes"),
        (("--shapes", "64,64", "--op", "kv.decode"), "kv.decode is not tuned on sm90"),
        (("--shapes", "64,64", "--effort", "much"), "no effort 'much'"),
        (("--shapes", "64,64", "--strategy", "luck"), "no strategy 'luck'"),
        (("--shapes", "64,64", "--budget", "0s"), "'0s' is no time"),
    ],
)
def test_what_cannot_be_is_one_line_with_a_hint(words, message, tmp_path):
    """A usage error before anything is measured."""
    with pytest.raises(UsageError, match=re.escape(message)) as raised:
        typed(*words, "--store", str(tmp_path / "s.db"))

    assert raised.value.hint


def test_another_search_on_this_machine_is_not_disturbed(tmp_path):
    """The node's lease is held by a living process: one line, nothing measured."""
    with ProfileStore.open(tmp_path / "s.db") as store:
        store.acquire(socket.gethostname(), by=f"{socket.gethostname()}:1:{owner._started(1)}")
    with pytest.raises(UsageError, match="another search measures on"):
        typed(*SHAPE, "--store", str(tmp_path / "s.db"), "--out", str(tmp_path / "c.json"))
    with ProfileStore.open(tmp_path / "s.db") as store:
        assert () == store.trials()


KILLED = """
import sys
from vllm_tuner.kernel_tuning import cli, door, testing
from vllm_tuner.kernel_tuning.synthetic import GPU

seen = set()

def block(point):
    seen.add(point)
    if len(seen) == 9:
        print("blocked", flush=True)
        sys.stdin.read()

door.here = lambda **_: testing.door(testing.FakeKernels(GPU, noise=0.0, before_launch=block))
cli.app(sys.argv[1:])
"""


def test_a_killed_search_loses_one_trial_and_goes_on(tmp_path, monkeypatch):
    """kill -9 in the ninth launch: eight trials stand, the ninth is recovered, the next run measures the rest."""
    store = str(tmp_path / "s.db")
    words = (*SHAPE, "--strategy", "model", "--store", store, "--out", str(tmp_path / "c.json"))
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, text=True,
    )  # fmt: skip
    assert "blocked\n" == child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.communicate()
    with ProfileStore.open(store) as opened:
        before = [t.state for t in opened.trials()]
    whole = FakeKernels(noise=0.0)
    monkeypatch.setattr(doors, "here", lambda **_: door(whole))
    done = typed(*words)
    with ProfileStore.open(store) as opened:
        after = opened.trials()
        assert "ok" == opened.integrity()

    assert -signal.SIGKILL == child.returncode
    assert [TrialState.COMPLETE] * 8 + [TrialState.RUNNING] == before
    assert 0 == done.exit_code
    assert [TrialState.COMPLETE] * 8 + [TrialState.FAILED] == [t.state for t in after[:9]]
    timed = [t for t in after if t.kind == KIND and t.state is TrialState.COMPLETE]
    assert 24 == len(timed) == len({t.settings for t in timed})


def test_shapes_of_a_model_are_those_that_vllm_fuses():
    """Q, K, V in one and gate, up in one; one rank's under TP; experts as one layer; and what does not divide."""
    cache = CacheGroup("full", (0, 1), 32, 8, 128, 128)
    mlp = WeightGroup("mlp", 1, 2, "column")
    dense = ModelSpec("m", "A", "a", "bfloat16", 4096, 2, 1000, 4096, 32, 8, (cache,), (mlp,), 14336)
    moe = ModelSpec("e", "A", "a", "bfloat16", 2880, 2, 1000, 4096, 64, 8, (), (), moe=Moe(32, 4, 0, 2880, (0, 1)))

    assert (Shape(6144, 4096), Shape(4096, 4096), Shape(28672, 4096), Shape(4096, 14336)) == shapes.of_model(dense)
    assert (Shape(3072, 4096), Shape(4096, 2048), Shape(14336, 4096), Shape(4096, 7168)) == shapes.of_model(dense, 2)
    assert (Shape(5760, 2880, 32, 4),) == shapes.of_model(moe)
    with pytest.raises(UsageError, match="32 heads do not split 3 ways"):
        shapes.of_model(dense, 3)
    with pytest.raises(UsageError, match="no shapes that are known"):
        shapes.of_model(moe.__class__("x", "A", "a", "bfloat16", 64, 1, 10, 64, 1, 1, (), ()))


def test_a_shape_takes_the_kernel_that_our_plugin_uses(fake):
    """Folded FP8 where the machine has it, by experts or not; an op named takes only the shapes that it has."""
    here = door(fake)
    both = (Shape(64, 32), Shape(64, 32, 4, 2))
    small = here._replace(ops=("mxfp4.w4a16", "moe.w4a16"))
    on_cpu = here._replace(ops=("cpu.mxfp4.linear",))

    assert ["mxfp4.w4a8", "moe.w4a8"] == [p.op for p in here.problems(both, (3,))]
    assert [4, 4] == [p.m for p in here.problems(both, (3,))]
    assert ["mxfp4.w4a16", "moe.w4a16"] == [p.op for p in small.problems(both, (1,))]
    assert [Shape(64, 32)] == [Shape(p.n, p.k) for p in here.problems(both, (1,), "mxfp4.w4a16")]
    assert [(16, 64, 32), (8, 64, 32), (8, 32, 32)] == [(p.m, p.n, p.k) for p in on_cpu.problems(both, (16,))]
