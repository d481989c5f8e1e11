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
from vllm_advisor.memory.era import era_of
from vllm_advisor.memory.graphs import NONE, graphs
from vllm_advisor.memory.identity import Identity
from vllm_advisor.memory.non_torch import non_torch
from vllm_advisor.memory.pages import kv_cache_dtype
from vllm_advisor.memory.stages import partition
from vllm_advisor.units import GIB, Interval, count, gib


if TYPE_CHECKING:
    from vllm_advisor.hardware import Gpu, Node
    from vllm_advisor.memory.era import Era
    from vllm_advisor.model.spec import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.vllm.surface import Surface

FITS, DOES_NOT_FIT, CANNOT_TELL = "fits", "does not fit", "cannot tell"
# By how much builds of one version differ in what they leave, beside the modelled terms: bytes, and a part of what is
# requested (start-ups of equal configurations; an estimate).
_BUILDS, _BUILDS_SHARE = 0.2 * GIB, 0.012


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
    era = era_of(model, plan, surface, gpu)
    layout = _layout(key, plan, gpu, surface, era)
    held = weights.loaded(key, weights.sharding(model, plan, gpu, surface), from_driver=era.loaded_from_driver)
    captured = graphs(model, plan, gpu)
    charged, rest = captured if era.charges_graphs else NONE, non_torch(plan, gpu, era)
    peaks = _peaks(model, plan, era)
    ranks = [
        _rank(device, plan, _Terms(w, peak, charged, rest), block)
        for device, w, peak, block in zip(_devices(node, gpu, plan), held, peaks, layout.stage_block_bytes, strict=True)
    ]
    worst = min(ranks, key=lambda rank: rank.blocks)
    pool = _pool(layout, worst.blocks, model, plan, era)
    return _answer(model, plan, worst, pool, _Case(gpu, era, captured))


class _Case(NamedTuple):
    """What a verdict needs beside the rank: the device, the era, and the graphs whether charged or not."""

    gpu: Gpu
    era: Era
    captured: Interval


def _peaks(model: ModelSpec, plan: Plan, era: Era) -> tuple[Interval, ...]:
    """The profile run's peak by pipeline stage."""
    last = activation(model, plan, era)
    before = plan.pipeline_parallel_size - 1
    return ((activation(model, plan, era, samples=False),) * before if before else ()) + (last,)


def _devices(node: Node, gpu: Gpu, plan: Plan) -> tuple[Gpu, ...]:
    """The device that limits each stage: stages take the node's devices in order, TP at a time."""
    stages, width = plan.pipeline_parallel_size, plan.tensor_parallel_size
    if stages == 1 or len(node.gpus) < stages * width:
        return (gpu,) * stages
    cuts = (node.gpus[i * width : (i + 1) * width] for i in range(stages))
    return tuple(min(cut, key=lambda g: g.memory_bytes) for cut in cuts)


def _layout(key: Identity[ModelSpec], plan: Plan, gpu: Gpu, surface: Surface, era: Era) -> kv.KvLayout:
    model = key.value
    dtype = kv_cache_dtype(model, plan.kv_cache_dtype)
    form = kv.CacheFormat(
        dtype,
        block_size(model, plan, gpu, dtype, era.facts),
        surface.at_least(0, 33),
        era.facts.sliding_beside_full == "window",
        era.facts.chunked_local == "window",
        era.state_dtype_of_checkpoint,
        era.facts.group_slack,
        era.facts.latent_cache,
        era.facts.latent_alignment if gpu.vendor is Vendor.NVIDIA else 1,
        partition(plan),
    )
    return kv.layout(key, plan.tensor_parallel_size, plan.pipeline_parallel_size, form)


def _pool(layout: kv.KvLayout, blocks: int, model: ModelSpec, plan: Plan, era: Era) -> kv.Pool:
    """How requests draw on the pool in this version.

    Two batches may be in flight with async scheduling (0.33.0 config/vllm.py:588-607).
    """
    facts = era.facts
    batches = plan.pipeline_parallel_size + 1 if facts.batches_in_flight > 1 else 1
    return kv.Pool(
        layout,
        blocks,
        spare=facts.spare_blocks,
        in_flight=batches * plan.max_num_batched_tokens,
        dcp=plan.decode_context_parallel_size,
        state_blocks=era.state_blocks if layout.has_attention and model.is_hybrid else 1,
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
    builds = (_BUILDS + _BUILDS_SHARE * requested) ** 2
    low = mid - math.sqrt(builds + sum((p.high - p.mid) ** 2 for p in parts))
    high = mid + math.sqrt(builds + sum((p.mid - p.low) ** 2 for p in parts))
    return Interval(low, mid, high)


def _answer(model: ModelSpec, plan: Plan, rank: _Rank, pool: kv.Pool, case: _Case) -> MemoryBudget:
    need = pool.need(plan.max_model_len)
    concurrency = pool.blocks / need if need else float(plan.max_num_seqs)
    limits = _limits(plan, rank, pool, case)
    return MemoryBudget(
        total=case.gpu.memory_bytes,
        requested=rank.requested,
        weights=rank.terms.weights,
        activation=rank.terms.activation,
        graphs=rank.terms.graphs,
        non_torch=rank.terms.non_torch,
        kv_cache=rank.left,
        kv_bytes_per_token=pool.growth(),
        block_size=pool.layout.block_size,
        num_blocks=pool.blocks,
        kv_tokens=_printed(concurrency, plan, pool, case.era),
        max_concurrency=concurrency,
        max_context=pool.longest(max(model.max_position, plan.max_model_len)),
        verdict=_verdict(model, limits),
        limits=(*limits, *(f"cannot tell: {unknown}" for unknown in model.unknowns)),
        captured=case.captured,
    )


def _printed(concurrency: float, plan: Plan, pool: kv.Pool, era: Era) -> int:
    """The token line of that version: an equivalent since 0.20.1, before that slots of the blocks of one group."""
    if era.facts.tokens_line == "concurrency":
        return int(concurrency * plan.max_model_len)
    groups = pool.layout.groups if era.engine_v1 else 1
    return pool.blocks // groups * pool.layout.smallest_block * plan.decode_context_parallel_size


def _verdict(model: ModelSpec, limits: list[str]) -> str:
    if model.unknowns:
        return CANNOT_TELL
    return DOES_NOT_FIT if limits else FITS


def _limits(plan: Plan, rank: _Rank, pool: kv.Pool, case: _Case) -> list[str]:
    """What stops the start, in the order in which vLLM would meet it."""
    checks = (
        _free_limit(case.gpu, rank),
        _room_limit(rank),
        _host_limit(case.gpu, rank),
        _given_limit(case.gpu, plan, rank),
        _request_limit(plan, rank, pool),
        _state_limit(plan, pool) if case.era.limits_states else "",
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


def _given_limit(gpu: Gpu, plan: Plan, rank: _Rank) -> str:
    """A KV cache of a given size is allocated as asked, beside all else: nothing but the device bounds it."""
    if gpu.vendor is Vendor.CPU or plan.kv_cache_memory_bytes is None or rank.requested <= gpu.memory_bytes:
        return ""
    others = rank.requested - plan.kv_cache_memory_bytes
    return (
        f"a KV cache of {gib(plan.kv_cache_memory_bytes)} beside {gib(others)} for weights, activations and libraries "
        f"exceeds the device's {gib(gpu.memory_bytes)}"
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
