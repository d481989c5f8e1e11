"""How fast a device and its links really are: peaks of the datasheet times an efficiency, and fixed costs.

The efficiencies are few, global and ours: chosen so that the median over public measurements is unbiased
(benchmarks/speed_anchor.py), never by model or machine. They are estimates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.hardware import Vendor
from vllm_advisor.vllm.backends import arithmetic
from vllm_advisor.vllm.schemes import aiter_experts, scheme_of, uses_aiter


if TYPE_CHECKING:
    from vllm_advisor.hardware import Gpu, Node
    from vllm_advisor.model.spec import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.vllm.backends import Arithmetic
    from vllm_advisor.vllm.surface import Surface


class Efficiency(NamedTuple):
    """Fractions of peak: weights and KV of memory bandwidth, dense and expert GEMMs and attention of compute.

    `link` of a link's bandwidth. `weight_only`: what is left of compute when weights are unpacked on the way.
    """

    weights: float
    kv: float
    dense: float
    experts: float
    attention: float
    link: float
    weight_only: float


#                          weights  kv    dense  experts  attention  link  weight_only
EFFICIENCY = {
    Vendor.NVIDIA: Efficiency(0.75, 0.55, 0.50, 0.30, 0.35, 0.70, 0.75),
    Vendor.AMD: Efficiency(0.60, 0.40, 0.30, 0.20, 0.20, 0.60, 0.60),
    Vendor.CPU: Efficiency(0.60, 0.50, 0.40, 0.30, 0.20, 0.50, 0.60),
}

STEP_SECONDS = 1.0e-3  # scheduler, sampler and input preparation of a step that async scheduling does not hide
LAYER_SECONDS = 25e-6  # kernel starts and tails of one layer inside a graph
EXPERT_LAYER_SECONDS = 40e-6  # routing, sorting and the extra kernels of an expert layer, on top
EAGER_LAYER_SECONDS = 120e-6  # the same with each kernel launched from Python
# One small all-reduce, by link: custom kernels over NVLink or xGMI, NCCL over the rest.
MESSAGE_SECONDS = {"nvlink": 10e-6, "xgmi": 15e-6, "pcie": 35e-6, "c2c": 20e-6, "host": 50e-6, "network": 60e-6}
_UNKNOWN_SECONDS = 50e-6
_UNKNOWN_LINK = (12.0, "host")  # through the host: what PCIe 4.0 x16 leaves when both directions share it
_HOST_SHARE = 0.5  # of the slot's rate: a copy through the host's memory is written there, then read (an estimate)


class Compute(NamedTuple):
    """Operations a second of one rank for dense layers, experts and attention."""

    dense: float
    experts: float
    attention: float


class Wire(NamedTuple):
    """A group's slowest link: seconds of one small collective, bytes a second one way."""

    latency: float
    bandwidth: float


def compute(model: ModelSpec, plan: Plan, gpu: Gpu, surface: Surface) -> Compute:
    """What the kernels of this version reach on this device for the plan's weights."""
    fractions = EFFICIENCY[gpu.vendor]
    dense = peak(model, plan, gpu, surface, moe=False)
    experts = peak(model, plan, gpu, surface, moe=True) if model.moe else dense
    return Compute(dense * fractions.dense, experts * fractions.experts, gpu.tflops_bf16 * 1e12 * fractions.attention)


def peak(model: ModelSpec, plan: Plan, gpu: Gpu, surface: Surface, *, moe: bool) -> float:
    """Operations a second at peak, in the arithmetic that the chosen kernel uses."""
    how = _arithmetic(model, plan, gpu, surface, moe=moe)
    rate = {8: gpu.tflops_fp8, 4: gpu.tflops_fp4}.get(how.compute_bits) or gpu.tflops_bf16
    return rate * 1e12 * (EFFICIENCY[gpu.vendor].weight_only if _unpacked(how, model, plan) else 1.0)


def _unpacked(how: Arithmetic, model: ModelSpec, plan: Plan) -> bool:
    return scheme_of(model, plan) != "bf16" and how.compute_bits == 16


def _arithmetic(model: ModelSpec, plan: Plan, gpu: Gpu, surface: Surface, *, moe: bool) -> Arithmetic:
    return arithmetic(
        surface,
        gpu.arch,
        scheme_of(model, plan),
        moe=moe,
        aiter=aiter_experts(plan) if moe else uses_aiter(plan),
        activation=model.moe.activation if model.moe else "silu",
        expert_parallel=plan.enable_expert_parallel,
        model_type=model.model_type,
    )


def wire(node: Node, ranks: int) -> Wire:
    """The slowest link among the first `ranks` devices, the network where they span nodes.

    xGMI joins each pair of devices by a link of its own, all of which a collective uses; an NVLink figure is a
    device's whole port. A listed link through the host has the rate of its slot, of which half is left.
    """
    efficiency = EFFICIENCY[node.gpu.vendor].link
    if ranks > len(node.gpus):
        return Wire(MESSAGE_SECONDS["network"], node.network_gb_s * 1e9 * efficiency)
    share = {"xgmi": ranks - 1, "host": _HOST_SHARE}
    inside = [link for link in node.topology.links if link.a < ranks and link.b < ranks]
    rates = [(link.gb_s * share.get(link.kind, 1), link.kind) for link in inside]
    gb_s, kind = min(rates, default=_UNKNOWN_LINK)
    return Wire(MESSAGE_SECONDS.get(kind, _UNKNOWN_SECONDS), gb_s * 1e9 * efficiency)
