"""One plan's memory on the rank that limits: what vLLM will take, what is left for the KV cache, and whether it starts.

requested = ceil(total × utilization); what is left after weights, profile-run peak, graphs and the rest is KV cache
(v1/worker/gpu_worker.py determine_available_memory). The verdict asks what vLLM asks: does one request of
max_model_len fit (v1/core/kv_cache_utils.py _check_enough_kv_cache_memory), and has each running request its state.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.facts import MemoryBudget
from vllm_advisor.hardware import Unknown, Vendor
from vllm_advisor.memory import kv, weights
from vllm_advisor.memory.activation import activation
from vllm_advisor.memory.block_size import block_size
from vllm_advisor.memory.graphs import graphs
from vllm_advisor.memory.identity import Identity
from vllm_advisor.memory.non_torch import non_torch
from vllm_advisor.memory.pages import kv_cache_dtype
from vllm_advisor.units import Interval, count, gib


if TYPE_CHECKING:
    from vllm_advisor.hardware import Gpu, Node
    from vllm_advisor.model.spec import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.vllm.surface import Surface

FITS, DOES_NOT_FIT, CANNOT_TELL = "fits", "does not fit", "cannot tell"
# Part of the requested memory by which builds of one version differ in what they leave (start-ups of equal
# configurations; an estimate).
_BUILDS = 0.025


class _Terms(NamedTuple):
    """What is taken before the KV cache on one rank, bytes."""

    weights: int
    activation: Interval
    graphs: Interval
    non_torch: Interval


class _Rank(NamedTuple):
    """One rank of a stage, bytes: what may be used, what is taken, what is left for KV, and what a block takes."""

    requested: int
    terms: _Terms
    left: Interval
    block: int

    @property
    def blocks(self) -> int:
        return max(0, int(self.left.mid // self.block)) if self.block else 0


def budget(model: ModelSpec, plan: Plan, node: Node, surface: Surface) -> MemoryBudget:
    """The memory of one plan; `model` is the checkpoint that the plan loads.

    Bytes on the rank that limits (the pipeline stage that leaves the fewest blocks). `kv_cache` spans what the
    modelled terms leave open. Never raises for a plan that cannot run: `verdict` and `limits` say so.
    """
    key, gpu = Identity(model), node.gpu
    layout = _layout(key, plan, gpu, surface)
    held = weights.loaded(key, weights.sharding(model, plan, gpu, surface))
    common = _Terms(0, activation(model, plan), graphs(model, plan, gpu, surface), non_torch(plan))
    ranks = [
        _rank(gpu, plan, common._replace(weights=w), block)
        for w, block in zip(held, layout.stage_block_bytes, strict=True)
    ]
    worst = min(ranks, key=lambda rank: rank.blocks)
    return _answer(model, plan, gpu, worst, _pool(layout, worst.blocks, model, plan, surface))


def _layout(key: Identity[ModelSpec], plan: Plan, gpu: Gpu, surface: Surface) -> kv.KvLayout:
    model = key.value
    dtype = kv_cache_dtype(model, plan.kv_cache_dtype)
    form = kv.CacheFormat(dtype, block_size(model, plan, gpu, dtype), surface.at_least(0, 33))
    return kv.layout(key, plan.tensor_parallel_size, plan.pipeline_parallel_size, form)


def _pool(layout: kv.KvLayout, blocks: int, model: ModelSpec, plan: Plan, surface: Surface) -> kv.Pool:
    """How requests draw on the pool in this version.

    From 0.26 on, two batches may be in flight with async scheduling (0.33.0 config/vllm.py:588-607); 0.33 keeps one
    block back and caches states for prefixes, which takes two a request (MambaSpec, cache mode "align").
    """
    newer = surface.at_least(0, 26)
    batches = plan.pipeline_parallel_size + 1 if newer else 1
    return kv.Pool(
        layout,
        blocks,
        spare=int(newer),
        in_flight=batches * plan.max_num_batched_tokens,
        dcp=plan.decode_context_parallel_size,
        state_blocks=2 if newer and layout.has_attention and model.is_hybrid else 1,
    )


def _rank(gpu: Gpu, plan: Plan, terms: _Terms, block: int) -> _Rank:
    requested = _requested(gpu, plan, terms)
    return _Rank(requested, terms, _available(requested, terms, plan), block)


def _requested(gpu: Gpu, plan: Plan, terms: _Terms) -> int:
    """What vLLM asks for at start: total × utilization, or what it will hold where the KV cache is given."""
    if plan.kv_cache_memory_bytes is None:
        return math.ceil(gpu.memory_bytes * plan.gpu_memory_utilization)
    held = terms.weights + terms.activation.mid + terms.graphs.mid + terms.non_torch.mid
    return math.ceil(held + plan.kv_cache_memory_bytes)


def _available(requested: int, terms: _Terms, plan: Plan) -> Interval:
    """What is left for KV. The modelled terms err independently: their deviations add as squares."""
    explicit = plan.kv_cache_memory_bytes
    if explicit is not None:  # vLLM then subtracts nothing (v1/worker/gpu_worker.py, kv_cache_memory_bytes)
        return Interval(explicit, explicit, explicit)
    parts = (terms.activation, terms.graphs, terms.non_torch)
    mid = requested - terms.weights - sum(p.mid for p in parts)
    builds = (_BUILDS * requested) ** 2
    low = mid - math.sqrt(builds + sum((p.high - p.mid) ** 2 for p in parts))
    high = mid + math.sqrt(builds + sum((p.mid - p.low) ** 2 for p in parts))
    return Interval(low, mid, high)


def _answer(model: ModelSpec, plan: Plan, gpu: Gpu, rank: _Rank, pool: kv.Pool) -> MemoryBudget:
    need = pool.need(plan.max_model_len)
    concurrency = pool.blocks / need if need else float(plan.max_num_seqs)
    limits = _limits(plan, gpu, rank, pool)
    return MemoryBudget(
        total=gpu.memory_bytes,
        requested=rank.requested,
        weights=rank.terms.weights,
        activation=rank.terms.activation,
        graphs=rank.terms.graphs,
        non_torch=rank.terms.non_torch,
        kv_cache=rank.left,
        kv_bytes_per_token=pool.growth(),
        block_size=pool.layout.block_size,
        num_blocks=pool.blocks,
        kv_tokens=int(concurrency * plan.max_model_len),
        max_concurrency=concurrency,
        max_context=pool.longest(max(model.max_position, plan.max_model_len)),
        verdict=_verdict(model, limits),
        limits=(*limits, *(f"cannot tell: {unknown}" for unknown in model.unknowns)),
    )


def _verdict(model: ModelSpec, limits: list[str]) -> str:
    if model.unknowns:
        return CANNOT_TELL
    return DOES_NOT_FIT if limits else FITS


def _limits(plan: Plan, gpu: Gpu, rank: _Rank, pool: kv.Pool) -> list[str]:
    """What stops the start, in the order in which vLLM would meet it."""
    checks = (
        _free_limit(gpu, rank),
        _room_limit(rank),
        _host_limit(gpu, rank),
        _request_limit(plan, rank, pool),
        _state_limit(plan, pool),
    )
    return [text for text in checks if text]


def _free_limit(gpu: Gpu, rank: _Rank) -> str:
    free = gpu.free_bytes
    if isinstance(free, Unknown) or free >= rank.requested:
        return ""
    return f"{gib(free)} of {gib(gpu.memory_bytes)} are free, vLLM asks for {gib(rank.requested)} at start"


def _room_limit(rank: _Rank) -> str:
    if rank.left.mid > 0:
        return ""
    taken = rank.terms
    rest = taken.activation.mid + taken.graphs.mid + taken.non_torch.mid
    return (
        f"weights {gib(taken.weights)} and {gib(rest)} for activations, graphs and libraries leave no room for a KV "
        f"cache: {gib(rank.requested)} a device may be used"
    )


def _host_limit(gpu: Gpu, rank: _Rank) -> str:
    """On a CPU the KV cache comes on top of what the worker already holds."""
    taken = rank.terms
    if gpu.vendor is not Vendor.CPU or taken.weights + taken.activation.mid + rank.left.mid <= gpu.memory_bytes:
        return ""
    return (
        f"weights {gib(taken.weights)} and a KV cache of {gib(rank.left.mid)} exceed {gib(gpu.memory_bytes)} of host "
        "memory"
    )


def _request_limit(plan: Plan, rank: _Rank, pool: kv.Pool) -> str:
    need = pool.need(plan.max_model_len)
    if rank.left.mid <= 0 or need <= pool.blocks - pool.spare:
        return ""
    return (
        f"one request of {count(plan.max_model_len)} tokens needs {gib(need * rank.block)} of KV cache, "
        f"{gib(rank.left.mid)} are left"
    )


def _state_limit(plan: Plan, pool: kv.Pool) -> str:
    """Graphs of a full batch need a state block a request (config/compilation.py, "exceeds available Mamba cache")."""
    if plan.enforce_eager or not pool.layout.has_states or not 0 < pool.blocks < plan.max_num_seqs:
        return ""
    return f"max_num_seqs {count(plan.max_num_seqs)} exceeds the {count(pool.blocks)} blocks that states can take"
