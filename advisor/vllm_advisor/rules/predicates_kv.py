"""The KV cache's dtype: which backend takes it, what it costs in accuracy, and where it does not apply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_advisor.rules import views
from vllm_advisor.units import count
from vllm_advisor.vllm import archs
from vllm_advisor.workload import Sensitivity


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.facts import Case
    from vllm_advisor.model.spec import CacheGroup

LONG_TOKENS = 65_536  # from here on a context is called long (the seed text's own line, kept)
SHORT_TOKENS = 8_192
# Methods whose attention layers carry KV scales (0.24 attention.py:166-183, 0.33 :205-219).
_LOADS_KV_SCALES = frozenset(("fp8", "modelopt", "modelopt_fp4", "quark", "fbgemm_fp8", "deepseek_v4_fp8"))


def _takes(case: Case, group: CacheGroup, dtype: str) -> tuple[str, ...]:
    return views.attention(case, group, dtype)


def no_backend(case: Case) -> Mapping[str, Any] | None:
    """Some layer's cache is taken by no attention backend."""
    dtype = views.kv_dtype(case)
    for group in case.facts.model.caches:
        if not _takes(case, group, dtype):
            sinks = " with attention sinks" if group.sinks else ""
            sparse = "sparse " if views.is_sparse(case) and group.kind == "mla" else ""
            plain = "auto" if case.plan.kv_cache_dtype != "auto" else case.facts.model.dtype
            return {
                "dtype": dtype,
                "layer": f"{sparse}{group.kind} attention, head size {group.k_dim}{sinks}",
                "arch": views.arch(case),
                "version": case.facts.vllm.version,
                "hint": "" if dtype in views.SIXTEEN_BIT_KV else f"--kv-cache-dtype {plain}",
            }
    return None


def dtype_unknown(case: Case) -> Mapping[str, Any] | None:
    """The version does not know the name."""
    dtype, surface = case.plan.kv_cache_dtype, case.facts.vllm
    return None if dtype in surface.kv_cache_dtypes else {"dtype": dtype, "version": surface.version}


def e5m2(case: Case) -> Mapping[str, Any] | None:
    """The format with two mantissa bits."""
    return {} if views.kv_dtype(case) == "fp8_e5m2" else None


def e5m2_with_fp8_weights(case: Case) -> Mapping[str, Any] | None:
    """VLLM refuses e5m2 where the checkpoint's method loads KV scales."""
    if views.kv_dtype(case) != "fp8_e5m2":
        return None
    quantization = case.facts.model.quantization
    by_scheme = quantization.method == "compressed-tensors" and bool(quantization.kv_cache_dtype)
    by_online = case.plan.quantization == "fp8" and not case.facts.vllm.at_least(0, 29)
    refused = quantization.method in _LOADS_KV_SCALES or by_scheme or by_online
    return {"method": quantization.method if quantization.method != "none" else "fp8"} if refused else None


def no_scales(case: Case) -> Mapping[str, Any] | None:
    """FP8 per tensor, and the checkpoint brings no scales."""
    if views.kv_dtype(case) not in views.FP8_KV or case.facts.model.quantization.kv_cache_dtype:
        return None
    own = any(c.kind == "compressed" for c in case.facts.model.caches)
    return None if own or (views.is_sparse(case) and case.facts.model.uses_mla) else {"dtype": views.kv_dtype(case)}


def fp8_on_ampere(case: Case) -> Mapping[str, Any] | None:
    """Below sm89 FlashInfer is the only backend with an fp8 cache."""
    if views.kv_dtype(case) not in views.FP8_KV or not 80 <= views.gpu(case).capability < 89:
        return None
    group = next((c for c in case.facts.model.caches if c.kind in views.HEADED), None)
    return {"arch": views.arch(case)} if group and _takes(case, group, views.kv_dtype(case)) else None


def backend_moves(case: Case) -> Mapping[str, Any] | None:
    """The dtype costs the backend that would run otherwise."""
    dtype = views.kv_dtype(case)
    if dtype in views.SIXTEEN_BIT_KV:
        return None
    for group in case.facts.model.caches:
        with_it, without = _takes(case, group, dtype), _takes(case, group, "auto")
        if with_it and without and with_it[0] != without[0]:
            return {"dtype": dtype, "before": without[0], "after": with_it[0]}
    return None


def cache_kept(case: Case) -> Mapping[str, Any] | None:
    """The cache stays in 16 bits."""
    if views.kv_dtype(case) not in views.SIXTEEN_BIT_KV:
        return None
    for group in case.facts.model.caches:
        if group.kind in views.HEADED or group.kind == "mla":
            takes = _takes(case, group, "auto")
            return {"backend": takes[0]} if takes else None
    return None


def sinks_on_ampere(case: Case) -> Mapping[str, Any] | None:
    """Attention sinks leave Triton only, and Triton takes no fp8 there."""
    if not views.kv_dtype(case).startswith("fp8") or not 0 < views.gpu(case).capability < 89:
        return None
    return {"arch": views.arch(case)} if any(c.sinks for c in case.facts.model.caches) else None


def not_for_a_latent(case: Case) -> Mapping[str, Any] | None:
    """Formats by token and head, e5m2 and plain nvfp4 do not fit MLA's latent vector."""
    dtype = views.kv_dtype(case)
    if dtype in views.SIXTEEN_BIT_KV or not case.facts.model.uses_mla or views.arch(case) in archs.ROCM:
        return None
    headed = dtype.endswith("_per_token_head") or dtype in ("fp8_e5m2", "nvfp4", "nvfp4_4over6")
    return {"dtype": dtype} if headed else None


def _long(case: Case) -> bool:
    return views.needed_tokens(case) >= LONG_TOKENS


def quantized_in_long_retrieval(case: Case) -> Mapping[str, Any] | None:
    """Finding one fact in a long context is what a coarse cache loses first."""
    if views.kv_dtype(case) in views.SIXTEEN_BIT_KV or case.facts.workload.sensitivity is not Sensitivity.RETRIEVAL:
        return None
    return {"dtype": views.kv_dtype(case), "tokens": count(views.needed_tokens(case))} if _long(case) else None


def quantized_for_sensitive_work(case: Case) -> Mapping[str, Any] | None:
    """Code and maths on a cache without calibrated scales."""
    if case.facts.workload.sensitivity is not Sensitivity.SENSITIVE or no_scales(case) is None:
        return None
    return {"dtype": views.kv_dtype(case)}


def differs_from_model_dtype(case: Case) -> Mapping[str, Any] | None:
    """Since 0.33 an explicit 16-bit cache must be the model's own dtype."""
    asked = case.plan.kv_cache_dtype
    if asked not in ("float16", "bfloat16") or asked == case.facts.model.dtype:
        return None
    return {"asked": asked, "model": case.facts.model.dtype} if case.facts.vllm.at_least(0, 33) else None


def state_stays(case: Case) -> Mapping[str, Any] | None:
    """The fixed state of hybrid models follows flags of its own."""
    quantized = views.kv_dtype(case) not in views.SIXTEEN_BIT_KV
    return {"dtype": views.kv_dtype(case)} if quantized and case.facts.model.is_hybrid else None


def halves_a_long_cache(case: Case) -> Mapping[str, Any] | None:
    """Long contexts, FP8 units, and nobody searches for needles."""
    if views.kv_dtype(case) not in ("fp8", "fp8_e4m3") or not _long(case):
        return None
    retrieval = case.facts.workload.sensitivity is Sensitivity.RETRIEVAL
    return (
        {"tokens": count(views.needed_tokens(case))} if views.arch(case) in archs.NATIVE_FP8 and not retrieval else None
    )


def quantized_for_short_contexts(case: Case) -> Mapping[str, Any] | None:
    """Short requests gain little from a smaller cache."""
    asked = case.plan.kv_cache_dtype
    load = case.facts.workload
    length = load.input_tokens + load.output_tokens
    return {"length": count(length)} if asked in views.FP8_KV and length < SHORT_TOKENS else None


def four_bits(case: Case) -> Mapping[str, Any] | None:
    """Four bits a cache element."""
    dtype = views.kv_dtype(case)
    low = dtype.startswith(("nvfp4", "turboquant_4bit", "turboquant_3bit", "turboquant_k3", "octave_", "int4_"))
    return {"dtype": dtype} if low or dtype == "ultraquant_4bit" else None


def block_size_of_minimax_m3(case: Case) -> Mapping[str, Any] | None:
    """Its sparse blocks are cache blocks."""
    asked = case.plan.block_size
    wrong = asked not in (None, 128) and case.facts.model.model_type.startswith("minimax_m3")
    return {"asked": asked} if wrong else None


def forced_backend_refuses(case: Case) -> Mapping[str, Any] | None:
    """`--attention-backend` names one that does not take some layer's cache."""
    forced = case.plan.attention_backend
    if not forced:
        return None
    dtype = views.kv_dtype(case)
    for group in case.facts.model.caches:
        if group.kind in (*views.HEADED, "mla") and forced not in (takes := _takes(case, group, dtype)):
            return {"forced": forced, "dtype": dtype, "takes": ", ".join(takes) or "none"}
    return None


def deepseek_v4_is_fp8(case: Case) -> Mapping[str, Any] | None:
    """Its compressed cache is fp8 whatever the flag says."""
    compressed = any(c.kind == "compressed" for c in case.facts.model.caches)
    return {} if compressed and case.plan.kv_cache_dtype == "auto" else None
