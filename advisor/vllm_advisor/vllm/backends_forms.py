"""What a part's kernels are asked for: a scheme, as this model and its quantization method hold it.

The checkpoint's scheme is not all that the choice rests on. Some methods bring a loader of their own, some models
turn a kernel off, and those are rows of their own in the tables (`extract_kernels`).
"""

from __future__ import annotations

from vllm_advisor.vllm import archs


AWQ = "awq"  # no row: AWQ's own Triton kernel, which no table chooses
_FP8 = frozenset(("fp8_tensor", "fp8_channel", "fp8_block"))
# ModelOpt's mixed checkpoints, where their layers were not told apart: the 4-bit ones are W4A16_NVFP4
# (quantization/modelopt.py:800, :2435).
_WEIGHT_ONLY_FORM = {"nvfp4_mixed": "nvfp4_w4a16"}
# MoE activation as a config spells it → as vLLM's enum does (fused_moe/activation.py:21).
_ACTIVATIONS = {
    "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "relu2": "relu2_no_mul", "swish": "silu",
    "swiglu": "silu",
}  # fmt: skip


def experts(scheme: str, model_type: str) -> str:
    """The row of the experts' table."""
    if scheme == "mxfp4" and model_type.startswith("deepseek_v4"):
        return "mxfp4_deepseek_v4"
    return _common(scheme, model_type)


def linear(scheme: str, model_type: str, method: str, arch: str) -> str:
    """The row of the linear layers' table, or `AWQ`. `method`: the checkpoint's, "" for an online conversion."""
    if method == "compressed-tensors" and scheme in _FP8 and 0 < archs.capability(arch) < 89:
        return "fp8_w8a16"  # compressed_tensors.py:896-912: activations stay in 16 bits
    if method == "awq" and scheme.startswith("int4") and arch in archs.ROCM:
        return AWQ  # auto_awq.py:305-335, 0.24 too: Marlin is CUDA's, and nothing else is asked
    return _common(scheme, model_type)


def asks_aiter(method: str) -> bool:
    """Whether AITER's linear kernels may take this method's layers.

    fbgemm_fp8 calls its scales per token where they are per channel, which AITER refuses (fbgemm_fp8.py:150;
    kernels/linear/scaled_mm/aiter.py:156-173).
    """
    return method != "fbgemm_fp8"


def _common(scheme: str, model_type: str) -> str:
    if scheme == "fp8_block" and model_type.startswith("qwen3_5"):
        return "fp8_block_qwen3_5"  # DeepGEMM is off for it on Blackwell (utils/deep_gemm.py)
    return _WEIGHT_ONLY_FORM.get(scheme, scheme)


def activation(name: str, model_type: str) -> str:
    """As vLLM's enum spells it."""
    if name == "swigluoai" and model_type.startswith("minimax"):
        return "swigluoai_uninterleave"  # gates and ups packed, not interleaved (models/minimax_m3/nvidia/model.py:262)
    return _ACTIVATIONS.get(name, name)
