"""The model as a command loads it: its dtype, a draft's layers, redundant experts, and windows kept whole."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_advisor.check.values import mapping


if TYPE_CHECKING:
    from vllm_advisor.check.configuration import Asked
    from vllm_advisor.model import ModelSpec

_MOST_EXPERTS = 1 << 14  # beyond, it is a slip
_DTYPES = {"half": "float16", "float16": "float16", "bfloat16": "bfloat16", "float": "float32", "float32": "float32"}


def dtype(given: Asked, model: ModelSpec) -> str:
    """What the model computes in: --dtype, or its own; BF16 is served as FP16 on sm75 only by `auto`."""
    return _DTYPES.get(given.value("--dtype") or "", model.dtype)


def loaded(given: Asked, model: ModelSpec) -> ModelSpec:
    """The model as the command loads it: its dtype, and a draft's layers."""
    kind = draft(given)
    if kind in ("mtp", "eagle"):
        from vllm_advisor.estimate.draft import drafted  # noqa: PLC0415  few commands have one

        model = drafted(model, kind).spec
    extra = redundant_experts(given) if given.on("--enable-eplb") else 0
    if extra and model.moe:
        model = _with_redundant(model, extra / model.moe.num_experts)
    if given.on("--disable-hybrid-kv-cache-manager"):
        whole = tuple(replace(c, kind="full", window=0) if c.kind in _WINDOWED else c for c in model.caches)
        model = replace(model, caches=whole)
    asked_dtype = dtype(given, model)
    return in_dtype(model, asked_dtype)


def redundant_experts(given: Asked) -> int:
    """num_redundant_experts of --eplb-config, 0 without."""
    count = mapping(given.reading, "--eplb-config").get("num_redundant_experts")
    return count if isinstance(count, int) and 0 < count < _MOST_EXPERTS else 0


def _with_redundant(model: ModelSpec, share: float) -> ModelSpec:
    """The experts that EPLB keeps twice: their weights are loaded once more."""
    weights = tuple(
        replace(w, params=int(w.params * (1 + share)), bytes=int(w.bytes * (1 + share))) if w.role == "experts" else w
        for w in model.weights
    )
    exact, added = model.exact_weight_bytes, sum(w.bytes for w in weights) - sum(w.bytes for w in model.weights)
    return replace(model, weights=weights, exact_weight_bytes=exact + added if exact else None)


_WINDOWED = ("sliding", "chunked")


def in_dtype(model: ModelSpec, name: str) -> ModelSpec:
    """In another dtype; FP32 doubles what is stored in 16 bits."""
    if name == model.dtype:
        return model
    if name != "float32":
        return replace(model, dtype=name)
    weights = tuple(replace(w, bytes=2 * w.bytes) if w.bits == 16 else w for w in model.weights)
    return replace(model, dtype=name, weights=weights, exact_weight_bytes=None)


def draft(given: Asked) -> str:
    """The kind of speculation: "", "mtp", "eagle", "ngram", or the method as written."""
    if given.speculative is None:
        return ""
    method = str(given.speculative.get("method") or "")
    if method == "mtp" or method.endswith("_mtp"):
        return "mtp"
    if method in ("eagle", "eagle3"):
        return "eagle"
    return method or "draft_model"
