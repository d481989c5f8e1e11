"""The weights' format and dtype against the checkpoint and the device: what a plan cannot express."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.check import mend
from vllm_advisor.check.loaded import dtype
from vllm_advisor.vllm import archs, plugin
from vllm_advisor.vllm.schemes import ONLINE_SCHEMES


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.check.configuration import Asked
    from vllm_advisor.check.finding import Finding
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec

_QUANT, _DTYPE, _MOE = "--quantization", "--dtype", "--moe-backend"
# A checkpoint's own name → the values of --quantization that vLLM takes for it (config/model.py:1395-1450 and the
# override_quantization_method of each config).
_SAME = {
    "awq": ("awq", "auto_awq", "awq_marlin", "moe_wna16", "humming"),
    "gptq": ("gptq", "auto_gptq", "gptq_marlin", "moe_wna16", "humming"),
    "compressed-tensors": ("compressed-tensors", "compressed_tensors", "humming"),
    "modelopt": ("modelopt", "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed", "mxfp8", "humming"),
    "modelopt_fp4": ("modelopt", "modelopt_fp4", "humming"),
    "mxfp4": ("mxfp4", "gpt_oss_mxfp4", "quark", "humming"),
    "fp8": ("fp8", "deepseek_v4_fp8", "humming", "moe_wna16"),
    "auto-round": ("inc", "auto-round", "auto_gptq", "auto_awq", "gptq", "awq"),
}
# Beside the version's own list of online methods: quantization/{humming,torchao,experts_int8,bitsandbytes}.py and more.
_CONVERTS = frozenset(("fp8", "humming", "torchao", "experts_int8", "bitsandbytes", "fp_quant", "inc", "online"))
# Methods that compute in BF16 only (get_supported_act_dtypes: mxfp4.py:80, modelopt.py:1228; 0.24.0 :65, :1709).
_BF16_ONLY = frozenset(("mxfp4", "gpt_oss_mxfp4", "modelopt_mxfp8", "mxfp8", "fp_quant"))
_ANY_DTYPE = frozenset(("none", "compressed-tensors", "moe_wna16", "torchao", "inc", "auto-round", "bitsandbytes"))
# config/model.py:2398-2403; 0.24.0 :1950-1956 has plamo2 too.
_NO_FP16 = frozenset(("gemma2", "gemma3", "gemma3_text", "glm4"))
_ONLY_ROCM_LACKS = frozenset((
    "experts_int8", "moe_wna16", "int8_per_channel_weight_only", "nvfp4_per_token", "humming", "fp_quant",
))  # fmt: skip


def of_model(given: Asked, model: ModelSpec) -> tuple[Finding, ...]:
    """--quantization and --dtype against the checkpoint."""
    return (*_method(given, model), *_dtype(given, model), *_experts(given, model))


def _method(given: Asked, model: ModelSpec) -> Iterator[Finding]:
    flag, own = given.quantization, model.quantization.method
    if flag is None or flag not in (*given.surface.quantizations, plugin.NAME):
        return
    if flag == plugin.NAME and plugin.takes(model):
        return
    change = mend.drop(given, _QUANT)
    if own != "none" and flag not in _SAME.get(own, (own, "humming")):
        verb = "converts BF16 or FP16 checkpoints" if flag in ONLINE_SCHEMES else "is another format"
        text = f"{model.name} is stored as {own}; --quantization {flag} {verb}, and vLLM refuses the pair"
        yield mend.said("QNT-25", text, given, _QUANT, hint="leave it out: vLLM reads the method", change=change)
    elif own == "none" and flag not in given.surface.online_quantizations and flag not in _CONVERTS:
        text = f"--quantization {flag} reads checkpoints in that format; {model.name} is stored in {model.dtype}"
        offered = ", ".join(n for n in given.surface.online_quantizations if n != "online")
        yield mend.said("QNT-26", text, given, _QUANT, hint=f"these convert while loading: {offered}", change=change)


def _dtype(given: Asked, model: ModelSpec) -> Iterator[Finding]:
    asked = dtype(given, model)
    if given.value(_DTYPE) in (None, "auto"):
        return
    method, change = model.quantization.method, mend.drop(given, _DTYPE)
    bf16_only = method in _BF16_ONLY or (method == "modelopt" and model.quantization.scheme == "mxfp8")
    if asked == "float16" and (bf16_only or model.model_type in _NO_FP16):
        rule, why = ("DTY-01", f"{method} computes in BF16 only") if bf16_only else ("DTY-02", _unstable(model))
        yield mend.said(rule, f"--dtype float16 is refused: {why}", given, _DTYPE, hint="leave it out", change=change)
    elif asked == "float32" and method not in _ANY_DTYPE:
        text = f"--dtype float32 is refused: {method} computes in BF16 or FP16"
        yield mend.said("DTY-01", text, given, _DTYPE, hint="leave it out", change=change)
    elif asked == "float32":
        text = "--dtype float32 doubles weights and cache, and matrix units compute it at a fraction of their rate"
        yield mend.said("DTY-04", text, given, _DTYPE, hint=f"leave it out: the model is in {model.dtype}")


def _unstable(model: ModelSpec) -> str:
    return f"{model.model_type} is numerically unstable in it"


def _experts(given: Asked, model: ModelSpec) -> Iterator[Finding]:
    named = given.value(_MOE)
    if named and named != "auto" and model.moe is None:
        text = f"--moe-backend {named} changes nothing: {model.name} has no experts"
        yield mend.said("BCK-02", text, given, _MOE, change=mend.drop(given, _MOE))


_HOPPER_UP = archs.SM90 | archs.BLACKWELL
# Value of --moe-backend → devices whose gate passes (fused_moe/experts/*.py `_supports_current_device`; the names by
# oracle/*.py map_*_backend). What is not listed runs on all, or is not judged.
_MOE_DEVICES = {
    "flashinfer_trtllm": archs.SM100F,
    "flashinfer_cutedsl": archs.SM100F,
    "flashinfer_moe_ep_cutedsl": archs.SM100F,
    "flashinfer_cutlass": _HOPPER_UP,
    "deep_gemm": archs.SM90 | archs.BLACKWELL,
    "deep_gemm_mega_moe": archs.SM100F,
    "flashinfer_b12x": archs.SM120F,
    "b12x": archs.SM120F,
    "marlin": archs.CUDA,
    "humming": archs.CUDA,
    "cutlass": archs.SM90 | archs.BLACKWELL,
    "aiter": archs.MI3XX,
    "aiter_mega_moe": archs.MI3XX,
    "aiter_triton_mxfp4_bf16": archs.MI3XX,
    "hpc": archs.SM90,
    "rdna3": archs.RDNA3,
    "triton": archs.CUDA | archs.ROCM,
}


def of_device(given: Asked, node: Node) -> tuple[Finding, ...]:
    """--quantization, --dtype and --moe-backend against the device."""
    return (*_platform(given, node), *_half(given, node), *_moe_device(given, node))


def _platform(given: Asked, node: Node) -> Iterator[Finding]:
    """Not said where the matrix does: QNT-06 is about the checkpoint's method."""
    flag = given.quantization
    if flag in _ONLY_ROCM_LACKS and node.gpu.arch in archs.ROCM:
        text = f"--quantization {flag} is not in the ROCm list of vLLM {given.surface.version}"
        yield mend.said("QNT-27", text, given, _QUANT, change=mend.drop(given, _QUANT))


def _half(given: Asked, node: Node) -> Iterator[Finding]:
    if given.value(_DTYPE) == "bfloat16" and 0 < node.gpu.capability < 80:
        text = f"--dtype bfloat16 is refused on {node.gpu.name}: BF16 needs compute capability 8.0"
        change = mend.put(given, _DTYPE, "half")
        yield mend.said("DTY-03", text, given, _DTYPE, hint="--dtype half", change=change)


def _moe_device(given: Asked, node: Node) -> Iterator[Finding]:
    named = given.value(_MOE) or ""
    if named in given.surface.moe_backends and node.gpu.arch not in _MOE_DEVICES.get(named, {node.gpu.arch}):
        text = f"--moe-backend {named} does not run on {node.gpu.name} ({node.gpu.arch})"
        hint = "leave it out: vLLM picks one that does"
        yield mend.said("BCK-01", text, given, _MOE, hint=hint, change=mend.drop(given, _MOE))
