"""Starts the Triton bodies of the paged FP8 cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton

from vllm_mx_kernels import _kv_triton as bodies
from vllm_mx_kernels.launch import default_launch


if TYPE_CHECKING:
    from vllm_mx_kernels.kv_cache import Attention, PagedCache

_LEAST_HEADS = 16  # rows that a matrix unit takes at least


def store(x: torch.Tensor, cache: PagedCache, slots: torch.Tensor, largest: float) -> None:
    """See `kv_cache.store`."""
    heads, dim = cache.pages.shape[2:]
    x, slots = _dense(x), slots.contiguous()
    bodies.store_kernel[(x.shape[0], heads)](
        x, cache.pages, cache.scales, slots, heads, x.stride(0), x.stride(1),
        cache.pages.stride(1), cache.pages.stride(2),
        DIM=dim, WIDTH=triton.next_power_of_2(dim), LARGEST=largest, PER_TOKEN=cache.per_token, num_warps=1,
    )  # fmt: skip


def decode(q: torch.Tensor, keys: PagedCache, values: PagedCache, at: Attention, arch: str) -> torch.Tensor:
    """See `kv_cache.decode`."""
    _, page_size, kv_heads, dim = keys.pages.shape
    group = q.shape[1] // kv_heads
    q, tables = _dense(q), _dense(at.tables)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    launch = default_launch("kv.decode", arch, q.shape[0])
    bodies.decode_kernel[(q.shape[0], kv_heads)](
        q, keys.pages, values.pages, keys.scales, values.scales, q if at.sinks is None else at.sinks.contiguous(),
        tables, at.lengths.contiguous(), out, at.scale, kv_heads, page_size,
        q.stride(0), q.stride(1), keys.pages.stride(1), keys.pages.stride(2), tables.stride(0),
        out.stride(0), out.stride(1),
        DIM=dim, WIDTH=triton.next_power_of_2(dim), GROUP_HEADS=group,
        HEADS=max(_LEAST_HEADS, triton.next_power_of_2(group)), BLOCK_T=launch.block_n, WINDOW=at.window,
        PER_TOKEN=keys.per_token, HAS_SINKS=at.sinks is not None,
        num_warps=launch.num_warps, num_stages=launch.num_stages,
    )  # fmt: skip
    return out


def _dense(x: torch.Tensor) -> torch.Tensor:
    """With a last dimension that has no gaps; rows may have."""
    return x if x.stride(-1) == 1 else x.contiguous()
