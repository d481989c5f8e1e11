"""`tuner compare`: columns from real children with real HTTP, a stand-in that prints what an engine prints."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from vllm_advisor.compare import compare as estimated
from vllm_advisor.compare import parse
from vllm_advisor.errors import UsageError
from vllm_advisor.profile import Fingerprint, TrialState
from vllm_advisor.store.profile_store import ProfileStore
from vllm_tuner import compare, compare_cli, compare_show
from vllm_tuner.budget import Budget
from vllm_tuner.effort import EFFORTS
from vllm_tuner.serving import Bench
from vllm_tuner.testing import facts, install
from vllm_tuner.trial import Study
from vllm_tuner.workloads import Shape, Synthetic


START = """
from vllm_tuner.cli.app import LATER, main
LATER["compare"] = ("vllm_tuner.compare_cli", "Measure formats.")
main()
"""
LOAD = ("--input-tokens", "32", "--output-tokens", "4", "--concurrency", "2", "--context", "256")
# The lines of v1/worker/gpu_model_runner.py, gpu_worker.py and v1/core/kv_cache_utils.py (0.33.0), invented figures.
PRINTED = (
    "(Worker pid=7) INFO 11-29 10:00:31 [gpu_model_runner.py:5089] Model loading took 0.50 GiB memory and 9.1 seconds\n"
    "(Worker pid=7) INFO 11-29 10:01:45 [gpu_worker.py:773] Available KV cache memory: 2.00 GiB\n"
    "(EngineCore pid=6) INFO 11-29 10:01:45 [kv_cache_utils.py:1147] GPU KV cache size: 1,024 tokens, "
    "Maximum concurrency for 256 tokens per request: 4.00x\n"
)
DIED = (
    "(EngineCore pid=6) ERROR 11-29 10:00:00 [core.py:1180] EngineCore failed to start.\n"
    "(EngineCore pid=6) ERROR 11-29 10:00:00 [core.py:1180] torch.OutOfMemoryError: CUDA out of memory. Tried to "
    "allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.11 GiB is free.\n"
)
# Half the weights where the flag is there; what the file `dies` names dies of memory.
SCRIPT = """#!/bin/sh
case "$*" in
  *"$(cat {place}/dies)"*) cat {place}/died; exit 1;;
  *--quantization*) sed s/0.50/0.25/ {place}/printed;;
  *) cat {place}/printed;;
esac
exec {real} "$@"
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a tiny model and a `vllm` on the PATH that prints figures and then serves."""
    folder = install(tmp_path / "bin")
    (folder / "vllm").rename(folder / "real")
    (tmp_path / "printed").write_text(PRINTED)
    (tmp_path / "died").write_text(DIED)
    (tmp_path / "dies").write_text("nothing")
    (folder / "vllm").write_text(SCRIPT.format(place=tmp_path, real=folder / "real"))
    (folder / "vllm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


@pytest.fixture
def run(place):
    """Everything that columns have in common, and a store of their own; `.found` by formats."""
    asked = facts(place / "tiny", concurrency=2)
    study = Study("compare tiny", "here", Fingerprint((("gpus", "one"),), (("gpus", "one"),)), asked.workload)

    def make(formats, budget=120.0):
        found = estimated(asked, (asked.model,), parse(formats))
        source = Synthetic(asked.workload, Shape(1000, 256))
        effort = EFFORTS["quick"]._replace(least=1, most=1, waves=1)
        bench = Bench(compare.space(found), lambda _: source, effort, place / "runs")
        store = ProfileStore.open(place / "s.db")
        return found, compare.Run(bench, store, study, Budget(budget), told.append)

    told = make.told = []
    return make


def test_the_engine_s_own_figures_stand_beside_the_estimates(run):
    """Weights, cache and concurrency from the log, speed from the load; a multiple of BF16's is of measured ones."""
    found, asked = run("bf16,fp8")
    plain, eight = compare.columns(found, asked)

    assert (TrialState.COMPLETE, TrialState.COMPLETE) == (plain.state, eight.state)
    assert (0.5, 0.25) == (plain.figure("weights").measured, eight.figure("weights").measured)
    assert (2.0, 1024.0, 4.0) == tuple(plain.figure(n).measured for n in ("KV cache", "KV cache size", "full requests"))
    assert found.rows[0].budget.kv_tokens / 1024 == plain.figure("KV cache size").ratio
    assert 0.5 == compare.against(plain, eight, "weights")
    assert plain.figure("output").measured > 0
    assert compare.base(found, (plain, eight)) is plain


def test_columns_are_kept_as_trials_of_their_own_kind(run, place):
    """With the format, the plan, and the engine's memory among the figures."""
    found, asked = run("bf16,fp8")
    list(compare.columns(found, asked))

    first, second = ProfileStore.open(place / "s.db").trials()
    assert [("compare", "bf16"), ("compare", "fp8")] == [(t.kind, dict(t.settings)["format"]) for t in (first, second)]
    assert (0.25, 1024.0) == tuple(second.measurement.figure(n).mid for n in ("weights_gib", "kv_tokens"))
    assert second.plan.quantization.startswith("fp8_per_")


def test_a_failed_start_is_a_column_with_its_diagnosis(run, place):
    """The doctor's reading of the child's log; the next format is measured all the same, and ratios are to that."""
    (place / "dies").write_text("--quantization")
    found, asked = run("fp8,bf16")
    failed, plain = compare.columns(found, asked)

    assert TrialState.INFEASIBLE is failed.state
    assert re.match(r"DOC-\d+: .*fit", failed.reason)
    assert failed.figure("output") is None
    assert compare.base(found, (failed, plain)) is plain


def test_what_does_not_fit_is_told_and_not_started(run, place):
    """On a processor MXFP4 has no kernel: the rule is the reason, and no server was tried."""
    found, asked = run("mxfp4")
    (column,) = compare.columns(found, asked)

    assert column.state is None
    assert "QNT-09" in column.reason
    assert not (place / "runs").exists()
    assert () == ProfileStore.open(place / "s.db").trials()


def test_a_spent_budget_starts_nothing(run):
    """The column says so."""
    found, asked = run("bf16", budget=1e-9)
    (column,) = compare.columns(found, asked)

    assert (TrialState.ABORTED, "the time budget was spent") == (column.state, column.reason)


def test_the_text_has_both_numbers(run, place):
    """Measured, its multiple of BF16, estimated over measured; failures with their reason; no accuracy is claimed."""
    found, asked = run("bf16,fp8,fp8+fp8,mxfp4")
    text = "\n".join(compare_show.lines(found, list(compare.columns(found, asked))))

    assert re.search(r"weights, GiB +0\.50, e/m 0\.\d\d +0\.25 \(0\.50 ×\), e/m 0\.\d\d", text)
    assert re.search(r"FP8 \+ FP8 KV: not started, not supported: KV-01", text)
    assert re.search(r"MXFP4: not started, not supported: QNT-09", text)
    assert "No answer was checked" in text

    (place / "dies").write_text("--quantization")
    found, asked = run("fp8")
    assert re.search(
        r"^FP8: infeasible: DOC-\d+",
        "\n".join(compare_show.lines(found, list(compare.columns(found, asked)))),
        re.MULTILINE,
    )


def typed(place, *more):
    argv = [
        sys.executable,
        "-c",
        START,
        "compare",
        str(place / "tiny"),
        "--gpu",
        "cpu",
        "--offline",
        "--vllm",
        "0.33.0",
    ]
    where = ["--store", str(place / "s.db"), "--folder", str(place / "runs")]
    return [*argv, *LOAD, *where, *more]


def environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def test_json_lines_end_with_the_result(place):
    """A line an event and a column; the last has all of them; progress stays off stdout with --json."""
    facts(place / "tiny")
    argv = typed(place, "--quantizations", "bf16,fp8", "--json-lines")
    done = subprocess.run(argv, capture_output=True, text=True, env=environment(), timeout=180, check=False)

    assert 0 == done.returncode, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert ["opened", "column", "column", "measured"] == [e["event"] for e in events[:4]]
    result = events[-1]
    assert ("result", "bf16", ["bf16", "fp8"]) == (
        result["event"],
        result["ratios_to"],
        [c["format"] for c in result["columns"]],
    )
    weights = next(f for f in result["columns"][1]["figures"] if f["name"] == "weights")
    assert (0.25, 0.5) == (weights["measured"], weights["ratio_to_base"])


def test_an_interrupt_keeps_the_finished_columns(place):
    """1. the second column starts, 2. Ctrl-C. Result: the first is shown, exit 130, the second is ABORTED."""
    facts(place / "tiny")
    (place / "bin" / "vllm").write_text(
        (place / "bin" / "vllm").read_text().replace("  *--quantization*) ", "  *--quantization*) exec sleep 100;")
    )
    argv = typed(place, "--quantizations", "bf16,fp8")
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as program:
        assert next((line for line in program.stderr if "FP8: started" in line), "")
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=60)

    assert 130 == program.returncode, err
    assert "BF16: complete" in out
    assert "1 of 2 columns are known" in err
    states = [trial.state for trial in ProfileStore.open(place / "s.db").trials()]
    assert [TrialState.COMPLETE, TrialState.ABORTED] == states


def test_a_machine_elsewhere_cannot_be_measured():
    """`--gpu` names this machine's processor, or nothing."""
    with pytest.raises(UsageError, match="measures the machine here"):
        compare_cli._here("8xH100")


def test_no_vllm_is_said_with_what_helps(monkeypatch):
    """The estimates need none."""
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UsageError) as caught:
        compare_cli.python(None)
    assert "advisor compare" in caught.value.hint


def test_torch_stays_out_of_this_process():
    """What the seed's script measured: its own process, in which no engine runs."""
    code = (
        "import sys, vllm_tuner.compare, vllm_tuner.compare_cli, vllm_tuner.compare_show; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
    assert "False" == done.stdout.strip()
