"""What one step has to move and compute on one rank, as coefficients of a batch: made once for a model and a layout.

A step reads all dense weights once, the experts that its tokens are routed to, and each request's KV cache inside the
windows of its layers; it computes two operations a parameter and token, and attention over the context.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.memory import pages
from vllm_advisor.memory.weights import Sharding, rank_bytes


if TYPE_CHECKING:
    from vllm_advisor.memory.identity import Identity
    from vllm_advisor.model.spec import CacheGroup, ModelSpec, WeightGroup

_NOT_READ = ("embedding", "vision", "audio", "mtp")  # looked up by row, or not part of a decode step
_DENSE = ("experts",)


class Work(NamedTuple):
    """One rank, all pipeline stages together. Bytes, parameters (two operations each a token), and attention.

    `windows`: (bytes a token of context, window or 0) of the layers with a window. `attention`: operations a token of
    query and token of context. `attention_windows`: the same, with its window.
    """

    dense_bytes: float
    expert_bytes: float
    dense_params: float
    expert_params: float
    kv_bytes: float
    windows: tuple[tuple[float, int], ...]
    state_bytes: float
    attention: float
    attention_windows: tuple[tuple[float, int], ...]

    def context_bytes(self, length: float) -> float:
        """KV bytes that one decoding request reads at a context of `length` tokens, state read and written."""
        total = self.kv_bytes * length + 2 * self.state_bytes
        for per_token, window in self.windows:
            total += per_token * min(length, window)
        return total

    def attention_operations(self, length: float) -> float:
        """Operations of attention for one query token at a context of `length` tokens."""
        total = self.attention * length
        for per_token, window in self.attention_windows:
            total += per_token * min(length, window)
        return total


@functools.lru_cache(maxsize=2048)
def work(key: Identity[ModelSpec], sharding: Sharding, kv_dtype: str, dcp: int) -> Work:
    """The coefficients of a model under a sharding and a KV dtype; `dcp` ranks share the sequence in decode."""
    model, tp = key.value, sharding.tensor_parallel
    sparse = any(c.kind == "indexer" for c in model.caches)
    per_layer = [
        (c, pages.token_bytes(c, kv_dtype, tp, sparse=sparse) * len(c.layers), _attention(c, tp)) for c in model.caches
    ]
    read = [g for g in model.weights if g.role not in _NOT_READ]
    dense, experts = _split(read, model, sharding)
    return Work(
        dense_bytes=dense[0] + _tied_head(model, sharding, size=2),
        expert_bytes=experts[0],
        dense_params=dense[1] + _tied_head(model, sharding, size=1),
        expert_params=experts[1],
        kv_bytes=sum(b for c, b, _ in per_layer if not c.window) / dcp,
        windows=tuple((b, c.window) for c, b, _ in per_layer if c.window),
        state_bytes=sum(pages.state_bytes(c, tp) * len(c.layers) for c in model.caches),
        attention=sum(a for c, _, a in per_layer if not c.window),
        attention_windows=tuple((a, c.window) for c, _, a in per_layer if c.window),
    )


def _split(
    read: list[WeightGroup], model: ModelSpec, sharding: Sharding
) -> tuple[tuple[float, float], tuple[float, float]]:
    """(bytes, parameters) of the dense part on a rank, and of all routed experts that the rank holds."""
    sums = {True: [0.0, 0.0], False: [0.0, 0.0]}
    for group in read:
        on_rank = rank_bytes(group, model, sharding)
        whole = on_rank / group.bytes if group.bytes and sharding.online is None else _share(group, model, sharding)
        into = sums[group.role in _DENSE]
        into[0] += on_rank
        into[1] += group.params * whole
    return (sums[False][0], sums[False][1]), (sums[True][0], sums[True][1])


def _share(group: WeightGroup, model: ModelSpec, sharding: Sharding) -> float:
    return rank_bytes(group, model, sharding._replace(online=None)) / group.bytes if group.bytes else 0.0


def _tied_head(model: ModelSpec, sharding: Sharding, *, size: int) -> float:
    """A tied embedding is read in full as the head, though it is stored once."""
    return model.vocab_size * model.hidden_size * size / sharding.tensor_parallel if model.tied_embeddings else 0.0


def _attention(group: CacheGroup, tp: int) -> float:
    """Two operations for each of query·key and probability·value, of the query heads of one rank, all layers."""
    if group.kind in ("state", "indexer"):
        return 0.0
    heads = max(1.0, (group.q_heads or group.kv_heads) / tp)
    values = group.v_dim or group.k_dim
    return 2.0 * heads * (group.k_dim + values) * len(group.layers) / group.tokens_per_entry
