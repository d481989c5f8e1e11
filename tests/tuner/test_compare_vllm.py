"""`tuner compare` on the real vLLM for the CPU: SmolLM2 in BF16 beside FP8 weights, the engine's figures and ours.

ADVISOR_VLLM_PYTHON names the Python of that environment, ADVISOR_TEST_MODELS a folder where models are made once.
"""

import json
import os
import subprocess
import sys

import pytest

from vllm_advisor.probe import host
from vllm_advisor.vllm import archs


START = """
from vllm_tuner.cli.app import LATER, main
LATER["compare"] = ("vllm_tuner.compare_cli", "Measure formats.")
main()
"""
KERNEL = "CPUFp8Block" if host.cpu_gpu().arch in archs.CPU_AMX else "FP8"  # rule QNT-33
LOAD = ("--input-tokens", "16", "--output-tokens", "4", "--concurrency", "2", "--context", "1024")


@pytest.mark.vllm
@pytest.mark.timeout(1500)  # two starts on a shared machine
def test_the_engine_and_the_estimates_agree(vllm_python, made_model, tmp_path):
    """BF16, FP8, and MXFP4, which no processor takes: the KV cache to the token, and the kernel that the log names."""
    where = ["--vllm-python", vllm_python, "--store", tmp_path / "s.db", "--folder", tmp_path / "runs"]
    what = ["--gpu", "cpu", "--quantizations", "bf16,fp8,mxfp4", "--enforce-eager", "--budget", "40m", "--json"]
    argv = [sys.executable, "-c", START, "compare", made_model("smollm2"), "--offline", *what, *LOAD, *where]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as program:
        try:
            out, err = program.communicate()
        finally:
            program.terminate()  # at this test's own limit: a killed tuner would leave its server

    assert 0 == program.returncode, err[-3000:]
    plain, eight, none = json.loads(out)["columns"]
    assert ("complete", "complete", None) == (plain["state"], eight["state"], none["state"])
    assert "QNT-09" in none["reason"]
    for column in (plain, eight):
        figures = {figure["name"]: figure for figure in column["figures"]}
        assert 1.0 == figures["KV cache size"]["estimated_over_measured"]
        assert figures["full requests"]["estimated_over_measured"] == pytest.approx(1.0, abs=0.01)
        assert figures["output"]["measured"] > 0
    assert any(KERNEL in name for _, name in eight["kernels"])
    assert eight["estimate"]["memory"]["weights_bytes"] < 0.7 * plain["estimate"]["memory"]["weights_bytes"]
