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
# Tokens that a sparse indexer leaves to attend to: index_topk of DeepSeek-V3.2's and GLM-5's configurations.
_SPARSE_TOKENS = 2048
# Prefill expands latents to heads of 192 + 128 elements; decode multiplies latents of 576 twice (DeepSeek-V3's config).
_EXPANDED_MLA = (192 + 128) / (2 * 576)
# Operations of a prompt's token for each element of a recurrent state: decay, outer product, read-out (an estimate).
_OPERATIONS_A_STATE = 8


class Work(NamedTuple):
    """One rank, all pipeline stages together. Bytes, parameters (two operations each a token), and attention.

    `windows`: (bytes a token of context, window or 0) of the layers with a window. `attention`: operations a token of
    query and token of context. `attention_windows`: the same, with its window. `prefill_attention` is what prefill
    needs instead of `attention` (MLA expands its latents there); `recurrent`: operations a token of linear attention.
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
    prefill_attention: float = 0.0
    recurrent: float = 0.0

    def context_bytes(self, length: float) -> float:
        """KV bytes that one decoding request reads at a context of `length` tokens, state read and written."""
        total = self.kv_bytes * length + 2 * self.state_bytes
        for per_token, window in self.windows:
            total += per_token * min(length, window)
        return total

    def attention_operations(self, length: float) -> float:
        """Operations of attention for one decoded token at a context of `length` tokens."""
        return self._attend(self.attention, length)

    def prefill_operations(self, length: float) -> float:
        """The same for a token of a prompt, linear attention included."""
        return self._attend(self.prefill_attention, length) + self.recurrent

    def _attend(self, each: float, length: float) -> float:
        total = each * length
        for per_token, window in self.attention_windows:
            total += per_token * min(length, window)
        return total


@functools.lru_cache(maxsize=2048)
def work(key: Identity[ModelSpec], sharding: Sharding, kv_dtype: str, dcp: int) -> Work:
    """The coefficients of a model under a sharding and a KV dtype; `dcp` ranks share the sequence in decode."""
    model, tp = key.value, sharding.tensor_parallel
    sparse = any(c.kind == "indexer" for c in model.caches)
    layers = [_layers(c, tp, kv_dtype, sparse=sparse) for c in model.caches]
    dense, experts = _split([g for g in model.weights if g.role not in _NOT_READ], model, sharding)
    return Work(
        dense_bytes=dense[0] + _tied_head(model, sharding, size=2),
        expert_bytes=experts[0],
        dense_params=dense[1] + _tied_head(model, sharding, size=1),
        expert_params=experts[1],
        kv_bytes=sum(g.read for g in layers if not g.window) / dcp,
        windows=tuple((g.read, g.window) for g in layers if g.window),
        state_bytes=sum(g.state for g in layers),
        attention=sum(g.decode for g in layers if not g.window),
        attention_windows=tuple((g.decode, g.window) for g in layers if g.window),
        prefill_attention=sum(g.prefill for g in layers if not g.window),
        recurrent=sum(g.state for g in layers) / 2 * _OPERATIONS_A_STATE,
    )


class _Layers(NamedTuple):
    """One cache group on a rank, all its layers: bytes read a token, window (0: none), operations, bytes of state."""

    read: float
    window: int
    decode: float
    prefill: float
    state: float


def _layers(c: CacheGroup, tp: int, kv_dtype: str, *, sparse: bool) -> _Layers:
    read = pages.token_bytes(c, kv_dtype, tp, sparse=sparse) * len(c.layers)
    chosen = sparse and c.kind in ("mla", "full")
    operations = _attention(c, tp)
    expanded = _EXPANDED_MLA if c.kind == "mla" and not chosen else 1.0
    state = pages.state_bytes(c, tp) * len(c.layers)
    return _Layers(read, _SPARSE_TOKENS if chosen else c.window, operations, operations * expanded, state)


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
