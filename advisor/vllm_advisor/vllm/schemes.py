"""What a plan makes of a checkpoint's weights, and which of AMD's switches it throws: said once for every room."""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.plan import Plan

# Value of `--quantization` on an unquantized checkpoint → the scheme it makes. `fp8` is the old spelling of the first.
ONLINE_SCHEMES = {
    "fp8": "fp8_tensor", "fp8_per_tensor": "fp8_tensor", "fp8_per_channel": "fp8_channel", "fp8_per_block": "fp8_block",
    "mxfp8": "mxfp8", "mxfp4": "mxfp4", "int8_per_channel_weight_only": "int8", "nvfp4_per_token": "nvfp4",
    "advisor_mxfp4": "mxfp4",  # our plugin's (vllm/plugin.py)
}  # fmt: skip
# Converts experts only; linear layers stay as they are (quantization/online/base.py `_ONLINE_LINEAR_METHODS`).
EXPERTS_ONLY = frozenset(("int8_per_channel_weight_only", "nvfp4_per_token"))
# Methods whose checkpoints hold quantized experts and unquantized linear layers (quantization/mxfp4.py:55).
EXPERT_METHODS = frozenset(("mxfp4", "gpt_oss_mxfp4", "experts_int8"))
_PER_TENSOR = frozenset(("fp8", "fp8_per_tensor"))
_BITS = {"bf16": 16, "int4": 4, "nvfp4": 4, "nvfp4_mixed": 4, "mxfp4": 4}
AITER = "VLLM_ROCM_USE_AITER"
# On by default beside the master switch (envs.py); "0" keeps AITER for everything but the experts.
AITER_EXPERTS = "VLLM_ROCM_USE_AITER_MOE"


def converts_online(model: ModelSpec, plan: Plan) -> bool:
    """Whether vLLM quantizes the weights while loading."""
    return bool(plan.quantization) and model.quantization.method == "none"


def scheme_of(model: ModelSpec, plan: Plan) -> str:
    """How the weights are stored while serving: by the online flag, or else by the checkpoint."""
    if converts_online(model, plan):
        return ONLINE_SCHEMES.get(plan.quantization or "", "other")
    return model.quantization.scheme


def linear_schemes(model: ModelSpec, plan: Plan) -> tuple[str, ...]:
    """Schemes of the linear layers while serving, that of most layers first; bf16: none of them is quantized."""
    stored = model.quantization
    if converts_online(model, plan):
        return ("bf16",) if plan.quantization in EXPERTS_ONLY else (scheme_of(model, plan),)
    if stored.linear_schemes:
        return stored.linear_schemes
    return ("bf16",) if stored.method in EXPERT_METHODS else (stored.scheme,)


def expert_scheme(model: ModelSpec, plan: Plan) -> str:
    """The scheme of the experts while serving."""
    if converts_online(model, plan):
        return of_experts(plan.quantization or "", scheme_of(model, plan))
    return model.quantization.expert_scheme or model.quantization.scheme


def of_experts(flag: str, scheme: str) -> str:
    """What an online flag makes of experts: a scale per tensor goes with activations scaled as they come.

    quantization/online/fp8.py:509, `kFp8DynamicTensorSym`: other kernels take it than a checkpoint's static scales.
    """
    return "fp8_tensor_dynamic" if flag in _PER_TENSOR else scheme


def method_of(model: ModelSpec, plan: Plan) -> str:
    """The method that loads the checkpoint's linear layers, "" where vLLM converts them itself."""
    return "" if converts_online(model, plan) else model.quantization.method


def weight_bits(scheme: str) -> int:
    """Bits of a stored weight, scales aside; what is not 16 or 4 is 8."""
    return _BITS.get(scheme, 8)


def uses_aiter(plan: Plan) -> bool:
    """Whether the plan switches AITER on."""
    return (AITER, "1") in plan.env


def aiter_experts(plan: Plan) -> bool:
    """Whether AITER may run the experts."""
    return uses_aiter(plan) and (AITER_EXPERTS, "0") not in plan.env
