"""What speculative decoding loads beside the decoder: a draft's weights, and the layers that it keeps a cache for.

It is said of the model and not of the plan, because a draft is layers like any other to the memory that it takes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.model.spec import WeightGroup


if TYPE_CHECKING:
    from vllm_advisor.model.spec import CacheGroup, ModelSpec

_GROWING = ("full", "mla", "compressed")
_LAYER_ROLES = ("attention", "mlp", "norm")


class Drafted(NamedTuple):
    """The model as it is loaded, and in words what was assumed."""

    spec: ModelSpec
    assumed: tuple[str, ...] = ()


def drafted(spec: ModelSpec, method: str) -> Drafted:
    """The spec with the draft of a speculative `method`: "", "eagle", "mtp", or one that is not modelled."""
    if method == "mtp" and spec.mtp_layers:
        weights = tuple(replace(g, role="other") if g.role == "mtp" else g for g in spec.weights)
        longer = replace(spec, weights=weights, caches=_longer(spec, spec.mtp_layers))
        return Drafted(longer, (f"MTP: {spec.mtp_layers} draft layers of the checkpoint are loaded",))
    if method == "eagle":
        longer = replace(spec, weights=(*spec.weights, *_eagle(spec)), caches=_longer(spec, 1))
        return Drafted(longer, ("EAGLE: a draft of one layer like the model's own, in 16 bits",))
    return Drafted(spec, (f"the draft ({method}) is not counted",) if method else ())


def _longer(spec: ModelSpec, count: int) -> tuple[CacheGroup, ...]:
    """The first cache that grows with length, `count` layers longer; a draft stands on the last stage."""
    last = (spec.num_layers - 1,) * count
    grown = next((i for i, c in enumerate(spec.caches) if c.kind in _GROWING), -1)
    return tuple(replace(c, layers=c.layers + last) if i == grown else c for i, c in enumerate(spec.caches))


def _eagle(spec: ModelSpec) -> tuple[WeightGroup, ...]:
    """One layer, and the projection that joins embedding and hidden state (models/llama_eagle.py fc)."""
    layer = tuple(
        replace(g, params=g.params // len(g.layers), bytes=2 * g.params // len(g.layers), layers=(), bits=16)
        for g in spec.weights
        if g.layers and g.role in _LAYER_ROLES
    )
    joined = 2 * spec.hidden_size * spec.hidden_size
    return (*layer, WeightGroup("other", joined, 2 * joined, "replicated"))
