"""Which plan a running server follows, as far as it tells: what it says, what its figures lead to, what is assumed.

/metrics names the cache and its utilization, /v1/models the context; nothing names TP, the batch limits or the weights'
online quantization. The size of the KV cache tells the layout apart, waiting requests beside an empty cache give the
batch limit away, and everything else is that version's default: each said.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from vllm_advisor.errors import AdvisorError
from vllm_advisor.estimate.configuration import Configuration, Estimated, estimate
from vllm_advisor.hardware import Unknown, Vendor
from vllm_advisor.throughput.estimate import estimate as speed_of
from vllm_advisor.units import Interval, count, significant
from vllm_advisor.workload import Workload


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.doctor.live_facts import Observed
    from vllm_advisor.facts import Estimate, MemoryBudget
    from vllm_advisor.hardware import Node
    from vllm_advisor.model.spec import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.vllm.surface import Surface

# Beyond this ratio of the caches the plan is not the one that runs: the memory model's half-width on public start-ups
# is a tenth of this (benchmarks/score_memory.py).
_SAME_CACHE = 1.5
# A cache that is fuller than this may itself be why requests wait.
_ROOM_LEFT = 0.8
T = TypeVar("T")
_OWN = ("auto", "bfloat16", "float16", "float32")


class Inferred(NamedTuple):
    """The plan, its memory as predicted and as the server has it, its predicted speed, and what was taken for granted.

    `off`: observed over predicted KV tokens, Unknown where the server does not say. `eager` : the measured time per
    token is what a server without CUDA graphs would need.
    """

    model: ModelSpec
    node: Node
    surface: Surface
    workload: Workload
    plan: Plan
    predicted: MemoryBudget
    budget: MemoryBudget
    speed: Estimate
    assumed: tuple[str, ...]
    off: float | Unknown
    eager: bool = False

    @property
    def is_it(self) -> bool:
        """Whether the inferred plan explains the server's cache, so that changes to it may be predicted."""
        return not isinstance(self.off, Unknown) and max(self.off, 1 / self.off) <= _SAME_CACHE

    def as_here(self, budget: MemoryBudget) -> MemoryBudget:
        """A predicted budget with what this server is known to have more, or less, on every device."""
        return _moved(budget, self.budget.kv_cache.mid - self.predicted.kv_cache.mid)


def workload_of(seen: Observed) -> Workload | Unknown:
    """The load as measured, or what is missing to know it."""
    if isinstance(seen.input_tokens, Unknown) or isinstance(seen.output_tokens, Unknown):
        return Unknown("no request has ended yet, so that lengths are not known")
    shared = 0.0 if isinstance(seen.prefix_hits, Unknown) else seen.prefix_hits[0]
    prompt = max(1, round(seen.input_tokens.mean))
    return Workload(
        name="observed",
        input_tokens=prompt,
        output_tokens=max(1, round(seen.output_tokens.mean)),
        concurrency=max(1, round(seen.in_flight)),
        shared_prefix_tokens=min(prompt - 1, int(shared * prompt)),
    )


def infer(seen: Observed, model: ModelSpec, node: Node, surface: Surface) -> Inferred | Unknown:
    """The plan that explains the server best, or why none of ours can be it."""
    load = workload_of(seen)
    if isinstance(load, Unknown):
        return load
    tried, why = _tried(seen, model, node, surface)
    if not tried:
        return Unknown(why)
    best = min(tried, key=lambda found: _distance(seen, found))
    off = _off(seen, best)
    budget = best.budget if isinstance(off, Unknown) else _moved(best.budget, best.budget.kv_cache.mid * (off - 1))
    speed = speed_of(model, best.plan, budget, node, surface, load)
    inferred = Inferred(
        model, node, surface, load, best.plan, best.budget, budget, speed, _assumed(seen, best, tried), off
    )
    return _without_graphs(seen, inferred)


def _tried(seen: Observed, model: ModelSpec, node: Node, surface: Surface) -> tuple[tuple[Estimated, ...], str]:
    """The plan at each tensor-parallel size that the machine has room for, and why the last one was none."""
    found, why = [], f"{seen.replicas} engines need more devices than {node.label} has"
    for tp in _sizes(node.world // seen.replicas):
        try:
            found.append(estimate(model, node, surface, _configuration(seen, tp)))
        except AdvisorError as error:
            why = error.message
    return tuple(found), why


def _sizes(devices: int) -> Iterator[int]:
    """Powers of two and the whole machine: what people set."""
    return (n for n in range(1, devices + 1) if n & (n - 1) == 0 or n == devices)


def _configuration(seen: Observed, tp: int) -> Configuration:
    cache = seen.cache
    length = seen.served.max_model_len if seen.served else Unknown("")
    explicit = _known(cache.memory_bytes)
    return Configuration(
        tp=tp,
        dp=seen.replicas,
        kv_cache_dtype=None if isinstance(cache.dtype, Unknown) or cache.dtype in _OWN else cache.dtype,
        max_model_len=_known(length),
        gpu_memory_utilization=None if explicit else _known(cache.utilization),
        max_num_seqs=batch_limit(seen),
        kv_cache_memory_bytes=explicit,
    )


def _known(value: T | Unknown) -> T | None:
    return None if isinstance(value, Unknown) else value


def batch_limit(seen: Observed) -> int | None:
    """The `max_num_seqs` that shows: requests wait for a place in the batch while the KV cache has room."""
    waiting = seen.waiting_by.get("capacity", 0.0 if seen.waiting_by else seen.waiting)
    room = not isinstance(seen.usage, Unknown) and seen.usage < _ROOM_LEFT
    if not waiting or isinstance(seen.running, Unknown) or not room or seen.running < 1:
        return None
    return max(1, math.ceil(seen.running / seen.replicas))


def tokens(seen: Observed) -> float | Unknown:
    """KV tokens of one engine: as the server says, else blocks times their size."""
    cache = seen.cache
    if not isinstance(cache.tokens, Unknown):
        return float(cache.tokens)
    if isinstance(cache.blocks, Unknown) or isinstance(cache.block_size, Unknown):
        return cache.tokens
    return cache.blocks * cache.block_size / seen.replicas


def _off(seen: Observed, found: Estimated) -> float | Unknown:
    """Observed over predicted, by concurrency where it is known: what a hybrid's tokens count differs by version."""
    held, expected = seen.cache.concurrency, found.budget.max_concurrency
    if not isinstance(held, Unknown) and expected > 0:
        return held / expected
    there = tokens(seen)
    if isinstance(there, Unknown):
        return there
    return there / found.budget.kv_tokens if found.budget.kv_tokens > 0 else Unknown("we predict no KV cache at all")


def _distance(seen: Observed, found: Estimated) -> float:
    off = _off(seen, found)
    return math.inf if isinstance(off, Unknown) else abs(math.log(off))


def _moved(budget: MemoryBudget, more: float) -> MemoryBudget:
    """The budget with so many bytes more for KV on the device."""
    cache = budget.kv_cache
    factor = max(0.0, cache.mid + more) / cache.mid if cache.mid > 0 else 1.0
    return budget._replace(
        kv_cache=Interval(*(max(0.0, end + more) for end in cache)),
        num_blocks=int(budget.num_blocks * factor),
        kv_tokens=int(budget.kv_tokens * factor),
        max_concurrency=budget.max_concurrency * factor,
        max_context=int(budget.max_context * factor),
    )


def _without_graphs(seen: Observed, found: Inferred) -> Inferred:
    """Where the measured time per token fits a server without CUDA graphs and no other, it is taken as one."""
    if isinstance(seen.tpot, Unknown) or found.node.gpu.vendor is Vendor.CPU:
        return found
    plan = replace(found.plan, enforce_eager=True)
    speed = speed_of(found.model, plan, found.budget, found.node, found.surface, found.workload)
    measured = 1000 * seen.tpot.mean
    nearer = abs(math.log(measured / speed.tpot_ms.mid)) < abs(math.log(measured / found.speed.tpot_ms.mid))
    if measured <= found.speed.tpot_ms.high or not nearer:
        return found
    said = (
        f"--enforce-eager: {significant(measured)} ms a token is more than CUDA graphs would need "
        f"(at most {significant(found.speed.tpot_ms.high)} ms)"
    )
    return found._replace(plan=plan, speed=speed, assumed=(*found.assumed, said), eager=True)


def _assumed(seen: Observed, best: Estimated, tried: tuple[Estimated, ...]) -> tuple[str, ...]:
    """In words: what the figures led to, then what is that version's default."""
    plan = best.plan
    said = [_layout(seen, best, tried)]
    limit = batch_limit(seen)
    if limit:
        said.append(f"max_num_seqs {count(limit)}: requests wait while the KV cache has room")
    said += [text for text in best.assumed if not text.startswith("the KV cache is given")]
    if plan.quantization is None and best.model.quantization.method == "none":
        said.append("weights as they are stored: an online quantization does not show")
    if best.model.moe and plan.world_size > 1:
        said.append("no expert parallelism: it does not show")
    said.append("CUDA graphs on, no environment variables: neither shows")
    return tuple(said)


def _layout(seen: Observed, best: Estimated, tried: tuple[Estimated, ...]) -> str:
    plan = best.plan
    unused = best.node.world - plan.world_size
    rest = f", {unused} of the machine's devices unused" if unused else ""
    if isinstance(_off(seen, best), Unknown) or len(tried) == 1:
        return f"{plan.layout}: the server does not say{rest}"
    return f"{plan.layout}: explains the size of the KV cache best{rest}"
