"""What lies outside of PyTorch's allocator: communicators, libraries, custom all-reduce buffers.

vLLM measures it as the change of free memory that PyTorch did not cause (utils/mem_utils.py). The figures are what
start-ups printed, rounded: 0.13-0.4 GiB on one device, 0.5-0.6 GiB with two ranks and more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.units import GIB, Interval


if TYPE_CHECKING:
    from vllm_advisor.plan import Plan

_ALONE = Interval(0.05 * GIB, 0.20 * GIB, 0.7 * GIB)
_COMMUNICATOR = 0.35 * GIB  # NCCL channels and custom all-reduce buffers of one group
_EXPERT_GROUP = 0.40 * GIB  # all-to-all buffers


def non_torch(plan: Plan) -> Interval:
    """Bytes on one rank, by the process groups that it is in."""
    groups = (plan.tensor_parallel_size > 1) + (plan.pipeline_parallel_size > 1) + (plan.data_parallel_size > 1)
    exchange = plan.enable_expert_parallel and plan.data_parallel_size > 1  # all-to-all only then (fused_moe/config.py)
    extra = groups * _COMMUNICATOR + exchange * _EXPERT_GROUP
    return Interval(_ALONE.low + 0.5 * extra, _ALONE.mid + extra, _ALONE.high + 2.5 * extra)
