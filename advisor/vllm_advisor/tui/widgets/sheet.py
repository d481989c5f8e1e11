"""A model's facts at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.units import count, gib, significant


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.model import ModelSpec
    from vllm_advisor.model.spec import CacheGroup

_KINDS = {
    "full": "full attention",
    "sliding": "window",
    "chunked": "chunks",
    "mla": "latent (MLA)",
    "indexer": "sparse index",
    "compressed": "compressed",
    "state": "fixed state",
}
_PROVENANCE = {
    "verbatim": "catalog, from the published config.json",
    "assembled": "catalog, assembled from published figures",
    "derived-quant": "catalog, base model with the usual recipe",
    "local": "a folder of this machine",
    "hub": "Hugging Face",
}
_BILLION = 1e9
_BF16, _KIB = 2, 1024


def facts(spec: ModelSpec, mark: str) -> Iterator[tuple[str, str]]:
    """(label, text), unknowns first and marked: they keep memory from being told."""
    yield from ((f"{mark} unknown", text) for text in spec.unknowns)
    for label, texts in _facts(spec):
        yield from ((label if i == 0 else "", text) for i, text in enumerate(texts))


def _facts(spec: ModelSpec) -> Iterator[tuple[str, list[str]]]:
    active = f", {_billions(spec.active_params)} a token" if spec.is_moe else ""
    yield "parameters", [f"{_billions(spec.params)}{active}"]
    yield "layers", [f"{spec.num_layers}:", *map(_group, spec.caches)]
    if spec.moe:
        shared = f" + {spec.moe.shared_experts} shared" if spec.moe.shared_experts else ""
        yield "experts", [f"{spec.moe.num_experts}, {spec.moe.experts_per_token}{shared} a token"]
    yield "heads", [f"{spec.attention_heads}, {spec.kv_heads} of keys and values"]
    yield "context", [f"{count(spec.max_position)} tokens"]
    yield "weights", [_weights(spec)]
    yield "KV cache", list(_growth(spec))
    if spec.modalities:
        yield "sees", [", ".join(spec.modalities)]
    if spec.mtp_layers:
        yield "drafts", [f"{spec.mtp_layers} MTP layer" + "s" * (spec.mtp_layers > 1)]
    yield (
        "formats",
        [spec.quantization.scheme + " (this one)", *(f"{scheme}  {name}" for name, scheme in spec.siblings)],
    )
    yield "known from", [_PROVENANCE.get(spec.provenance, spec.provenance)]


def _billions(n: int) -> str:
    return f"{significant(n / _BILLION)} B"


def _group(group: CacheGroup) -> str:
    """`18 window of 128`."""
    name = _KINDS.get(group.kind, group.kind)
    return f"{len(group.layers)} {name}" + (f" of {count(group.window)}" if group.window else "")


def _weights(spec: ModelSpec) -> str:
    exact = spec.exact_weight_bytes
    return f"{gib(exact or spec.weight_bytes)}, {spec.quantization.scheme}" + (" (exact)" if exact else "")


def _growth(spec: ModelSpec) -> Iterator[str]:
    """What a token of context costs, and a request, in 16 bits, over all layers."""
    from vllm_advisor.model.kv import kv_bytes_per_token, state_bytes

    yield f"{significant(kv_bytes_per_token(spec, _BF16) / _KIB)} KiB a token in 16 bits"
    if state := state_bytes(spec):
        yield f"{significant(state / _KIB**2)} MiB of state a request"
