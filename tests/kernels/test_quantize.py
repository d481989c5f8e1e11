"""Quantizing: twins and Triton bodies against the exact rules, at every input that is hard, and what they refuse."""

import math

import pytest

from vllm_mx_kernels.formats import BLOCK, E2M1, E4M3FN, FP8_FORMATS, values


torch = pytest.importorskip("torch", reason="ops are functions of torch tensors")

from vllm_mx_kernels.fp8 import GRANULARITIES, dequantize_fp8_torch, quantize_fp8, quantize_fp8_torch  # noqa: E402
from vllm_mx_kernels.mxfp4 import (  # noqa: E402
    Mxfp4,
    dequantize_mxfp4,
    dequantize_mxfp4_torch,
    quantize_mxfp4,
    quantize_mxfp4_torch,
    round_to_e2m1,
)
from vllm_mx_kernels.mxfp8 import dequantize_mxfp8_torch, quantize_mxfp8, quantize_mxfp8_torch  # noqa: E402
from vllm_mx_kernels.packing import pack_nibbles, unpack_nibbles  # noqa: E402
from vllm_mx_kernels.scales import SCALE_MODES, block_amax, shared_scales  # noqa: E402
from vllm_mx_kernels.testing import difficult  # noqa: E402


NAMES = ("random", "bf16", "wide", "ties", "amax edges", "subnormal", "huge", "zeros", "NaN and Inf")


def codes_of(quantized):
    """The element codes of MXFP4 or MXFP8, as nested lists."""
    if isinstance(quantized, Mxfp4):
        return unpack_nibbles(quantized.codes).tolist()
    return quantized.elements.view(torch.uint8).tolist()


@pytest.mark.parametrize("mode", SCALE_MODES)
@pytest.mark.parametrize("name", NAMES)
def test_mxfp4_twin_follows_the_exact_rules(name, mode, oracle, hard_blocks):
    """Scale and element codes of every hard block, bit for bit, in all four modes."""
    ours = quantize_mxfp4_torch(hard_blocks[name], mode)

    assert oracle(E2M1).quantize(hard_blocks[name], mode) == (ours.scales.tolist(), codes_of(ours))


@pytest.mark.parametrize("mode", SCALE_MODES)
@pytest.mark.parametrize("fmt", FP8_FORMATS, ids=lambda f: f.name)
def test_mxfp8_twin_follows_the_exact_rules(fmt, mode, oracle, hard_blocks):
    """The same for the three FP8 formats; −0 has no code in fnuz and is 0 there."""
    for name, x in hard_blocks.items():
        ours = quantize_mxfp8_torch(x, mode, fmt)
        scales, codes = oracle(fmt).quantize(x, mode)
        if fmt.specials == "fnuz":
            codes = [[0 if code == 0x80 else code for code in row] for row in codes]
        assert (scales, codes) == (ours.scales.tolist(), codes_of(ours)), name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", SCALE_MODES)
def test_mxfp4_body_is_the_twin(name, mode, hard_blocks, device):
    """The Triton body gives the twin's bytes, bit for bit, at every hard block."""
    x = hard_blocks[name]
    body, twin = quantize_mxfp4(x.to(device), mode), quantize_mxfp4_torch(x, mode)

    assert twin.scales.tolist() == body.scales.tolist()
    assert codes_of(twin) == codes_of(Mxfp4(*(part.cpu() for part in body)))


@pytest.mark.parametrize("fmt", FP8_FORMATS, ids=lambda f: f.name)
def test_mxfp8_body_is_the_twin(fmt, hard_blocks, device):
    """All hard blocks at once, in each FP8 format and two modes."""
    x = torch.cat(list(hard_blocks.values()))
    for mode in ("floor", "rceil"):
        body, twin = quantize_mxfp8(x.to(device), mode, fmt), quantize_mxfp8_torch(x, mode, fmt)
        assert torch.equal(twin.scales, body.scales.cpu())
        assert torch.equal(twin.elements.view(torch.uint8), body.elements.cpu().view(torch.uint8))


@pytest.mark.parametrize("shape", [(1, 32), (3, 96), (17, 160), (2, 3, 64)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_shapes_and_dtypes(shape, dtype, device):
    """Small and odd shapes, and views whose rows have gaps full of NaN."""
    rows, k = math.prod(shape[:-1]), shape[-1]
    wide = torch.full((rows, k + 32), math.nan, dtype=dtype)
    wide[:, :k] = difficult(rows, k, dtype=torch.float32).clamp(-6e4, 6e4).to(dtype)
    x = wide[:, :k] if len(shape) == 2 else wide[:, :k].unflatten(0, shape[:-1])
    body, twin = quantize_mxfp4(x.to(device)), quantize_mxfp4_torch(x)

    assert (*shape[:-1], k // 2) == tuple(body.codes.shape)
    assert torch.equal(twin.codes, body.codes.cpu())
    assert torch.equal(twin.scales, body.scales.cpu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_all_scales_times_all_codes_dequantize_exactly(dtype, device):
    """256 scales × 16 codes: the body equals the twin, and the twin equals the product of the two tables."""
    codes = pack_nibbles(torch.arange(16, dtype=torch.uint8).repeat(256, 2))
    weight = Mxfp4(codes, torch.arange(256).to(torch.uint8).unsqueeze(1))
    exact = torch.tensor([math.ldexp(1, s - 127) if s < 255 else math.nan for s in range(256)], dtype=torch.float64)
    product = (torch.tensor(values(E2M1), dtype=torch.float64).repeat(2) * exact.unsqueeze(1)).to(dtype)
    body = dequantize_mxfp4(Mxfp4(*(part.to(device) for part in weight)), dtype).cpu()

    torch.testing.assert_close(dequantize_mxfp4_torch(weight, dtype), product, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(body, product, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("fmt", FP8_FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_fp8_body_is_the_twin(granularity, fmt, device):
    """Every granularity on a matrix that ends inside a block, bit for bit."""
    x = difficult(130 if granularity == "block" else 5, 200, seed=3)
    x[4, 7] = 2.0**-149
    body, twin = quantize_fp8(x.to(device), granularity, fmt), quantize_fp8_torch(x, granularity, fmt)

    assert torch.equal(twin.scales, body.scales.cpu())
    assert torch.equal(twin.elements.view(torch.uint8), body.elements.cpu().view(torch.uint8))


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_fp8_of_a_spoiled_group_is_nan(granularity, device):
    """A NaN or an Inf makes its group NaN, and no other group."""
    x = torch.ones(3, 256)
    x[1, 200] = math.inf
    spoiled = {"tensor": slice(None), "channel": [1], "token": [1], "group": [1], "block": slice(None)}[granularity]
    columns = slice(128, 256) if granularity in ("group", "block") else slice(None)
    expected = torch.zeros(3, 256, dtype=torch.bool)
    expected[spoiled, columns] = True
    for quantize in (quantize_fp8, quantize_fp8_torch):
        found = dequantize_fp8_torch(type(q := quantize(x.to(device), granularity))(*(p.cpu() for p in q)))
        assert torch.equal(expected, found.isnan())


def test_fp8_of_the_least_subnormal_divides_by_no_zero(device):
    """Amax / 448 of the least float32 is 0: the scale is 1 then, and zeros stay zeros."""
    x = torch.zeros(1, 128)
    x[0, 3] = 2.0**-149
    q = quantize_fp8(x.to(device), "token")

    assert [[1.0]] == q.scales.tolist()
    assert not q.elements.float().isnan().any()


@pytest.mark.parametrize("quantize", [quantize_mxfp4, quantize_mxfp4_torch], ids=lambda f: f.__name__)
def test_spoiled_blocks_come_back_as_nan(quantize, device):
    """Peers lose a NaN or an Inf; here its block has scale 0xFF and dequantizes to NaN, and its neighbours do not."""
    x = torch.ones(1, 96)
    x[0, 40] = math.inf
    weight = Mxfp4(*(part.cpu() for part in quantize(x.to(device))))

    assert [[125, 0xFF, 125]] == weight.scales.tolist()
    assert [False] * 32 + [True] * 32 + [False] * 32 == dequantize_mxfp4_torch(weight)[0].isnan().tolist()


def test_mxfp8_dequantizes_what_it_holds():
    """Element × 2^(scale − 127), and NaN under 0xFF."""
    x = difficult(4, 64, seed=8)
    x[1, 3] = math.nan
    back = dequantize_mxfp8_torch(quantize_mxfp8_torch(x, "rceil"))

    assert [True] * 32 == back[1, :32].isnan().tolist()
    assert ((back - x).abs()[2:] <= x.abs()[2:] * 2**-4 + block_amax(x)[2:].repeat_interleave(32, 1) * 2**-17).all()


def test_ties_go_to_the_even_code():
    """Each midpoint of E2M1 goes to the neighbour whose code is even, beyond 6 saturates, NaN gives 0."""
    numbers = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0, math.inf, -5.0, -0.0, math.nan])

    assert [0, 2, 2, 4, 4, 6, 6, 7, 7, 14, 8, 0] == round_to_e2m1(numbers).tolist()


def test_the_four_modes_by_hand():
    """Amax of 7: floor and even… each mode's exponent, as the definitions give it."""
    amax = torch.tensor([6.0, 6.5, 7.0, 7.5, 8.0, 4.0, 0.0])

    assert [127, 127, 127, 127, 128, 127, 0] == shared_scales(amax, E2M1, "floor").tolist()
    assert [128, 128, 128, 128, 128, 127, 0] == shared_scales(amax, E2M1, "ceil").tolist()
    assert [127, 127, 128, 128, 128, 127, 0] == shared_scales(amax, E2M1, "even").tolist()
    assert [127, 128, 128, 128, 128, 127, 0] == shared_scales(amax, E2M1, "rceil").tolist()


def test_nibbles():
    """The first of two codes is the low nibble, and unpacking undoes packing for every byte."""
    every = torch.arange(256, dtype=torch.uint8)

    assert [0x21, 0x43] == pack_nibbles(torch.tensor([1, 2, 3, 4], dtype=torch.uint8)).tolist()
    assert torch.equal(every, pack_nibbles(unpack_nibbles(every)))


def test_an_empty_tensor_is_quantized_to_an_empty_one(device):
    """No rows, no launch."""
    weight = quantize_mxfp4(torch.empty(0, 64, device=device))

    assert ((0, 32), (0, 2)) == (tuple(weight.codes.shape), tuple(weight.scales.shape))


@pytest.mark.parametrize(
    ("attempt", "says"),
    [
        (lambda d: quantize_mxfp4(torch.ones(2, 33, device=d)), "33, is no multiple"),
        (lambda d: quantize_mxfp4_torch(torch.ones(2, 33, device=d)), "33, is no multiple"),
        (lambda d: quantize_mxfp4(torch.ones(2, 32, device=d), "round"), "no scale mode 'round'"),
        (lambda d: quantize_mxfp4_torch(torch.ones(2, 32, device=d), "round"), "no scale mode 'round'"),
        (lambda d: quantize_mxfp8_torch(torch.ones(2, 32, device=d), "floor", E2M1), "e2m1 is no FP8"),
        (lambda d: quantize_fp8(torch.ones(2, 32, device=d), "row"), "no granularity 'row'"),
        (lambda d: quantize_fp8(torch.ones(2, device=d), "token"), "matrix is expected, not 1"),
        (lambda d: quantize_fp8(torch.ones(2, 32, device=d), "token", E2M1), "e2m1 is no FP8"),
        (lambda _: pack_nibbles(torch.ones(3, dtype=torch.uint8)), "3 codes do not fill"),
    ],
)
def test_refusals(attempt, says, device):
    """What does not fit is refused with its numbers, in one line."""
    with pytest.raises(ValueError, match=says) as refused:
        attempt(device)

    assert "\n" not in str(refused.value)


def test_block_size_is_ocp():
    """32 elements share a scale, and E4M3FN is the default of MXFP8."""
    assert (32, E4M3FN) == (BLOCK, quantize_mxfp8_torch.__defaults__[1])
