"""Which kernels a plan will run, part by part: what this version's selectors pick on this device, by their source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.rules import views


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.facts import Case
    from vllm_advisor.vllm.backends import Arithmetic

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
    dtype = views.kv_dtype(case)
    for cache in case.facts.model.caches:
        if cache.kind in _LAYERS and cache.q_heads:
            found = views.attention(case, cache, dtype)
            yield from ((_LAYERS[cache.kind], found[0]),) if found else ()


def _matmuls(case: Case) -> Iterator[tuple[str, str]]:
    """Linear layers in several formats have a kernel for each: all are named."""
    experts = views.expert_arithmetic(case)
    for part, used in (("linear layers", views.linear_arithmetics(case)), ("experts", (experts,) if experts else ())):
        told = "; ".join(dict.fromkeys(map(_told, filter(_is_known, used))))
        yield from ((part, told),) if told else ()


def _is_known(how: Arithmetic) -> bool:
    return how.backend is not None


def _told(how: Arithmetic) -> str:
    return f"{how.backend}, multiplies in {how.compute_bits} bits" + (" (emulated)" if how.emulated else "")
