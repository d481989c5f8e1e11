"""Triton bodies that quantize and dequantize. Scales are chosen on the bits of float32, so that they are exact."""

from __future__ import annotations

import triton
import triton.language as tl

from vllm_mx_kernels._mxfp4_triton import e2m1_to_bf16, e8m0_to_f32, load_mxfp4, scaled_rows, unpack_e2m1


_INF = tl.constexpr(0x7F800000)


@triton.jit
def block_scales(size_bits, EMAX: tl.constexpr, CARRY_FROM: tl.constexpr):
    """E8M0 codes (int32) of blocks with these largest magnitudes, given as the bits of float32.

    CARRY_FROM: the fraction bits from which the mode takes the next exponent. Magnitudes below float32's normal range
    give code 0 in every mode, as do zeros; NaN and Inf give 255.
    """
    carry = ((size_bits & 0x7FFFFF) >= CARRY_FROM).to(tl.int32)
    code = tl.maximum((size_bits >> 23) + carry - EMAX, 0)
    return tl.where(size_bits >= _INF, 255, code)


@triton.jit
def reciprocal_of_scale(code):
    """2^(127 − code) as float32, exact for codes 0…253."""
    return ((254 - code) << 23).to(tl.float32, bitcast=True)


@triton.jit
def round_to_e2m1(values):
    """E2M1 codes (uint8), nearest even, beyond 6 saturated: each boundary is a tie, the even neighbour's."""
    size = tl.abs(values)
    code = (size > 0.25).to(tl.uint8) + (size >= 0.75).to(tl.uint8) + (size > 1.25).to(tl.uint8)
    code += (size >= 1.75).to(tl.uint8) + (size > 2.5).to(tl.uint8) + (size >= 3.5).to(tl.uint8)
    code += (size > 5.0).to(tl.uint8)
    sign = (values.to(tl.int32, bitcast=True) >> 31) & 1
    return code | (sign << 3).to(tl.uint8)


@triton.jit
def _scaled_blocks(x, rows, columns, M, K, stride, EMAX: tl.constexpr, CARRY_FROM: tl.constexpr,
                   ROWS: tl.constexpr, WIDTH: tl.constexpr):  # fmt: skip
    """A tile [ROWS, WIDTH / 32, 32] over its block scales, and their codes [ROWS, WIDTH / 32]."""
    mask = (rows < M)[:, None] & (columns < K)[None, :]
    tile = tl.load(x + rows[:, None] * stride + columns[None, :], mask=mask, other=0.0).to(tl.float32)
    blocks = tile.reshape(ROWS, WIDTH // 32, 32)
    sizes = tl.max(blocks.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=2)
    code = block_scales(sizes, EMAX, CARRY_FROM)
    whole = tl.where((code == 255)[:, :, None], 0.0, blocks * reciprocal_of_scale(tl.minimum(code, 253))[:, :, None])
    return whole, code


@triton.jit
def quantize_mxfp4_kernel(
    x, codes, scales, M, K, stride_x,
    EMAX: tl.constexpr, CARRY_FROM: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """X [M, K] → codes [M, K / 2], scales [M, K / 32], both contiguous."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    start = tl.program_id(1) * WIDTH
    whole, code = _scaled_blocks(
        x, rows, start + tl.arange(0, WIDTH), M, K, stride_x, EMAX, CARRY_FROM, ROWS, WIDTH
    )  # fmt: skip
    low, high = tl.split(round_to_e2m1(whole).reshape(ROWS, WIDTH // 2, 2))
    pairs = start // 2 + tl.arange(0, WIDTH // 2)
    blocks = start // 32 + tl.arange(0, WIDTH // 32)
    in_rows = (rows < M)[:, None]
    at = rows[:, None]
    tl.store(codes + at * (K // 2) + pairs[None, :], low | (high << 4), mask=in_rows & (pairs < K // 2)[None, :])
    tl.store(scales + at * (K // 32) + blocks[None, :], code.to(tl.uint8), mask=in_rows & (blocks < K // 32)[None, :])


@triton.jit
def quantize_mxfp8_kernel(
    x, elements, scales, M, K, stride_x, LARGEST: tl.constexpr,
    EMAX: tl.constexpr, CARRY_FROM: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """X [M, K] → FP8 elements [M, K] of the pointer's type, scales [M, K / 32], both contiguous."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    start = tl.program_id(1) * WIDTH
    columns = start + tl.arange(0, WIDTH)
    whole, code = _scaled_blocks(x, rows, columns, M, K, stride_x, EMAX, CARRY_FROM, ROWS, WIDTH)
    fitting = tl.minimum(tl.maximum(whole, -LARGEST), LARGEST).reshape(ROWS, WIDTH)
    blocks = start // 32 + tl.arange(0, WIDTH // 32)
    in_rows = (rows < M)[:, None]
    at = rows[:, None]
    tl.store(
        elements + at * K + columns[None, :],
        fitting.to(elements.dtype.element_ty),
        mask=in_rows & (columns < K)[None, :],
    )
    tl.store(scales + at * (K // 32) + blocks[None, :], code.to(tl.uint8), mask=in_rows & (blocks < K // 32)[None, :])


@triton.jit
def quantize_fp8_rows_kernel(
    x, elements, scales, K, stride_x, LARGEST: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One scale a row (a token of activations, a channel of a weight): amax / LARGEST, 1 for a row of zeros."""
    row = tl.program_id(0).to(tl.int64)
    size = tl.zeros((WIDTH,), dtype=tl.int32)
    for start in range(0, K, WIDTH):
        columns = start + tl.arange(0, WIDTH)
        part = tl.load(x + row * stride_x + columns, mask=columns < K, other=0.0).to(tl.float32)
        size = tl.maximum(size, part.to(tl.int32, bitcast=True) & 0x7FFFFFFF)
    scale = fp8_scale(tl.max(size, axis=0), LARGEST)
    tl.store(scales + row, scale)
    for start in range(0, K, WIDTH):
        columns = start + tl.arange(0, WIDTH)
        part = tl.load(x + row * stride_x + columns, mask=columns < K, other=0.0).to(tl.float32)
        value = fp8_elements(part, scale, LARGEST)
        tl.store(elements + row * K + columns, value.to(elements.dtype.element_ty), mask=columns < K)


@triton.jit
def quantize_fp8_tiles_kernel(
    x, elements, scales, M, K, stride_x, stride_s, LARGEST: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One scale a tile of ROWS × WIDTH: 128 × 128 of a weight, or 1 × 128 of activations."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    mask = (rows < M)[:, None] & (columns < K)[None, :]
    tile = tl.load(x + rows[:, None] * stride_x + columns[None, :], mask=mask, other=0.0).to(tl.float32)
    largest_bits = tl.max(tl.max(tile.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=1), axis=0)
    scale = fp8_scale(largest_bits, LARGEST)
    tl.store(scales + tl.program_id(0) * stride_s + tl.program_id(1), scale)
    at = elements + rows[:, None] * K + columns[None, :]
    tl.store(at, fp8_elements(tile, scale, LARGEST).to(elements.dtype.element_ty), mask=mask)


@triton.jit
def scale_fp8_kernel(x, elements, scale, K, stride_x, LARGEST: tl.constexpr, WIDTH: tl.constexpr):
    """Elements at one scale that is already known."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    part = tl.load(x + row * stride_x + columns, mask=columns < K, other=0.0).to(tl.float32)
    value = fp8_elements(part, tl.load(scale), LARGEST)
    tl.store(elements + row * K + columns, value.to(elements.dtype.element_ty), mask=columns < K)


@triton.jit
def fp8_scale(largest_bits, LARGEST: tl.constexpr):
    """Amax / LARGEST; 1 where that is 0, NaN where there is an Inf or a NaN."""
    scale = tl.div_rn(largest_bits.to(tl.float32, bitcast=True), LARGEST)
    return tl.where(largest_bits >= _INF, float("nan"), tl.where(scale == 0, 1.0, scale))


@triton.jit
def fp8_elements(values, scale, LARGEST: tl.constexpr):
    """Values / scale within ±LARGEST; NaN for an Inf or a NaN, and for a scale that is one: a minimum may drop it."""
    whole = tl.minimum(tl.maximum(tl.div_rn(values, scale), -LARGEST), LARGEST)
    whole = tl.where((values.to(tl.int32, bitcast=True) & 0x7FFFFFFF) < _INF, whole, float("nan"))
    return tl.where(scale == scale, whole, float("nan"))  # noqa: PLR0124


@triton.jit
def dequantize_mxfp4_kernel(codes, scales, y, M, K, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Codes [M, K / 2], scales [M, K / 32] → y [M, K], all contiguous."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    start = tl.program_id(1) * WIDTH
    in_rows = rows < M
    packed, scale = load_mxfp4(codes, scales, rows, in_rows, start, K, K // 2, K // 32, WIDTH, False)
    values = scaled_rows(e2m1_to_bf16(unpack_e2m1(packed)).to(tl.float32), e8m0_to_f32(scale), ROWS, WIDTH)
    columns = start + tl.arange(0, WIDTH)
    mask = in_rows[:, None] & (columns < K)[None, :]
    tl.store(y + rows[:, None] * K + columns[None, :], values.to(y.dtype.element_ty), mask=mask)
