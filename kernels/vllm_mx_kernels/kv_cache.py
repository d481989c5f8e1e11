"""An FP8 key-value cache in pages: quantize and store, and attention of one new token a sequence.

A cache is [pages, page_size, heads, dim]. Scales are float32: [] for all keys or all values, or one for each token and
head, [pages, page_size, heads], found while storing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from vllm_mx_kernels.device import arch_of, uses_triton
from vllm_mx_kernels.formats import FP8_FORMATS
from vllm_mx_kernels.fp8 import TORCH_DTYPES, scales_of


class PagedCache(NamedTuple):
    """Keys or values: `pages` in a torch FP8 dtype [pages, page_size, heads, dim]; `scales` [] or a token-head each."""

    pages: torch.Tensor
    scales: torch.Tensor

    @property
    def per_token(self) -> bool:
        """Whether each token and head has its own scale."""
        return self.scales.dim() > 0


def empty_cache(
    pages: int, page_size: int, heads: int, dim: int, *, dtype: torch.dtype = torch.float8_e4m3fn,
    scale: float | None = None, device: str | torch.device = "cpu",
) -> PagedCache:  # fmt: skip
    """A cache of zeros. `scale` fixes one for all; None: one a token and head."""
    store = torch.zeros(pages, page_size, heads, dim, dtype=torch.uint8, device=device).view(dtype)
    shape = (pages, page_size, heads) if scale is None else ()
    return PagedCache(store, torch.full(shape, 1.0 if scale is None else scale, device=device))


_LARGEST = {TORCH_DTYPES[fmt]: fmt.max for fmt in FP8_FORMATS}


def store_torch(x: torch.Tensor, cache: PagedCache, slots: torch.Tensor) -> None:
    """Write x [T, heads, dim] into the slots (page × page_size + place) [T]; a slot of −1 is left alone.

    An Inf or a NaN becomes NaN; with a scale a token and head, so does that whole head of the token.
    """
    kept = slots >= 0
    values, places = x[kept].float(), slots[kept].long()
    largest = _LARGEST[cache.pages.dtype]
    if cache.per_token:
        scales = scales_of(values.abs().amax(-1), largest)
        cache.scales.view(-1, cache.pages.shape[2])[places] = scales
    else:
        scales = cache.scales.expand(values.shape[:2])
    fitting = (values / scales.unsqueeze(-1)).clamp(-largest, largest)
    whole = torch.where(torch.isfinite(values), fitting, torch.nan).to(cache.pages.dtype)
    cache.pages.view(torch.uint8).view(-1, *cache.pages.shape[2:])[places] = whole.view(torch.uint8)


def store(x: torch.Tensor, cache: PagedCache, slots: torch.Tensor) -> None:
    """`store_torch` on whatever device x is, equal to it bit for bit. Raises ValueError for shapes that do not fit."""
    if x.shape != (slots.shape[0], *cache.pages.shape[2:]):
        raise ValueError(f"{tuple(x.shape)} does not fit {slots.shape[0]} slots of {tuple(cache.pages.shape[2:])}")
    _check_layout(cache)
    if not uses_triton(x) or not x.numel():
        store_torch(x, cache, slots)
        return
    from vllm_mx_kernels import _kv_launch

    _kv_launch.store(x, cache, slots, _LARGEST[cache.pages.dtype])


def _check_layout(cache: PagedCache) -> None:
    """Slots of all pages have to follow one another at one distance, as in a cache of its own or a slice of layers."""
    page, slot, _, element = cache.pages.stride()
    if page != cache.pages.shape[1] * slot or element != 1 or not cache.scales.is_contiguous():
        raise ValueError(f"a cache of strides {cache.pages.stride()} is not laid out slot after slot")
    if cache.per_token and cache.scales.shape != cache.pages.shape[:3]:
        raise ValueError(f"scales {tuple(cache.scales.shape)} for pages of {tuple(cache.pages.shape)}")


class Attention(NamedTuple):
    """What one decode step attends to: `tables` int32 [S, pages a sequence], `lengths` int32 [S] with the new token.

    `window`: only the last so many tokens are seen (0: all). `sinks` float [query heads]: logits that take part in the
    softmax and bring no value, or None. `scale`: of the scores, dim^−½ as a rule.
    """

    tables: torch.Tensor
    lengths: torch.Tensor
    scale: float
    window: int = 0
    sinks: torch.Tensor | None = None


def decode_torch(q: torch.Tensor, keys: PagedCache, values: PagedCache, at: Attention) -> torch.Tensor:
    """Q [S, query heads, dim] → the same shape and dtype, in float64. A sequence of no tokens gives zeros."""
    out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    for sequence, length in enumerate(at.lengths.tolist()):
        if length:
            first = max(length - at.window, 0) if at.window else 0
            out[sequence] = _attend(q[sequence].double(), _gather(keys, at, sequence, first, length),
                                    _gather(values, at, sequence, first, length), at)  # fmt: skip
    return out.to(q.dtype)


def _gather(cache: PagedCache, at: Attention, sequence: int, first: int, length: int) -> torch.Tensor:
    """[tokens, heads, dim] in float64."""
    page_size = cache.pages.shape[1]
    tokens = torch.arange(first, length, device=at.tables.device)
    slots = at.tables[sequence, tokens // page_size].long() * page_size + tokens % page_size
    elements = cache.pages.double().flatten(0, 1)[slots]
    scales = cache.scales.double().flatten(0, 1)[slots].unsqueeze(-1) if cache.per_token else cache.scales.double()
    return elements * scales


def _attend(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, at: Attention) -> torch.Tensor:
    group = q.shape[0] // keys.shape[1]
    scores = torch.einsum("hd,thd->ht", q, keys.repeat_interleave(group, 1)) * at.scale
    if at.sinks is not None:
        scores = torch.cat((scores, at.sinks.double().unsqueeze(1)), 1)
    shares = scores.softmax(-1)[:, : keys.shape[0]]
    return torch.einsum("ht,thd->hd", shares, values.repeat_interleave(group, 1))


def decode(q: torch.Tensor, keys: PagedCache, values: PagedCache, at: Attention) -> torch.Tensor:
    """Attention of one new token a sequence, on whatever device q is. Raises ValueError for shapes that do not fit."""
    if q.shape[1] % keys.pages.shape[2] or q.shape[2] != keys.pages.shape[3] or keys.pages.shape != values.pages.shape:
        raise ValueError(f"{tuple(q.shape)} queries do not fit caches of {tuple(keys.pages.shape)}")
    _check_layout(keys)
    _check_layout(values)
    if keys.pages.stride() != values.pages.stride() or keys.per_token != values.per_token:
        raise ValueError("keys and values are laid out or scaled differently")
    if at.tables.shape[0] != q.shape[0] or at.lengths.shape != q.shape[:1]:
        raise ValueError(
            f"tables {tuple(at.tables.shape)} and lengths {tuple(at.lengths.shape)} of {q.shape[0]} sequences"
        )
    if not uses_triton(q) or not q.numel():
        return decode_torch(q, keys, values, at)
    from vllm_mx_kernels import _kv_launch

    return _kv_launch.decode(q, keys, values, at, arch_of(q))
