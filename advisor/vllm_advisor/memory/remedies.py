"""What would make a plan fit: the smallest changes, each proved by computing the budget again.

One change at a time, cheapest first. Where a change alone is not enough but leaves room for a shorter context, that
context is part of the remedy. Nothing is proposed that the version or the device would refuse.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.facts import Remedy
from vllm_advisor.hardware import Vendor
from vllm_advisor.memory.budget import budget as budget_of
from vllm_advisor.units import count
from vllm_advisor.vllm import backends


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm_advisor.facts import MemoryBudget
    from vllm_advisor.hardware import Node
    from vllm_advisor.model.spec import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.vllm.surface import Surface

_UTILIZATIONS = (0.94, 0.96, 0.97)  # beyond, the driver and other processes get in the way
_LEAST_SEQS, _LEAST_BATCHED = 8, 2048
_USEFUL_CONTEXT = 2048  # a shorter one is no answer to anybody
_STEP = 1024  # contexts are offered in round numbers
_MOST_GPUS = 64


class _Change(NamedTuple):
    words: str
    model: ModelSpec
    plan: Plan
    node: Node


def remedies(  # noqa: PLR0917 - the engine calls all its parts with these
    model: ModelSpec,
    plan: Plan,
    node: Node,
    surface: Surface,
    budget: MemoryBudget,
    siblings: Sequence[ModelSpec] = (),
) -> tuple[Remedy, ...]:
    """Changes that make this plan fit, smallest first; () where it fits already or none does.

    `siblings` are other checkpoints of the same base model. A remedy may need more devices than the node has: its
    words say so.
    """
    if budget.fits or model.unknowns:
        return ()
    found: list[Remedy] = []
    for changes in (
        _utilization(model, plan, node),
        _eager(model, plan, node),
        _fewer_seqs(model, plan, node, budget.num_blocks),
        _fewer_batched(model, plan, node),
    ):
        found += _first(changes, surface, shorten=False)
    found += _shorter(_Change("", model, plan, node), budget, surface)
    for weaker in (_kv_dtype, _online):
        found += _first(weaker(model, plan, node, surface), surface, shorten=True)
    found += _first(_checkpoints(plan, node, siblings), surface, shorten=True)
    found += _first(_more_gpus(model, plan, node), surface, shorten=False)
    return tuple(found)


def _first(changes: Iterator[_Change], surface: Surface, *, shorten: bool) -> list[Remedy]:
    """The first change of a kind that fits; with `shorten`, else the first that fits with fewer tokens."""
    tried = [(c, budget_of(c.model, c.plan, c.node, surface)) for c in changes]
    for change, result in tried:
        if result.fits:
            return [Remedy(change.words, change.plan, result)]
    shorter = [r for c, result in tried for r in _shorter(c, result, surface)] if shorten else []
    return shorter[:1]


def _shorter(change: _Change, result: MemoryBudget, surface: Surface) -> list[Remedy]:
    """The same with the longest context that fits, in whole steps."""
    context = result.max_context // _STEP * _STEP
    if not _USEFUL_CONTEXT <= context < change.plan.max_model_len:
        return []
    plan = replace(change.plan, max_model_len=context)
    again = budget_of(change.model, plan, change.node, surface)
    words = f"{change.words} and at most" if change.words else "at most"
    return [Remedy(f"{words} {count(context)} tokens a request", plan, again)] if again.fits else []


def _utilization(model: ModelSpec, plan: Plan, node: Node) -> Iterator[_Change]:
    for share in _UTILIZATIONS:
        if share > plan.gpu_memory_utilization:
            changed = replace(plan, gpu_memory_utilization=share)
            yield _Change(f"gpu_memory_utilization {share}", model, changed, node)


def _eager(model: ModelSpec, plan: Plan, node: Node) -> Iterator[_Change]:
    if not plan.enforce_eager:
        yield _Change("no CUDA graphs (enforce_eager, slower decode)", model, replace(plan, enforce_eager=True), node)


def _fewer_seqs(model: ModelSpec, plan: Plan, node: Node, blocks: int) -> Iterator[_Change]:
    """As many as there are blocks for states where that is what lacks, then halves."""
    if model.is_hybrid and _LEAST_SEQS <= blocks < plan.max_num_seqs:
        yield _Change(f"max_num_seqs {blocks}", model, replace(plan, max_num_seqs=blocks), node)
    seqs = plan.max_num_seqs // 2
    while seqs >= _LEAST_SEQS:
        yield _Change(f"max_num_seqs {seqs}", model, replace(plan, max_num_seqs=seqs), node)
        seqs //= 2


def _fewer_batched(model: ModelSpec, plan: Plan, node: Node) -> Iterator[_Change]:
    tokens = plan.max_num_batched_tokens // 2
    while tokens >= max(_LEAST_BATCHED, plan.max_num_seqs):
        changed = replace(plan, max_num_batched_tokens=tokens)
        yield _Change(f"max_num_batched_tokens {tokens}", model, changed, node)
        tokens //= 2


def _kv_dtype(model: ModelSpec, plan: Plan, node: Node, surface: Surface) -> Iterator[_Change]:
    """FP8 keys and values, where each layer has a backend that takes them."""
    if plan.kv_cache_dtype not in ("auto", "bfloat16", "float16") or model.quantization.kv_cache_dtype:
        return
    sparse = any(c.kind == "indexer" for c in model.caches)
    if all(backends.attention(surface, node.gpu.arch, c, "fp8", sparse=sparse) for c in model.caches):
        yield _Change("an FP8 KV cache", model, replace(plan, kv_cache_dtype="fp8"), node)


def _online(model: ModelSpec, plan: Plan, node: Node, surface: Surface) -> Iterator[_Change]:
    """Quantization while loading, 8 bits before 4."""
    if plan.quantization is None:
        for name, scheme in backends.online_quantizations(surface, node.gpu.arch, model):
            yield _Change(f"quantization {name} ({scheme})", model, replace(plan, quantization=name), node)


def _checkpoints(plan: Plan, node: Node, siblings: Sequence[ModelSpec]) -> Iterator[_Change]:
    """Other checkpoints of the model, the largest first: the least is lost."""
    for sibling in sorted(siblings, key=lambda s: (-s.weight_bytes, s.name)):
        changed = replace(plan, checkpoint=sibling.name, quantization=None)
        yield _Change(f"the checkpoint {sibling.name} ({sibling.quantization.scheme})", sibling, changed, node)


def _more_gpus(model: ModelSpec, plan: Plan, node: Node) -> Iterator[_Change]:
    """The next larger tensor-parallel sizes that the heads divide into, then one more pipeline stage."""
    if node.gpu.vendor is Vendor.CPU:  # nobody adds a processor
        return
    tp = plan.tensor_parallel_size
    for size in (tp * 2, tp * 4, tp * 8):
        if model.attention_heads % size == 0:
            yield _grown(model, replace(plan, tensor_parallel_size=size), node, f"tensor_parallel_size {size}")
    stages = plan.pipeline_parallel_size + 1
    yield _grown(model, replace(plan, pipeline_parallel_size=stages), node, f"pipeline_parallel_size {stages}")


def _grown(model: ModelSpec, plan: Plan, node: Node, words: str) -> _Change:
    """The plan on a node that is large enough, with the number of devices in words where this one is not."""
    missing = plan.world_size - node.world
    if missing <= 0 or plan.world_size > _MOST_GPUS:
        return _Change(words, model, plan, node)
    larger = replace(node, gpus=node.gpus + (node.gpu,) * missing, count=1)
    return _Change(f"{words}, which needs {missing} more {node.gpu.name}", model, plan, larger)
