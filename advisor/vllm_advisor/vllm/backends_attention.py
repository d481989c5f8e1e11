"""Which attention backends take a layer's KV cache, in vLLM's priority order, by version, device and KV cache dtype.

Order: `platforms/cuda.py:_get_backend_priorities`, `platforms/rocm.py:_get_backend_priorities`, `platforms/cpu.py`.
Each backend's device, head size, sinks and dtypes: `v1/attention/backends/*.py`. Two rules that vLLM's own validation
misses and that end a start-up are applied as well: Triton's kernels refuse any fp8 cache below sm89
(triton_attn.py:515, mla/triton_mla.py:203), and 0.24's FlashInfer refuses nvfp4 outside of sm100 (flashinfer.py:656).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.vllm.archs import CPU, CPU_WIDE, CUDA, GFX942, MI3XX, RDNA3, RDNA4, ROCM, SM100F, capability


if TYPE_CHECKING:
    from collections.abc import Iterator

SIXTEEN_BIT = frozenset(("auto", "float16", "bfloat16"))
E4M3 = frozenset(("fp8", "fp8_e4m3"))
FP8 = E4M3 | {"fp8_e5m2"}
_TRITON_24 = SIXTEEN_BIT | FP8 | {"int8_per_token_head", "fp8_per_token_head"}
_TRITON_33 = _TRITON_24 | {"int4_per_token_head"}
_MLA = SIXTEEN_BIT | E4M3
_ROCM_ATTN_HEADS = frozenset((32, 64, 80, 96, 128, 160, 192, 224, 256))
_CPU_HEADS = frozenset((32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512))


class Layer(NamedTuple):
    """What the choice depends on. `head` in elements (an MLA latent: 576); `sparse`: with a top-k indexer."""

    release: tuple[int, ...]
    arch: str
    dtype: str
    head: int
    sinks: bool
    sparse: bool
    aiter: bool

    @property
    def newer(self) -> bool:
        """Judged by the tables of 0.33 rather than by those of 0.24."""
        return self.release >= (0, 29)


def dense(layer: Layer) -> tuple[str, ...]:
    """Backends for ordinary attention (full, sliding or chunked)."""
    if layer.arch in CUDA:
        return tuple(_cuda(layer))
    if layer.arch in ROCM:
        return tuple(_rocm(layer))
    return ("CPU_ATTN",) if layer.arch in CPU and _cpu(layer) else ()


def mla(layer: Layer) -> tuple[str, ...]:
    """Backends for multi-head latent attention."""
    if layer.arch in CUDA:
        return tuple(_sparse_mla(layer) if layer.sparse else _cuda_mla(layer))
    if layer.arch in ROCM:
        return tuple(_rocm_mla(layer))
    # 0.24 raises "MLA is not supported on CPU" (platforms/cpu.py:84)
    on_cpu = layer.newer and not layer.sparse and layer.head == 576 and layer.dtype == "auto"
    return ("CPU_MLA",) if layer.arch in CPU and on_cpu else ()


def deepseek_v4(layer: Layer) -> tuple[str, ...]:
    """DeepSeek V4 brings its own sparse attention (models/deepseek_v4); its cache is fp8 whether asked or not."""
    cap = capability(layer.arch)
    fp8 = layer.dtype in E4M3 | {"auto", "fp8_ds_mla"}
    cuda = cap // 10 in (9, 10, 12) and fp8
    return ("DEEPSEEK_V4_SPARSE",) if cuda or (layer.arch in MI3XX and fp8) else ()


def _cuda(layer: Layer) -> Iterator[str]:
    flash = ("FLASH_ATTN", _flash_attn(layer))
    flashinfer = ("FLASHINFER", _flashinfer(layer))
    first = (flashinfer, flash) if layer.arch in SM100F else (flash, flashinfer)
    rest = (("TRITON_ATTN", _triton(layer)), ("FLEX_ATTENTION", _flex(layer)), ("TURBOQUANT", _turboquant(layer)))
    return (name for name, takes in (*first, *rest) if takes)


def _flash_attn(layer: Layer) -> bool:
    cap = capability(layer.arch)
    longest = 512 if 90 <= cap < 120 else 256  # FlashAttention 4 on Hopper and datacenter Blackwell
    shape = cap >= 80 and layer.head % 8 == 0 and layer.head <= longest
    sinks = not layer.sinks or 90 <= cap < 120  # FlashAttention 3 or 4
    fp8 = layer.dtype in E4M3 and (cap == 90 or (layer.newer and layer.arch in SM100F))
    return shape and sinks and (layer.dtype in SIXTEEN_BIT or fp8)


def _flashinfer(layer: Layer) -> bool:
    cap = capability(layer.arch)
    shape = 80 <= cap <= 121 and layer.head in (64, 128, 256, 512)
    if layer.dtype.startswith("nvfp4"):
        return shape and _flashinfer_nvfp4(layer, cap)
    return shape and (not layer.sinks or _flashinfer_sinks(layer, cap)) and layer.dtype in SIXTEEN_BIT | FP8


def _flashinfer_nvfp4(layer: Layer, cap: int) -> bool:
    """0.24: TRTLLM on sm100. 0.33: also FlashAttention 2 on the 80, 90 and 120 families, without head 64 or sinks."""
    if layer.arch in SM100F:
        return layer.dtype == "nvfp4" or layer.newer
    by_fa2 = layer.newer and cap // 10 in (8, 9, 12)
    return by_fa2 and layer.dtype == "nvfp4" and layer.head != 64 and not layer.sinks


def _flashinfer_sinks(layer: Layer, cap: int) -> bool:
    return layer.arch in SM100F or (layer.newer and cap in (90, 120, 121))


def _triton(layer: Layer) -> bool:
    if layer.dtype.startswith("fp8") and layer.arch in CUDA and capability(layer.arch) < 89:
        return False
    if layer.dtype == "bfloat16" and layer.arch == "sm75":
        return False
    return layer.head >= 32 and layer.dtype in (_TRITON_33 if layer.newer else _TRITON_24)


def _flex(layer: Layer) -> bool:
    return not layer.sinks and layer.dtype in SIXTEEN_BIT


def _turboquant(layer: Layer) -> bool:
    return not layer.sinks and layer.dtype.startswith("turboquant_")


def _rocm(layer: Layer) -> Iterator[str]:
    usual = layer.dtype in SIXTEEN_BIT | FP8
    native = not layer.sinks and layer.head in _ROCM_ATTN_HEADS
    aiter_fa = layer.aiter and layer.arch in MI3XX and layer.head in (64, 128, 256)
    unified = usual and layer.head >= 32
    rdna4_first = layer.newer and layer.aiter and layer.arch in RDNA4
    octave = layer.arch in RDNA3 | GFX942 and layer.dtype.startswith("octave_") and layer.head == 128
    ultraquant = layer.newer and layer.dtype == "ultraquant_4bit" and not layer.sinks
    rows = (
        ("ROCM_AITER_UNIFIED_ATTN", rdna4_first and unified),
        ("ROCM_ATTN", native and usual),
        ("ROCM_AITER_FA", aiter_fa and usual),
        ("ROCM_AITER_UNIFIED_ATTN", layer.arch in MI3XX and unified),
        ("TRITON_ATTN", _triton(layer)),
        ("TURBOQUANT", _turboquant(layer)),
        ("ROCM_OCTAVE", layer.newer and octave and not layer.sinks),
        ("ULTRAQUANT", ultraquant),
    )
    return (name for name, takes in rows if takes)


def _cuda_mla(layer: Layer) -> Iterator[str]:
    cap = capability(layer.arch)
    usual = layer.dtype in _MLA
    triton = usual and (layer.dtype in SIXTEEN_BIT or cap >= 89)
    rows = (
        ("FLASHINFER_MLA", usual and layer.arch in SM100F),
        ("CUTLASS_MLA", usual and layer.arch in SM100F),
        ("FLASH_ATTN_MLA", cap == 90 and layer.dtype in SIXTEEN_BIT),
        ("FLASHMLA", cap == 90 and usual),
        ("TRITON_MLA", triton),
    )
    return (name for name, takes in rows if takes)


def _sparse_mla(layer: Layer) -> Iterator[str]:
    """Sparse MLA has kernels on Hopper, datacenter Blackwell and consumer Blackwell only."""
    family = capability(layer.arch) // 10
    rows = {9: _sparse_sm90, 10: _sparse_sm100, 12: _sparse_sm120}.get(family)
    return (name for name, takes in (rows(layer) if rows else ()) if takes)


def _sparse_sm90(layer: Layer) -> tuple[tuple[str, bool], ...]:
    bf16 = layer.dtype in ("auto", "bfloat16")
    return (
        ("FLASH_ATTN_MLA_SPARSE", layer.newer and layer.dtype in SIXTEEN_BIT),
        ("FLASHMLA_SPARSE", bf16 or layer.dtype in ("fp8", "fp8_ds_mla")),
        ("FLASHINFER_MLA_SPARSE_SM90", layer.newer and (bf16 or layer.dtype in E4M3)),
    )


def _sparse_sm100(layer: Layer) -> tuple[tuple[str, bool], ...]:
    bf16 = layer.dtype in ("auto", "bfloat16")
    flashmla = bf16 or layer.dtype in ("fp8", "fp8_ds_mla") or (layer.newer and layer.dtype == "nvfp4_ds_mla")
    both = (("FLASHMLA_SPARSE", flashmla), ("FLASHINFER_MLA_SPARSE", layer.dtype in _MLA))
    return both if bf16 else both[::-1]


def _sparse_sm120(layer: Layer) -> tuple[tuple[str, bool], ...]:
    return (("FLASHINFER_MLA_SPARSE_SM120", layer.dtype in E4M3 | {"auto", "fp8_ds_mla"}),)


def _rocm_mla(layer: Layer) -> Iterator[str]:
    usual = layer.dtype in _MLA
    by_aiter = layer.aiter and layer.arch in MI3XX and (usual or layer.dtype == "fp8_e5m2")
    rows = (
        ("ROCM_AITER_MLA_SPARSE", layer.sparse and usual),
        ("ROCM_AITER_MLA", not layer.sparse and by_aiter),
        ("TRITON_MLA", not layer.sparse and usual),
        ("ROCM_AITER_TRITON_MLA", not layer.sparse and by_aiter),
    )
    return (name for name, takes in rows if takes)


def _cpu(layer: Layer) -> bool:
    """FP8 on the CPU needs AVX-512 or AMX (cpu_attn.py `_get_attn_isa`); it was run here and it fails on AVX2."""
    fp8 = layer.dtype in FP8 and layer.arch in CPU_WIDE
    return layer.head in _CPU_HEADS and not layer.sparse and (layer.dtype in SIXTEEN_BIT or fp8)
