"""Triton bodies of MXFP4 matrix products: y[M, N] = x[M, K] · w[N, K]ᵀ.

All compute yᵀ: the weight is the first operand, because Hopper's matrix unit takes that one from registers, where the
unpacked weight is, and because a decode batch is then the narrow side.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def e2m1_to_bf16(codes):
    """Codes 0…15 (uint8) as bf16: exponent and mantissa are moved in place; 0 and 0.5 have no exponent of their own."""
    size = (codes & 7).to(tl.int16)
    bits = tl.where(size > 1, (size << 6) + (126 << 7), size * 0x3F00)
    return (bits | ((codes & 8).to(tl.int16) << 12)).to(tl.bfloat16, bitcast=True)


@triton.jit
def e8m0_to_bf16(scales):
    """2^(code − 127) as bf16; 0x00 is the subnormal 2^−127, 0xFF is NaN."""
    code = scales.to(tl.int16)
    bits = tl.where(code == 255, 0x7FC0, tl.where(code == 0, 0x0040, code << 7))
    return bits.to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def e8m0_to_f32(scales):
    """2^(code − 127) as float32; 0x00 is the subnormal 2^−127, 0xFF is NaN."""
    code = scales.to(tl.int32)
    bits = tl.where(code == 255, 0x7FC00000, tl.where(code == 0, 0x00400000, code << 23))
    return bits.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def unpack_e2m1(packed):
    """Bytes [N, K / 2] → codes [N, K], the low nibble first."""
    return tl.interleave(packed & 0xF, packed >> 4)


@triton.jit
def w4a16_kernel(
    x, codes, scales, bias, y,
    M, N, K,
    stride_xm, stride_wn, stride_sn, stride_ym,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    HAS_BIAS: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """MXFP4 weights unpacked to bf16 in registers, bf16 products, float32 sums."""
    pid_m, pid_n = _tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    row, token = pid_n * BLOCK_N, pid_m * BLOCK_M
    rows, tokens = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_M)
    in_rows, in_tokens = row + rows < N, token + tokens < M
    x, y = advanced(x, token, stride_xm), advanced(y, token, stride_ym) + row
    codes, scales = advanced(codes, row, stride_wn), advanced(scales, row, stride_sn)
    total = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        packed, scale = load_mxfp4(
            codes, scales, rows, in_rows, start, K, stride_wn, stride_sn, BLOCK_K, EVEN_K
        )  # fmt: skip
        weight = scaled_rows(e2m1_to_bf16(unpack_e2m1(packed)), e8m0_to_bf16(scale), BLOCK_N, BLOCK_K)
        columns = start + tl.arange(0, BLOCK_K)
        mask = in_tokens[None, :] if EVEN_K else in_tokens[None, :] & (columns < K)[:, None]
        part = tl.load(x + tokens[None, :] * stride_xm + columns[:, None], mask=mask, other=0.0)
        total = tl.dot(weight, part.to(tl.bfloat16), total)
    if HAS_BIAS:
        total += tl.load(bias + row + rows, mask=in_rows, other=0.0).to(tl.float32)[:, None]
    out = y + tokens[None, :] * stride_ym + rows[:, None]
    tl.store(out, total.to(y.dtype.element_ty), mask=in_rows[:, None] & in_tokens[None, :])


@triton.jit
def advanced(pointer, first, stride):
    """The pointer to row `first`: the one product of row and stride that a large matrix takes beyond int32."""
    return pointer + first.to(tl.int64) * stride


@triton.jit
def scaled_back(total, exponent):
    """Total [N, M] × 2^exponent [N] (−250…254), exactly: in two halves that are normal numbers of float32."""
    half = exponent >> 1
    first = ((half + 127) << 23).to(tl.float32, bitcast=True)
    second = ((exponent - half + 127) << 23).to(tl.float32, bitcast=True)
    return total * first[:, None] * second[:, None]


@triton.jit
def load_mxfp4(
    codes, scales, rows, in_rows, start, K, stride_wn, stride_sn, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr
):
    """A tile of packed codes [N, BLOCK_K / 2] and of its scales [N, BLOCK_K / 32], zeros beyond the edges."""
    pairs = start // 2 + tl.arange(0, BLOCK_K // 2)
    blocks = start // 32 + tl.arange(0, BLOCK_K // 32)
    pair_mask = in_rows[:, None] if EVEN_K else in_rows[:, None] & (pairs < K // 2)[None, :]
    block_mask = in_rows[:, None] if EVEN_K else in_rows[:, None] & (blocks < K // 32)[None, :]
    packed = tl.load(codes + rows[:, None] * stride_wn + pairs[None, :], mask=pair_mask, other=0)
    return packed, tl.load(scales + rows[:, None] * stride_sn + blocks[None, :], mask=block_mask, other=0)


@triton.jit
def scaled_rows(values, scale, ROWS: tl.constexpr, BLOCK_K: tl.constexpr):
    """[ROWS, BLOCK_K] times one scale for each 32 of a row."""
    return (values.reshape(ROWS, BLOCK_K // 32, 32) * scale[:, :, None]).reshape(ROWS, BLOCK_K)


@triton.jit
def w4a8_kernel(
    x, x_scales, codes, scales, row_exponents, bias, y,
    M, N, K,
    stride_xm, stride_wn, stride_sn, stride_ym,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    HAS_BIAS: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """MXFP4 weights folded to FP8 in registers, exactly: element × 2^(block exponent − the row's), FP8 products.

    `x` is FP8 with a scale a token, `row_exponents` (int32 [N]) what `fold_mxfp4` found.
    """
    pid_m, pid_n = _tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    row, token = pid_n * BLOCK_N, pid_m * BLOCK_M
    rows, tokens = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_M)
    in_rows, in_tokens = row + rows < N, token + tokens < M
    x, y = advanced(x, token, stride_xm), advanced(y, token, stride_ym) + row
    codes, scales = advanced(codes, row, stride_wn), advanced(scales, row, stride_sn)
    base = tl.load(row_exponents + row + rows, mask=in_rows, other=0)
    total = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        packed, scale = load_mxfp4(
            codes, scales, rows, in_rows, start, K, stride_wn, stride_sn, BLOCK_K, EVEN_K
        )  # fmt: skip
        shift = power_of_two(scale.to(tl.int32) - base[:, None])
        weight = scaled_rows(e2m1_to_bf16(unpack_e2m1(packed)), shift, BLOCK_N, BLOCK_K).to(x.dtype.element_ty)
        columns = start + tl.arange(0, BLOCK_K)
        mask = in_tokens[None, :] if EVEN_K else in_tokens[None, :] & (columns < K)[:, None]
        part = tl.load(x + tokens[None, :] * stride_xm + columns[:, None], mask=mask, other=0.0)
        total = tl.dot(weight, part, total, max_num_imprecise_acc=BLOCK_K)
    total *= tl.load(x_scales + token + tokens, mask=in_tokens, other=0.0)[None, :]
    total = scaled_back(total, base - 127)
    if HAS_BIAS:
        total += tl.load(bias + row + rows, mask=in_rows, other=0.0).to(tl.float32)[:, None]
    out = y + tokens[None, :] * stride_ym + rows[:, None]
    tl.store(out, total.to(y.dtype.element_ty), mask=in_rows[:, None] & in_tokens[None, :])


@triton.jit
def power_of_two(exponent):
    """2^exponent as bf16, held within −126…127: a block of zeros may lie far outside the fold's span of −8…6."""
    return ((tl.minimum(tl.maximum(exponent, -126), 127) + 127) << 7).to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def w4a4_kernel(
    x, x_scales, codes, scales, bias, y,
    M, N, K,
    stride_xm, stride_xsm, stride_wn, stride_sn, stride_ym,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    X_FORMAT: tl.constexpr, HAS_BIAS: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """Both sides in MX, for matrix units that take the scales themselves. X_FORMAT: "e2m1" or "e4m3"."""
    pid_m, pid_n = _tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    row, token = pid_n * BLOCK_N, pid_m * BLOCK_M
    rows, tokens = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_M)
    in_rows, in_tokens = row + rows < N, token + tokens < M
    x, y = advanced(x, token, stride_xm), advanced(y, token, stride_ym) + row
    codes, scales = advanced(codes, row, stride_wn), advanced(scales, row, stride_sn)
    x_scales = advanced(x_scales, token, stride_xsm)
    PER_BYTE: tl.constexpr = 2 if X_FORMAT == "e2m1" else 1
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        packed, scale = load_mxfp4(
            codes, scales, rows, in_rows, start, K, stride_wn, stride_sn, BLOCK_K, EVEN_K
        )  # fmt: skip
        places = start // PER_BYTE + tl.arange(0, BLOCK_K // PER_BYTE)
        blocks = start // 32 + tl.arange(0, BLOCK_K // 32)
        mask = in_tokens[:, None] if EVEN_K else in_tokens[:, None] & (places < K // PER_BYTE)[None, :]
        block_mask = in_tokens[:, None] if EVEN_K else in_tokens[:, None] & (blocks < K // 32)[None, :]
        zero = 0 if X_FORMAT == "e2m1" else 0.0
        part = tl.load(x + tokens[:, None] * stride_xm + places[None, :], mask=mask, other=zero)
        part_scale = tl.load(x_scales + tokens[:, None] * stride_xsm + blocks[None, :], mask=block_mask, other=0)
        total = tl.dot_scaled(part, part_scale, X_FORMAT, packed.T, scale, "e2m1", total)
    if HAS_BIAS:
        total += tl.load(bias + row + rows, mask=in_rows, other=0.0).to(tl.float32)[None, :]
    out = y + tokens[:, None] * stride_ym + rows[None, :]
    tl.store(out, total.to(y.dtype.element_ty), mask=in_rows[None, :] & in_tokens[:, None])


@triton.jit
def _tile(pid, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Which tile a program computes: GROUP tiles of tokens share the weight rows that are in the cache."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = (pid // (GROUP * tiles_n)) * GROUP
    size = min(tiles_m - first, GROUP)
    inside = pid % (GROUP * tiles_n)
    return first + inside % size, inside // size
