"""Other projects' quantizers: the same bits where both follow the rules, and by name each place where a peer does not.

Ours follow the exact oracle at every input (`test_quantize.py`); here the peer is shown to leave it.
"""

import math

import pytest

from vllm_mx_kernels.formats import E2M1


torch = pytest.importorskip("torch", reason="ops are functions of torch tensors")

from vllm_mx_kernels.mxfp4 import dequantize_mxfp4_torch, quantize_mxfp4_torch  # noqa: E402
from vllm_mx_kernels.mxfp8 import quantize_mxfp8_torch  # noqa: E402
from vllm_mx_kernels.packing import unpack_nibbles  # noqa: E402
from vllm_mx_kernels.scales import SCALE_MODES, block_amax  # noqa: E402


pytestmark = pytest.mark.filterwarnings("ignore")  # peers warn while they are imported, about themselves
FINITE = ("random", "bf16", "wide", "ties", "amax edges")


def peer(name, attribute):
    """A function or class of a peer that CI installs; the test is skipped where it is not."""
    module = pytest.importorskip(name, reason=f"{name.split('.')[0]} is compared with", exc_type=ImportError)
    return getattr(module, attribute)


def follows_the_oracle(oracle, x, mode):
    """Our codes and scales of x are the oracle's."""
    ours = quantize_mxfp4_torch(x, mode)
    return oracle(E2M1).quantize(x, mode) == (ours.scales.tolist(), unpack_nibbles(ours.codes).tolist())


def torchao(x, mode, element=None):
    """(scales uint8, elements uint8) as torchao makes them."""
    modes = peer("torchao.prototype.mx_formats.config", "ScaleCalculationMode")
    to_mx = peer("torchao.prototype.mx_formats.mx_tensor", "to_mx")
    scales, elements = to_mx(x, element or torch.float4_e2m1fn_x2, 32, modes[mode.upper()])
    return scales.view(torch.uint8), elements.view(torch.uint8)


@pytest.mark.parametrize("mode", SCALE_MODES)
def test_torchao_agrees_bit_for_bit(mode, hard_blocks):
    """Random float32, bf16 with its ties, a wide range, built ties, amax edges, zero and −0; MXFP4 and MXFP8."""
    made = torch.Generator().manual_seed(11)
    large = torch.randn(512, 256, generator=made) * torch.exp2(torch.randint(-20, 20, (512, 1), generator=made).float())
    sets = {n: hard_blocks[n] for n in FINITE} | {
        "zero": hard_blocks["zeros"][:1],
        "large": large,
        "b": large.bfloat16(),
    }
    for name, x in sets.items():
        four, eight = quantize_mxfp4_torch(x, mode), quantize_mxfp8_torch(x, mode)
        assert all(map(torch.equal, torchao(x, mode), (four.scales, four.codes))), name
        if (mode, name) != ("rceil", "amax edges"):  # see the next test
            theirs = torchao(x, mode, torch.float8_e4m3fn)
            assert all(map(torch.equal, theirs, (eight.scales, eight.elements.view(torch.uint8)))), name


def test_torchao_rceil_overlooks_one_step_above_448():
    """torchao takes log2(amax / 448) in float32: far from 1, the next number above 448 × 2^n saturates. Not ours."""
    x = torch.zeros(1, 32)
    x[0, 0] = 1.0000001 * 448 / 256  # the float32 next to 448 × 2^−8
    scales, elements = torchao(x, "rceil", torch.float8_e4m3fn)

    assert (127 - 8, 0x7E) == (scales.item(), elements[0, 0].item())
    assert [[127 - 7]] == quantize_mxfp8_torch(x, "rceil").scales.tolist()


@pytest.mark.parametrize("mode", SCALE_MODES)
def test_torchao_flushes_subnormals(mode, hard_blocks, oracle):
    """torchao rounds elements of subnormal blocks to other codes, at the same scales; ours are the exact ones."""
    x = hard_blocks["subnormal"]
    scales, codes = torchao(x, mode)

    assert torch.equal(scales, quantize_mxfp4_torch(x, mode).scales)
    assert not torch.equal(codes, quantize_mxfp4_torch(x, mode).codes)
    assert follows_the_oracle(oracle, x, mode)


@pytest.mark.parametrize("mode", SCALE_MODES)
def test_torchao_loses_an_inf(mode, oracle):
    """torchao gives a block with an Inf a finite scale and finite elements; ours is flagged, 0xFF."""
    x = torch.ones(1, 64)
    x[0, 3] = math.inf

    assert 0xFF != torchao(x, mode)[0][0, 0].item()
    assert 0xFF == quantize_mxfp4_torch(x, mode).scales[0, 0].item()
    assert follows_the_oracle(oracle, x, mode)


def microxcaling(x):
    """The rule of microsoft/microxcaling for MXFP4 with round=even, written out: shared exponent, private ones, clamp.

    It is arithmetic on floats where ours counts boundaries, so that both are unlikely to be wrong in the same way.
    """
    blocks = x.double().unflatten(-1, (-1, 32))
    shared = torch.frexp(blocks.abs().amax(-1, keepdim=True))[1] - 1 - 2
    scaled = torch.ldexp(blocks, -shared.clamp(-127, 127))
    private = (torch.frexp(scaled)[1] - 1).clamp_min(0)
    rounded = torch.ldexp(torch.round(torch.ldexp(scaled, 1 - private)), private - 1).clamp(-6, 6)
    return torch.ldexp(rounded, shared.clamp(-127, 127)).flatten(-2)


@pytest.mark.parametrize("name", [*FINITE, "subnormal", "huge", "zeros"])
def test_the_rule_of_microxcaling_agrees(name, hard_blocks):
    """Every finite set, subnormal and huge included, to the last bit of the dequantized number."""
    ours = dequantize_mxfp4_torch(quantize_mxfp4_torch(hard_blocks[name]), torch.float64)

    assert torch.equal(microxcaling(hard_blocks[name]), ours)


def quark(x, mode):
    """amd-quark's fake quantization to MXFP4."""
    quantize = peer("quark.torch.kernel.hw_emulation.hw_emulation_interface", "fake_quantize_mx")
    return quantize(x, -1, 32, mode, mx_element_dtype="fp4").reshape(x.shape)


def fake(x, mode):
    """What ours makes of x, dequantized."""
    return dequantize_mxfp4_torch(quantize_mxfp4_torch(x, mode))


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "more"), [("even", ["subnormal", "zeros"]), ("floor", ["zeros"])])
def test_quark_agrees(mode, more, hard_blocks):
    """Every finite normal block in both of its modes, and subnormal ones in `even`. It compiles C++ when imported."""
    for name in (*FINITE, *more):
        assert torch.equal(fake(hard_blocks[name], mode), quark(hard_blocks[name], mode)), name


@pytest.mark.slow
def test_quark_even_takes_a_scale_too_large_for_huge_blocks(oracle):
    """Where amax rounds to 2^128, quark's scale is 2^127 and not 2^126, so that smaller elements are lost."""
    most = torch.finfo(torch.float32).max
    x = torch.tensor([[most, *[most / 8] * 31]])

    assert 2.0**125 == fake(x, "even")[0, 1].item()
    assert 0.0 == quark(x, "even")[0, 1].item()
    assert follows_the_oracle(oracle, x, "even")


@pytest.mark.slow
def test_quark_floor_rounds_a_logarithm(hard_blocks, oracle):
    """quark's `floor` takes log2 in float32: the largest number becomes infinite, and subnormal blocks are wrong."""
    most = torch.full((1, 32), torch.finfo(torch.float32).max)

    assert torch.full((1, 32), 1.5 * 2.0**127).tolist() == fake(most, "floor").tolist()
    assert quark(most, "floor").isinf().all()
    assert not torch.equal(fake(hard_blocks["subnormal"], "floor"), quark(hard_blocks["subnormal"], "floor"))
    assert follows_the_oracle(oracle, torch.cat((most.repeat(1, 2), hard_blocks["subnormal"])), "floor")


def test_compressed_tensors_agrees_on_scales_and_overflows_for_huge_blocks(hard_blocks, oracle):
    """Its scale rule is `even` on finite normal blocks, and infinite where amax rounds to 2^128; ours is finite."""
    scales = peer("compressed_tensors.quantization.utils.mxfp_utils", "generate_mx_scales")
    for name in FINITE:
        x = hard_blocks[name]
        nonzero = block_amax(x) > 0
        ours = quantize_mxfp4_torch(x, "even").scales[nonzero]
        assert torch.equal(ours.float(), scales(block_amax(x)[nonzero])), name
    most = torch.full((1, 32), torch.finfo(torch.float32).max)

    assert not scales(block_amax(most)).isfinite().any()
    assert [[127 + 128 - 2]] == quantize_mxfp4_torch(most, "even").scales.tolist()
    assert follows_the_oracle(oracle, most, "even")


def test_gguf_sends_ties_down(hard_blocks, oracle):
    """gguf takes the first of two equally near values, the smaller; away from ties it agrees with `floor`."""
    from vllm_mx_kernels.layouts import from_gguf

    quants = peer("gguf.quants", "MXFP4")

    def pack(x):
        return from_gguf(torch.from_numpy(quants.quantize_blocks(x.reshape(-1, 32).numpy())).reshape(len(x), -1))

    random, ties = hard_blocks["random"], hard_blocks["ties"]
    theirs, ours = (dequantize_mxfp4_torch(q).abs() for q in (pack(ties), quantize_mxfp4_torch(ties)))

    assert torch.equal(dequantize_mxfp4_torch(quantize_mxfp4_torch(random)), dequantize_mxfp4_torch(pack(random)))
    assert (theirs <= ours).all()
    assert (theirs < ours).any()
    assert follows_the_oracle(oracle, ties, "floor")


def test_modelopt_sends_ties_down(hard_blocks, oracle):
    """modelopt counts boundaries that are exceeded, none that are met; away from ties it agrees with `rceil`."""
    tensor = peer("modelopt.torch.quantization.qtensor", "MXFP4QTensor")
    random, ties = hard_blocks["random"], hard_blocks["ties"]
    packed = {name: tensor.quantize(x, 32)[0]._quantized_data for name, x in (("random", random), ("ties", ties))}
    size = lambda codes: unpack_nibbles(codes) & 7  # noqa: E731

    assert torch.equal(quantize_mxfp4_torch(random, "rceil").codes, packed["random"])
    theirs, ours = size(packed["ties"]), size(quantize_mxfp4_torch(ties, "rceil").codes)
    assert (theirs <= ours).all()
    assert (theirs < ours).any()
    assert follows_the_oracle(oracle, ties, "rceil")


def test_modelopt_loses_an_inf():
    """modelopt gives a block with an Inf another scale than 0xFF, so that nobody sees it later; ours is flagged."""
    tensor = peer("modelopt.torch.quantization.qtensor", "MXFP4QTensor")
    x = torch.ones(1, 32)
    x[0, 3] = math.inf
    _, scale = tensor.quantize(x, 32)

    assert 0xFF != scale.flatten()[0].item()
    assert [[0xFF]] == quantize_mxfp4_torch(x, "rceil").scales.tolist()
