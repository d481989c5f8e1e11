"""Triton bodies of FP8 products."""

from __future__ import annotations

import triton
import triton.language as tl

from vllm_mx_kernels._mxfp4_triton import _tile, advanced


@triton.jit
def fp8_matmul_kernel(
    x, w, x_scales, w_scales, bias, y,
    M, N, K,
    stride_xm, stride_wn, stride_ym, stride_xsm, stride_wsn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    X_SCALES: tl.constexpr, W_SCALES: tl.constexpr, HAS_BIAS: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """y[M, N] = x[M, K] · w[N, K]ᵀ in FP8 with float32 sums.

    X_SCALES: "tensor", "token" or "block" (a scale for each token and 128 columns); W_SCALES: "tensor", "channel" or
    "block" (128 × 128, so BLOCK_N divides 128 or is a multiple of it). With blocks, BLOCK_K is 128 and each partial
    product is scaled as it is added.
    """
    pid_m, pid_n = _tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    row, token = pid_n * BLOCK_N, pid_m * BLOCK_M
    rows, tokens = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_M)
    in_rows, in_tokens = row + rows < N, token + tokens < M
    x, y = advanced(x, token, stride_xm), advanced(y, token, stride_ym) + row
    w = advanced(w, row, stride_wn)
    total = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        columns = start + tl.arange(0, BLOCK_K)
        w_mask = in_rows[:, None] if EVEN_K else in_rows[:, None] & (columns < K)[None, :]
        x_mask = in_tokens[None, :] if EVEN_K else in_tokens[None, :] & (columns < K)[:, None]
        a = tl.load(w + rows[:, None] * stride_wn + columns[None, :], mask=w_mask, other=0.0)
        b = tl.load(x + tokens[None, :] * stride_xm + columns[:, None], mask=x_mask, other=0.0)
        if W_SCALES == "block":
            part = tl.dot(a, b)
            x_scale = tl.load(x_scales + (token + tokens) * stride_xsm + start // 128, mask=in_tokens, other=0.0)
            w_scale = tl.load(w_scales + ((row + rows) // 128) * stride_wsn + start // 128, mask=in_rows, other=0.0)
            total += part * w_scale[:, None] * x_scale[None, :]
        else:
            total = tl.dot(a, b, total, max_num_imprecise_acc=BLOCK_K)
    if X_SCALES == "tensor":
        total *= tl.load(x_scales)
    elif X_SCALES == "token":
        total *= tl.load(x_scales + token + tokens, mask=in_tokens, other=0.0)[None, :]
    if W_SCALES == "tensor":
        total *= tl.load(w_scales)
    elif W_SCALES == "channel":
        total *= tl.load(w_scales + row + rows, mask=in_rows, other=0.0)[:, None]
    if HAS_BIAS:
        total += tl.load(bias + row + rows, mask=in_rows, other=0.0).to(tl.float32)[:, None]
    out = y + tokens[None, :] * stride_ym + rows[:, None]
    tl.store(out, total.to(y.dtype.element_ty), mask=in_rows[:, None] & in_tokens[None, :])
