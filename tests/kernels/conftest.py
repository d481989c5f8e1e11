"""Kernel tests run on a GPU where there is one, else in Triton's interpreter; and the exact rules of the formats."""

import bisect
import importlib.util
import math
import os
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest


HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# These choose their own path: C++ on the CPU, or vLLM's.
OWN_PATH = ("test_cpu", "test_plugin", "test_checkpoint")
BODIES = ("_fp8_triton", "_kv_triton", "_moe_triton", "_mxfp4_triton", "_quantize_triton")
HAS_GPU = Path("/dev/nvidiactl").exists() or Path("/dev/kfd").exists()
INTERPRETED = not HAS_GPU and importlib.util.find_spec("triton") is not None
if INTERPRETED:  # Triton's own functions, too, are interpreted only if the variable is set when they are first imported
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        importlib.import_module("triton.language")
IGNORED = (
    "ignore:overflow encountered:RuntimeWarning",  # numpy in the interpreter computes what masks throw away
    "ignore:invalid value encountered:RuntimeWarning",  # likewise, and the NaN that a test put there
    "ignore:divide by zero encountered:RuntimeWarning",
    "ignore:.*NumPy array is not writable:UserWarning",  # torch of a view of the interpreter's memory
)


def pytest_collection_modifyitems(items):
    """The interpreter's warnings about numbers are no faults here; every other warning still is one."""
    for item in items:
        if item.path.parent == HERE:
            for rule in IGNORED:
                item.add_marker(pytest.mark.filterwarnings(rule))


@pytest.fixture(autouse=True)
def _interpreted(request, monkeypatch):
    """Without a GPU, Triton bodies are imported as interpreted functions, and ops on the CPU take them."""
    if not INTERPRETED or request.path.name.startswith(OWN_PATH):
        return
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    from vllm_mx_kernels.testing import repair_interpreter

    repair_interpreter()
    for name in BODIES:
        importlib.import_module(f"vllm_mx_kernels.{name}")


@pytest.fixture(scope="session")
def search_path(tmp_path_factory):
    """PYTHONPATH with the plugin and what an installer would have written about it."""
    shim = tmp_path_factory.mktemp("shim")
    info = shim / "vllm_advisor-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-advisor\nVersion: 0.1.0\n")
    point = "[vllm.general_plugins]\nadvisor_mxfp4 = vllm_mx_kernels.vllm_plugin:register\n"
    (info / "entry_points.txt").write_text(point)
    return os.pathsep.join((str(ROOT / "kernels"), str(shim)))


@pytest.fixture
def device():
    """Where ops run: the GPU, or the CPU that stands in for it."""
    return "cuda" if HAS_GPU else "cpu"


@pytest.fixture
def poison(monkeypatch):
    """Memory that an op takes for its output is full of NaN, so that what is not written is seen."""
    import torch

    from vllm_mx_kernels.testing import poisoned

    def empty(*size, dtype=None, device=None):
        shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
        return poisoned(shape, dtype or torch.float32).to(device)

    monkeypatch.setattr(torch, "empty", empty)


class Oracle:
    """OCP MX v1.0 in exact integers and fractions, one number after the other: slow, and nothing to get wrong."""

    def __init__(self, fmt):
        from vllm_mx_kernels.formats import values

        half = values(fmt)[: fmt.codes // 2]
        self.fmt = fmt
        self.table = [Fraction(v) for v in half if math.isfinite(v)]  # the code is the place: magnitudes ascend

    def round(self, value):
        """The code nearest to a Fraction's magnitude, ties to the even code, saturating."""
        size = abs(value)
        if size >= self.table[-1]:
            return len(self.table) - 1
        high = bisect.bisect_right(self.table, size)
        low, above = size - self.table[high - 1], self.table[high] - size
        return high - 1 if low < above or (low == above and high % 2) else high

    def exponent(self, amax, mode):
        """The shared exponent, not yet limited to what E8M0 holds."""
        whole = floor_log2(amax)
        significand = amax / Fraction(2) ** whole
        rounded = round(significand * 2**self.fmt.mantissa)  # Python rounds fractions half to even
        up = {
            "floor": False,
            "ceil": significand > 1,
            "even": rounded == 2 ** (self.fmt.mantissa + 1),
            "rceil": amax > self.table[-1] * Fraction(2) ** (whole - self.fmt.emax),
        }
        return whole + up[mode] - self.fmt.emax

    def block(self, numbers, mode):
        """(scale code, element codes) of up to 32 floats."""
        top = self.fmt.codes // 2
        signs = [top if math.copysign(1, v) < 0 else 0 for v in numbers]
        if not all(map(math.isfinite, numbers)):
            return 0xFF, [0] * len(numbers)
        amax = max(abs(Fraction(v)) for v in numbers)
        if not amax:
            return 0, signs
        shared = min(max(self.exponent(amax, mode), -127), 127)
        scaled = [Fraction(v) / Fraction(2) ** shared for v in numbers]
        return shared + 127, [self.round(v) + sign for v, sign in zip(scaled, signs, strict=True)]

    def quantize(self, x, mode):
        """(scale codes, element codes) of a float tensor [rows, K], as nested lists."""
        scales, codes = [], []
        for row in x.double().tolist():
            blocks = [self.block(row[i : i + 32], mode) for i in range(0, len(row), 32)]
            scales.append([scale for scale, _ in blocks])
            codes.append([code for _, block in blocks for code in block])
        return scales, codes


def floor_log2(value):
    """The exponent of the largest power of two that is no larger than a positive Fraction."""
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess - (Fraction(2) ** guess > value)


@pytest.fixture
def oracle():
    """The exact rules of a format: `oracle(E2M1)`."""
    return Oracle


@pytest.fixture
def hard_blocks():
    """Blocks of 32 that quantizers get wrong, by what is hard about them: name → float32 [rows, 64]."""
    import torch

    return {name: make(torch) for name, make in HARD.items()}


def _random(torch, seed=0):
    return torch.randn(16, 64, generator=torch.Generator().manual_seed(seed))


def _wide(torch):
    powers = torch.randint(-60, 60, (16, 64), generator=torch.Generator().manual_seed(2))
    return _random(torch, 1) * torch.exp2(powers.float())


def _ties(torch):
    """Every midpoint of E2M1, below an amax of 6 and in different octaves."""
    values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    middles = [(a + b) / 2 for a, b in pairwise(values)]
    row = [6.0, *middles, *(-m for m in middles)]
    rows = torch.tensor([*row, *[0.0] * (32 - len(row)), *row, *[4.0] * (32 - len(row))])
    return rows * torch.exp2(torch.arange(-20, 20, 4).float()).unsqueeze(1)


def _edges(torch):
    """Amax around every place where a mode takes the next exponent, one step of float32 below, on and above."""
    tops = torch.tensor([1.0, 1.25, 1.5, 1.75, 1.875, 1.9375, 1.96875, 2.0])
    around = torch.stack((torch.nextafter(tops, tops * 0), tops, torch.nextafter(tops, tops * 2))).flatten()
    x = _random(torch, 3).repeat(2, 1)[: len(around)] * 0.2
    x[:, 0], x[:, 32] = around, -around * 2.0**-30
    return x


def _subnormal(torch):
    bits = torch.randint(0, 1 << 24, (16, 64), generator=torch.Generator().manual_seed(4), dtype=torch.int32)
    return (bits >> (torch.arange(16, dtype=torch.int32) * 3 // 2).unsqueeze(1)).view(torch.float32)


def _huge(torch):
    most = torch.finfo(torch.float32).max
    return torch.cat((_random(torch, 5).clamp(-3, 3) * (most / 4), torch.full((1, 64), -most)))


def _zeros(torch):
    x = torch.zeros(2, 64)
    x[0, ::2] = -0.0
    x[1, 40] = 2.0**-149
    return x


def _spoiled(torch):
    x = _random(torch, 6)[:4].clone()
    x[0, 3], x[1, 40], x[2, 0], x[3, 63] = math.nan, math.inf, -math.inf, -math.nan
    return x


HARD = {
    "random": _random,
    "bf16": lambda torch: _random(torch, 7).bfloat16().float(),
    "wide": _wide,
    "ties": _ties,
    "amax edges": _edges,
    "subnormal": _subnormal,
    "huge": _huge,
    "zeros": _zeros,
    "NaN and Inf": _spoiled,
}
