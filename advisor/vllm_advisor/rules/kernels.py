"""Which kernels a plan will run, part by part: what this version's selectors pick on this device, by their source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.rules import views
from vllm_advisor.vllm import backends, schemes


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.facts import Case

_LAYERS = {
    "full": "attention",
    "sliding": "sliding-window attention",
    "chunked": "chunked attention",
    "mla": "latent attention",
    "compressed": "compressed attention",
}


def kernels(case: Case) -> tuple[tuple[str, str], ...]:
    """(part, backend) for attention by kind of layer, linear layers and experts; parts that have none are left out."""
    return (*dict.fromkeys(_attention(case)), *_matmuls(case))


def _attention(case: Case) -> Iterator[tuple[str, str]]:
    dtype, sparse = views.kv_dtype(case), views.is_sparse(case)
    with_aiter = schemes.uses_aiter(case.plan)
    for cache in case.facts.model.caches:
        if cache.kind in _LAYERS and cache.q_heads:
            found = backends.attention(case.facts.vllm, views.arch(case), cache, dtype, aiter=with_aiter, sparse=sparse)
            yield from ((_LAYERS[cache.kind], found[0]),) if found else ()


def _matmuls(case: Case) -> Iterator[tuple[str, str]]:
    for part, how in (("linear layers", views.linear_arithmetic(case)), ("experts", views.expert_arithmetic(case))):
        if how and how.backend:
            yield (
                part,
                f"{how.backend}, multiplies in {how.compute_bits} bits" + (" (emulated)" if how.emulated else ""),
            )
