"""What lies outside of PyTorch's allocator: communicators, libraries, custom all-reduce buffers.

vLLM measures it as the change of free memory that PyTorch did not cause (utils/mem_utils.py). The figures are what
start-ups printed, rounded: 0.13-0.14 GiB on one CUDA device (0.06-0.39 before
0.9.1, which measured from the driver's total), 0.54-0.55 with two ranks, 0.66 on one ROCm device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.hardware import Vendor
from vllm_advisor.units import GIB, Interval


if TYPE_CHECKING:
    from vllm_advisor.hardware import Gpu
    from vllm_advisor.memory.era import Era
    from vllm_advisor.plan import Plan

_ALONE = Interval(0.03 * GIB, 0.15 * GIB, 0.45 * GIB)
_ALONE_AMD = Interval(0.1 * GIB, 0.35 * GIB, 1.5 * GIB)
# V1 on ROCm before 0.13: seven start-ups of one build on R9700 lost 0 to 3 GiB more than 0.13 did with equal flags,
# most of them 1 to 2.5; what takes it was not found (an estimate, the middle of the seven).
_AMD_BEFORE_0_13 = Interval(0.1 * GIB, 1.85 * GIB, 3.6 * GIB)
# How a release measures (`vllm.history` accounting): "device" counts the context too, "reserved" the allocator's
# holdings as well (medians of five and of four start-ups; estimates).
_ACCOUNTING = {"device": 0.2 * GIB, "reserved": 0.4 * GIB}
_COMMUNICATOR = 0.40 * GIB  # NCCL channels and custom all-reduce buffers of one group
_EXPERT_GROUP = 0.40 * GIB  # all-to-all buffers
# Where host and device share memory, what the host takes meanwhile counts: seven start-ups on GB10 lost -1.9 to 2.7 GiB
# more than the other terms, 2.2 in the middle (an estimate).
_SHARED = Interval(-1.5 * GIB, 2.0 * GIB, 4.5 * GIB)
_OWN = Interval(0, 0, 0)


def non_torch(plan: Plan, gpu: Gpu, era: Era) -> Interval:
    """Bytes on one rank, by the process groups that it is in."""
    alone = _alone(gpu, era)
    groups = (plan.tensor_parallel_size > 1) + (plan.pipeline_parallel_size > 1) + (plan.data_parallel_size > 1)
    exchange = plan.enable_expert_parallel and plan.data_parallel_size > 1  # all-to-all only then (fused_moe/config.py)
    older = _ACCOUNTING.get(era.facts.accounting, 0.0)
    extra = groups * _COMMUNICATOR + exchange * _EXPERT_GROUP
    shared = _SHARED if gpu.unified_memory else _OWN
    mid = alone.mid + older + extra + shared.mid
    return Interval(alone.low + 0.25 * extra + shared.low, mid, alone.high + older + 2.0 * extra + shared.high)


def _alone(gpu: Gpu, era: Era) -> Interval:
    if gpu.vendor is not Vendor.AMD:
        return _ALONE
    return _AMD_BEFORE_0_13 if era.older_rocm else _ALONE_AMD
