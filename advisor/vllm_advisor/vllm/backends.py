"""What vLLM would run on a device: attention backend, MoE kernel, linear kernel, and the arithmetic behind them.

vLLM chooses kernels at start-up, on the device, in an order of its own. Each release's choices stand in its surface,
found by running its selection on every device (`extract_kernels`), so that a plan can be judged with no device and no
vLLM. A choice is the selector's verdict, not a proof that the kernel runs well; `unverified` says what it rests on
where the source does not tell.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.vllm import (
    archs,
    backends_attention,
    backends_forms,
    backends_linear,
    backends_moe,
    backends_online,
    backends_table,
    schemes,
)
from vllm_advisor.vllm.backends_attention import Layer


if TYPE_CHECKING:
    from vllm_advisor.model.spec import CacheGroup, ModelSpec
    from vllm_advisor.vllm.surface import Surface

_DENSE = frozenset(("full", "sliding", "chunked"))


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
    mm_prefix: bool = False,
    mixed_heads: bool = False,
    tp: int = 1,
) -> tuple[str, ...]:
    """Backends that take this layer's cache in this dtype, in vLLM's order; () none does.

    `aiter`: VLLM_ROCM_USE_AITER=1. `sparse`: the model has an indexer beside it. `mm_prefix`: images attend to
    themselves in both directions. `mixed_heads`: Gemma 4's layers have heads of several sizes. `tp`: ranks that share
    the heads. An indexer's and a state's own cache do not follow `--kv-cache-dtype`: a fixed name.
    """
    kind = cache.kind
    if kind in ("state", "indexer"):
        return (kind.upper(),)
    few = 0 < cache.q_heads <= backends_attention.FEW_HEADS * tp
    layer = Layer(arch, kv_cache_dtype, cache.k_dim, cache.sinks, sparse, aiter, mm_prefix, mixed_heads, few)
    if kind in _DENSE and cache.v_dim != cache.k_dim:
        kind = "unequal" if cache.v_dim else "latent_window"
    return _attention(surface, kind, layer)


@functools.lru_cache(maxsize=4096)
def _attention(surface: Surface, kind: str, layer: Layer) -> tuple[str, ...]:
    if kind in ("compressed", "latent_window"):
        return backends_attention.deepseek_v4(layer, window=kind == "latent_window")
    if kind == "mla":
        return backends_attention.mla(surface, layer)
    if kind == "unequal":
        return backends_attention.unequal(surface, layer)
    found = backends_attention.dense(surface, layer._replace(sparse=False)) if kind in _DENSE else ()
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
    return _moe(surface, _Experts(arch, scheme, activation, model_type, aiter, expert_parallel))


class _Experts(NamedTuple):
    """What the choice of an MoE kernel depends on, the release aside."""

    arch: str
    scheme: str
    activation: str
    model_type: str = ""
    aiter: bool = False
    ep: bool = False


@functools.lru_cache(maxsize=4096)
def _moe(surface: Surface, asked: _Experts) -> str | None:
    number = backends_table.device(surface, asked.arch, aiter=asked.aiter)
    rows = backends_table.row(surface, "moe", backends_forms.experts(asked.scheme, asked.model_type), number)
    act = backends_forms.activation(asked.activation, asked.model_type)
    if asked.scheme == "int4" and asked.arch in archs.ROCM and surface.release < (0, 27):
        return "TRITON"  # past the selector: compressed_tensors_moe.py:142, auto_gptq.py:251 of 0.24
    kernels = next(
        (k for acts, ep, k in rows or () if ep in (2, asked.ep) and (acts == "*" or act in acts.split())), ""
    )
    return kernels.partition(">")[0] or None


def aiter_refuses_experts(surface: Surface, arch: str, scheme: str, activation: str, model_type: str = "") -> bool:
    """Whether VLLM_ROCM_USE_AITER=1 alone stops such a server: it needs VLLM_ROCM_USE_AITER_MOE=0 beside it."""
    with_it = moe(surface, arch, scheme, activation, aiter=True, model_type=model_type)
    return with_it is None and moe(surface, arch, scheme, activation, model_type=model_type) is not None


def linear(
    surface: Surface,
    arch: str,
    scheme: str,
    *,
    aiter: bool = False,  # noqa: A002
    model_type: str = "",
    method: str = "",
) -> str | None:
    """The kernel for linear layers stored in `scheme`; None: no kernel of this version takes it on this device.

    `method`: the checkpoint's quantization method, which may load a scheme in a way of its own; "" while converting
    online. Beside the checkpoint's schemes: `int4_g32` (groups of 32), `nvfp4_w4a16` (16-bit activations).
    """
    row = backends_forms.linear(scheme, model_type, method, arch)
    return _linear(surface, arch, row, aiter and backends_forms.asks_aiter(method))


_NO_TABLE = {"bf16": "Unquantized", backends_forms.AWQ: "AutoAWQ"}


@functools.lru_cache(maxsize=2048)
def _linear(surface: Surface, arch: str, scheme: str, with_aiter: bool) -> str | None:
    number = backends_table.device(surface, arch, aiter=with_aiter)
    if scheme in _NO_TABLE:
        return _NO_TABLE[scheme] if number >= 0 else None
    kernels = (backends_table.row(surface, "linear", scheme, number) or "").split(">")
    return next((k for k in kernels if k and not _dies(arch, k)), None)


def _dies(arch: str, kernel: str) -> bool:
    """Run on a CPU (vLLM 0.32): it is selected, and quantizing its activations ends the start-up."""
    return kernel == "PerTensorTorchFP8" and arch in archs.CPU


def unverified(
    surface: Surface,
    arch: str,
    scheme: str,
    *,
    moe: bool,
    aiter: bool = False,  # noqa: A002
    model_type: str = "",
    method: str = "",
) -> str | None:
    """What the choice of a weight kernel rests on that vLLM's source does not tell; None where all of it was read."""
    if moe:
        table, asked = f"moe/{backends_forms.experts(scheme, model_type)}", aiter
    else:
        table = f"linear/{backends_forms.linear(scheme, model_type, method, arch)}"
        asked = aiter and backends_forms.asks_aiter(method)
    return backends_table.unread(surface, table, backends_table.device(surface, arch, aiter=asked))


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
    method: str = "",
) -> Arithmetic:
    """What the kernel for this weight scheme really computes in; `moe`: of the experts, else of the linear layers."""
    backend = (
        _moe(surface, _Experts(arch, scheme, activation, model_type, aiter, expert_parallel))
        if moe
        else linear(surface, arch, scheme, aiter=aiter, model_type=model_type, method=method)
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
    if scheme.startswith(("nvfp4", "mxfp4", "int4")):
        return 4, archs.NATIVE_FP4
    return 8, archs.NATIVE_INT8 if scheme == "int8" else archs.NATIVE_FP8


def online_quantizations(surface: Surface, arch: str, model: ModelSpec) -> tuple[tuple[str, str], ...]:
    """(value of `--quantization`, scheme it makes) that this version and device take for a BF16 or FP16 checkpoint.

    Left out: deprecated spellings (`fp8`), what has no kernel here, and what would only be emulated.
    """
    if model.quantization.method != "none" or model.dtype not in ("bfloat16", "float16"):
        return ()
    activation = model.moe.activation if model.moe else ""
    return _online(surface, arch, activation, model.model_type)


@functools.lru_cache(maxsize=512)
def _online(surface: Surface, arch: str, activation: str, model_type: str) -> tuple[tuple[str, str], ...]:
    names = surface.online_quantizations
    return tuple(
        (flag, scheme)
        for flag, scheme, dense, experts in backends_online.FLAGS
        if flag in names
        and backends_online.permitted(flag, arch, moe=bool(activation))
        and (not dense or _runs_linear(surface, arch, scheme, flag))
        and (dense or bool(activation))
        and (
            not (experts and activation)
            or _runs_experts(surface, _Experts(arch, schemes.of_experts(flag, scheme), activation, model_type), flag)
        )
    )


def _runs_linear(surface: Surface, arch: str, scheme: str, flag: str) -> bool:
    kernel = _linear(surface, arch, scheme, with_aiter=False)
    if flag == "fp8_per_channel" and kernel == "MarlinFP8":
        return False  # refused: it would be weight-only (quantization/online/fp8.py:417)
    return kernel is not None and not _arithmetic(arch, scheme, moe=False, backend=kernel).emulated


def _runs_experts(surface: Surface, asked: _Experts, flag: str) -> bool:
    kernel = _moe(surface, asked)
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
