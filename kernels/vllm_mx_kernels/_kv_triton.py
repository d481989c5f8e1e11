"""Triton bodies of an FP8 key-value cache in pages: store, and attention of one query token a sequence.

Caches are [pages, page_size, heads, dim] in FP8. Scales are float32: one for keys and one for values ("tensor"), or one
for each token and head, [pages, page_size, heads] ("token").
"""

from __future__ import annotations

import triton
import triton.language as tl

from vllm_mx_kernels._quantize_triton import fp8_elements, fp8_scale


@triton.jit
def store_kernel(
    x, cache, scales, slots, heads,
    stride_xt, stride_xh, stride_ct, stride_ch,
    DIM: tl.constexpr, WIDTH: tl.constexpr, LARGEST: tl.constexpr, PER_TOKEN: tl.constexpr,
):  # fmt: skip
    """Quantize one head of one token into the page slot that `slots` names; a slot of −1 is left alone."""
    token, head = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + token).to(tl.int64)
    if slot < 0:
        return
    columns = tl.arange(0, WIDTH)
    mask = columns < DIM
    value = tl.load(x + token.to(tl.int64) * stride_xt + head * stride_xh + columns, mask=mask, other=0.0)
    value = value.to(tl.float32)
    if PER_TOKEN:
        scale = fp8_scale(tl.max(value.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=0), LARGEST)
        tl.store(scales + slot * heads + head, scale)
    else:
        scale = tl.load(scales)
    at = cache + slot * stride_ct + head * stride_ch + columns
    tl.store(at, fp8_elements(value, scale, LARGEST).to(cache.dtype.element_ty), mask=mask)


@triton.jit
def decode_kernel(
    q, keys, values, key_scales, value_scales, sinks, tables, lengths, out, softmax_scale,
    kv_heads, page_size,
    stride_qs, stride_qh, stride_kt, stride_kh, stride_table, stride_os, stride_oh,
    DIM: tl.constexpr, WIDTH: tl.constexpr, GROUP_HEADS: tl.constexpr, HEADS: tl.constexpr,
    BLOCK_T: tl.constexpr, WINDOW: tl.constexpr, PER_TOKEN: tl.constexpr, HAS_SINKS: tl.constexpr,
):  # fmt: skip
    """Attention of one query token over a sequence's pages, for the GROUP_HEADS query heads of one key-value head.

    WINDOW: only the last so many tokens are seen (0: all). Sinks take part in the softmax and bring no value.
    HEADS is GROUP_HEADS filled up to what the matrix unit takes (16).
    """
    sequence, kv_head = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + sequence)
    group, columns = tl.arange(0, HEADS), tl.arange(0, WIDTH)
    heads = kv_head * GROUP_HEADS + group
    in_group, in_dim = group < GROUP_HEADS, columns < DIM
    query_at = q + sequence.to(tl.int64) * stride_qs + heads[:, None] * stride_qh + columns[None, :]
    query = tl.load(query_at, mask=in_group[:, None] & in_dim[None, :], other=0.0).to(tl.bfloat16)
    if HAS_SINKS:
        best = tl.load(sinks + heads, mask=in_group, other=0.0).to(tl.float32)
        weight = tl.full((HEADS,), 1.0, dtype=tl.float32)
    else:
        best = tl.full((HEADS,), -1.0e30, dtype=tl.float32)
        weight = tl.zeros((HEADS,), dtype=tl.float32)
    total = tl.zeros((HEADS, WIDTH), dtype=tl.float32)
    first = tl.maximum(length - WINDOW, 0) if WINDOW else 0
    for start in range(first // BLOCK_T * BLOCK_T, length, BLOCK_T):
        tokens = start + tl.arange(0, BLOCK_T)
        seen = (tokens < length) & (tokens >= first)
        page = tl.load(tables + sequence * stride_table + tokens // page_size, mask=seen, other=0).to(tl.int64)
        slot = page * page_size + tokens % page_size
        at = slot[:, None] * stride_kt + kv_head * stride_kh + columns[None, :]
        inside = seen[:, None] & in_dim[None, :]
        key = tl.load(keys + at, mask=inside, other=0.0).to(tl.bfloat16)
        value = tl.load(values + at, mask=inside, other=0.0).to(tl.bfloat16)
        if PER_TOKEN:
            key_scale = tl.load(key_scales + slot * kv_heads + kv_head, mask=seen, other=0.0)[None, :]
            value_scale = tl.load(value_scales + slot * kv_heads + kv_head, mask=seen, other=0.0)[None, :]
        else:
            key_scale, value_scale = tl.load(key_scales), tl.load(value_scales)
        score = tl.dot(query, tl.trans(key)) * key_scale * softmax_scale
        score = tl.where(seen[None, :], score, -1.0e30)
        higher = tl.maximum(best, tl.max(score, axis=1))
        fade = tl.exp(best - higher)
        share = tl.where(seen[None, :], tl.exp(score - higher[:, None]), 0.0)
        weight = weight * fade + tl.sum(share, axis=1)
        total = total * fade[:, None] + tl.dot((share * value_scale).to(tl.bfloat16), value)
        best = higher
    result = total / tl.where(weight > 0, weight, 1.0)[:, None]
    out_at = out + sequence.to(tl.int64) * stride_os + heads[:, None] * stride_oh + columns[None, :]
    tl.store(out_at, result.to(out.dtype.element_ty), mask=in_group[:, None] & in_dim[None, :])
