"""What vLLM would run on a device: attention backend, MoE kernel, linear kernel, and the arithmetic behind them.

vLLM chooses kernels at start-up, on the device, in an order of its own; the same choice is made here from tables, so
that a plan can be judged with no device and no vLLM. Releases up to 0.28 are judged by the tables of 0.24.0, later
ones by those of 0.33.0. A choice is the selector's verdict, not a proof that the kernel runs well.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.vllm import archs, backends_attention, backends_linear, backends_moe
from vllm_advisor.vllm.backends_attention import Layer


if TYPE_CHECKING:
    from vllm_advisor.model.spec import CacheGroup, ModelSpec
    from vllm_advisor.vllm.surface import Surface

_NEWER = (0, 29)
_DENSE = frozenset(("full", "sliding", "chunked"))

# MoE activation as a config spells it → as vLLM's enum does (fused_moe/activation.py:21).
_ACTIVATIONS = {
    "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "relu2": "relu2_no_mul", "swish": "silu",
    "swiglu": "silu",
}  # fmt: skip


class Arithmetic(NamedTuple):
    """What a kernel multiplies in. `compute_bits` 16, 8 or 4: that of the matrix unit, 16 for weight-only kernels.

    `native`: the device has a unit for the stored format and the kernel uses it. `emulated`: the weights are unpacked
    to BF16 in a separate step. `backend` None: no kernel takes it, the server would not start.
    """

    compute_bits: int
    native: bool
    emulated: bool
    backend: str | None


def attention(
    surface: Surface,
    arch: str,
    cache: CacheGroup,
    kv_cache_dtype: str,
    *,
    aiter: bool = False,  # noqa: A002 - AMD's library is called so
    sparse: bool = False,
) -> tuple[str, ...]:
    """Backends that take this layer's cache in this dtype, in vLLM's order; () none does.

    `aiter`: VLLM_ROCM_USE_AITER=1. `sparse`: the model has an indexer beside it. An indexer's and a state's own cache
    do not follow `--kv-cache-dtype`: their answer is a fixed name.
    """
    if cache.kind in ("state", "indexer"):
        return (cache.kind.upper(),)
    head = cache.k_dim
    return _attention(cache.kind, Layer(surface.release, arch, kv_cache_dtype, head, cache.sinks, sparse, aiter))


@functools.lru_cache(maxsize=4096)
def _attention(kind: str, layer: Layer) -> tuple[str, ...]:
    if kind == "compressed":
        return backends_attention.deepseek_v4(layer)
    if kind == "mla":
        return backends_attention.mla(layer)
    found = backends_attention.dense(layer._replace(sparse=False)) if kind in _DENSE else ()
    # MiniMax-M3's block-sparse layers read nvfp4 only there (models/minimax_m3/common/sparse_attention.py:557)
    unreadable = layer.sparse and layer.dtype.startswith("nvfp4") and layer.arch not in archs.SM100F
    return () if unreadable else found


def moe(
    surface: Surface,
    arch: str,
    scheme: str,
    activation: str,
    *,
    aiter: bool = False,  # noqa: A002
    expert_parallel: bool = False,
    model_type: str = "",
) -> str | None:
    """The MoE kernel that vLLM's selector takes for experts stored in `scheme`; None: it would refuse to start.

    `model_type` matters where a model has its own order (deepseek_v4) or layout of gate and up (minimax_m3).
    """
    newer = surface.release >= _NEWER
    return _moe(_Experts(newer, arch, scheme, activation, model_type, aiter, expert_parallel))


class _Experts(NamedTuple):
    """What the choice of an MoE kernel depends on; `newer`: judged by the tables of 0.33."""

    newer: bool
    arch: str
    scheme: str
    activation: str
    model_type: str = ""
    aiter: bool = False
    ep: bool = False


@functools.lru_cache(maxsize=4096)
def _moe(asked: _Experts) -> str | None:
    table = backends_moe.V33 if asked.newer else backends_moe.V24
    act = _activation(asked.activation, asked.model_type)
    rows = table.get(_moe_scheme(asked.scheme, asked.model_type), ())
    if asked.aiter and asked.arch in archs.MI3XX and asked.scheme in _AITER_OR_NOTHING[asked.newer]:
        rows = tuple(row for row in rows if row.aiter)
    return next((row.backend for row in rows if _takes(row, asked, act)), None)


# With the variable set, the selector takes AITER or raises (oracle/fp8.py:541-556; 0.24 :310-319). BF16 experts: 0.24
# raises too (oracle/unquantized.py:233), 0.33 goes on with the other kernels (:347).
_FP8 = frozenset(("fp8_tensor", "fp8_channel", "fp8_block"))
_AITER_OR_NOTHING = {False: _FP8 | {"bf16"}, True: _FP8}


def aiter_refuses_experts(surface: Surface, arch: str, scheme: str, activation: str, model_type: str = "") -> bool:
    """Whether VLLM_ROCM_USE_AITER=1 alone stops such a server: it needs VLLM_ROCM_USE_AITER_MOE=0 beside it."""
    with_it = moe(surface, arch, scheme, activation, aiter=True, model_type=model_type)
    return with_it is None and moe(surface, arch, scheme, activation, model_type=model_type) is not None


def _takes(row: backends_moe.Row, asked: _Experts, act: str) -> bool:
    fits = asked.arch in row.archs and (row.acts is None or act in row.acts)
    return fits and (asked.aiter or not row.aiter) and row.ep in (None, asked.ep)


def _moe_scheme(scheme: str, model_type: str) -> str:
    if scheme == "mxfp4" and model_type.startswith("deepseek_v4"):
        return "mxfp4_deepseek_v4"
    return "nvfp4" if scheme == "nvfp4_mixed" else scheme


def _activation(activation: str, model_type: str) -> str:
    if activation == "swigluoai" and model_type.startswith("minimax"):
        return "swigluoai_uninterleave"  # gates and ups packed, not interleaved (models/minimax_m3/nvidia/model.py:262)
    return _ACTIVATIONS.get(activation, activation)


def linear(surface: Surface, arch: str, scheme: str, *, aiter: bool = False) -> str | None:  # noqa: A002
    """The kernel for linear layers stored in `scheme`; None: no kernel of this version takes it on this device."""
    return _linear(surface.release >= _NEWER, arch, scheme, aiter)


@functools.lru_cache(maxsize=2048)
def _linear(newer: bool, arch: str, scheme: str, with_aiter: bool) -> str | None:
    known = "nvfp4" if scheme == "nvfp4_mixed" else scheme
    rows = (backends_linear.V33 if newer else backends_linear.V24).get(known, ())
    first = backends_linear.AITER.get(known, ()) if with_aiter else ()
    return next((name for name, devices in (*first, *rows) if arch in devices), None)


def arithmetic(
    surface: Surface,
    arch: str,
    scheme: str,
    *,
    moe: bool,
    aiter: bool = False,  # noqa: A002
    activation: str = "silu",
    expert_parallel: bool = False,
    model_type: str = "",
) -> Arithmetic:
    """What the kernel for this weight scheme really computes in; `moe`: of the experts, else of the linear layers."""
    newer = surface.release >= _NEWER
    backend = (
        _moe(_Experts(newer, arch, scheme, activation, model_type, aiter, expert_parallel))
        if moe
        else _linear(newer, arch, scheme, aiter)
    )
    return _arithmetic(arch, scheme, moe, backend)


@functools.lru_cache(maxsize=2048)
def _arithmetic(arch: str, scheme: str, moe: bool, backend: str | None) -> Arithmetic:
    if backend is None or scheme == "bf16":
        return Arithmetic(16, scheme == "bf16" and backend is not None, emulated=False, backend=backend)
    table = backends_moe if moe else backends_linear
    if backend in table.EMULATED:
        return Arithmetic(16, native=False, emulated=True, backend=backend)
    bits, units = _format(scheme)
    if backend in table.EIGHT_BIT:
        bits, units = 8, archs.NATIVE_FP8 | archs.RDNA3
    weight_only = backend in table.WEIGHT_ONLY or (moe and backend == "TRITON" and scheme in ("mxfp4", "int4"))
    if weight_only:
        return Arithmetic(16, native=False, emulated=False, backend=backend)
    native = arch in units
    # Without a unit each tile is converted on the way; a CPU has none for FP8 and widens in registers.
    return Arithmetic(bits if native else 16, native, emulated=not native and arch not in archs.CPU, backend=backend)


def _format(scheme: str) -> tuple[int, frozenset[str]]:
    """Bits of a format's matrix unit and the devices that have one."""
    if scheme in ("nvfp4", "nvfp4_mixed", "mxfp4", "int4"):
        return 4, archs.NATIVE_FP4
    return 8, archs.NATIVE_INT8 if scheme == "int8" else archs.NATIVE_FP8


# Flag value, scheme it makes, whether it converts linear layers, whether it converts experts
# (config/quantization.py `_ONLINE_SHORTHANDS`, quantization/online/base.py `_ONLINE_*_METHODS`).
_ONLINE = (
    ("fp8_per_tensor", "fp8_tensor", True, True),
    ("fp8_per_channel", "fp8_channel", True, True),
    ("fp8_per_block", "fp8_block", True, True),
    ("mxfp8", "mxfp8", True, True),
    ("int8_per_channel_weight_only", "int8", False, True),
    ("mxfp4", "mxfp4", True, True),
    ("nvfp4_per_token", "nvfp4", False, True),
)
# Not in ROCm's `supported_quantization` (0.24 platforms/rocm.py:459, 0.33 :659).
_NOT_ON_ROCM = frozenset(("int8_per_channel_weight_only", "nvfp4_per_token"))
# Run on a CPU with AVX2: only per-channel FP8 of dense layers served; the others died while loading (vLLM 0.32).
_ON_CPU = frozenset(("fp8_per_channel",))


def online_quantizations(surface: Surface, arch: str, model: ModelSpec) -> tuple[tuple[str, str], ...]:
    """(value of `--quantization`, scheme it makes) that this version and device take for a BF16 or FP16 checkpoint.

    Left out: deprecated spellings (`fp8`), what has no kernel here, and what would only be emulated.
    """
    if model.quantization.method != "none" or model.dtype not in ("bfloat16", "float16"):
        return ()
    activation = model.moe.activation if model.moe else ""
    return _online(surface.release, surface.online_quantizations, arch, activation, model.model_type)


@functools.lru_cache(maxsize=512)
def _online(
    release: tuple[int, ...], names: tuple[str, ...], arch: str, activation: str, model_type: str
) -> tuple[tuple[str, str], ...]:
    newer = release >= _NEWER
    return tuple(
        (flag, scheme)
        for flag, scheme, dense, experts in _ONLINE
        if flag in names
        and _permitted(flag, arch, moe=bool(activation))
        and (not dense or _runs_linear(newer, arch, scheme, flag))
        and (dense or bool(activation))
        and (not (experts and activation) or _runs_experts(_Experts(newer, arch, scheme, activation, model_type), flag))
    )


def _permitted(flag: str, arch: str, *, moe: bool) -> bool:
    if arch in archs.ROCM:
        return flag not in _NOT_ON_ROCM
    if arch in archs.CPU:
        return flag in _ON_CPU and not moe
    return flag != "nvfp4_per_token" or arch in archs.SM100F  # online/nvfp4.py:100


def _runs_linear(newer: bool, arch: str, scheme: str, flag: str) -> bool:
    kernel = _linear(newer, arch, scheme, with_aiter=False)
    if flag == "fp8_per_channel" and kernel == "MarlinFP8":
        return False  # refused: it would be weight-only (quantization/online/fp8.py:417)
    return kernel is not None and not _arithmetic(arch, scheme, moe=False, backend=kernel).emulated


def _runs_experts(asked: _Experts, flag: str) -> bool:
    kernel = _moe(asked)
    if flag == "fp8_per_channel" and kernel in ("MARLIN", "CPU"):
        return False  # refused: it drops the per-channel scales (quantization/online/fp8.py:800)
    return kernel is not None and kernel not in backends_moe.EMULATED


_CUDA_SOURCE = "vLLM docs/getting_started/installation/gpu.cuda.inc.md: compute capability 7.5 or higher"
_ROCM_SOURCE = "vLLM docs/getting_started/installation/gpu.rocm.inc.md"


def supported_arch(surface: Surface, arch: str) -> str | None:
    """None when this vLLM supports the device, else why not, with the source."""
    return _supported_arch(surface.version, arch)


@functools.lru_cache(maxsize=128)
def _supported_arch(version: str, arch: str) -> str | None:
    if arch in archs.CUDA | archs.ROCM | archs.CPU:
        return None
    if arch.startswith("sm") and arch[2:].isdigit() and int(arch[2:]) < 75:
        return f"{arch} is not supported by vLLM {version} ({_CUDA_SOURCE})"
    if arch.startswith("gfx"):
        return f"{arch} is not among the GPUs of vLLM {version} ({_ROCM_SOURCE})"
    return f"{arch} is not a device that vLLM {version} names"
