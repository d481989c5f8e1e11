"""Speed of one plan under one load: roofline a step, then continuous batching in closed form. An estimate.

A step costs the larger of memory and compute, plus communication and overhead. Prefill and decode share steps: over
the time in which every running request gets its whole answer, each of them also spends its prefill, so that
    time per output token = decode step + running × prefill / output tokens.
What does not fit the batch (max_num_seqs, KV cache) waits, and waiting is part of the time to first token.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.facts import Estimate
from vllm_advisor.memory.identity import Identity
from vllm_advisor.memory.pages import kv_cache_dtype
from vllm_advisor.memory.weights import sharding
from vllm_advisor.throughput import rates
from vllm_advisor.throughput.work import Work, work
from vllm_advisor.units import Interval


if TYPE_CHECKING:
    from vllm_advisor.facts import MemoryBudget
    from vllm_advisor.hardware import Node
    from vllm_advisor.model.spec import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.vllm.surface import Surface
    from vllm_advisor.workload import Workload

# Width of the interval either way: speed, and the time to first token (queueing is chaotic). Of public measurements,
# 0.62 of the output rates lie inside (benchmarks/speed_anchor.py): an honest bound would be too wide to rank by.
_SPREAD, _TTFT_SPREAD = 2.0, 3.0
# Expert-parallel ranks wait for the one with the most tokens (estimate).
_IMBALANCE = 1.3
# Part of the requests of a run that start together, as load generators do at a fixed concurrency (estimate).
_BURST = 0.2
_RATE_ITERATIONS = 8


class _Machine(NamedTuple):
    """All that a step's time depends on besides its batch: one data-parallel replica."""

    work: Work
    compute: rates.Compute
    weights_rate: float
    kv_rate: float
    wire: rates.Wire
    stage_wire: rates.Wire
    overhead: float
    hidden_bytes: int
    reduces: int
    exchanges: int
    experts: int
    per_token: int
    plan: Plan


class _Step(NamedTuple):
    """Seconds of the parts of a step."""

    weights: float
    kv: float
    compute: float
    communication: float
    overhead: float

    @property
    def seconds(self) -> float:
        """Memory and compute overlap; communication and overhead do not."""
        return max(self.weights + self.kv, self.compute) + self.communication + self.overhead

    @property
    def bound(self) -> str:
        """What the step waits for most."""
        return max(zip(self, self._fields, strict=True))[1]


def estimate(  # noqa: PLR0917 - the engine calls all its parts with these
    model: ModelSpec, plan: Plan, budget: MemoryBudget, node: Node, surface: Surface, workload: Workload
) -> Estimate:
    """Predicted speed of the whole deployment at the workload's load, `budget` being the plan's own memory.

    `workload.request_rate` (requests/s, whole deployment) is used where given, else `concurrency` in flight together.
    """
    machine = _machine(model, plan, node, surface)
    context = workload.input_tokens + workload.output_tokens / 2
    prefill = _prefill(machine, workload)
    seats = _seats(plan, budget, workload)
    offered = _offered(machine, workload, context, prefill, seats)
    running = max(1.0, min(offered, seats))
    step, out = _decode(machine, running, context), max(1, workload.output_tokens)
    tpot = step.seconds + (running - 1) * prefill / out
    load = _Load(offered, running, prefill, tpot, step, out)
    return _report(load, workload, plan.data_parallel_size)


def _machine(model: ModelSpec, plan: Plan, node: Node, surface: Surface) -> _Machine:
    gpu, tp, layers = node.gpu, plan.tensor_parallel_size, model.num_layers
    spread = sharding(model, plan, gpu, surface)._replace(pipeline_parallel=1)
    fractions = rates.EFFICIENCY[gpu.vendor]
    routed = len(model.moe.layers) if model.moe else 0
    exchanged = (
        routed if plan.data_parallel_size > 1 else 0
    )  # data-parallel ranks share the experts, with EP or without
    group = tp * plan.data_parallel_size if exchanged else tp
    each = rates.EAGER_LAYER_SECONDS if plan.enforce_eager else rates.LAYER_SECONDS
    return _Machine(
        work=work(Identity(model), spread, kv_cache_dtype(model, plan.kv_cache_dtype),
                  plan.decode_context_parallel_size),
        compute=rates.compute(model, plan, gpu, surface),
        weights_rate=gpu.bandwidth * fractions.weights,
        kv_rate=gpu.bandwidth * fractions.kv,
        wire=rates.wire(node, group),
        stage_wire=rates.wire(node, tp * plan.pipeline_parallel_size),
        overhead=rates.STEP_SECONDS + layers * each + routed * rates.EXPERT_LAYER_SECONDS,
        hidden_bytes=model.hidden_size * 2,
        reduces=2 * layers - exchanged,
        exchanges=2 * exchanged,
        experts=model.moe.num_experts if model.moe else 0,
        per_token=model.moe.experts_per_token if model.moe else 0,
        plan=plan,
    )  # fmt: skip


def _step(m: _Machine, tokens: float, kv_bytes: float, attention: float) -> _Step:
    """A step of `tokens` tokens on one replica; `attention` operations and KV bytes on one rank."""
    work_, plan = m.work, m.plan
    routed = tokens * plan.data_parallel_size
    touched = _touched(m.experts, m.per_token, routed)
    uneven = _IMBALANCE if plan.expert_parallel_size > 1 else 1.0
    share = m.per_token / m.experts if m.experts else 0.0
    operations = 2 * tokens * work_.dense_params / m.compute.dense
    operations += 2 * routed * share * work_.expert_params * uneven / m.compute.experts
    return _Step(
        weights=(work_.dense_bytes + touched * work_.expert_bytes) / m.weights_rate,
        kv=kv_bytes / m.kv_rate,
        compute=operations + attention / m.compute.attention,
        communication=_communication(m, tokens, routed),
        overhead=m.overhead,
    )


def _touched(experts: int, per_token: int, tokens: float) -> float:
    """Expected part of the experts that a batch reads, tokens being routed evenly and independently."""
    return 1 - (1 - per_token / experts) ** tokens if experts else 0.0


def _communication(m: _Machine, tokens: float, routed: float) -> float:
    """All-reduces of tensor parallelism, gather and scatter among data-parallel ranks, hops between stages."""
    plan, message = m.plan, tokens * m.hidden_bytes
    tp, pp, ranks = (
        plan.tensor_parallel_size,
        plan.pipeline_parallel_size,
        plan.tensor_parallel_size * plan.data_parallel_size,
    )
    seconds = 0.0
    if tp > 1:
        seconds += m.reduces * (m.wire.latency + 2 * (tp - 1) / tp * message / m.wire.bandwidth)
    if m.exchanges:
        moved = routed * m.hidden_bytes * (ranks - 1) / ranks
        seconds += m.exchanges * (m.wire.latency + moved / m.wire.bandwidth)
    if pp > 1:
        seconds += (pp - 1) * (m.stage_wire.latency + message / m.stage_wire.bandwidth)
    return seconds


def _decode(m: _Machine, running: float, context: float) -> _Step:
    """One token for each running request of a replica; pipeline stages work on a part of them each."""
    batch = max(1.0, running / m.plan.pipeline_parallel_size)
    work_ = m.work
    return _step(m, batch, batch * work_.context_bytes(context), batch * work_.attention_operations(context))


def _prefill(m: _Machine, workload: Workload) -> float:
    """Seconds that one prompt takes from the replica, in chunks of max_num_batched_tokens, prompts sharing a chunk."""
    tokens = max(1, workload.input_tokens - workload.shared_prefix_tokens)
    budgeted = min(m.plan.max_num_batched_tokens, tokens * max(1, workload.concurrency))
    middle = workload.input_tokens - tokens / 2
    attention = budgeted * m.work.attention_operations(middle)
    step = _step(m, budgeted, 0.0, attention)
    return step.seconds * tokens / budgeted / m.plan.pipeline_parallel_size


def _seats(plan: Plan, budget: MemoryBudget, workload: Workload) -> float:
    """Requests that one replica can run together: max_num_seqs, or what the KV cache holds at the load's lengths."""
    if budget.max_concurrency <= 0:
        return 1.0
    whole = budget.kv_cache.mid / budget.max_concurrency
    fixed = max(0.0, whole - budget.kv_bytes_per_token * plan.max_model_len)
    length = workload.input_tokens + workload.output_tokens / 2
    each = min(whole, fixed + budget.kv_bytes_per_token * length)
    held = budget.kv_cache.mid / each if each > 0 else float(plan.max_num_seqs)
    return max(1.0, min(held, float(plan.max_num_seqs)))


def _offered(m: _Machine, workload: Workload, context: float, prefill: float, seats: float) -> float:
    """Requests of one replica in the system: the given concurrency, or what a rate leads to (Little's law)."""
    replicas = m.plan.data_parallel_size
    if workload.request_rate is None:
        return max(1.0, workload.concurrency / replicas)
    arriving, load = workload.request_rate / replicas, 1.0
    for _ in range(_RATE_ITERATIONS):
        running = min(max(1.0, load), seats)
        tpot = _decode(m, running, context).seconds + (running - 1) * prefill / max(1, workload.output_tokens)
        load = min(arriving * (prefill + workload.output_tokens * tpot), 4 * seats)
    return load


class _Load(NamedTuple):
    """One replica under load: requests offered and running, seconds of a prompt, of a token, and of a decode step."""

    offered: float
    running: float
    prefill: float
    tpot: float
    step: _Step
    output_tokens: int

    @property
    def latency(self) -> float:
        """Seconds from the first chunk of the prompt to the last token."""
        return self.prefill + self.output_tokens * self.tpot


def _report(load: _Load, workload: Workload, replicas: int) -> Estimate:
    out = load.output_tokens
    output = load.running * replicas * out / load.latency
    if workload.request_rate is not None and load.offered <= load.running:
        output = min(output, workload.request_rate * out)
    return Estimate(
        output_tok_s=_around(output, _SPREAD),
        total_tok_s=_around(output * (workload.input_tokens + out) / out, _SPREAD),
        ttft_ms=_around(1000 * _ttft(load), _TTFT_SPREAD),
        tpot_ms=_around(1000 * load.tpot, _SPREAD),
        running=load.running * replicas,
        bound=load.step.bound,
        notes=_notes(load, replicas),
    )


def _ttft(load: _Load) -> float:
    """The prompt itself, prompts ahead of it, and waiting for a seat."""
    prompts = load.running * load.prefill
    busy = min(0.95, prompts / (prompts + load.output_tokens * load.step.seconds))
    ahead = min(prompts / 2, load.prefill * busy / (1 - busy))
    waiting = load.latency * max(0.0, load.offered - load.running) / load.running
    return load.prefill + load.step.seconds + (1 - _BURST) * ahead + _BURST * prompts / 2 + waiting


def _around(value: float, factor: float) -> Interval:
    return Interval(value / factor, value, value * factor)


def _notes(load: _Load, replicas: int) -> tuple[str, ...]:
    if load.offered <= load.running:
        return ()
    flying, running = math.floor(load.offered * replicas), math.floor(load.running * replicas)
    return (f"{flying} requests in flight, {running} run at once",)
