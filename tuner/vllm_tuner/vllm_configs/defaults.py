"""The tiles that vLLM uses where no tuned file is found, by release: what an untuned batch size must keep.

The rules are vLLM's, stated anew from `get_default_config` (fused_moe/fused_moe.py:1203 of 0.24.0, :1298 of 0.33.0).
Three forms exist from 0.24.0 on: 0.25.0 gave block-scaled FP8 narrower tiles for small batches, 0.27.0 made the
smallest tile of grouped weights a power of two. tests/data/vllm_configs holds what each release's own function answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from vllm_advisor.hardware import Vendor
    from vllm_tuner.vllm_configs.shapes import Shape

Config = dict[str, int]  # a launch configuration in vLLM's words: BLOCK_SIZE_M, num_warps, …
OLDEST = (0, 24, 0)
_GROUPED = ("int4_w4a16", "int8_w8a16")
_CUDA_GROUPS = (32, 64, 128)
_ROCM_STAGES = 2


class Where(NamedTuple):
    """Whose defaults: a release of vLLM, and the device's maker and architecture (as in Gpu.arch, "" not known)."""

    release: tuple[int, int, int]
    vendor: Vendor
    arch: str = ""

    @property
    def is_rocm(self) -> bool:
        """Whether vLLM runs its ROCm platform."""
        return self.vendor.value == "amd"


class Segment(NamedTuple):
    """Batch sizes `first` … `last` that share one configuration; `last` None: all that follow."""

    first: int
    last: int | None
    config: Config


def default_config(where: Where, shape: Shape, batch: int) -> Config:
    """The tiles for `batch` tokens. Raises ValueError for a batch below 1 and a release before 0.24.0.

    Grouped 4- and 8-bit weights have no N and K tile here: their kernel fills them in when it is called.
    """
    if batch < 1 or where.release < OLDEST:
        raise ValueError(f"no default for a batch of {batch} in vLLM {'.'.join(map(str, where.release))}")
    if shape.dtype == "fp8_w8a8" and shape.block is not None:
        return _block_scaled(where, shape.block, batch)
    if shape.dtype in _GROUPED and shape.block is not None:
        return _grouped(where, shape, shape.block[1], batch)
    return _general(where, shape, batch)


def _block_scaled(where: Where, block: tuple[int, int], batch: int) -> Config:
    narrow = not where.is_rocm and batch <= 8 and block[0] % 64 == 0 and where.release >= (0, 25, 0)
    stages = _ROCM_STAGES if where.is_rocm else 4 if narrow and batch <= 4 else 3
    return {
        "BLOCK_SIZE_M": 16 if batch <= 64 else 64,
        "BLOCK_SIZE_N": 64 if narrow else block[0],
        "BLOCK_SIZE_K": block[1],
        "GROUP_SIZE_M": 1 if batch <= 16 else 32,
        "SPLIT_K": 1,
        "num_warps": 4,
        "num_stages": stages,
    }


def _grouped(where: Where, shape: Shape, group: int, batch: int) -> Config:
    if _takes_cuda_kernel(where, shape, group, batch):
        if where.release < (0, 27, 0):
            return {"BLOCK_SIZE_M": min(16, batch), "SPLIT_K": 1}
        return {"BLOCK_SIZE_M": min(16, 1 << (batch - 1).bit_length()), "GROUP_SIZE_M": 1, "SPLIT_K": 1}
    return {"BLOCK_SIZE_M": 16 if batch <= 20 else 32 if batch <= 40 else 64, "GROUP_SIZE_M": 1, "SPLIT_K": 1}


def _takes_cuda_kernel(where: Where, shape: Shape, group: int, batch: int) -> bool:
    """fused_moe.py:1287-1295: four bits, few tokens an expert."""
    few = batch * shape.top_k / shape.experts <= 6
    return where.vendor.value == "nvidia" and shape.dtype == "int4_w4a16" and group in _CUDA_GROUPS and few


def _general(where: Where, shape: Shape, batch: int) -> Config:
    stages = _ROCM_STAGES if where.is_rocm else 4 if batch <= 32 else 3
    return {
        "BLOCK_SIZE_M": 16 if batch <= 32 else 32 if batch <= 96 else 64 if batch <= 512 else 128,
        "BLOCK_SIZE_N": 64 if batch <= 64 else 128,
        "BLOCK_SIZE_K": 128 if shape.dtype == "fp8_w8a8" or batch <= 64 else 64,
        "GROUP_SIZE_M": 16 if batch // max(shape.experts, 1) > 128 else 1,
        "SPLIT_K": 1,
        "num_warps": 4 if batch <= 128 else 8,
        "num_stages": stages,
    }


def segments(where: Where, shape: Shape) -> tuple[Segment, ...]:
    """All batch sizes, cut where the default changes; the last segment is open."""
    edges = [(1, default_config(where, shape, 1))]
    for batch in _edges(shape):
        config = default_config(where, shape, batch)
        if config != edges[-1][1]:
            edges.append((batch, config))
    ends = [first - 1 for first, _ in edges[1:]] + [None]
    return tuple(Segment(first, last, config) for (first, config), last in zip(edges, ends, strict=True))


def _edges(shape: Shape) -> list[int]:
    """Batch sizes at which some rule above may change its answer, in order."""
    few = 6 * shape.experts // max(shape.top_k, 1)
    fixed = [*range(2, 18), 21, 33, 41, 65, 97, 129, 513]
    return sorted({*fixed, few + 1, 129 * max(shape.experts, 1)})
