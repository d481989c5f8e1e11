"""The real kernels: the C++ product of this processor is tuned, kept, handed over, and read by what serves it."""

import importlib
import json
import logging

import pytest
from typer.testing import CliRunner


torch = pytest.importorskip("torch")
pytest.importorskip("numpy")
pytest.importorskip("sqlmodel")

from vllm_advisor import tuned_kernels  # noqa: E402
from vllm_advisor.errors import UsageError  # noqa: E402
from vllm_advisor.profile import KernelConfig, TrialState  # noqa: E402
from vllm_advisor.store.profile_store import ProfileStore  # noqa: E402
from vllm_mx_kernels import cpu  # noqa: E402
from vllm_mx_kernels import handoff as files  # noqa: E402
from vllm_tuner.budget import Budget  # noqa: E402
from vllm_tuner.kernel_tuning import cli, handoff  # noqa: E402
from vllm_tuner.kernel_tuning import door as doors  # noqa: E402
from vllm_tuner.kernel_tuning import run as loop  # noqa: E402
from vllm_tuner.kernel_tuning.attempt import Bench  # noqa: E402
from vllm_tuner.kernel_tuning.contract import CONTEST, KIND  # noqa: E402
from vllm_tuner.kernel_tuning.effort import EFFORTS  # noqa: E402
from vllm_tuner.kernel_tuning.shapes import Shape  # noqa: E402
from vllm_tuner.kernel_tuning.subject import Subject, key, sizes, subject, trial  # noqa: E402
from vllm_tuner.kernel_tuning.testing import MACHINE, FakeKernels  # noqa: E402


pytestmark = pytest.mark.skipif(not cpu.available(), reason="the C++ path needs a compiler")
SMALL = ("--cpu", "--shapes", "256,256", "--tokens", "1", "--effort", "quick", "--budget", "120s")


@pytest.fixture(autouse=True)
def _one_thread():
    """Two threads on a busy machine wait for each other; what is tested here does not depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def store(tmp_path):
    """A store in a file."""
    with ProfileStore.open(tmp_path / "s.db") as opened:
        yield opened


def test_the_processors_product_is_tuned_for_real(tmp_path):
    """Quick, one token, 256 x 256: checked and timed points in the store, a comparison or the default, an answer."""
    out, where = tmp_path / "c.json", str(tmp_path / "s.db")
    done = CliRunner().invoke(cli.app, [*SMALL, "--store", where, "--out", str(out), "--json"], catch_exceptions=False)
    [problem] = json.loads(done.stdout)["problems"]
    with ProfileStore.open(where) as store:
        trials = store.trials()
    timed = [t for t in trials if t.kind == KIND and t.state is TrialState.COMPLETE]

    assert {TrialState.COMPLETE} == {t.state for t in trials}
    assert 8 <= len(timed) <= 24
    assert all(0 < t.measurement.figure("median_us").low for t in timed)
    assert ("cpu.mxfp4.linear", "m<=1 n256 k256", cpu.instruction_set()) == (
        problem["kernel"], problem["bucket"], problem["arch"],
    )  # fmt: skip
    assert problem["verdict"] in (loop.BETTER, loop.NOT_BETTER)
    assert problem["config"]["kept"] == out.exists() == (problem["verdict"] == loop.BETTER)
    assert (problem["rounds"] >= 7) == any(t.kind == CONTEST for t in trials)


def test_a_second_run_measures_nothing(tmp_path):
    """Everything is answered from the store, on the real kernels as on the stand-in."""
    words = [*SMALL, "--store", str(tmp_path / "s.db"), "--out", str(tmp_path / "c.json"), "--json"]
    first, second = (CliRunner().invoke(cli.app, words, catch_exceptions=False) for _ in range(2))
    with ProfileStore.open(tmp_path / "s.db") as store:
        numbers = [t.id for t in store.trials()]

    assert [loop.KNOWN] == [p["verdict"] for p in json.loads(second.stdout)["problems"]]
    assert json.loads(first.stdout)["problems"][0]["timed"] == json.loads(second.stdout)["problems"][0]["timed"]
    assert numbers == list(range(1, len(numbers) + 1))


def won(store) -> Subject:
    """A winner of this machine, as a search keeps one: any legal point but the default."""
    here = doors.here(on_cpu=True)
    [problem] = here.problems((Shape(256, 256),), (1,))
    about = subject(here.kernels, problem, key(here.kernels, problem, here.machine(problem)), None, here.peaks(""))
    point = next(p for p in about.space.points if p != about.default)
    settings = about.space.settings(point)
    number = store.add_trial(trial(about, "node", (*settings, *sizes(problem)), CONTEST))
    store.start(number)
    store.finish(number, TrialState.FAILED, reason="only its settings count here")
    store.save_kernel(KernelConfig(about.key, settings, 1.0, 2.0, kept=True))
    return about._replace(earlier=point)


def test_the_file_is_what_the_kernels_read(store, tmp_path, monkeypatch, caplog):
    """Read back by the kernels' own reader: not stale, taken, and chosen for a product of this shape."""
    about, here, path = won(store), doors.here(on_cpu=True), tmp_path / "c.json"
    winners = handoff.winners(store, here.kernels, here.machine, here.make)
    assert handoff.write(path, winners, here.kernels, here.files)
    [entry] = files.read_configs(path)

    assert "" == files.why_stale(entry)
    assert entry.launch == here.kernels.launch(about.problem, about.earlier) != files.CpuTile()
    monkeypatch.setenv(tuned_kernels.VARIABLE, str(path))
    files.forget()
    caplog.set_level(logging.INFO, logger="vllm.advisor_mxfp4.configs")
    try:
        weight = cpu.quantize(torch.ones(256, 256))
        assert (1, 256) == tuple(cpu.linear(torch.ones(1, 256), *weight).shape)
        assert "took 1 entries" in caplog.text
        assert entry.launch.tile in caplog.text
    finally:
        files.forget()


def test_a_winner_of_other_kernels_is_not_written(store, tmp_path):
    """The stored source hash is another: no entry, no file."""
    here = doors.here(on_cpu=True)
    won(store)
    [stored] = store.kernels()
    store.save_kernel(stored._replace(key=stored.key._replace(source_hash="feed"), kept=True))
    store.save_kernel(stored._replace(kept=False))

    assert () == handoff.winners(store, here.kernels, here.machine, here.make)
    assert not handoff.write(tmp_path / "c.json", (), here.kernels, here.files)


def test_an_op_of_a_gpu_is_none_of_a_processor():
    """One line, with the ops that there are."""
    with pytest.raises(UsageError, match=r"mxfp4\.w4a8 is not tuned on") as raised:
        doors.here(on_cpu=True).problems((Shape(256, 256),), (1,), "mxfp4.w4a8")

    assert "one of cpu.mxfp4.linear" == raised.value.hint


def test_without_a_compiler_there_is_a_hint(monkeypatch):
    """No GPU here and the C++ path not built: what to install."""
    monkeypatch.setattr(cpu, "available", lambda: False)
    with pytest.raises(UsageError, match="kernels cannot be built") as raised:
        doors.here(on_cpu=True)

    assert "g++" in raised.value.hint


class Compiled(FakeKernels):
    """A GPU's space and its compiler for real; only results and times are made up."""

    def __init__(self):
        super().__init__()
        self.real = importlib.import_module("vllm_mx_kernels.autotune")
        for name in ("axes", "default_point", "objection", "bucket", "source_hash", "gate"):
            setattr(self, name, getattr(self.real, name))

    def bound_us(self, _problem, point, _peaks):
        return sum(point) / 1e6

    def us(self, _problem, point):
        return 10.0 + sum(point) / 100


def test_points_of_a_gpu_are_compiled_without_one(store):
    """For sm90, the few that could be fastest: built by Triton, those that spill or do not fit are infeasible."""
    pytest.importorskip("triton")
    kernels, row = Compiled(), EFFORTS["quick"]._replace(compiled=4, trials=4)
    problem = kernels.real.Problem("mxfp4.w4a16", "sm90", 16, 1024, 1024, device="Test GPU")
    bench = Bench(kernels, row, store, lambda _: None, "node", jobs=2)
    [result] = loop.Run(bench, store, lambda _: MACHINE, Budget(300.0)).tune([problem])
    trials = [t for t in store.trials() if t.kind == KIND]

    assert result.verdict in (loop.BETTER, loop.NOT_BETTER)
    assert 4 <= len(trials) <= 6
    assert {TrialState.COMPLETE, TrialState.INFEASIBLE} >= {t.state for t in trials}
    assert all(t.reason for t in trials if t.state is TrialState.INFEASIBLE)
    assert result.about.default in {tuple(p) for p in kernels.timed}
