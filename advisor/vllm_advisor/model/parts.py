"""Which format the linear layers have, and which the experts: many checkpoints quantize one of the two alone.

vLLM asks its kernels layer by layer. The ignore list and the per-module formats say what each layer holds, so they
are asked here for every tensor, and what the two parts hold is kept where it is not the checkpoint's one scheme.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_advisor.model.quantization import Format, Recipe
    from vllm_advisor.model.sheet import Tensor
    from vllm_advisor.model.spec import Quantization

_LINEAR = frozenset(("attention", "linear_attention", "mlp", "shared_expert"))
_FINE_GROUP = 32  # Machete takes groups of 64, 128 and whole rows alone (mixed_precision/machete.py:36-49)


def with_parts(recipe: Recipe, tensors: Iterable[Tensor]) -> Quantization:
    """The recipe's summary, with the formats of linear layers and experts where they are not its `scheme`."""
    found = recipe.quantization
    if found.method == "none":
        return found
    listed = tuple(tensors)
    linear = _quantized(recipe, (t for t in listed if t.role in _LINEAR)) or ("bf16",)
    experts = _quantized(recipe, (t for t in listed if t.role == "experts")) or ("bf16",)
    has = {t.role for t in listed if t.linear}
    own = experts[0].replace("int4_g32", "int4")
    # Every layer is ignored: the checkpoint only brings scales for the KV cache.
    if linear == ("bf16",) and own == "bf16" and found.scheme != "other":
        return replace(found, scheme="bf16", weight_bits=16, activation_bits=16)
    return replace(
        found,
        linear_schemes=() if linear == (found.scheme,) or not has & _LINEAR else linear,
        expert_scheme="" if own == found.scheme or "experts" not in has else own,
    )


def _quantized(recipe: Recipe, tensors: Iterable[Tensor]) -> tuple[str, ...]:
    """Formats of these linear layers, that of most layers first; those in 16 bits do not count."""
    counts: dict[str, int] = {}
    for t in tensors:
        for stored, layers in recipe.split(t) if t.linear else ():
            if stored is not None:
                name = _form(stored)
                counts[name] = counts.get(name, 0) + max(1, len(layers))
    return tuple(sorted(counts, key=lambda name: (-counts[name], name)))


def _form(stored: Format) -> str:
    if stored.scheme == "int4" and stored.block[1] == _FINE_GROUP:
        return "int4_g32"
    return "nvfp4_w4a16" if stored.scheme == "nvfp4" and stored.activation_bits == 16 else stored.scheme
