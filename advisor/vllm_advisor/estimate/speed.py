"""Speed of one given configuration under a load, with what a report leaves open filled in as people run servers.

A report is of a server that ran: where its configuration leaves no room for KV at the model's own context, a shorter
one was set; and where its cards have no links stated, they have the usual ones.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.catalog import gpus
from vllm_advisor.errors import AdvisorError
from vllm_advisor.estimate.configuration import Configuration, Estimated, estimate
from vllm_advisor.model.spec import ModelSpec, Quantization
from vllm_advisor.throughput.estimate import seats, under_load
from vllm_advisor.throughput.fitted import FITTED
from vllm_advisor.throughput.traits import traits


if TYPE_CHECKING:
    from vllm_advisor.estimate.asked import Asked
    from vllm_advisor.facts import Estimate
    from vllm_advisor.hardware import Node
    from vllm_advisor.memory.identity import Identity
    from vllm_advisor.throughput.load import Load
    from vllm_advisor.throughput.parameters import Parameters
    from vllm_advisor.throughput.traits import Traits
    from vllm_advisor.throughput.work import Work

_ONE_NODE = 8
_MARGIN_TOKENS = 256
# Of the device's memory: what people win for KV by raising the utilization where a report shows no command (half of
# 0.90 → 0.95), and the least that a server is run with (estimates).
_RAISED, _LEAST = 0.03, 0.03
# A report's word for a format of weights → scheme, method, bits a weight with its scales, bits of the activations.
_FORMATS = (
    ("nvfp4", ("nvfp4", "modelopt", 4.5, 4)),
    ("mxfp4", ("mxfp4", "mxfp4", 4.25, 16)),
    ("mxfp8", ("mxfp8", "mxfp8", 8.25, 8)),
    ("fp4", ("mxfp4", "mxfp4", 4.25, 16)),
    ("int8", ("int8", "gptq", 8.125, 16)),
    ("fp8", ("fp8_block", "fp8", 8.002, 8)),
    ("awq", ("int4", "awq", 4.16, 16)),
    ("gptq", ("int4", "gptq", 4.16, 16)),
    ("int4", ("int4", "gptq", 4.16, 16)),
)


class Server(NamedTuple):
    """All that a speed is computed from: what the plan does, the load, and requests that one replica runs together."""

    traits: Traits
    load: Load
    seats: float


def server(found: Estimated, given: Configuration, asked: Asked) -> Server:
    """A configuration that ran, under the load that it was measured at.

    `found` is its memory, `given` what was named of it.
    """
    ran = _as_it_ran(found, given, asked.load)
    read = traits(ran.model, ran.plan, linked(ran.node), ran.surface, asked.draft, asked.steps_together)
    return Server(read, asked.load, places(ran, given, asked, read.work))


def speed(found: Estimated, given: Configuration, asked: Asked, parameters: Parameters = FITTED) -> Estimate:
    """What a configuration that ran does under a load."""
    return under_load(*server(found, given, asked), parameters)


def figures(found: Estimated, given: Configuration, asked: Asked) -> dict[str, Any]:
    """A row's speed under the names of public measurements, with low and high."""
    return named(speed(found, given, asked))


def named(predicted: Estimate) -> dict[str, Any]:
    """An estimate under the names of public measurements, each figure with low and high."""
    intervals = {
        "output_tok_s": predicted.output_tok_s,
        "total_tok_s": predicted.total_tok_s,
        "mean_ttft_ms": predicted.ttft_ms,
        "mean_tpot_ms": predicted.tpot_ms,
    }
    rows: dict[str, Any] = {}
    for name, interval in intervals.items():
        rows[name] = _digits(interval.mid)
        rows |= {f"{name}_low": _digits(interval.low), f"{name}_high": _digits(interval.high)}
    return rows | {
        "running": _digits(predicted.running),
        "bound": predicted.bound,
        "speed_notes": list(predicted.notes),
    }


def _digits(value: float) -> float:
    return float(f"{value:.6g}")


def _as_it_ran(found: Estimated, given: Configuration, load: Load) -> Estimated:
    """With the context that the load needs, where the model's own does not fit and none was named."""
    if found.budget.fits or given.max_model_len is not None:
        return found
    need = int(load.input_tokens + load.output_tokens) + _MARGIN_TOKENS
    shorter = given._replace(max_model_len=min(need, found.model.max_position or need))
    return estimate(found.model, found.node, found.surface, shorter)


def places(ran: Estimated, given: Configuration, asked: Asked, work: Work) -> float:
    """Requests that one replica ran together."""
    budget, plan, load = ran.budget, ran.plan, asked.load
    known = given.gpu_memory_utilization or given.kv_cache_memory_bytes or asked.command
    raised = 0.0 if known else _RAISED * budget.total
    room = max(budget.kv_cache.mid + raised, _LEAST * budget.total)
    if budget.kv_cache.mid <= 0 or budget.max_concurrency <= 0:
        each = max(1.0, budget.kv_bytes_per_token) * load.context
        return max(1.0, min(room / each, plan.max_num_seqs))
    held = seats(plan, budget, load, work, limit=_NO_LIMIT) * room / budget.kv_cache.mid
    return max(1.0, min(held, plan.max_num_seqs))


_NO_LIMIT = 1e9


@functools.lru_cache(maxsize=256)
def stored_as(key: Identity[ModelSpec], words: str) -> ModelSpec:
    """The checkpoint in the format that a row names, where its own configuration is of another one."""
    spec, lowered = key.value, words.lower()
    form = next((form for word, form in _FORMATS if word in lowered), None)
    if form is None or spec.quantization.scheme == "bf16" or _same(spec.quantization.scheme, form[0]):
        return spec
    scheme, method, bits, activations = form
    groups = tuple(
        replace(g, bytes=int(g.params * bits / 8), bits=int(bits)) if g.bits < 16 else g for g in spec.weights
    )
    stored = Quantization(method, scheme, int(bits), activations, kv_cache_dtype=spec.quantization.kv_cache_dtype)
    return replace(spec, weights=groups, quantization=stored, exact_weight_bytes=None)


def _same(ours: str, theirs: str) -> bool:
    return ours.split("_", maxsplit=1)[0] == theirs.split("_", maxsplit=1)[0]


@functools.lru_cache(maxsize=1024)
def linked(node: Node) -> Node:
    """The machine with the links that such devices have: a report names devices, not wires."""
    if node.topology.links or node.world == 1:
        return node
    count, name = node.world, node.gpu.name
    try:
        known = gpus.node(f"{count}x{name}" if count <= _ONE_NODE else f"{-(-count // _ONE_NODE)}x{_ONE_NODE}x{name}")
    except AdvisorError:
        return node
    return replace(node, gpus=known.gpus, topology=known.topology, count=known.count, network_gb_s=known.network_gb_s)
