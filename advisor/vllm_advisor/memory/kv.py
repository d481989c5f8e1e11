"""How vLLM lays the KV cache out: groups that share one pool of blocks, and how many blocks a request takes.

The mechanism is vLLM's own (0.24.0 v1/core/kv_cache_utils.py, 0.33.0 v1/core/kv_cache_planning.py): layers with equal
needs form groups, all groups draw block ids from one pool, a block holds the widest group's pages. Capacity is
blocks over blocks per request, and "tokens" is that times the length: an equivalent, not a count of slots.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.memory import kv_packed, pages
from vllm_advisor.memory.stages import stages


if TYPE_CHECKING:
    from vllm_advisor.memory.identity import Identity
    from vllm_advisor.model.spec import CacheGroup, ModelSpec

# Kinds that need a slot for each token of a request, one block table for all of them where block sizes agree
# (UniformTypeKVCacheSpecs: FullAttentionSpec and what derives from it).
_GROWING = ("full", "mla", "indexer", "compressed")
_MLA_HYBRID_ALIGNMENT = 128  # 0.33.0 platforms/interface.py: MLA kernels want whole 128-token pages beside a state


class Spec(NamedTuple):
    """Layers with the same needs: a page is what `block_size` tokens (or one state) of one layer take, in bytes."""

    kind: str
    layers: tuple[int, ...]
    page: int
    block_size: int
    window: int = 0


class Demand(NamedTuple):
    """`groups` groups of one kind: each has a block table, from which a request takes blocks (kv_packed: fractions)."""

    kind: str
    block_size: int
    window: int
    groups: float


class KvLayout(NamedTuple):
    """What a block is: `stage_block_bytes` its bytes by pipeline stage, `block_size` tokens of an attention block."""

    demands: tuple[Demand, ...]
    stage_block_bytes: tuple[int, ...]
    block_size: int

    @property
    def smallest_block(self) -> int:
        """Tokens of the smallest block of a group that keeps tokens."""
        return min((d.block_size for d in self.demands if d.kind != "state"), default=1)

    @property
    def groups(self) -> int:
        """Block tables."""
        return max(1, math.ceil(sum(d.groups for d in self.demands)))

    @property
    def has_states(self) -> bool:
        """Whether each running request holds blocks of a fixed state."""
        return any(d.kind == "state" for d in self.demands)

    @property
    def has_attention(self) -> bool:
        """Whether anything grows or slides with the request's length."""
        return any(d.kind != "state" for d in self.demands)


class CacheFormat(NamedTuple):
    """What shapes a page: the resolved KV dtype, tokens a block, and whether 0.33's rules hold or 0.24's.

    `windows`, `chunks`: sliding and chunked layers keep their window only (else each token, as whole layers do).
    `wide_states`: recurrent states take the dtype that the checkpoint asks for (else 16 bits). `slack`: groups are as
    wide as the commonest kind while it has less than that many times the rarest's layers. `latent`: MLA keeps one
    vector a token, in multiples of `latent_alignment` bytes (else K and V of each head). `parts`: layers of each
    stage, () for even ones.
    """

    dtype: str
    block_size: int
    newer: bool
    windows: bool = True
    chunks: bool = True
    wide_states: bool = True
    slack: float = 1.5
    latent: bool = True
    latent_alignment: int = 1
    parts: tuple[int, ...] = ()


@functools.lru_cache(maxsize=4096)
def layout(key: Identity[ModelSpec], tensor_parallel: int, pipeline_parallel: int, form: CacheFormat) -> KvLayout:
    """The pool of one model under a layout and a cache format."""
    model = key.value
    cuts = stages(model.num_layers, pipeline_parallel, form.parts)
    if any(c.kind == "compressed" for c in model.caches):
        return _packed(model, cuts, form)
    specs = _specs(model, tensor_parallel, form)
    if not specs:
        return KvLayout((), (0,) * len(cuts), form.block_size)
    block_size = next((s.block_size for s in specs if s.kind in _GROWING), specs[0].block_size)
    if _uniform(specs):
        return _single_group(specs, cuts, block_size)
    return _shared_pages(_unified(specs), cuts, block_size, form.slack)


class Pool(NamedTuple):
    """The KV cache of one rank: `blocks` in all, of which `spare` are never given to a request.

    `in_flight`: tokens that may be scheduled and not yet freed. `dcp`: ranks that share a sequence. `state_blocks`:
    blocks a state group keeps for one request (1; 2 with prefix caching: v1/kv_cache_interface.py MambaSpec), 0 for one
    each attention block (cache mode "all").
    """

    layout: KvLayout
    blocks: int
    spare: int
    in_flight: int
    dcp: int
    state_blocks: int

    def need(self, length: int) -> int:
        """Blocks that one request of `length` tokens can hold at most."""
        in_flight, total = self.in_flight, 0.0
        for kind, size, window, groups in self.layout.demands:
            if kind == "state":
                total += groups * (self.state_blocks or cdiv(length, self.layout.block_size))
            elif kind == "sliding":
                total += groups * (cdiv(min(window - 1 + in_flight, length), size) + 1)
            elif kind == "chunked":
                total += groups * cdiv(min(window + in_flight, length), size)
            else:
                total += groups * cdiv(cdiv(length, self.dcp), size)
        return math.ceil(total)

    def growth(self) -> float:
        """Bytes a token adds to one request on one rank, beyond any window: what the pool loses, padding included."""
        widest = max(self.layout.stage_block_bytes)
        return sum(widest * d.groups / d.block_size for d in self.layout.demands if d.kind in _GROWING) / self.dcp

    def longest(self, limit: int) -> int:
        """The longest request, up to `limit` tokens, that the pool holds; 0: not even one token."""
        usable = self.blocks - self.spare
        if usable <= 0 or self.need(limit) <= usable:
            return limit if usable > 0 else 0
        low, high = 0, limit
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.need(middle) <= usable else (low, middle)
        return low


def cdiv(a: int, b: int) -> int:
    """Quotient, rounded up."""
    return -(-a // b)


def _specs(model: ModelSpec, tensor_parallel: int, form: CacheFormat) -> list[Spec]:
    """One spec a cache group; where a state lives beside attention, attention blocks grow until they hold it."""
    sparse = any(c.kind == "indexer" for c in model.caches)
    per_token = [pages.token_bytes(c, form.dtype, tensor_parallel, sparse=sparse) for c in model.caches]
    if not form.latent or form.latent_alignment > 1:
        per_token = [_older_latent(c, t, tensor_parallel, form) for c, t in zip(model.caches, per_token, strict=True)]
    states = [pages.state_bytes(c, tensor_parallel, wide=form.wide_states) for c in model.caches]
    size, state_page = _hybrid_block(model, per_token, max(states, default=0), form)
    specs = [
        _state(c, state_page or own) if c.kind == "state" else _attention(c, int(t * size), size, form)
        for c, t, own in zip(model.caches, per_token, states, strict=True)
    ]
    return _merged([s for s in specs if s.layers])


def _older_latent(group: CacheGroup, token: float, tensor_parallel: int, form: CacheFormat) -> float:
    if group.kind != "mla":
        return token
    if form.latent:
        return cdiv(int(token), form.latent_alignment) * form.latent_alignment
    return pages.expanded_bytes(group, form.dtype, tensor_parallel)


def _attention(group: CacheGroup, page: int, size: int, form: CacheFormat) -> Spec:
    kept = form.chunks if group.kind == "chunked" else form.windows
    if group.window and not kept:
        return Spec("full", group.layers, page, size)
    return Spec(group.kind, group.layers, page, size, group.window)


def _state(group: CacheGroup, page: int) -> Spec:
    return Spec("state", group.layers, page, 1)


def _hybrid_block(model: ModelSpec, per_token: list[float], state: int, form: CacheFormat) -> tuple[int, int]:
    """Tokens of an attention block and bytes of a state's page (platforms/interface.py _align_hybrid_block_size)."""
    attention = next((t for c, t in zip(model.caches, per_token, strict=True) if c.kind in _GROWING), 0.0)
    if not (state and attention):
        return form.block_size, state
    align = max(form.block_size, _MLA_HYBRID_ALIGNMENT) if form.newer and model.uses_mla else form.block_size
    size = align * math.ceil(state / (align * attention))
    return size, int(size * attention)


def _merged(specs: list[Spec]) -> list[Spec]:
    """Layers of equal needs are one spec whatever group of the model they came from."""
    merged: dict[tuple[str, int, int, int], tuple[int, ...]] = {}
    for s in specs:
        key = (s.kind, s.page, s.block_size, s.window)
        merged[key] = tuple(sorted(merged.get(key, ()) + s.layers))
    return [Spec(kind, layers, page, size, window) for (kind, page, size, window), layers in merged.items()]


def _uniform(specs: list[Spec]) -> bool:
    """Whether one block table serves all layers: all grow with length, or all have the same window."""
    if len({s.block_size for s in specs}) > 1:
        return False
    return all(s.kind in _GROWING for s in specs) or len({(s.kind, s.window) for s in specs}) == 1


def _single_group(specs: list[Spec], cuts: tuple[range, ...], block_size: int) -> KvLayout:
    """Each layer has its own page; a block is the sum over the layers of a stage."""
    sizes = tuple(sum(s.page * _inside(s.layers, cut) for s in specs) for cut in cuts)
    return KvLayout((Demand(specs[0].kind, specs[0].block_size, specs[0].window, 1),), sizes, block_size)


def _inside(layers: tuple[int, ...], cut: range) -> int:
    return sum(layer in cut for layer in layers)


def _unified(specs: list[Spec]) -> list[Spec]:
    """One page size: smaller pages get more tokens where that divides, and padding otherwise."""
    largest = max(s.page for s in specs)
    return [_grown(s, largest) for s in specs]


def _grown(spec: Spec, page: int) -> Spec:
    ratio = page // spec.page if spec.kind != "state" and page % spec.page == 0 else 1
    return spec._replace(page=page, block_size=spec.block_size * ratio)


def _shared_pages(specs: list[Spec], cuts: tuple[range, ...], block_size: int, slack: float) -> KvLayout:
    """Groups of equally many layers, as many as the rarest spec has (or the commonest, when they are close)."""
    counts = [len(s.layers) for s in specs]
    width = max(counts) if max(counts) < min(counts) * slack else min(counts)
    demands = tuple(Demand(s.kind, s.block_size, s.window, cdiv(len(s.layers), width)) for s in specs)
    groups = [s.layers[i :: int(d.groups)] for s, d in zip(specs, demands, strict=True) for i in range(int(d.groups))]
    sizes = tuple(specs[0].page * max(_inside(group, cut) for group in groups) for cut in cuts)
    return KvLayout(demands, sizes, block_size)


def _packed(model: ModelSpec, cuts: tuple[range, ...], form: CacheFormat) -> KvLayout:
    shares, sizes = kv_packed.plan(model, cuts, form.dtype, newer=form.newer)
    demands = (Demand("sliding" if s.window else "compressed", s.block_size, s.window, s.groups) for s in shares)
    return KvLayout(tuple(demands), sizes, kv_packed.BLOCK)
