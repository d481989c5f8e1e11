"""Which attention backends take a layer's KV cache: the release's own selection, read from its surface.

Some combinations pass vLLM's selection and end the start-up a moment later: they are taken out here.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.vllm import backends_table
from vllm_advisor.vllm.archs import CPU, CPU_WIDE, CUDA, MI3XX, ROCM, SM90, SM100F, SM110, capability


if TYPE_CHECKING:
    from vllm_advisor.vllm.surface import Surface

_E4M3 = frozenset(("fp8", "fp8_e4m3"))
FEW_HEADS = 16
_FA4_ONLY = 512  # on sm90 version 3 stops at heads of 256
_FA4_LATENT = 576  # 512 of the latent and 64 of the rotary part
# models/config.py Gemma4Config: FlashAttention 4 for all layers, and Triton for all where that is not
# (vllm_flash_attn/flash_attn_interface.py:72-86; ROCm's build has none).
_WITHOUT_FA4 = (CUDA - SM90 - SM100F - SM110) | ROCM
_TRITON = frozenset(("TRITON_ATTN", "TRITON_MLA", "TRITON_ATTN_DIFFKV"))


class Layer(NamedTuple):
    """What the choice depends on. `head` in elements (an MLA latent: 576); `sparse`: with a top-k indexer.

    `mixed_heads`: other layers of the model have heads of another size. `few`: at most `FEW_HEADS` heads a rank.
    """

    arch: str
    dtype: str
    head: int
    sinks: bool
    sparse: bool
    aiter: bool
    mm_prefix: bool = False
    mixed_heads: bool = False
    few: bool = False


def dense(surface: Surface, layer: Layer) -> tuple[str, ...]:
    """Backends for ordinary attention (full, sliding or chunked)."""
    if not layer.mixed_heads or layer.arch in CPU:
        return _taking(surface, "dense_mm_prefix" if layer.mm_prefix else "dense", layer)
    if layer.arch in _WITHOUT_FA4:
        return tuple(name for name in dense(surface, layer._replace(mixed_heads=False)) if name == "TRITON_ATTN")
    forced = layer.mm_prefix and layer.arch in SM90  # version 4 alone masks images: as for the heads that need it
    return dense(surface, layer._replace(mixed_heads=False, head=_FA4_ONLY if forced else layer.head))


def unequal(surface: Surface, layer: Layer) -> tuple[str, ...]:
    """The backend of heads whose values are shorter than their keys: the model names it (models/mimo_v2.py)."""
    cap = capability(layer.arch)
    sixteen = layer.dtype in ("auto", "bfloat16")
    if cap == 90 or layer.arch in SM100F:  # FlashAttention 3 or 4 (flash_attn_diffkv.py:43); FP8 where it is version 3
        return ("FLASH_ATTN_DIFFKV",) if sixteen or (layer.dtype in _E4M3 and cap == 90) else ()
    fp8 = layer.dtype in _E4M3 and surface.release >= (0, 32) and (cap == 0 or cap >= 89)
    return ("TRITON_ATTN_DIFFKV",) if layer.arch in CUDA | ROCM and (sixteen or fp8) else ()


def mla(surface: Surface, layer: Layer) -> tuple[str, ...]:
    """Backends for multi-head latent attention."""
    if not layer.sparse:
        return _taking(surface, "mla", layer)
    found = _taking(surface, "mla_sparse_512" if layer.head == 512 else "mla_sparse", layer)
    if layer.few and layer.arch in SM100F and layer.dtype in ("auto", "bfloat16"):
        return _few_heads(surface, layer, found)
    return found


def _few_heads(surface: Surface, layer: Layer, found: tuple[str, ...]) -> tuple[str, ...]:
    """FlashMLA pads to 64 heads: with few it is the last (0.24 platforms/cuda.py:76-86, 0.33 :107-115).

    FlashAttention 4 is first where it is made for the latent (v1/attention/backends/mla/flashattn_mla_sparse.py).
    """
    fourth = ("FLASH_ATTN_MLA_SPARSE_FA4",) if surface.release >= (0, 33) and layer.head == _FA4_LATENT else ()
    return (*fourth, *sorted(found, key=lambda name: name == "FLASHMLA_SPARSE"))


def deepseek_v4(layer: Layer, *, window: bool = False) -> tuple[str, ...]:
    """DeepSeek V4 brings its own sparse attention (models/deepseek_v4); its cache is fp8 whether asked or not.

    `window`: the latents of its sliding windows, which are a cache alone (v1/attention/backends/mla/sparse_swa.py).
    """
    taking = _deepseek_v4(layer)
    return ("DEEPSEEK_SPARSE_SWA",) if window and taking else taking


def _deepseek_v4(layer: Layer) -> tuple[str, ...]:
    cap = capability(layer.arch)
    fp8 = layer.dtype in _E4M3 | {"auto", "fp8_ds_mla"}
    if layer.arch in MI3XX and fp8:
        return ("ROCM_FLASHMLA_SPARSE_DSV4",)
    if cap // 10 == 12 and fp8:
        return ("FLASHINFER_MLA_SPARSE_DSV4",)  # models/deepseek_v4/nvidia/model.py:568
    return ("FLASHMLA_SPARSE_DSV4",) if cap // 10 in (9, 10) and fp8 else ()


def _taking(surface: Surface, case: str, layer: Layer) -> tuple[str, ...]:
    device = backends_table.device(surface, layer.arch, aiter=layer.aiter)
    rows = _rows(surface, case, device).get(layer.dtype, ())
    return tuple(
        name
        for name, plain, sinks in rows
        if _among(sinks if layer.sinks else plain, layer.head) and not _fails(surface.release, name, layer)
    )


@functools.lru_cache(maxsize=256)
def _rows(surface: Surface, case: str, device: int) -> dict[str, tuple[tuple[str, str, str], ...]]:
    """Cache dtype → (backend, heads, heads with sinks) in the platform's order."""
    found: dict[str, tuple[tuple[str, str, str], ...]] = {}
    for dtypes, text in backends_table.row(surface, "attention", case, device) or ():
        found |= dict.fromkeys(dtypes.split(), tuple(map(_backend, text.split(">"))))
    return found


def _backend(text: str) -> tuple[str, str, str]:
    name, _, heads = text.partition(" ")
    plain, _, sinks = heads.partition("|")
    return name, plain, sinks


@functools.lru_cache(maxsize=512)
def _among(heads: str, head: int) -> bool:
    """Whether a head size is among `*`, sizes and rules from:to:step; `to` 0 has no end."""
    if heads in ("", "*"):
        return heads == "*"
    return any(_within(part, head) for part in heads.split(","))


def _within(part: str, head: int) -> bool:
    if ":" not in part:
        return head == int(part)
    low, high, step = map(int, part.split(":"))
    return low <= head <= (high or head) and head % step == 0


def _fails(release: tuple[int, ...], name: str, layer: Layer) -> bool:
    """Whether a backend that the selection takes refuses the layer when it is made."""
    if name in _TRITON and layer.arch in CUDA:
        # triton_attn.py:515 and, since 0.26, mla/triton_mla.py:204: FP8 is read from sm89 on, BF16 from sm80 on
        unread = layer.dtype.startswith("fp8") and capability(layer.arch) < 89
        return unread or (layer.dtype == "bfloat16" and layer.arch == "sm75")
    if name == "FLASHINFER" and layer.dtype.startswith("nvfp4"):
        return release < (0, 25) and layer.arch not in SM100F  # 0.24 flashinfer.py:656; a gate since 0.25
    # cpu_attn.py `_get_attn_isa`, a gate only lately; it was run on AVX2 and it fails
    return name == "CPU_ATTN" and layer.dtype.startswith("fp8") and layer.arch in CPU - CPU_WIDE
