"""Converters between layouts: round trips bit for bit, and each project's own code on what we give it."""

import pytest

from vllm_mx_kernels.formats import E5M2


torch = pytest.importorskip("torch", reason="checkpoints hold torch tensors")

from vllm_mx_kernels import layouts  # noqa: E402
from vllm_mx_kernels.mxfp4 import Mxfp4, dequantize_mxfp4_torch, quantize_mxfp4_torch  # noqa: E402
from vllm_mx_kernels.mxfp8 import dequantize_mxfp8_torch, quantize_mxfp8_torch  # noqa: E402


PLAIN = "ignore"  # peers warn while they are imported, about themselves


def some(*shape, seed=0, scales=255):
    """Every byte may occur: codes at random, scales at random below `scales`."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 256, (*shape[:-1], shape[-1] // 2), generator=generator).to(torch.uint8)
    return Mxfp4(codes, torch.randint(0, scales, (*shape[:-1], shape[-1] // 32), generator=generator).to(torch.uint8))


def same(a, b):
    """Whether two quantized tensors have the same bytes."""
    return all(torch.equal(x.view(torch.uint8), y.view(torch.uint8)) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("shape", [(1, 32), (5, 96), (3, 4, 64)], ids=str)
def test_round_trips(shape):
    """From ours and back: no bit is lost in any layout, NaN blocks included where the layout has them."""
    weight, without_nan = some(*shape, scales=256), some(*shape)

    assert same(weight, layouts.from_gpt_oss(*layouts.to_gpt_oss(weight)))
    assert same(weight, layouts.from_compressed_tensors(*layouts.to_compressed_tensors(weight)))
    assert same(weight, layouts.from_quark(*layouts.to_quark(weight)))
    assert same(without_nan, layouts.from_gguf(layouts.to_gguf(without_nan)))
    eight = quantize_mxfp8_torch(torch.randn(*shape))
    assert same(eight, layouts.from_modelopt_mxfp8(*layouts.to_modelopt_mxfp8(eight)))


def test_shapes_are_the_projects_own():
    """[E, N, K / 32, 16] of gpt-oss; 17 bytes a block of gguf."""
    weight = some(3, 4, 64)

    assert ((3, 4, 2, 16), (3, 4, 2)) == tuple(tuple(p.shape) for p in layouts.to_gpt_oss(weight))
    assert (3, 4, 34) == tuple(layouts.to_gguf(weight).shape)


def test_gpt_oss_by_hand():
    """Byte j of block b holds elements 32 b + 2 j (low nibble) and 32 b + 2 j + 1 (high), as gpt-oss has it."""
    blocks = torch.zeros(1, 2, 16, dtype=torch.uint8)
    blocks[0, 1, 3] = 0x72  # elements 38 and 39: codes 2 and 7
    weight = layouts.from_gpt_oss(blocks, torch.tensor([[127, 128]], dtype=torch.uint8))
    values = dequantize_mxfp4_torch(weight)[0]

    assert [(38, 2.0), (39, 12.0)] == [(i, v) for i, v in enumerate(values.tolist()) if v]


def test_gguf_by_hand():
    """The scale comes first; byte j holds elements j (low) and j + 16 (high)."""
    data = torch.zeros(1, 17, dtype=torch.uint8)
    data[0, 0], data[0, 4] = 128, 0x72
    values = dequantize_mxfp4_torch(layouts.from_gguf(data))[0]

    assert [(3, 2.0), (19, 12.0)] == [(i, v) for i, v in enumerate(values.tolist()) if v]


def test_quark_scales_of_several_rows():
    """A scale row that serves two rows of a block_size [2, 32] is repeated."""
    weight = some(4, 64)
    expanded = layouts.from_quark(weight.codes, weight.scales[:2])

    assert torch.equal(weight.scales[:2].repeat_interleave(2, 0), expanded.scales)


def test_scales_may_be_e8m0():
    """torch's float8_e8m0fnu is the same byte."""
    weight = some(2, 64)

    assert same(weight, layouts.from_compressed_tensors(weight.codes, weight.scales.view(torch.float8_e8m0fnu)))


@pytest.mark.filterwarnings(PLAIN)
def test_gguf_decodes_what_we_write():
    """gguf's own decoder on all 255 scales and all codes: the same float32 numbers as ours."""
    quants = pytest.importorskip("gguf.quants", reason="gguf is the format's own project")
    codes = torch.arange(256, dtype=torch.uint8).repeat(255, 1)[:, :16].contiguous()
    codes[1::2] = torch.arange(240, 256, dtype=torch.uint8)
    weight = Mxfp4(codes, torch.arange(255).to(torch.uint8).unsqueeze(1))
    theirs = torch.from_numpy(quants.MXFP4.dequantize_blocks(layouts.to_gguf(weight).numpy()))

    assert torch.equal(dequantize_mxfp4_torch(weight).reshape(-1), theirs.reshape(-1))


@pytest.mark.filterwarnings(PLAIN)
def test_we_read_what_gguf_writes():
    """What gguf's own quantizer packed decodes to the same numbers through our layout."""
    quants = pytest.importorskip("gguf.quants", reason="gguf is the format's own project")
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(1))
    packed = quants.MXFP4.quantize_blocks(x.reshape(-1, 32).numpy())
    theirs = torch.from_numpy(quants.MXFP4.dequantize_blocks(packed)).reshape(8, 64)

    assert torch.equal(theirs, dequantize_mxfp4_torch(layouts.from_gguf(torch.from_numpy(packed).reshape(8, 34))))


@pytest.mark.filterwarnings(PLAIN)
def test_compressed_tensors_decompresses_what_we_write():
    """Its own decompressor gives bf16 weights equal to ours, and its own packer gives our bytes."""
    reason = "compressed-tensors is the format's own project"
    base = pytest.importorskip("compressed_tensors.compressors.mxfp4.base", reason=reason, exc_type=ImportError)
    quantization = pytest.importorskip("compressed_tensors.quantization", reason=reason, exc_type=ImportError)
    from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8

    args = quantization.QuantizationArgs(
        num_bits=4, type="float", strategy="group", group_size=32, scale_dtype=torch.uint8
    )
    scheme = quantization.QuantizationScheme(targets=["Linear"], weights=args)
    weight = quantize_mxfp4_torch(torch.randn(8, 64, generator=torch.Generator().manual_seed(2)))
    packed, scales = layouts.to_compressed_tensors(weight)
    state = base.MXFP4PackedCompressor.decompress({"weight_packed": packed, "weight_scale": scales}, scheme)
    elements = dequantize_mxfp4_torch(weight._replace(scales=torch.full_like(scales, 127)))

    assert torch.equal(dequantize_mxfp4_torch(weight, torch.bfloat16), state["weight"])
    assert torch.equal(packed, pack_fp4_to_uint8(elements))


@pytest.mark.filterwarnings(PLAIN)
def test_modelopt_mxfp8_is_read_and_written():
    """What modelopt quantized is what `rceil` gives, and modelopt decodes ours to the same numbers."""
    name, reason = "modelopt.torch.quantization.qtensor", "modelopt is the format's own project"
    tensor = pytest.importorskip(name, reason=reason, exc_type=ImportError).MXFP8QTensor
    x = torch.randn(8, 96, generator=torch.Generator().manual_seed(3))
    theirs, scale = tensor.quantize(x)
    ours = quantize_mxfp8_torch(x, "rceil")
    elements, scales = layouts.to_modelopt_mxfp8(ours)

    assert same(ours, layouts.from_modelopt_mxfp8(theirs._quantized_data, scale))
    assert torch.equal(dequantize_mxfp8_torch(ours), tensor(x.shape, x.dtype, elements).dequantize(scale=scales))


@pytest.mark.filterwarnings(PLAIN)
def test_torchao_has_our_layout():
    """torchao's MX tensors hold our bytes: the codes of four bits low nibble first, one scale byte a block."""
    name, reason = "torchao.prototype.mx_formats.mx_tensor", "torchao holds MX tensors"
    mx = pytest.importorskip(name, reason=reason, exc_type=ImportError)
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(4))
    scale, codes = mx.to_mx(x, torch.float4_e2m1fn_x2, 32)

    assert same(quantize_mxfp4_torch(x), (codes.view(torch.uint8), scale.view(torch.uint8)))


BYTES = torch.zeros(4, 32, dtype=torch.uint8)
SCALES = torch.zeros(4, 2, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("attempt", "says"),
    [
        (lambda: layouts.from_gpt_oss(torch.zeros(4, 2, 15, dtype=torch.uint8), SCALES), "K / 32, 16. is expected"),
        (lambda: layouts.from_gpt_oss(torch.zeros(4, 3, 16, dtype=torch.uint8), SCALES), "K / 32, 16. is expected"),
        (lambda: layouts.from_gpt_oss(torch.zeros(4, 2, 16), SCALES), "gpt-oss blocks is torch.float32"),
        (lambda: layouts.to_gpt_oss(Mxfp4(BYTES, SCALES[:, :1])), "are not one for each 16"),
        (lambda: layouts.from_compressed_tensors(BYTES, SCALES.float()), "weight_scale is torch.float32"),
        (lambda: layouts.from_compressed_tensors(BYTES[:, :20], SCALES), "are not one for each 16"),
        (lambda: layouts.from_quark(BYTES, SCALES[:3]), "does not fit a weight"),
        (lambda: layouts.from_quark(BYTES, SCALES[:0]), "does not fit a weight"),
        (lambda: layouts.from_quark(BYTES[0], SCALES[0]), "does not fit a weight"),
        (lambda: layouts.from_modelopt_mxfp8(torch.zeros(4, 64), SCALES), "weight is torch.float32"),
        (lambda: layouts.from_modelopt_mxfp8(BYTES.view(torch.float8_e4m3fn), SCALES), "does not fit a weight"),
        (lambda: layouts.to_modelopt_mxfp8(quantize_mxfp8_torch(torch.ones(1, 32), "floor", E5M2)), "float8_e5m2"),
        (lambda: layouts.from_gguf(BYTES), "not made of blocks of 17 bytes"),
        (lambda: layouts.from_gguf(torch.full((1, 17), 255, dtype=torch.uint8)), "1 blocks have the scale 0xFF"),
        (lambda: layouts.to_gguf(Mxfp4(BYTES, SCALES + 255)), "8 blocks have the scale 0xFF"),
    ],
)
def test_unknown_shapes_are_refused(attempt, says):
    """What is not that layout is refused with its shape, in one line."""
    with pytest.raises(ValueError, match=says) as refused:
        attempt()

    assert "\n" not in str(refused.value)
