"""Widths of layers: what a format's groups, or a kernel for keys and values of unlike sizes, do not take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_advisor.rules import views
from vllm_advisor.vllm import archs, plugin


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vllm_advisor.facts import Case

_MICROSCALED = frozenset(("mxfp8", "mxfp4"))
_GROUP = 32  # elements that share a scale in both (MXFP8_BLOCK_SIZE, MXFP4_BLOCK_SIZE)
# The packed Triton kernel reads FP8 since then; until 0.31 it raises (triton_attn_diffkv.py:154 there, :113 in 0.33).
_TRITON_DIFFKV_READS_FP8 = (0, 32)


def input_not_in_groups(case: Case) -> Mapping[str, Any] | None:
    """Online MXFP8 and MXFP4 refuse a layer whose input on a rank is no multiple of 32, in the vision tower too."""
    flag = case.plan.quantization
    if views.scheme(case) not in _MICROSCALED or not views.converts_online(case) or flag == plugin.NAME:
        return None
    cut = next(((name, width) for name, width in inputs(case) if width % _GROUP), None)
    return {"flag": flag, "layer": cut[0], "width": cut[1], "group": _GROUP} if cut else None


TOWER = "the vision tower"


def inputs(case: Case) -> Iterator[tuple[str, int]]:
    """(layer, input width on one rank) of all that such a flag converts, as far as the shapes are known."""
    model, tp = case.facts.model, case.plan.tensor_parallel_size
    yield "attention", model.hidden_size
    for cache in model.caches:
        if cache.kind in views.HEADED:
            yield "attention's output", cache.q_heads * cache.v_dim // tp
    if model.moe is None or len(model.moe.layers) < model.num_layers:
        yield "the feed-forward", model.intermediate_size // tp
    if model.moe:
        ways = 1 if case.plan.enable_expert_parallel else tp * case.plan.data_parallel_size
        yield "an expert", model.moe.intermediate_size // ways
    for width in model.tower_widths:
        yield TOWER, width // tp


def unlike_widths_in_fp8(case: Case) -> Mapping[str, Any] | None:
    """Keys wider than values (MiMo-V2) have kernels of their own, and those rarely read a quantized cache."""
    dtype = views.kv_dtype(case)
    if dtype in views.SIXTEEN_BIT_KV:
        return None
    for cache in case.facts.model.caches:
        if cache.kind in views.HEADED and 0 < cache.v_dim != cache.k_dim and not _diffkv_reads(case, dtype):
            return {"dtype": dtype, "k": cache.k_dim, "v": cache.v_dim, "arch": views.arch(case)}
    return None


def _diffkv_reads(case: Case, dtype: str) -> bool:
    """The model takes FlashAttention 3 or 4 where they run, and Triton elsewhere (models/mimo_v2.py:320-340).

    On sm100 FlashAttention is made without a cache in FP8; on sm90 sinks move it to version 4, which reads FP8 only for
    heads of 512 there (fa_utils.py:139-157, :306-312).
    """
    arch = views.arch(case)
    if archs.capability(arch) // 10 == 9:
        return dtype in ("fp8", "fp8_e4m3") and not any(c.sinks for c in case.facts.model.caches)
    triton = arch in archs.ROCM or (archs.capability(arch) >= 89 and archs.capability(arch) // 10 != 10)
    return triton and dtype in ("fp8", "fp8_e4m3") and case.facts.vllm.release >= _TRITON_DIFFKV_READS_FP8


def images_in_fp8_on_ampere(case: Case) -> Mapping[str, Any] | None:
    """Images that see themselves in both directions are Triton's there, and it reads no FP8 below sm89."""
    if not case.facts.model.bidirectional_images or not views.kv_dtype(case).startswith("fp8"):
        return None
    found = {"arch": views.arch(case), "dtype": case.facts.model.dtype}
    return found if 0 < views.gpu(case).capability < 89 else None
