"""KV scales: where an FP8 cache gets them from, and what it does without.

Per-tensor FP8 caches take scales from the checkpoint, else 1.0; nothing is measured at run time
(quantization/kv_cache.py:131-173). Formats by token and head scale themselves and need none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.check import mend
from vllm_advisor.rules import predicates_kv as kv
from vllm_advisor.rules import views
from vllm_advisor.vllm import archs


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.check.configuration import Asked, Judged
    from vllm_advisor.check.finding import Finding

_KV, _CALCULATE = "--kv-cache-dtype", "--calculate-kv-scales"
# Methods whose config says whether the checkpoint has KV scales (`kv_cache_scheme`, `kv_cache_quant_algo`, quark's
# `kv_cache_group`); the others may carry `k_scale` tensors of which the config says nothing.
_SAYS_SO = frozenset(("none", "compressed-tensors", "modelopt", "modelopt_fp4", "modelopt_mixed", "quark"))
_SOURCE = "quantization/kv_cache.py:131-173"


def findings(found: Judged, *, device: bool) -> tuple[Finding, ...]:
    """What is missing to an FP8 cache of this model. `device`: whether the device is known."""
    return tuple(_missing(found, device=device))


def _missing(found: Judged, *, device: bool) -> Iterator[Finding]:
    what = kv.no_scales(found.case)
    if what is None:
        return
    given, model = found.asked, found.case.facts.model
    doubled = " (doubled to 2.0 on gfx94x, whose FP8 is the FNUZ kind)" if device and _fnuz(found) else ""
    alone = f"vLLM takes 1.0{doubled} and warns; warming up changes nothing"
    if model.quantization.method in _SAYS_SO:
        text = f"{model.name} brings no KV scales for a cache in {what['dtype']}: {alone}"
        yield mend.said("KV-05", text, given, _KV, hint=_better(found, device=device), source=_SOURCE)
    else:
        text = f"whether {model.name} has KV scales stands in its tensors, not in its configuration: without, {alone}"
        yield mend.said("KVS-01", text, given, _KV, source=_SOURCE)


def _fnuz(found: Judged) -> bool:
    return views.arch(found.case) in archs.FNUZ


def _better(found: Judged, *, device: bool) -> str:
    """What gives real scales: a calibrated checkpoint, or a format that scales itself where the device takes it."""
    from vllm_advisor.vllm import backends  # noqa: PLC0415

    calibrated = "a checkpoint with calibrated KV scales"
    facts, dtype = found.case.facts, "fp8_per_token_head"
    if dtype not in facts.vllm.kv_cache_dtypes or facts.model.uses_mla:
        return calibrated
    arch = views.arch(found.case)
    takes = all(backends.attention(facts.vllm, arch, c, dtype) for c in facts.model.caches)
    return f"{calibrated}, or {_KV} {dtype} (its scales are computed)" if takes or not device else calibrated


def calculated(given: Asked, found: Judged | None) -> Iterator[Finding]:
    """--calculate-kv-scales, in the versions that still have it."""
    if not given.on(_CALCULATE):
        return
    change, version = mend.drop(given, _CALCULATE), given.surface.version
    if given.kv_cache_dtype not in views.FP8_KV:
        text = f"{_CALCULATE} does nothing: the cache is not fp8"
        yield mend.said("KVS-03", text, given, _CALCULATE, change=change)
    elif found is not None and found.case.facts.model.is_hybrid:
        text = f"vLLM {version} switches {_CALCULATE} off for hybrid models: the scales stay 1.0"
        yield mend.said("KVS-03", text, given, _CALCULATE, change=change)
    else:
        text = (
            f"{_CALCULATE} takes the scales from the first batch only, whatever comes later, and runs that batch "
            f"without CUDA graphs; it is deprecated in vLLM {version} and gone in later ones"
        )
        hint = f"a checkpoint with calibrated KV scales, or {_KV} fp8_per_token_head"
        yield mend.said("KVS-02", text, given, _CALCULATE, hint=hint)
