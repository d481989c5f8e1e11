"""Products: Triton bodies against their float64 twins on small odd shapes, with outputs and gaps poisoned."""

import math

import pytest


torch = pytest.importorskip("torch", reason="ops are functions of torch tensors")
pytest.importorskip("triton", reason="the interpreter is Triton's")

from vllm_mx_kernels.formats import E4M3FNUZ  # noqa: E402
from vllm_mx_kernels.fp8 import Fp8, matmul_fp8, matmul_fp8_torch, quantize_fp8_torch  # noqa: E402
from vllm_mx_kernels.launch import Launch  # noqa: E402
from vllm_mx_kernels.mxfp4 import (  # noqa: E402
    Mxfp4,
    dequantize_mxfp4_torch,
    fold_mxfp4,
    matmul_mxfp4,
    matmul_mxfp4_torch,
    quantize_mxfp4_torch,
)
from vllm_mx_kernels.testing import assert_close  # noqa: E402


# bf16 keeps 8 bits: an output is off by 2^−9 of itself at most, and the RMS below holds that against the matrix's own.
BOUNDS = {"largest": 0.03, "rms": 0.004}
SHAPES = [(1, 70, 32), (3, 130, 96), (17, 64, 160), (1, 33, 256)]


def made(m, n, k, seed=0):
    """(x bf16 [M, K], weight [N, K], bias [N]), every row of another size."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(m, k, generator=generator) * torch.exp2(torch.randint(-3, 4, (m, 1), generator=generator).float())
    w = torch.randn(n, k, generator=generator) * torch.exp2(torch.randint(-3, 4, (n, 1), generator=generator).float())
    return x.bfloat16(), w, torch.randn(n, generator=generator).bfloat16()


def gapped(x, fill):
    """The same tensor as a view whose rows have gaps, full of what must not be read."""
    wide = torch.full((*x.shape[:-1], x.shape[-1] + 16), fill, dtype=x.dtype)
    wide[..., : x.shape[-1]] = x
    return wide[..., : x.shape[-1]]


def on(device, parts):
    """The same named tuple on another device."""
    return type(parts)(*(p.to(device) if isinstance(p, torch.Tensor) else p for p in parts))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("activation", ["bf16", "fp8"])
@pytest.mark.usefixtures("poison")
def test_mxfp4_product_is_the_twin(shape, activation, device):
    """W4A16 and folded W4A8, with a bias, from views whose gaps would be seen."""
    x, w, bias = made(*shape)
    weight = quantize_mxfp4_torch(w)
    loose = on(device, Mxfp4(gapped(weight.codes, 0x77), gapped(weight.scales, 0xFF)))
    fold = fold_mxfp4(loose)
    y = matmul_mxfp4(gapped(x, math.nan).to(device), loose, bias.to(device), activation, fold=fold)

    assert_close(y.cpu(), matmul_mxfp4_torch(x, weight, bias, activation), **BOUNDS)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("activation", ["mxfp4", "mxfp8"])
@pytest.mark.usefixtures("poison")
def test_block_scaled_product_is_the_twin(shape, activation, device):
    """W4A4 and W4A8 with block scales, by the launcher of sm100: the interpreter has no architecture."""
    if device == "cuda":
        pytest.skip("on a GPU, benchmarks/gpu_suite.py checks what the device has")
    from vllm_mx_kernels import _mxfp4_launch

    x, w, bias = made(*shape, seed=1)
    weight, launch = quantize_mxfp4_torch(w), Launch(16, 64, 64)
    y = _mxfp4_launch.matmul(x, weight, bias, activation, None, launch, "sm100")

    assert_close(y, matmul_mxfp4_torch(x, weight, bias, activation), **BOUNDS)


@pytest.mark.parametrize(
    "granularities",
    [("tensor", "tensor"), ("token", "channel"), ("tensor", "channel"), ("group", "block")],
    ids="-".join,
)
@pytest.mark.parametrize("shape", [(1, 70, 32), (3, 130, 200), (17, 64, 160)], ids=str)
@pytest.mark.usefixtures("poison")
def test_fp8_product_is_the_twin(shape, granularities, device):
    """All granularities that go together, on matrices that end inside a tile and inside a block of scales."""
    x, w, bias = made(*shape, seed=2)
    a, b = quantize_fp8_torch(x, granularities[0]), quantize_fp8_torch(w, granularities[1])
    y = matmul_fp8(on(device, a), on(device, b), bias.to(device))

    assert_close(y.cpu(), matmul_fp8_torch(a, b, bias), **BOUNDS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.usefixtures("poison")
def test_output_has_the_dtype_of_x(dtype, device):
    """float32 and float16 in, the same out; the product itself is of bf16."""
    x, w, _ = made(3, 33, 64)
    y = matmul_mxfp4(x.to(dtype).to(device), on(device, weight := quantize_mxfp4_torch(w)))

    assert dtype == y.dtype
    assert_close(y.cpu(), matmul_mxfp4_torch(x.to(dtype), weight), **BOUNDS)


def test_all_scales_times_all_codes_multiply_exactly(device):
    """The identity times 253 scales × 16 codes gives the weight back to the last bit, subnormal scale 0x00 included."""
    codes = torch.arange(16, dtype=torch.uint8).repeat(253, 2)
    weight = Mxfp4(codes[:, ::2] | (codes[:, 1::2] << 4), torch.arange(253).to(torch.uint8).unsqueeze(1))
    y = matmul_mxfp4(torch.eye(32, device=device), on(device, weight))

    assert torch.equal(dequantize_mxfp4_torch(weight).T, y.cpu())


@pytest.mark.usefixtures("poison")
def test_a_nan_block_reaches_its_own_outputs_only(device):
    """A weight block with scale 0xFF makes its row of outputs NaN and leaves the others alone."""
    x, w, _ = made(2, 40, 64)
    w[7, 3] = math.inf
    y = matmul_mxfp4(x.to(device), on(device, quantize_mxfp4_torch(w)))

    assert [7] == y[0].isnan().nonzero().flatten().tolist()


def test_transposed_weights_are_read_right(device):
    """A view that has no dense rows is copied, not misread."""
    x, w, bias = made(3, 40, 64)
    weight = quantize_mxfp4_torch(w)
    turned = Mxfp4(*(part.T.contiguous().T.to(device) for part in weight))
    y = matmul_mxfp4(x.to(device), turned, bias.repeat_interleave(2)[::2].to(device))

    assert_close(y.cpu(), matmul_mxfp4_torch(x, weight, bias), **BOUNDS)


def test_rows_beyond_int32_are_reached(device):
    """A weight whose last rows lie beyond 2^31 bytes: offsets are 64 bits wide where they have to be."""
    x, w, _ = made(1, 160, 64)
    weight = quantize_mxfp4_torch(w)
    far = torch.empty(160 * (1 << 24), dtype=torch.uint8, device=device).as_strided((160, 32), (1 << 24, 1))
    far[:] = weight.codes.to(device)
    y = matmul_mxfp4(x.to(device), Mxfp4(far, weight.scales.to(device)))

    assert_close(y.cpu(), matmul_mxfp4_torch(x, weight), **BOUNDS)


@pytest.mark.parametrize("m", [0, 1])
def test_no_tokens_no_launch(m, device):
    """An empty batch gives an empty output of the right shape."""
    x, w, _ = made(1, 40, 64)

    assert (m, 40) == tuple(matmul_mxfp4(x[:m].to(device), on(device, quantize_mxfp4_torch(w))).shape)
    a, b = quantize_fp8_torch(x, "token"), quantize_fp8_torch(w, "channel")
    assert (m, 40) == tuple(matmul_fp8(on(device, Fp8(*(p[:m] for p in a))), on(device, b)).shape)


@pytest.mark.parametrize("group", [1, 3, 8])
def test_every_order_of_tiles_covers_all(group, device):
    """Tiles are grouped for the cache; whatever the group, each is computed once."""
    x, w, _ = made(70, 70, 32)
    launch = Launch(16, 16, 32, 4, 2, group)
    y = matmul_mxfp4(x.to(device), on(device, weight := quantize_mxfp4_torch(w)), launch=launch)

    assert_close(y.cpu(), matmul_mxfp4_torch(x, weight), **BOUNDS)


def test_a_fold_of_small_scales_is_scaled_back_exactly(device):
    """Rows whose scales lie near 2^−127 fold too, and no power of two is flushed on the way back."""
    w = torch.full((16, 64), 2.0**-124)
    weight = quantize_mxfp4_torch(w)
    x = torch.full((1, 64), 2.0**100)
    y = matmul_mxfp4(x.to(device), on(device, weight), activation="fp8", fold=fold_mxfp4(on(device, weight)))

    assert [[64 * 2.0**-24] * 16] == y.tolist()


WEIGHT = quantize_mxfp4_torch(torch.ones(8, 64))
X = torch.ones(2, 64)


@pytest.mark.parametrize(
    ("attempt", "says"),
    [
        (lambda: matmul_mxfp4(torch.ones(2, 32), WEIGHT), "does not multiply a weight of 8 rows of 64"),
        (lambda: matmul_mxfp4(X, Mxfp4(WEIGHT.codes, WEIGHT.scales[:, :1])), "are not one for each 32"),
        (lambda: matmul_mxfp4(X[:, :48], Mxfp4(WEIGHT.codes[:, :24], WEIGHT.scales[:, :1])), "are not one for each 32"),
        (lambda: matmul_mxfp4(X, WEIGHT, torch.ones(7)), "bias of .7,. for 8 rows"),
        (lambda: matmul_mxfp4(X, WEIGHT, activation="int8"), "no activation 'int8'"),
        (lambda: matmul_mxfp4(X, WEIGHT, activation="fp8"), "do not fold into FP8 without loss .rows that do: unknown"),
        (lambda: matmul_mxfp4(X, WEIGHT, activation="mxfp4"), "sm90 has no matrix unit for mxfp4"),
        (
            lambda: matmul_mxfp4(X, WEIGHT, activation="fp8", fold=fold_mxfp4(WEIGHT, E4M3FNUZ)),
            "folded for e4m3fnuz, but sm90 multiplies e4m3fn",
        ),
        (lambda: matmul_fp8(_fp8("token"), _fp8("channel", 32)), "does not multiply"),
        (lambda: matmul_fp8(_fp8("token", 256), _fp8("block", 256)), "do not go together"),
        (lambda: matmul_fp8(_fp8("token"), _fp8("channel"), torch.ones(3)), "bias of .3,. for 4 rows"),
        (lambda: matmul_fp8(_fp8("group", 256), _fp8("block", 256), launch=Launch(16, 16, 64)), "block_k of as much"),
    ],
)
def test_refusals(attempt, says, device):
    """What does not fit is refused with its numbers, in one line."""
    if device == "cuda" and ("sm90" in says or "fold" in says or "block_k" in says):
        pytest.skip("says what the interpreter's architecture, sm90, lacks")
    with pytest.raises(ValueError, match=says) as refused:
        attempt()

    assert "\n" not in str(refused.value)


def _fp8(granularity, k=64):
    return quantize_fp8_torch(torch.ones(4, k), granularity)
