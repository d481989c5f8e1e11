"""The C++ path on every instruction set: quantize and dequantize equal the twins bit for bit, products stay close."""

import platform

import pytest


torch = pytest.importorskip("torch", reason="ops are functions of torch tensors")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from vllm_mx_kernels import cpu  # noqa: E402
from vllm_mx_kernels.mxfp4 import (  # noqa: E402
    Mxfp4,
    dequantize_mxfp4,
    dequantize_mxfp4_torch,
    matmul_mxfp4,
    matmul_mxfp4_torch,
    quantize_mxfp4,
    quantize_mxfp4_torch,
)
from vllm_mx_kernels.scales import SCALE_MODES  # noqa: E402
from vllm_mx_kernels.testing import assert_close, difficult, poisoned  # noqa: E402


ISAS = ("neon",) if platform.machine() == "aarch64" else ("plain", "avx2", "avx512")
BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}


@pytest.fixture(autouse=True)
def _built(request, monkeypatch):
    """The library is built once and stays in pytest's cache: HOME is another folder in each test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(request.config.cache.mkdir("vllm-mx-kernels")))
    if not cpu.available():
        pytest.skip("no C++ compiler that torch can use")


@pytest.fixture(params=ISAS)
def isa(request, monkeypatch):
    if request.param not in cpu.instruction_sets():
        pytest.skip(f"this processor has no {request.param}")
    monkeypatch.setenv("ADVISOR_MX_ISA", request.param)
    return request.param


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def assert_quantized_as_the_twin_does(x, mode):
    expected, (codes, scales) = quantize_mxfp4_torch(x, mode), cpu.quantize(x, mode)

    assert torch.equal(expected.scales, scales)
    assert torch.equal(expected.codes, codes)


def assert_same_bits(expected, actual):
    """Equal bit for bit, but for which NaN it is: torch's own casts give several."""
    assert expected.dtype == actual.dtype
    assert torch.equal(expected.isnan(), actual.isnan())
    numbers = ~expected.isnan()
    assert torch.equal(expected.view(BITS[expected.dtype])[numbers], actual.view(BITS[actual.dtype])[numbers])


@pytest.mark.parametrize("mode", SCALE_MODES)
@pytest.mark.parametrize("dtype", cpu.INPUTS)
@pytest.mark.usefixtures("isa")
def test_difficult_values_quantize_as_in_the_twin(dtype, mode):
    """Outliers, ties, zero rows, −0 and a wide range."""
    assert_quantized_as_the_twin_does(difficult(37, 1056, dtype=dtype), mode)


@pytest.mark.parametrize("mode", SCALE_MODES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.usefixtures("isa")
def test_every_sixteen_bit_number_quantizes_as_in_the_twin(dtype, mode):
    """All 65536 patterns: subnormals, Inf and NaN included, in order (blocks of one magnitude) and mixed."""
    every = torch.arange(-(2**15), 2**15).short()
    mixed = every[torch.randperm(2**16, generator=torch.Generator().manual_seed(0))]

    for patterns in (every, mixed):
        assert_quantized_as_the_twin_does(patterns.view(dtype).reshape(-1, 64), mode)


EDGES = st.sampled_from(
    [0x00000000, 0x80000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x3E800000, 0x3F400000, 0x3FA00000, 0x3FE00000,
     0x40200000, 0x40600000, 0x40A00000, 0x40C00000, 0x40E00000, 0x40FFFFFF, 0x7F7FFFFF, 0x7F800000, 0xFF800000,
     0x7FC00000, 0xFFFFFFFF]
)  # fmt: skip
PATTERNS = st.one_of(st.integers(0, 2**32 - 1), EDGES, st.integers(0x3E000000, 0x41800000))


@settings(deadline=None, max_examples=200)
@given(
    blocks=st.lists(st.lists(PATTERNS, min_size=32, max_size=32), min_size=1, max_size=4),
    mode=st.sampled_from(SCALE_MODES),
)
def test_any_float32_blocks_quantize_as_in_the_twin(blocks, mode):
    """Blocks of any bit patterns, with those where rounding, scales and classes change thrown in."""
    x = torch.tensor(blocks, dtype=torch.int64).to(torch.int32).view(torch.float32)
    with pytest.MonkeyPatch.context() as patch:
        for name in cpu.instruction_sets():
            patch.setenv("ADVISOR_MX_ISA", name)
            assert_quantized_as_the_twin_does(x, mode)


@pytest.mark.parametrize("dtype", cpu.OUTPUTS)
@pytest.mark.usefixtures("isa")
def test_every_code_at_every_scale_dequantizes_as_in_the_twin(dtype):
    """All 256 pairs of codes at all 256 scales, subnormal and overflowing results and NaN included."""
    codes = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16).expand(256, 16, 16)
    scales = torch.arange(256, dtype=torch.uint8).reshape(256, 1, 1).expand(256, 16, 1)

    assert_same_bits(dequantize_mxfp4_torch(Mxfp4(codes, scales), dtype), cpu.dequantize(codes, scales, dtype))


@pytest.mark.parametrize("dtype", cpu.OUTPUTS)
@pytest.mark.usefixtures("isa")
def test_nothing_beside_the_result_is_written(dtype):
    """Rows before and after the result keep their poison, and no poison stays inside it."""
    weight = quantize_mxfp4_torch(difficult(7, 96))
    around = poisoned((9, 96), dtype)
    cpu.dequantize_into(*weight, around[1:8])

    assert_same_bits(dequantize_mxfp4_torch(weight, dtype), around[1:8])
    assert around[0].isnan().all()
    assert around[8].isnan().all()


@pytest.mark.parametrize("dtype", cpu.OUTPUTS)
@pytest.mark.parametrize("offset", [0, 1, 64])
@pytest.mark.usefixtures("isa", "threads")
def test_results_beyond_the_caches_are_the_same(dtype, offset):
    """More than 8 MiB pass the caches by where they are aligned to a vector; 1 and 64 elements off, too."""
    weight = quantize_mxfp4_torch(difficult(64, 65_536))
    around = poisoned((64 * 65_536 + 128,), dtype)
    inside = around[offset : offset + 64 * 65_536].view(64, 65_536)
    cpu.dequantize_into(*weight, inside)

    assert_same_bits(dequantize_mxfp4_torch(weight, dtype), inside)
    assert around[:offset].isnan().all()
    assert around[offset + 64 * 65_536 :].isnan().all()


# Every remainder of tiles of rows of x, of pairs of rows of the weight, of groups of 32, 64 and 128 elements of K.
SHAPES = [(m, 5, 160) for m in range(1, 19)]
SHAPES += [(m, n, k) for m in (1, 3) for n in (1, 2) for k in (32, 64, 96, 128, 1056)]


@pytest.mark.parametrize("dtype", cpu.INPUTS)
@pytest.mark.usefixtures("isa", "threads")
def test_products_are_close_to_the_twins(dtype):
    """Every remainder of every tile; float32 to a few of its last bits, the others to their rounding."""
    largest = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]
    made = torch.Generator().manual_seed(2)
    for m, n, k in SHAPES:
        x, weight = torch.randn(m, k, generator=made).to(dtype), quantize_mxfp4_torch(torch.randn(n, k, generator=made))
        bias = torch.randn(n, generator=made).to(dtype)
        expected = x.double() @ dequantize_mxfp4_torch(weight, torch.float64).T + bias.double()
        actual = cpu.linear(x, *weight, bias)

        assert dtype == actual.dtype
        assert_close(actual, expected, largest=largest, rms=largest)


@pytest.mark.usefixtures("isa", "threads")
def test_products_of_many_rows_go_by_tiles():
    """A weight of more than two tiles, the last one of them odd, with and without a bias."""
    made = torch.Generator().manual_seed(3)
    x, weight = torch.randn(17, 2048, generator=made), quantize_mxfp4_torch(torch.randn(1031, 2048, generator=made))
    bias = torch.randn(1031, generator=made)
    product = x.double() @ dequantize_mxfp4_torch(weight, torch.float64).T

    assert_close(cpu.linear(x, *weight), product, largest=2e-5, rms=4e-6)
    assert_close(cpu.linear(x, *weight, bias), product + bias.double(), largest=2e-5, rms=4e-6)


@pytest.mark.usefixtures("isa")
def test_products_of_nothing():
    """No rows of x, none of the weight, or an empty sum: the shape is right, and the sum is the bias."""
    for m, n, k in ((0, 5, 64), (0, 0, 64), (3, 0, 64), (40, 0, 64), (3, 5, 0), (40, 5, 0), (0, 5, 0)):
        codes, scales = cpu.quantize(torch.ones(n, k))
        bias = torch.arange(n).float()

        assert torch.equal(bias.expand(m, n), cpu.linear(torch.ones(m, k), codes, scales, bias))


@pytest.mark.parametrize("m", [1, 4, 17])
@pytest.mark.usefixtures("isa")
def test_a_nan_block_poisons_its_row_only(m):
    """Column 3 of the product is NaN, and no other."""
    weight = quantize_mxfp4_torch(difficult(9, 192))
    weight.scales[3, 1] = 0xFF

    assert [3] == cpu.linear(torch.ones(m, 192), *weight).isnan().all(0).nonzero().flatten().tolist()


@pytest.mark.usefixtures("isa")
def test_threads_change_nothing():
    """Whatever the number of threads, quantized and multiplied values have the same bits."""
    x = difficult(300, 1024)
    before, results = torch.get_num_threads(), []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        weight = cpu.quantize(x)
        results.append((*weight, cpu.dequantize(*weight), cpu.linear(x[:5], *weight)))
    torch.set_num_threads(before)

    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.usefixtures("isa")
def test_inputs_need_not_be_contiguous():
    """Transposed and strided inputs give what their copies give."""
    x = difficult(96, 64).T
    codes, scales = cpu.quantize(x)
    wide = torch.stack((codes, codes), -1).flatten(-2)[:, ::2]

    assert torch.equal(quantize_mxfp4_torch(x).codes, codes)
    assert torch.equal(cpu.dequantize(codes, scales), cpu.dequantize(wide, scales))
    assert torch.equal(cpu.linear(x[:3].contiguous(), codes, scales), cpu.linear(x[::1][:3], wide, scales))


def test_leading_dimensions_stay():
    """[2, 3, K] and [K] come back so."""
    codes, scales = cpu.quantize(difficult(6, 64).reshape(2, 3, 64))

    assert ((2, 3, 32), (2, 3, 2)) == (codes.shape, scales.shape)
    assert (2, 3, 64) == cpu.dequantize(codes, scales).shape
    assert (64,) == cpu.dequantize(codes[0, 0], scales[0, 0]).shape


CODES, SCALES, X = torch.zeros(4, 32, dtype=torch.uint8), torch.zeros(4, 2, dtype=torch.uint8), torch.zeros(3, 64)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: cpu.quantize(X.double()), "must be float32, bfloat16 or float16"),
        (lambda: cpu.quantize(X[:, :40]), "no multiple of the block of 32"),
        (lambda: cpu.quantize(torch.tensor(1.0)), "no multiple of the block of 32"),
        (lambda: cpu.quantize(X, "round"), "no scale mode 'round'"),
        (lambda: cpu.dequantize(CODES.int(), SCALES), "must be uint8"),
        (lambda: cpu.dequantize(CODES, SCALES.float()), "must be uint8"),
        (lambda: cpu.dequantize(CODES, SCALES[:, :1]), "not one for each 32"),
        (lambda: cpu.dequantize(CODES, SCALES[:3]), "not one for each 32"),
        (lambda: cpu.dequantize(CODES, SCALES, torch.float16), "must be float32 or bfloat16"),
        (lambda: cpu.dequantize(CODES, SCALES, torch.int32), "must be float32"),
        (lambda: cpu.dequantize_into(CODES, SCALES, torch.zeros(4, 63)), "twice as wide"),
        (lambda: cpu.dequantize_into(CODES, SCALES, torch.zeros(64, 4).T), "must be contiguous"),
        (lambda: cpu.linear(X.double(), CODES, SCALES), "must be float32, bfloat16 or float16"),
        (lambda: cpu.linear(X[:, :32], CODES, SCALES), "does not multiply"),
        (lambda: cpu.linear(X[0], CODES, SCALES), "does not multiply"),
        (lambda: cpu.linear(X, CODES, SCALES, torch.zeros(3)), "one for each row"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(call, says):
    """ValueError, one line, no trace of C++."""
    with pytest.raises(ValueError, match=says) as refused:
        call()
    assert 1 == len(str(refused.value).splitlines())


def test_an_instruction_set_that_is_not_there_is_refused(monkeypatch):
    """A forced name is never replaced in silence."""
    monkeypatch.setenv("ADVISOR_MX_ISA", "mmx")
    with pytest.raises(ValueError, match="ADVISOR_MX_ISA=mmx is not"):
        cpu.quantize(X)


@pytest.mark.parametrize("dtype", [*cpu.INPUTS, torch.float64])
@pytest.mark.parametrize("activation", ["bf16", "fp8", "mxfp4", "mxfp8"])
def test_public_ops_take_this_path(dtype, activation, monkeypatch):
    """quantize, dequantize and matmul on the CPU equal the twins whatever the dtype; float64 is left to the twin."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    x, weight = difficult(5, 128, dtype=dtype), quantize_mxfp4(difficult(9, 128, seed=1).to(dtype))
    twin, bias = quantize_mxfp4_torch(difficult(9, 128, seed=1).to(dtype)), torch.randn(9).to(dtype)
    expected = matmul_mxfp4_torch(x, weight, bias, activation)
    bound = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float64: 0.0}[dtype]

    assert torch.equal(twin.codes, weight.codes)
    assert torch.equal(twin.scales, weight.scales)
    for wanted in (torch.float32, torch.bfloat16, torch.float16):
        assert_same_bits(dequantize_mxfp4_torch(twin, wanted), dequantize_mxfp4(weight, wanted))
    assert_close(matmul_mxfp4(x, weight, bias, activation), expected, largest=10 * bound, rms=bound)


def test_torch_knows_shapes_and_effects():
    """Schemas, fake tensors and tracing agree with what runs."""
    weight = cpu.quantize(difficult(6, 64))
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    ops = torch.ops.vllm_mx

    torch.library.opcheck(ops.quantize_mxfp4.default, (difficult(6, 64), 1 << 23), test_utils=tests)
    torch.library.opcheck(ops.dequantize_mxfp4.default, (*weight, torch.bfloat16), test_utils=tests)
    torch.library.opcheck(ops.dequantize_mxfp4_into.default, (*weight, torch.empty(6, 64)), test_utils=tests)
    torch.library.opcheck(ops.linear_mxfp4.default, (difficult(3, 64), *weight, torch.ones(6)), test_utils=tests)


@pytest.mark.filterwarnings("default")
def test_compiled_code_calls_it(monkeypatch):
    """torch.compile without a graph break, for any number of rows."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    weight = quantize_mxfp4_torch(difficult(6, 64))
    compiled = torch.compile(lambda x: matmul_mxfp4(x, weight) + 1, fullgraph=True, backend="aot_eager", dynamic=True)

    for m in (1, 3, 20):
        x = difficult(m + 1, 64, dtype=torch.bfloat16)
        assert torch.equal(matmul_mxfp4(x, weight) + 1, compiled(x))
