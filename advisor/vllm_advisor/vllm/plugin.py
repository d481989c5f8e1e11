"""Our own vLLM plugin, quantization `advisor_mxfp4`: where it runs, and what its kernels multiply in.

It is no part of vLLM: the server's environment has to have vllm-advisor installed, whose entry point registers the
method with vLLM (vllm_mx_kernels/vllm_plugin.py). It is proposed only where it was asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.vllm import archs
from vllm_advisor.vllm.backends import Arithmetic


if TYPE_CHECKING:
    from vllm_advisor.model.spec import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.vllm.surface import Surface

NAME = "advisor_mxfp4"
# The entry point that vLLM reads at its start; where VLLM_PLUGINS is set, only the names in it are loaded
# (vllm/plugins/__init__.py load_plugins_by_group).
GROUP, VARIABLE = "vllm.general_plugins", "VLLM_PLUGINS"
INSTALL = "pip install vllm-advisor in the server's environment"
REMARK = f"{NAME} is our plugin: {INSTALL}; where {VARIABLE} is set there, it has to name it"
BLOCK = 32  # elements of K that share a scale (vllm_mx_kernels/formats.py BLOCK)
_RELEASES = ((0, 32), (0, 33))  # vllm_mx_kernels/vllm_plugin.py SUPPORTED
# The ahead-of-time targets that are AMD's (vllm_mx_kernels/targets.py), and those whose FP8 unit it uses.
_ON_ROCM = frozenset(("gfx942", "gfx950", "gfx1201"))
_FP8 = _ON_ROCM | {"sm89", "sm90", "sm100", "sm103", "sm120"}
_DTYPES = ("bfloat16", "float16")
_ACTIVATIONS = ("silu", "swish", "swiglu", "swigluoai")  # as configs spell those of vllm_moe.py why_not
_OURS_OVER = ("mxfp4", "gpt_oss_mxfp4")  # gpt-oss's own format, taken over as it is (override_quantization_method)


def converts(model: ModelSpec, plan: Plan) -> bool:
    """Whether the plugin quantizes the weights while loading."""
    return plan.quantization == NAME and model.quantization.method == "none"


def serves(model: ModelSpec, plan: Plan) -> bool:
    """Whether the plugin runs the weights: it quantizes them, takes gpt-oss's over, or the checkpoint is one of its."""
    return NAME in (plan.quantization, model.quantization.method)


def takes(model: ModelSpec) -> bool:
    """Whether `--quantization advisor_mxfp4` has something to do: plain 16-bit weights, or gpt-oss's MXFP4 ones."""
    if model.quantization.method in _OURS_OVER:
        return model.model_type == "gpt_oss"
    return model.quantization.method == "none"


def uses_fp8(arch: str) -> bool:
    """Whether rows that fold into FP8 are multiplied in it."""
    return arch in _FP8


def has_release(surface: Surface) -> bool:
    """Whether it registers itself with this version."""
    return surface.release[:2] in _RELEASES


def refusal(surface: Surface, arch: str, model: ModelSpec) -> str:
    """Why the plugin does not serve this model on this device and version; "" where it does."""
    if not has_release(surface):
        return f"it supports vLLM 0.32 and 0.33, not {surface.version}"
    if not (archs.capability(arch) >= 80 or arch in _ON_ROCM or arch in archs.CPU):
        return f"its kernels are not built for {arch}"
    if model.dtype not in _DTYPES:
        return f"it computes in BF16 and FP16, not in {model.dtype}"
    if model.quantization.method != NAME and not takes(model):
        return f"it takes BF16 and FP16 checkpoints and gpt-oss's MXFP4, and this one is {model.quantization.method}"
    if model.moe and model.moe.activation not in _ACTIVATIONS:
        return f"its experts have no {model.moe.activation}"
    return ""


def arithmetic(arch: str, scheme: str) -> Arithmetic:
    """What it multiplies in. FP8 is for layers that fold losslessly, the usual case; others run in 16 bits."""
    if scheme == "bf16":
        return Arithmetic(16, native=True, emulated=False, backend="Unquantized")
    if uses_fp8(arch):
        return Arithmetic(8, native=True, emulated=False, backend=f"{NAME} (folded FP8)")
    return Arithmetic(16, native=False, emulated=False, backend=f"{NAME} (W4A16)")
