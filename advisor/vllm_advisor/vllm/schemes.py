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
}  # fmt: skip
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


def weight_bits(scheme: str) -> int:
    """Bits of a stored weight, scales aside; what is not 16 or 4 is 8."""
    return _BITS.get(scheme, 8)


def uses_aiter(plan: Plan) -> bool:
    """Whether the plan switches AITER on."""
    return (AITER, "1") in plan.env


def aiter_experts(plan: Plan) -> bool:
    """Whether AITER may run the experts."""
    return uses_aiter(plan) and (AITER_EXPERTS, "0") not in plan.env
