"""DeepSeek V4's cache: pages of several sizes side by side in one block, and short windows beside compressed entries.

Each layer keeps the last 128 tokens; beside them one entry for 4 or for 128 tokens, an indexer's keys, and the
compressors' running states, which vLLM keeps as windows of 8 or 128 tokens in blocks of 4 or 8.
Sources: models/deepseek_v4/attention.py, compressor.py, v1/attention/backends/mla/sparse_swa.py; grouping in 0.24.0
v1/core/kv_cache_utils.py (_get_kv_cache_groups_uniform_groups), in 0.33.0 v1/core/kv_cache_planning.py
(_get_packed_kv_cache_groups).
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from vllm_advisor.model.spec import CacheGroup, ModelSpec

BLOCK = 256  # tokens of a block of compressed entries
_WINDOW_BLOCK = 64  # sparse_swa.py: a block of the window is as large as one of entries at ratio 4
_STATE_BLOCKS = {8: 4, 128: 8}  # compressor.py: tokens of a state block, by the state's window
_ENTRY = 584  # bytes of a stored vector in FP8: 448 + 128 + 8
_ENTRY_NVFP4 = 380  # of a compressed one in NVFP4, windows stay in FP8 (0.33.0 models/deepseek_v41/attention.py:523)
_ALIGNMENT = 576


class Bucket(NamedTuple):
    """Layers that share a block table: (page bytes, layers) of each page size; window 0: all tokens, entry by entry."""

    block_size: int
    window: int
    pages: tuple[tuple[int, tuple[int, ...]], ...]

    @property
    def repeats(self) -> int:
        """Most layers of one page size."""
        return max(len(layers) for _, layers in self.pages)


class Share(NamedTuple):
    """Groups of one bucket as the pool sees them; `groups` is fractional where 0.24 weighs them by bytes."""

    block_size: int
    window: int
    groups: float


def plan(
    model: ModelSpec, cuts: tuple[range, ...], dtype: str, *, newer: bool
) -> tuple[tuple[Share, ...], tuple[int, ...]]:
    """The groups, and the bytes of one block by pipeline stage. `newer`: as 0.33 does it, else as 0.24."""
    buckets = _buckets(model, _ENTRY_NVFP4 if dtype.startswith("nvfp4") else _ENTRY)
    whole, windows = buckets[0], buckets[1:]
    width = _least_padding([b.repeats for b in (windows if newer else buckets)], whole.repeats)
    counts = [-(-b.repeats // width) for b in windows]
    sizes = tuple(_block_bytes(buckets, width, cut, newer=newer) for cut in cuts)
    weights = [1.0] * len(windows) if newer else [_weight(b, whole, n) for b, n in zip(windows, counts, strict=True)]
    shares = [Share(b.block_size, b.window, n * w) for b, n, w in zip(windows, counts, weights, strict=True)]
    return (Share(BLOCK, 0, 1), *shares), sizes


def _buckets(model: ModelSpec, entry: int) -> list[Bucket]:
    """All growing layers first, then windows by (block, window)."""
    tables: dict[tuple[int, int], dict[int, tuple[int, ...]]] = collections.defaultdict(dict)
    for group in sorted(model.caches, key=lambda c: c.window > 0):
        size, page = _page(group, entry)
        pages = tables[size, group.window]
        pages[page] = pages.get(page, ()) + group.layers
    return [Bucket(size, window, tuple(pages.items())) for (size, window), pages in tables.items()]


def _page(group: CacheGroup, entry: int) -> tuple[int, int]:
    """(tokens a block, bytes a page)."""
    if not group.window:
        return BLOCK, _aligned((group.fixed_bytes_per_token or entry) * (BLOCK // group.tokens_per_entry))
    if not group.fixed_bytes_per_token:
        return _WINDOW_BLOCK, _aligned(_ENTRY * _WINDOW_BLOCK)
    size = _STATE_BLOCKS.get(group.window, _WINDOW_BLOCK)
    return size, _aligned(group.fixed_bytes_per_token * size)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _block_bytes(buckets: list[Bucket], width: int, cut: range, *, newer: bool) -> int:
    """0.33: the widest group. 0.24: for each page size as many slots as any group has, windows padded to a size."""
    if newer:
        return max(sum(page * _widest(layers, b, width, cut) for page, layers in b.pages) for b in buckets)
    sizes = [page for page, _ in buckets[0].pages]
    slots: dict[int, int] = dict.fromkeys(sizes, 0)
    for bucket in buckets:
        for page, layers in bucket.pages:
            size = min((s for s in sizes if s >= page), default=max(sizes))
            slots[size] = max(slots[size], _widest(layers, bucket, width, cut))
    return sum(size * n for size, n in slots.items())


def _widest(layers: tuple[int, ...], bucket: Bucket, width: int, cut: range) -> int:
    """Layers of the largest group that a bucket splits into, on one stage."""
    groups = -(-bucket.repeats // width) if bucket.window else 1
    return max(sum(layer in cut for layer in layers[i::groups]) for i in range(groups))


def _weight(bucket: Bucket, whole: Bucket, groups: int) -> float:
    """0.24 counts a request's blocks in bytes of the first group (get_max_concurrency_for_kv_cache_config)."""
    sizes = [page for page, _ in whole.pages]
    padded = sum(
        min((s for s in sizes if s >= page), default=max(sizes)) * len(layers) for page, layers in bucket.pages
    )
    return padded / sum(page * len(layers) for page, layers in whole.pages) / groups


def _least_padding(counts: list[int], least: int) -> int:
    """The group width from `least` on that pads the counts least, the larger one of equals (_approximate_gcd)."""
    widths = range(least, max([*counts, least]) + 1)
    return min(widths, key=lambda width: (sum(-count % width for count in counts), -width))
