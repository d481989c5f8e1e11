"""The interpreter's repair: what it repairs, and whether a newer Triton still needs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


torch = pytest.importorskip("torch", reason="ops are functions of torch tensors")
pytest.importorskip("triton", reason="the interpreter is Triton's")

from vllm_mx_kernels.testing import assert_close, difficult, poisoned  # noqa: E402


HERE = Path(__file__).parent
PROBE = """
import sys
import torch, triton, triton.language as tl
if sys.argv[1] == "repaired":
    from vllm_mx_kernels.testing import repair_interpreter
    repair_interpreter()
    repair_interpreter()

@triton.jit
def dot(a, b, y):
    i, j = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    tl.store(y + i * 16 + j, tl.dot(tl.load(a + i * 16 + j), tl.load(b + i * 16 + j)))

@triton.jit
def cast(x, y):
    i = tl.arange(0, 256)
    tl.store(y + i, tl.load(x + i).to(y.dtype.element_ty))

a, b = (torch.randn(16, 16, generator=torch.Generator().manual_seed(s)).bfloat16() for s in (0, 1))
y = torch.empty(16, 16)
dot[(1,)](a, b, y)
print("dot", torch.allclose(y, a.float() @ b.float(), atol=1e-4))
x = torch.linspace(-500, 500, 256)
y = torch.empty(256, dtype=torch.float8_e4m3fn)
cast[(1,)](x, y)
print("cast", torch.equal(y.view(torch.uint8), x.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)))
"""


def probe(tmp_path, how):
    """Whether bf16 products and casts to FP8 are right: {"dot": bool, "cast": bool}."""
    script = tmp_path / "probe.py"
    script.write_text(PROBE)
    path = str(HERE.parents[1] / "kernels")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script, how],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return {name: said == "True" for name, said in (line.split() for line in done.stdout.splitlines())}


def test_repaired_interpreter_is_right(tmp_path):
    """With the repair, bf16 products are products and casts to FP8 round as torch does."""
    assert {"dot": True, "cast": True} == probe(tmp_path, "repaired")


def test_the_repair_is_still_needed(tmp_path):
    """Fails when Triton's own interpreter gets both right: then `repair_interpreter` can go."""
    assert {"dot": False, "cast": False} == probe(tmp_path, "as it is")


def test_closeness_sees_what_is_wrong():
    """A wrong element, a drifting RMS, a NaN on one side and another shape each fail, with figures."""
    good = torch.ones(100)
    off = good.clone()
    off[3] = 1.5
    assert_close(off, good, largest=0.6, rms=0.1)
    for actual, says in (
        (off, "largest error 5.00e-01"),
        (good * 1.05, "RMS error 5.00e-02"),
        (torch.where(good == off, good, torch.nan), "NaN"),
        (good[:3], "shapes"),
    ):
        with pytest.raises(AssertionError, match=says):
            assert_close(actual, good, largest=0.1, rms=0.01)


def test_makers():
    """Difficult rows hold zeros, −0 and built ties; poison is NaN, or 0xAA where there is none."""
    x = difficult(6, 40)

    assert [0.0] * 40 == x[0].tolist()
    assert [0.25, 0.75, 1.25, -1.75, 2.5, 3.5, 5.0, -0.0] == x[-1, :8].tolist()
    assert x[-1, 7].signbit()
    assert poisoned((2, 3), torch.bfloat16).isnan().all()
    assert poisoned((2, 3), torch.float8_e4m3fn).float().isnan().all()
    assert [0xAA] * 2 == poisoned((2,), torch.uint8).tolist()
