"""Number formats: every code there is, against fractions, against torch, and against the definitions' own numbers."""

import math
import subprocess
import sys
from fractions import Fraction

import pytest

from vllm_mx_kernels.formats import E2M1, E4M3FN, E4M3FNUZ, E5M2, E8M0_NAN, FP8_FORMATS, decode, decode_e8m0, values


@pytest.mark.parametrize(
    ("fmt", "largest", "emax", "top"),
    [(E2M1, 6.0, 2, 1.5), (E4M3FN, 448.0, 8, 1.75), (E4M3FNUZ, 240.0, 7, 1.875), (E5M2, 57344.0, 15, 1.75)],
    ids=lambda v: getattr(v, "name", None),
)
def test_limits(fmt, largest, emax, top):
    """Largest values and their exponents are those of the definitions."""
    assert (largest, emax, top) == (fmt.max, fmt.emax, fmt.top_significand)


def test_every_e2m1_code():
    """The sixteen codes of E2M1 are the sixteen numbers of the OCP table, −0 included."""
    positive = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]

    assert [*positive, *(-v for v in positive)] == list(values(E2M1))
    assert math.copysign(1, decode(E2M1, 8)) == -1.0


@pytest.mark.parametrize("fmt", [E2M1, *FP8_FORMATS], ids=lambda f: f.name)
def test_every_finite_code_is_the_fraction_that_its_bits_say(fmt):
    """(−1)^s × 1.m × 2^(e − bias), or 0.m × 2^(1 − bias), in exact fractions."""
    for code, value in enumerate(values(fmt)):
        if math.isfinite(value):
            fraction = Fraction(code % (1 << fmt.mantissa), 1 << fmt.mantissa)
            exponent = (code >> fmt.mantissa) % (1 << fmt.exponent)
            size = (fraction + (exponent > 0)) * Fraction(2) ** (max(exponent, 1) - fmt.bias)
            assert Fraction(value) == (-size if code >= fmt.codes // 2 else size), hex(code)


@pytest.mark.parametrize(
    ("fmt", "nan", "infinite"),
    [
        (E4M3FN, {0x7F, 0xFF}, set()),
        (E4M3FNUZ, {0x80}, set()),
        (E5M2, {*range(0x7D, 0x80), *range(0xFD, 256)}, {0x7C, 0xFC}),
    ],
    ids=lambda v: getattr(v, "name", None),
)  # fmt: skip
def test_codes_that_are_no_numbers(fmt, nan, infinite):
    """NaN and Inf have the codes that each format gives them, and no others."""
    every = values(fmt)

    assert nan == {c for c, v in enumerate(every) if math.isnan(v)}
    assert infinite == {c for c, v in enumerate(every) if math.isinf(v)}


@pytest.mark.parametrize("fmt", FP8_FORMATS, ids=lambda f: f.name)
def test_every_fp8_code_is_what_torch_decodes(fmt):
    """All 256 codes, the sign of zero and the NaN included."""
    torch = pytest.importorskip("torch", reason="torch holds FP8 types")
    from vllm_mx_kernels.fp8 import TORCH_DTYPES

    decoded = torch.arange(256, dtype=torch.uint8).view(TORCH_DTYPES[fmt]).double()
    ours = torch.tensor(values(fmt), dtype=torch.float64)

    assert torch.equal(ours.nan_to_num(nan=1e9), decoded.nan_to_num(nan=1e9))
    assert torch.equal(ours.signbit()[~ours.isnan()], decoded.signbit()[~decoded.isnan()])


def test_every_e8m0_code():
    """2^(code − 127) for 0…254, NaN for 255, and the same from tensors in float32 and float64."""
    torch = pytest.importorskip("torch", reason="scales are torch tensors")
    from vllm_mx_kernels.scales import scale_values

    exact = [Fraction(2) ** (code - 127) for code in range(255)]
    tensor = torch.arange(256).to(torch.uint8)

    assert exact == [Fraction(decode_e8m0(code)) for code in range(255)]
    assert math.isnan(decode_e8m0(E8M0_NAN))
    for dtype in (torch.float32, torch.float64):
        decoded = scale_values(tensor, dtype).tolist()
        assert exact == [Fraction(v) for v in decoded[:255]]
        assert math.isnan(decoded[255])


@pytest.mark.parametrize("fmt", FP8_FORMATS, ids=lambda f: f.name)
def test_torch_rounds_to_fp8_as_the_oracle_does(fmt, oracle):
    """Every value and every midpoint between two neighbours: what the twins lean on when they cast."""
    torch = pytest.importorskip("torch", reason="torch holds FP8 types")
    from vllm_mx_kernels.fp8 import TORCH_DTYPES

    rules = oracle(fmt)
    middles = [(a + b) / 2 for a, b in zip(rules.table, rules.table[1:], strict=False)]
    numbers = [*rules.table, *middles]
    cast = torch.tensor([float(n) for n in numbers]).to(TORCH_DTYPES[fmt]).view(torch.uint8).tolist()

    assert [rules.round(n) for n in numbers] == cast


def test_formats_load_no_library():
    """The package itself and its format tables import neither torch nor triton."""
    code = (
        "import sys, vllm_mx_kernels, vllm_mx_kernels.formats, vllm_mx_kernels.targets, vllm_mx_kernels.launch\n"
        "print({m.split('.')[0] for m in sys.modules} & {'torch', 'triton', 'numpy'})"
    )
    path = str(__import__("pathlib").Path(sys.modules["vllm_mx_kernels"].__file__).parents[1])
    said = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )

    assert "set()" == said.stdout.strip()


def test_ops_load_no_triton():
    """Every public op imports where Triton is not installed; only a GPU or the interpreter needs it."""
    pytest.importorskip("torch", reason="ops are functions of torch tensors")
    names = "mxfp4 mxfp8 fp8 moe kv_cache layouts packing scales device testing"
    code = (
        "import sys; sys.modules['triton'] = None\n"
        f"for name in {names!r}.split(): __import__('vllm_mx_kernels.' + name)\n"
        "print('loaded')"
    )
    path = str(__import__("pathlib").Path(sys.modules["vllm_mx_kernels"].__file__).parents[1])
    said = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )

    assert "loaded" == said.stdout.strip()
