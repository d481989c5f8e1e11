"""Which products a server of a model computes: [rows, columns] of each weight on one rank, and of its experts.

What our plugin multiplies are the linear layers as vLLM fuses them: Q, K and V in one weight, gate and up in another
(model_executor/layers/linear.py QKVParallelLinear, MergedColumnParallelLinear). Layers that a ModelSpec does not
describe (latent attention, linear attention, shared experts) are left out and keep the default launches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import UsageError


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.model import ModelSpec


class Shape(NamedTuple):
    """A weight [n, k], or one layer of `experts`, of which each token takes `top_k`.

    Of experts n and k are those of gate and up together; down, [k, n / 2], belongs to it.
    """

    n: int
    k: int
    experts: int = 0
    top_k: int = 0


def parse(text: str) -> Shape:
    """`N,K` or `N,K,EXPERTS,TOPK`. Raises UsageError."""
    hint = "write --shapes 4096,14336, or --shapes 5760,2880,32,4 for experts"
    try:
        found = Shape(*(int(part) for part in text.split(",")))
    except (ValueError, TypeError):
        raise UsageError(f"{text!r} is no shape", hint) from None
    if found.n < 1 or found.k < 1 or ((found.experts or found.top_k) and not 0 < found.top_k <= found.experts):
        raise UsageError(f"{text!r} is no shape of a product", hint)
    return found


def of_model(model: ModelSpec, tp: int = 1) -> tuple[Shape, ...]:
    """Each shape once, those of attention first. Raises UsageError where TP does not divide, or nothing is known."""
    found = tuple(dict.fromkeys((*_attention(model, tp), *_mlp(model, tp), *_experts(model, tp))))
    if not found:
        raise UsageError(f"the layers of {model.name} have no shapes that are known", "give them: --shapes N,K")
    return found


def _attention(model: ModelSpec, tp: int) -> Iterator[Shape]:
    for cache in model.caches:
        if cache.kind in ("full", "sliding", "chunked") and cache.q_heads and cache.kv_heads:
            queries, keys = _share(cache.q_heads, tp, "heads"), max(1, cache.kv_heads // tp)
            yield Shape(queries * cache.k_dim + keys * (cache.k_dim + cache.v_dim), model.hidden_size)
            yield Shape(model.hidden_size, queries * cache.v_dim)


def _mlp(model: ModelSpec, tp: int) -> Iterator[Shape]:
    if model.intermediate_size and any(group.role == "mlp" for group in model.weights):
        width = _share(model.intermediate_size, tp, "columns of the MLP")
        yield Shape(2 * width, model.hidden_size)
        yield Shape(model.hidden_size, width)


def _experts(model: ModelSpec, tp: int) -> Iterator[Shape]:
    if model.moe:
        width = _share(model.moe.intermediate_size, tp, "columns of an expert")
        yield Shape(2 * width, model.hidden_size, model.moe.num_experts, model.moe.experts_per_token)


def _share(count: int, tp: int, what: str) -> int:
    if count % tp:
        raise UsageError(f"{count} {what} do not split {tp} ways", "choose a --tp that divides them")
    return count // tp
