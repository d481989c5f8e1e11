"""CUDA graphs: how many sizes are captured, and what vLLM takes off for them before it sizes the KV cache.

Sizes: config/vllm.py _set_cudagraph_sizes. The estimate is the first capture of each mode and at least 1 MiB for each
further one (v1/worker/gpu_model_runner.py profile_cudagraph_memory). Whether it is charged depends on the release
(`vllm.history`: CUDA since 0.20, ROCm later; v1/worker/gpu_worker.py determine_available_memory).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from vllm_advisor.hardware import Vendor
from vllm_advisor.units import GIB, Interval


if TYPE_CHECKING:
    from vllm_advisor.hardware import Gpu
    from vllm_advisor.model.spec import ModelSpec
    from vllm_advisor.plan import Plan

_MIB = 1 << 20
_LARGEST, _LARGEST_BLACKWELL = 512, 1024
# The first capture, by what start-ups printed (estimate): private pools of a dense and of an expert model.
_FIRST_DENSE, _FIRST_MOE = 0.20 * GIB, 0.65 * GIB
# Sparse attention lost up to 8 GiB to captures in start-ups of 0.21 and 0.22 (vllm#44376): how much is not modelled.
_SPARSE = 8 * GIB
_MODES = 2  # piecewise and full
_PER_GRAPH = 1.5 * _MIB
NONE = Interval(0, 0, 0)


def graphs(model: ModelSpec, plan: Plan, gpu: Gpu) -> Interval:
    """Bytes of the captured graphs on one rank, charged or not; zero when eager and on a CPU."""
    if plan.enforce_eager or gpu.vendor is Vendor.CPU:
        return NONE
    captured = _MODES * len(capture_sizes(plan.max_num_seqs, plan.max_num_batched_tokens, largest(gpu)))
    mid = (_FIRST_MOE if model.moe else _FIRST_DENSE) + captured * _PER_GRAPH
    sparse = any(c.kind in ("indexer", "compressed") for c in model.caches)
    return Interval(mid * 0.3, mid, mid * 2.5 + (_SPARSE if sparse else 0))


def largest(gpu: Gpu) -> int:
    """The default ceiling of captured batch sizes: data-centre Blackwell (compute capability 10.x) doubles it."""
    return _LARGEST_BLACKWELL if gpu.capability in (100, 103) else _LARGEST


@functools.cache
def capture_sizes(max_num_seqs: int, max_num_batched_tokens: int, ceiling: int) -> tuple[int, ...]:
    """Batch sizes that are captured: 1, 2, 4, steps of 8 below 256, steps of 16 from there on."""
    top = min(max_num_seqs * 2, ceiling, max_num_batched_tokens)
    sizes = (1, 2, 4, *range(8, min(top + 1, 256), 8), *range(256, top + 1, 16))
    return tuple(s for s in sizes if s <= top)
