"""How fast the C++ path is, by the benchmark that anyone can run: one thread, ratios of pairs in one run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


torch = pytest.importorskip("torch", reason="ops are functions of torch tensors")

from vllm_mx_kernels import cpu  # noqa: E402


ROOT = Path(__file__).parents[2]
WIDE = ("avx2", "avx512")


@pytest.mark.slow
@pytest.mark.parametrize("isa", WIDE)
def test_it_is_worth_a_compiler(isa, request, monkeypatch):
    """M = 1 at 1.4 × torch's bf16 linear, dequantizing at 50 × a look-up, quantizing 1 GB/s of bf16."""
    cache = str(request.config.cache.mkdir("vllm-mx-kernels"))
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    if not cpu.available() or isa not in cpu.instruction_sets():
        pytest.skip(f"no compiler, or this processor has no {isa}")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "kernels"), "ADVISOR_MX_ISA": isa}
    command = [sys.executable, str(ROOT / "benchmarks" / "cpu_kernels.py"), "--json"]
    rows = json.loads(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)

    assert 1.4 <= rows["linear M=1"]["ratio"]
    assert 50 <= rows["dequantize bfloat16"]["ratio"]
    assert 1.0 <= rows["quantize floor"]["gb_s"]
