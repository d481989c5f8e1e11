"""Weights: does this version take the checkpoint on this device, with which kernel, and in what does it compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_advisor.rules import views
from vllm_advisor.units import gib
from vllm_advisor.vllm import archs, backends, plugin, schemes


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.facts import Case

# Flattened configs of the catalog name an inner model; the registry has the published class.
_REGISTERED_AS = {
    "MiniMaxM3ForCausalLM": "MiniMaxM3SparseForCausalLM",
    "Step3p7FlashForCausalLM": "Step3p7ForConditionalGeneration",
}
# What a checkpoint calls itself → vLLM's method (override_quantization_method of each config class).
_METHODS = {"auto-round": "inc", "modelopt_fp8": "modelopt", "auto_round": "inc"}
# Lowest compute capability, by method and, where one method has several schemes, by scheme (get_min_capability).
_MIN_CAPABILITY = {
    ("awq", ""): 75, ("gptq", ""): 60, ("fp8", ""): 75, ("deepseek_v4_fp8", ""): 75, ("torchao", ""): 75,
    ("mxfp4", ""): 80, ("gpt_oss_mxfp4", ""): 80, ("experts_int8", ""): 80, ("fbgemm_fp8", ""): 80,
    ("fp_quant", ""): 100,
    ("modelopt", "nvfp4"): 75, ("modelopt", "nvfp4_mixed"): 75, ("modelopt", "mxfp8"): 80,
    ("compressed-tensors", "nvfp4"): 75, ("compressed-tensors", "mxfp4"): 80, ("compressed-tensors", "mxfp8"): 75,
    ("compressed-tensors", "int8"): 75, ("compressed-tensors", "int4"): 75, ("compressed-tensors", "fp8_tensor"): 75,
    ("compressed-tensors", "fp8_channel"): 75, ("compressed-tensors", "fp8_block"): 75,
    ("quark", "fp8_tensor"): 89, ("quark", "fp8_channel"): 89, ("quark", "int8"): 75, ("quark", "mxfp4"): 70,
}  # fmt: skip
_MODELOPT_FP8 = {False: 89, True: 80}  # 0.24 modelopt.py:412, 0.33 :450
# Absent from `supported_quantization` of platforms/rocm.py: 0.24:459-484, 0.33:659-685.
_NOT_ON_ROCM = frozenset((
    "experts_int8", "moe_wna16", "int8_per_channel_weight_only", "nvfp4_per_token", "humming", "fp_quant",
))  # fmt: skip


def device_not_supported(case: Case) -> Mapping[str, Any] | None:
    """The vLLM has no build for the device."""
    reason = backends.supported_arch(case.facts.vllm, views.arch(case))
    return {"reason": reason} if reason else None


def architecture_not_registered(case: Case) -> Mapping[str, Any] | None:
    """The version's model registry does not have the architecture."""
    surface, model = case.facts.vllm, case.facts.model
    if surface.has_architecture(model.architecture):
        return None
    last = surface.removed_architectures.get(model.architecture)
    known = _REGISTERED_AS.get(model.architecture, model.architecture)
    if surface.has_architecture(known):
        return None
    when = f"removed after vLLM {last}" if last else "not in its model registry"
    return {"architecture": model.architecture, "version": surface.version, "when": when}


def minimax_m3_too_early(case: Case) -> Mapping[str, Any] | None:
    """MiniMax-M3 came with 0.24."""
    surface = case.facts.vllm
    if surface.at_least(0, 24) or not case.facts.model.model_type.startswith("minimax_m3"):
        return None
    return {"version": surface.version}


def _method(case: Case) -> str:
    method = case.facts.model.quantization.method
    return _METHODS.get(method, method)


def method_removed(case: Case) -> Mapping[str, Any] | None:
    """Bitsandbytes left between 0.24 and 0.32."""
    asked = {_method(case), case.plan.quantization}
    if "bitsandbytes" not in asked or "bitsandbytes" in case.facts.vllm.quantizations:
        return None
    return {"version": case.facts.vllm.version}


def method_unknown(case: Case) -> Mapping[str, Any] | None:
    """The checkpoint's method is none of this version's."""
    method = _method(case)
    if method in ("none", "bitsandbytes", plugin.NAME) or method in case.facts.vllm.quantizations:
        return None
    return {"method": method, "version": case.facts.vllm.version}


def not_on_rocm(case: Case) -> Mapping[str, Any] | None:
    """ROCm takes only the methods of its own list."""
    if views.arch(case) not in archs.ROCM:
        return None
    newer = case.facts.vllm.at_least(0, 29)
    refused = _NOT_ON_ROCM | {"gptq_marlin" if newer else "inc"}
    method = case.plan.quantization if views.converts_online(case) else _method(case)
    return {"method": method, "version": case.facts.vllm.version} if method in refused else None


def capability_too_low(case: Case) -> Mapping[str, Any] | None:
    """The method asks for a newer NVIDIA device."""
    have = views.gpu(case).capability
    method = _method(case)
    if not have or method == "none":
        return None
    scheme = case.facts.model.quantization.scheme
    need = _MIN_CAPABILITY.get((method, ""), _MIN_CAPABILITY.get((method, scheme), 0))
    if method == "modelopt" and scheme in views.FP8_SCHEMES:
        need = _MODELOPT_FP8[case.facts.vllm.at_least(0, 29)]
    return {"method": method, "need": need / 10, "have": have / 10} if have < need else None


def converts_a_quantized_checkpoint(case: Case) -> Mapping[str, Any] | None:
    """An online flag on a checkpoint that is already quantized in another way."""
    flag, model = case.plan.quantization, case.facts.model
    if not flag or model.quantization.method == "none" or flag in (_method(case), model.quantization.method):
        return None
    if flag == plugin.NAME and plugin.takes(model):
        return None  # gpt-oss's format, taken over as it is
    return {"flag": flag, "method": model.quantization.method}


def cannot_convert_online(case: Case) -> Mapping[str, Any] | None:
    """The version or device has no such online quantization."""
    if not views.converts_online(case) or case.plan.quantization == plugin.NAME:
        return None
    flag = "fp8_per_tensor" if case.plan.quantization == "fp8" else case.plan.quantization
    arch, surface = views.arch(case), case.facts.vllm
    offered = backends.online_quantizations(surface, arch, case.facts.model)
    if any(flag == name for name, _ in offered):
        return None
    names = ", ".join(name for name, _ in offered) or "none"
    return {"flag": case.plan.quantization, "arch": arch, "version": surface.version, "offered": names}


def deprecated_spelling(case: Case) -> Mapping[str, Any] | None:
    """`--quantization fp8` for online conversion."""
    if case.plan.quantization != "fp8" or not views.converts_online(case) or not case.facts.vllm.at_least(0, 29):
        return None
    return {"version": case.facts.vllm.version}


def no_linear_kernel(case: Case) -> Mapping[str, Any] | None:
    """No kernel for the linear layers."""
    scheme = views.linear_scheme(case)
    if scheme in ("other", "bf16") or views.linear_arithmetic(case).backend is not None:
        return None
    return {"scheme": scheme, "arch": views.arch(case), "version": case.facts.vllm.version}


def no_expert_kernel(case: Case) -> Mapping[str, Any] | None:
    """No kernel for the experts."""
    model = case.facts.model
    if model.moe is None or views.scheme(case) == "other":
        return None
    found = views.expert_arithmetic(case)
    if found is None or found.backend is not None:
        return None
    return {
        "scheme": views.scheme(case),
        "act": model.moe.activation,
        "arch": views.arch(case),
        "version": case.facts.vllm.version,
        "hint": _other_switch(case, model.moe.activation),
    }


def _other_switch(case: Case, activation: str) -> str:
    """AITER may be what is missing, or what is in the way."""
    if views.arch(case) not in archs.MI3XX:
        return ""
    surface, arch, scheme = case.facts.vllm, views.arch(case), views.expert_scheme(case)
    model_type = case.facts.model.model_type
    if schemes.aiter_experts(case.plan):
        in_the_way = backends.aiter_refuses_experts(surface, arch, scheme, activation, model_type)
        return "VLLM_ROCM_USE_AITER_MOE=0" if in_the_way else ""
    helps = backends.moe(surface, arch, scheme, activation, aiter=True, model_type=model_type)
    return "VLLM_ROCM_USE_AITER=1" if helps else ""


def scheme_not_known(case: Case) -> Mapping[str, Any] | None:
    """A way of storing weights that the tables do not have."""
    return {"method": case.facts.model.quantization.method} if views.scheme(case) == "other" else None


def emulated(case: Case) -> Mapping[str, Any] | None:
    """Weights are unpacked to BF16 by a step of their own."""
    scheme = views.scheme(case)
    if scheme == "bf16":
        return None
    found = views.main_arithmetic(case)
    return {"scheme": scheme, "arch": views.arch(case), "kernel": found.backend} if found.emulated else None


def by_reference_on_amx(case: Case) -> Mapping[str, Any] | None:
    """FP8 scaled by channel with AMX: torch hands it to oneDNN, which has no kernel for it but its reference."""
    if views.arch(case) not in archs.CPU_AMX:
        return None
    kernels = {found.backend for found in views.linear_arithmetics(case)}
    return {"kernel": "ChannelWiseTorchFP8"} if "ChannelWiseTorchFP8" in kernels else None


def weight_only_at_saturation(case: Case) -> Mapping[str, Any] | None:
    """Low-bit weights, BF16 arithmetic, and enough load to be bound by arithmetic."""
    scheme = views.scheme(case)
    if scheme in ("bf16", "other") or case.facts.workload.concurrency < _SATURATED:
        return None
    found = views.main_arithmetic(case)
    if found.compute_bits < 16 or found.emulated or found.backend is None:
        return None
    return {"scheme": scheme, "arch": views.arch(case), "kernel": found.backend,
            "concurrency": case.facts.workload.concurrency}  # fmt: skip


def scheme_kept(case: Case) -> Mapping[str, Any] | None:
    """The checkpoint is served in the format that it was made in."""
    if views.converts_online(case) or views.scheme(case) in ("other", "nvfp4_mixed"):
        return None
    found = views.main_arithmetic(case)
    if plugin.serves(case.facts.model, case.plan):
        return None  # QNT-30 says it
    if found.backend is None or found.emulated:
        return None
    return {"checkpoint": case.facts.model.name, "scheme": views.scheme(case).replace("_", " "),
            "kernel": found.backend, "bits": found.compute_bits}  # fmt: skip


def halves_the_weights(case: Case) -> Mapping[str, Any] | None:
    """Converted while loading to a format that the device multiplies natively."""
    if not views.converts_online(case) or case.plan.quantization == plugin.NAME:
        return None
    found = views.main_arithmetic(case)
    if not found.native or found.compute_bits >= 16:
        return None
    return {"flag": case.plan.quantization, "kernel": found.backend, "bits": found.compute_bits,
            "arch": views.arch(case)}  # fmt: skip


def converted_for_memory_only(case: Case) -> Mapping[str, Any] | None:
    """Converted while loading, and multiplied in BF16 all the same."""
    if not views.converts_online(case) or case.plan.quantization == plugin.NAME:
        return None
    found = views.main_arithmetic(case)
    if found.compute_bits < 16 or found.backend is None or found.emulated:
        return None
    return {"flag": case.plan.quantization, "kernel": found.backend, "arch": views.arch(case)}


def weight_only_nvfp4_on_rocm(case: Case) -> Mapping[str, Any] | None:
    """NVFP4 weights with 16-bit activations: outside of Hopper and Blackwell the selector forces Marlin."""
    stored = case.facts.model.quantization
    weight_only = stored.scheme in ("nvfp4", "nvfp4_mixed") and stored.activation_bits == 16
    return {"arch": views.arch(case)} if weight_only and views.arch(case) in archs.ROCM else None


_SATURATED = 64  # requests in flight from which decode is often bound by arithmetic; an estimate


def mxfp4_without_aiter(case: Case) -> Mapping[str, Any] | None:
    """MXFP4 experts on CDNA3 or CDNA4 with AITER off, in a version whose AITER has a kernel of its own for them."""
    model, arch = case.facts.model, views.arch(case)
    if plugin.serves(model, case.plan):
        return None
    if views.scheme(case) != "mxfp4" or model.moe is None or arch not in archs.MI3XX or schemes.uses_aiter(case.plan):
        return None
    now, then = (
        backends.moe(
            case.facts.vllm, arch, "mxfp4", model.moe.activation, aiter=on, model_type=model.model_type,
            expert_parallel=case.plan.enable_expert_parallel,
        )
        for on in (False, True)
    )  # fmt: skip
    return {"arch": arch, "kernel": now or "no kernel at all", "better": then} if then and then != now else None


def fp8_blocks_on_ada(case: Case) -> Mapping[str, Any] | None:
    """Block-FP8 linear layers on sm89: since 0.33 Marlin stands before Triton."""
    on_ada = views.arch(case) == "sm89" and case.facts.vllm.at_least(0, 29)
    return {"version": case.facts.vllm.version} if on_ada and views.linear_scheme(case) == "fp8_block" else None


def no_bf16_on_turing(case: Case) -> Mapping[str, Any] | None:
    """sm75 has no BF16."""
    return {} if views.arch(case) == "sm75" and case.facts.model.dtype == "bfloat16" else None


def fnuz(case: Case) -> Mapping[str, Any] | None:
    """FP8 on gfx942 is another encoding than the checkpoint's."""
    fp8 = views.scheme(case) in views.FP8_SCHEMES or views.kv_dtype(case) in views.FP8_KV
    return {"arch": views.arch(case)} if views.arch(case) in archs.FNUZ and fp8 else None


def converts_at_each_start(case: Case) -> Mapping[str, Any] | None:
    """Online quantization reads the whole BF16 checkpoint every time."""
    if not views.converts_online(case):
        return None
    return {"read": gib(case.facts.model.weight_bytes), "flag": case.plan.quantization}
