"""What the speed of a plan depends on, before any fitted number: kernels, bytes, operations, links and layer counts.

Everything here is read from the model, the plan, the device and the version's surface. `step.machine` multiplies it
with the parameters.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.hardware import Vendor
from vllm_advisor.memory.identity import Identity
from vllm_advisor.memory.pages import kv_cache_dtype
from vllm_advisor.memory.weights import _EXPERTS_ONLY as EXPERTS_ONLY
from vllm_advisor.memory.weights import sharding
from vllm_advisor.throughput.work import Work, work
from vllm_advisor.vllm import history, plugin
from vllm_advisor.vllm.backends import arithmetic
from vllm_advisor.vllm.schemes import aiter_experts, converts_online, scheme_of, uses_aiter


if TYPE_CHECKING:
    from vllm_advisor.hardware import Gpu, Node
    from vllm_advisor.model.spec import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.vllm.backends import Arithmetic
    from vllm_advisor.vllm.surface import Surface

# Kinds of arithmetic, each with an efficiency of its own.
PLAIN, EIGHT, FOUR, WEIGHT_ONLY, EMULATED = "plain", "eight", "four", "weight_only", "emulated"
# Device families whose kernels are tuned together, by architecture.
_FAMILIES = {
    "sm80": "ampere", "sm86": "geforce", "sm89": "geforce", "sm90": "hopper", "sm100": "blackwell",
    "sm103": "blackwell", "sm110": "geforce", "sm120": "geforce", "sm121": "geforce",
    "gfx90a": "cdna3", "gfx942": "cdna3", "gfx950": "cdna4",
}  # fmt: skip
_UNKNOWN_LINK = (12.0, "host")  # through the host: what PCIe 4.0 x16 leaves when both directions share it
_HOST_SHARE = 0.5  # of the slot's rate: a copy through the host's memory is written there, then read (an estimate)
_PRODUCTS = ("attention", "linear_attention", "mlp", "experts", "shared_expert")


class Kernel(NamedTuple):
    """How a matrix product is computed: `peak` in operations a second of the unit that it uses, and its kind."""

    peak: float
    kind: str


class Wire(NamedTuple):
    """A group's slowest link: its kind (nvlink, xgmi, pcie, host, network …) and bytes a second one way."""

    kind: str
    bandwidth: float


class Traits(NamedTuple):
    """One plan on one machine, one data-parallel replica. Rates in units a second, counts of layers of the whole model.

    `plain_peak` is that of 16 bits, in which attention is computed. `era` is the version's minor number, `overlapped`
    whether the scheduler runs beside the device, `draft` how many tokens a step guesses, `steps_together` how many
    decode steps V0 schedules at once.
    """

    work: Work
    family: str
    bandwidth: float
    plain_peak: float
    dense: Kernel
    experts: Kernel
    wire: Wire
    stage_wire: Wire
    layers: int
    routed_layers: int
    recurrent_layers: int
    hidden_bytes: int
    num_experts: int
    per_token: int
    expert_width: float
    tp: int
    pp: int
    dp: int
    ep: int
    eager: bool
    engine_v0: bool
    overlapped: bool
    minor: int
    max_batched_tokens: int
    exchanged: bool
    draft: int = 0
    steps_together: int = 1
    grouped: bool = False
    dcp: int = 1


def traits(  # noqa: PLR0917 - the first four are the engine's
    model: ModelSpec, plan: Plan, node: Node, surface: Surface, draft: int = 0, steps_together: int = 1
) -> Traits:
    """Read them off. `draft`: tokens that speculative decoding guesses a step; `steps_together`: V0's multi-step."""
    gpu, tp, moe = node.gpu, plan.tensor_parallel_size, model.moe
    spread = sharding(model, plan, gpu, surface)._replace(pipeline_parallel=1)
    facts = history.era(surface.release)
    v0 = facts.engine == "V0" or ("VLLM_USE_V1", "0") in plan.env
    exchanged = moe is not None and plan.data_parallel_size > 1
    dtype = kv_cache_dtype(model, plan.kv_cache_dtype)
    return Traits(
        work=work(Identity(model), spread, dtype, plan.decode_context_parallel_size),
        family=_family(gpu),
        bandwidth=gpu.bandwidth,
        plain_peak=gpu.tflops_bf16 * 1e12,
        dense=kernel(model, plan, gpu, surface, moe=False),
        experts=kernel(model, plan, gpu, surface, moe=moe is not None),
        wire=wire(node, tp * plan.data_parallel_size if exchanged else tp),
        stage_wire=wire(node, tp * plan.pipeline_parallel_size),
        layers=model.num_layers,
        routed_layers=len(moe.layers) if moe else 0,
        recurrent_layers=sum(len(c.layers) for c in model.caches if c.kind == "state"),
        hidden_bytes=model.hidden_size * 2,
        num_experts=moe.num_experts if moe else 0,
        per_token=moe.experts_per_token if moe else 0,
        expert_width=moe.intermediate_size / spread.expert_split if moe else 0.0,
        tp=tp,
        pp=plan.pipeline_parallel_size,
        dp=plan.data_parallel_size,
        ep=plan.expert_parallel_size,
        eager=plan.enforce_eager,
        engine_v0=v0,
        overlapped=facts.async_scheduling
        and not v0
        and (plan.pipeline_parallel_size == 1 or facts.async_with_pipeline),
        minor=surface.release[1],
        max_batched_tokens=plan.max_num_batched_tokens,
        exchanged=exchanged,
        draft=draft,
        steps_together=steps_together if v0 else 1,
        grouped=_is_grouped(model, plan, gpu, surface, spread.expert_split),
        dcp=plan.decode_context_parallel_size,
    )


# DeepGEMM was Hopper's first choice for experts of FP8 blocks from 0.11.0 (envs.py VLLM_USE_DEEP_GEMM), for slices of
# more than 512 columns (deep_gemm_moe.py _valid_deep_gemm), until 0.17.0 put Triton and CUTLASS before it
# (fused_moe/oracle/fp8.py).
_GROUPED_SINCE, _GROUPED_UNTIL, _GROUPED_COLUMNS = (0, 11), (0, 17), 512


def _is_grouped(model: ModelSpec, plan: Plan, gpu: Gpu, surface: Surface, split: int) -> bool:
    """Whether experts run in DeepGEMM's grouped kernels, which pad each expert's tokens to 128."""
    known = model.moe is not None and gpu.capability == 90 and scheme_of(model, plan) == "fp8_block"
    if not known or model.moe is None or ("VLLM_USE_DEEP_GEMM", "0") in plan.env:
        return False
    columns = 2 * model.moe.intermediate_size / (1 if plan.enable_expert_parallel else split)
    return _GROUPED_SINCE <= surface.release[:2] < _GROUPED_UNTIL and columns > _GROUPED_COLUMNS


def _family(gpu: Gpu) -> str:
    if gpu.vendor is Vendor.CPU:
        return "cpu"
    return _FAMILIES.get(gpu.arch, "geforce" if gpu.vendor is Vendor.NVIDIA else "radeon")


def kernel(model: ModelSpec, plan: Plan, gpu: Gpu, surface: Surface, *, moe: bool) -> Kernel:
    """The unit and the kind of the kernel that this version takes for the plan's weights on this device."""
    scheme = scheme_of(model, plan) if _is_stored(model, plan, moe=moe) else "bf16"
    if plugin.serves(model, plan):
        how = plugin.arithmetic(gpu.arch, scheme)
    else:
        how = arithmetic(
            surface,
            gpu.arch,
            scheme,
            moe=moe,
            aiter=aiter_experts(plan) if moe else uses_aiter(plan),
            activation=model.moe.activation if model.moe else "silu",
            expert_parallel=plan.enable_expert_parallel,
            model_type=model.model_type,
        )
    rate = {8: gpu.tflops_fp8, 4: gpu.tflops_fp4}.get(how.compute_bits) or gpu.tflops_bf16
    kind = _kind(how, scheme)
    if moe and scheme == "mxfp4" and _unpacks_experts(model, plan, gpu, surface):
        return Kernel(gpu.tflops_bf16 * 1e12, EMULATED)
    stored = model.quantization
    if kind == EIGHT and scheme == "int8" and stored.activation_bits == 16:
        return Kernel(gpu.tflops_bf16 * 1e12, WEIGHT_ONLY)  # GPTQ's eight bits are unpacked, not multiplied
    if "bitsandbytes" in (stored.method, plan.quantization) and scheme != "bf16":
        return Kernel(gpu.tflops_bf16 * 1e12, EMULATED)  # each layer is unpacked to 16 bits before it is multiplied
    return Kernel(rate * 1e12, kind)


# AMD's MXFP4 experts, those of gpt-oss apart, were unpacked each step where AITER was not on (quark_moe.py `emulate`:
# 0.16.0:600; since 0.17.0:730 a device with the unit computes them).
_COMPUTES_MXFP4 = (0, 17)


def _unpacks_experts(model: ModelSpec, plan: Plan, gpu: Gpu, surface: Surface) -> bool:
    gpt_oss = model.moe is not None and model.moe.activation == "swigluoai"
    old = surface.release[:2] < _COMPUTES_MXFP4
    return gpu.vendor is Vendor.AMD and old and not gpt_oss and not aiter_experts(plan)


def _is_stored(model: ModelSpec, plan: Plan, *, moe: bool) -> bool:
    """Whether the format covers this part of the model: many checkpoints quantize their experts alone."""
    if converts_online(model, plan):
        return moe or plan.quantization not in EXPERTS_ONLY
    parts = [g for g in model.weights if (g.role == "experts") is moe and g.role in _PRODUCTS]
    return sum(g.params for g in parts if g.bits < 16) * 2 > sum(g.params for g in parts)


def _kind(how: Arithmetic, scheme: str) -> str:
    if how.emulated:
        return EMULATED
    if how.compute_bits == 16:
        return PLAIN if scheme == "bf16" else WEIGHT_ONLY
    return EIGHT if how.compute_bits == 8 else FOUR


def wire(node: Node, ranks: int) -> Wire:
    """The slowest link among the first `ranks` devices, the network where they span nodes.

    xGMI joins each pair of devices by a link of its own, all of which a collective uses; an NVLink figure is a
    device's whole port. A listed link through the host has the rate of its slot, of which half is left.
    """
    if ranks > len(node.gpus):
        return Wire("network", node.network_gb_s * 1e9)
    return _inside(Identity(node), ranks)


@functools.lru_cache(maxsize=512)
def _inside(key: Identity[Node], ranks: int) -> Wire:
    share = {"xgmi": ranks - 1, "host": _HOST_SHARE}
    inside = [link for link in key.value.topology.links if link.a < ranks and link.b < ranks]
    rates = [(link.gb_s * share.get(link.kind, 1), link.kind) for link in inside]
    gb_s, kind = min(rates, default=_UNKNOWN_LINK)
    return Wire(kind, gb_s * 1e9)
