"""The suite for a machine with a GPU: here end to end in the interpreter; that it can fail, and that it ends."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest


torch = pytest.importorskip("torch", reason="the suite measures torch beside the kernels")
pytest.importorskip("triton", reason="the kernels are Triton's")

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_suite.py"
OPS = ("quantize mxfp4", "dequantize mxfp4", "product mxfp4", "moe swiglu", "moe swiglu_oai", "quantize fp8",
       "quantize mxfp8", "product fp8", "kv store and decode")  # fmt: skip


def test_tiny_runs_end_to_end(tmp_path):
    """`--tiny` without a GPU: every op is checked against its twin, every section is run, nothing is cut."""
    argv = [sys.executable, "-W", "ignore", SCRIPT, "--tiny", "--json", tmp_path / "found.json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    found = json.loads((tmp_path / "found.json").read_text())

    assert (0, []) == (done.returncode, found["failed"]), done.stdout + done.stderr
    assert [] == found["cut"]
    assert all(any(c["check"].startswith(op) for c in found["checks"]) for op in OPS)
    assert {"copy", "torch bf16", "mxfp4 bf16", "mxfp4 fp8", "fp8 channel", "moe mxfp4 fp8", "kv decode fp8"} <= {
        s["op"] for s in found["speeds"]
    }
    assert "29 of 29 checks passed" in done.stdout


@pytest.fixture
def suite(device):
    """The module, and one run of it that has all the time there is."""
    spec = importlib.util.spec_from_file_location("gpu_suite", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its classes look their annotations up there
    spec.loader.exec_module(module)
    sys.path.remove(str(SCRIPT.parents[1] / "kernels"))
    clock = SimpleNamespace(left_s=1e9, budget_s=1e9)
    yield module, module.Suite(module.TINY, device, 1, clock)
    del sys.modules[spec.name]


def test_a_wrong_kernel_fails_the_run(suite, monkeypatch, capsys):
    """One wrong scale among all is seen, the check is named, the others go on, and the exit status is 1."""
    module, run = suite
    right = module.quantize_mxfp4

    def wrong(x, mode="floor"):
        quantized = right(x, mode)
        quantized.scales[0, 1] += 1
        return quantized

    monkeypatch.setattr(module, "quantize_mxfp4", wrong)
    items = [("floor", lambda: run.check_quantize("floor")), ("bf16", run.check_dequantize)]
    run._section(lambda: run._checks("op", items), "correctness", 1.0)

    assert [False, True] == [c["passed"] for c in run.checks]
    assert "torch.uint8 differ from the twin" in run.checks[0]["says"]
    assert 1 == module._report(run, run.device, 1, None)
    assert "failed: correctness: op floor" in capsys.readouterr().out


def test_what_there_is_no_time_for_is_named(suite):
    """With no time left nothing runs, and each item of the section is listed as cut."""
    _, run = suite
    run.clock.left_s = -1.0
    run._section(run.measure_limits, "limits", 1.0)

    assert ["limits: copy", "limits: bf16 product"] == run.cut
    assert [] == run.speeds


def test_a_rival_that_does_not_run_is_no_failure(suite):
    """torch._scaled_mm refuses some shapes and devices: its words are kept, and the run goes on."""
    _, run = suite

    def refuses():
        raise RuntimeError("only sm90 and newer")

    run.rival("torch._scaled_mm", "1x1x1", refuses, 1.0, 1.0, ours=1.0)

    assert [{"op": "torch._scaled_mm", "shape": "1x1x1", "says": "only sm90 and newer"}] == run.speeds
    assert [] == run.checks
