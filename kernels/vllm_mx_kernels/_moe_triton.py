"""Triton bodies of grouped (expert) products. Tokens come sorted by expert in blocks of BLOCK_M that one expert owns.

A slot is one (token, chosen expert) pair, token × top_k + choice. `sorted_slots` lists slots expert by expert, each
expert's list filled up to a multiple of BLOCK_M with the number of slots, which no slot has: such places load zeros
and store nothing. `block_experts` names the expert of each block, −1 for none.
"""

from __future__ import annotations

import triton
import triton.language as tl

from vllm_mx_kernels._mxfp4_triton import (
    e2m1_to_bf16,
    e8m0_to_bf16,
    load_mxfp4,
    power_of_two,
    scaled_back,
    scaled_rows,
    unpack_e2m1,
)


@triton.jit
def moe_mxfp4_kernel(
    x, x_scales, codes, scales, row_exponents, bias, weights, sorted_slots, block_experts, y,
    N, K, num_slots,
    stride_xm, stride_we, stride_wn, stride_se, stride_sn, stride_ym,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SLOTS_PER_ROW: tl.constexpr, FP8: tl.constexpr, WEIGHTED: tl.constexpr, HAS_BIAS: tl.constexpr,
    EVEN_K: tl.constexpr,
):  # fmt: skip
    """y[slot] = w[expert of slot] · x[slot / SLOTS_PER_ROW], times the router's weight if WEIGHTED.

    SLOTS_PER_ROW: top_k where x is the layer's input, 1 where it has a row for each slot. FP8: x is FP8 with a scale a
    row and the weights are folded (`fold_mxfp4`), else both are multiplied in bf16.
    """
    expert, slots, live = _block(sorted_slots, block_experts, num_slots, BLOCK_M)
    if expert < 0:
        return
    rows = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_rows = rows < N
    source = slots // SLOTS_PER_ROW
    codes += expert.to(tl.int64) * stride_we
    scales += expert.to(tl.int64) * stride_se
    base = tl.load(row_exponents + expert * N + rows, mask=in_rows, other=0) if FP8 else tl.zeros((BLOCK_N,), tl.int32)
    total = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        packed, scale = load_mxfp4(
            codes, scales, rows, in_rows, start, K, stride_wn, stride_sn, BLOCK_K, EVEN_K
        )  # fmt: skip
        columns = start + tl.arange(0, BLOCK_K)
        mask = live[None, :] if EVEN_K else live[None, :] & (columns < K)[:, None]
        part = tl.load(x + source[None, :].to(tl.int64) * stride_xm + columns[:, None], mask=mask, other=0.0)
        elements = e2m1_to_bf16(unpack_e2m1(packed))
        if FP8:
            shift = power_of_two(scale.to(tl.int32) - base[:, None])
            weight = scaled_rows(elements, shift, BLOCK_N, BLOCK_K).to(x.dtype.element_ty)
            total = tl.dot(weight, part, total, max_num_imprecise_acc=BLOCK_K)
        else:
            weight = scaled_rows(elements, e8m0_to_bf16(scale), BLOCK_N, BLOCK_K)
            total = tl.dot(weight, part.to(tl.bfloat16), total)
    if FP8:
        total *= tl.load(x_scales + source, mask=live, other=0.0)[None, :]
        total = scaled_back(total, base - 127)
    _finish(total, bias, weights, y, expert, slots, live, rows, in_rows, N, stride_ym, WEIGHTED, HAS_BIAS)


@triton.jit
def moe_fp8_kernel(
    x, x_scales, w, w_scales, bias, weights, sorted_slots, block_experts, y,
    N, K, num_slots,
    stride_xm, stride_xsm, stride_we, stride_wn, stride_wse, stride_wsn, stride_ym,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SLOTS_PER_ROW: tl.constexpr, W_SCALES: tl.constexpr, WEIGHTED: tl.constexpr, HAS_BIAS: tl.constexpr,
    EVEN_K: tl.constexpr,
):  # fmt: skip
    """The same with FP8 weights. W_SCALES: "tensor" (one an expert), "channel" or "block" (128 × 128).

    With blocks, x has a scale for each 128 columns and BLOCK_K is 128.
    """
    expert, slots, live = _block(sorted_slots, block_experts, num_slots, BLOCK_M)
    if expert < 0:
        return
    rows = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_rows = rows < N
    source = slots // SLOTS_PER_ROW
    w += expert.to(tl.int64) * stride_we
    w_scales += expert * stride_wse
    total = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        columns = start + tl.arange(0, BLOCK_K)
        w_mask = in_rows[:, None] if EVEN_K else in_rows[:, None] & (columns < K)[None, :]
        x_mask = live[None, :] if EVEN_K else live[None, :] & (columns < K)[:, None]
        a = tl.load(w + rows[:, None] * stride_wn + columns[None, :], mask=w_mask, other=0.0)
        b = tl.load(x + source[None, :].to(tl.int64) * stride_xm + columns[:, None], mask=x_mask, other=0.0)
        if W_SCALES == "block":
            part = tl.dot(a, b)
            x_scale = tl.load(x_scales + source * stride_xsm + start // 128, mask=live, other=0.0)
            w_scale = tl.load(w_scales + (rows // 128) * stride_wsn + start // 128, mask=in_rows, other=0.0)
            total += part * w_scale[:, None] * x_scale[None, :]
        else:
            total = tl.dot(a, b, total, max_num_imprecise_acc=BLOCK_K)
    if W_SCALES != "block":
        total *= tl.load(x_scales + source, mask=live, other=0.0)[None, :]
    if W_SCALES == "tensor":
        total *= tl.load(w_scales)
    elif W_SCALES == "channel":
        total *= tl.load(w_scales + rows, mask=in_rows, other=0.0)[:, None]
    _finish(total, bias, weights, y, expert, slots, live, rows, in_rows, N, stride_ym, WEIGHTED, HAS_BIAS)


@triton.jit
def _block(sorted_slots, block_experts, num_slots, BLOCK_M: tl.constexpr):
    block = tl.program_id(0)
    slots = tl.load(sorted_slots + block * BLOCK_M + tl.arange(0, BLOCK_M))
    return tl.load(block_experts + block), slots, slots < num_slots


@triton.jit
def _finish(
    total, bias, weights, y, expert, slots, live, rows, in_rows, N, stride_ym,
    WEIGHTED: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    if HAS_BIAS:
        total += tl.load(bias + expert * N + rows, mask=in_rows, other=0.0).to(tl.float32)[:, None]
    if WEIGHTED:
        total *= tl.load(weights + slots, mask=live, other=0.0).to(tl.float32)[None, :]
    out = y + slots[None, :].to(tl.int64) * stride_ym + rows[:, None]
    tl.store(out, total.to(y.dtype.element_ty), mask=in_rows[:, None] & live[None, :])


@triton.jit
def gated_kernel(
    x, y, N, stride_x, stride_y, ALPHA: tl.constexpr, LIMIT: tl.constexpr, OAI: tl.constexpr, WIDTH: tl.constexpr
):
    """A row's activation: [2 N] → [N]. Plain: silu(first half) × second half.

    OAI: gate and up alternate, both held within LIMIT, gate · sigmoid(ALPHA · gate) × (up + 1). NaN stays NaN.
    """
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    mask = columns < N
    at = x + row * stride_x
    gate = tl.load(at + (columns * 2 if OAI else columns), mask=mask, other=0.0).to(tl.float32)
    up = tl.load(at + (columns * 2 + 1 if OAI else columns + N), mask=mask, other=0.0).to(tl.float32)
    if OAI:
        gate = tl.where(gate > LIMIT, LIMIT, gate)  # not tl.minimum, which drops a NaN
        up = tl.where(up > LIMIT, LIMIT, tl.where(up < -LIMIT, -LIMIT, up)) + 1.0
    value = gate / (1.0 + tl.exp(-(ALPHA * gate))) * up
    tl.store(y + row * stride_y + columns, value.to(y.dtype.element_ty), mask=mask)


@triton.jit
def combine_kernel(x, y, N, stride_x, stride_y, TOP_K: tl.constexpr, WIDTH: tl.constexpr):
    """A token's slots, already weighted, summed in the order of its choices: [TOP_K, N] → [N]."""
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), dtype=tl.float32)
    for choice in tl.static_range(TOP_K):
        total += tl.load(x + (token * TOP_K + choice) * stride_x + columns, mask=columns < N, other=0.0).to(tl.float32)
    tl.store(y + token * stride_y + columns, total.to(y.dtype.element_ty), mask=columns < N)
