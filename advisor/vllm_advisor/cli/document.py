"""The `--json` form of an answer: explicit keys, plain values, the same facts as the text, bytes not rounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_advisor import __version__
from vllm_advisor.hardware import Unknown
from vllm_advisor.score import settled_by, ties
from vllm_advisor.throughput.cost import per_million_output, per_million_total


if TYPE_CHECKING:
    from vllm_advisor.facts import Estimate, Finding, MemoryBudget, Miss, Ranked, Recommendation, Rejected
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.plan import LaunchCommand, Plan
    from vllm_advisor.units import Interval
    from vllm_advisor.workload import Workload

SCHEMA = 1


def recommendation(answer: Recommendation, *, why_not: bool, price: float | None = None) -> dict[str, Any]:
    """Everything that the text shows; rejected plans in full only when asked for, their number always.

    `price` of one device an hour adds what tokens cost. `ties` are the numbers of plans that cannot be told apart.
    """
    tied = ties(answer.plans, answer.facts.workload)
    return {
        "schema": SCHEMA,
        "advisor": __version__,
        "vllm": answer.facts.vllm.version,
        "model": model(answer.facts.model),
        "node": node(answer.facts.node),
        "workload": workload(answer.facts.workload),
        "feasible": bool(answer.plans),
        "verdict": answer.verdict,
        "plans": [ranked(plan) | (cost(plan, price) if price is not None else {}) for plan in answer.plans],
        "ties": [position + 1 for position in tied],
        "settled_by": settled_by(tied) or None,
        "accepted_count": answer.accepted,
        "rejected_count": len(answer.rejected),
        "rejected": [rejected(plan) for plan in answer.rejected] if why_not else [],
        "nearest_misses": [_miss(miss) for miss in answer.misses],
    }


def node(value: Node) -> dict[str, Any]:
    """The machine as judged."""
    gpu = value.gpu
    return {
        "label": value.label,
        "origin": value.origin,
        "devices": len(value.gpus),
        "nodes": value.count,
        "gpu": gpu.name,
        "vendor": str(gpu.vendor),
        "arch": gpu.arch,
        "memory_bytes": gpu.memory_bytes,
        "free_bytes": None if isinstance(gpu.free_bytes, Unknown) else gpu.free_bytes,
        "bandwidth_bytes_per_s": gpu.bandwidth,
        "unverified": list(gpu.unverified),
        "driver": value.driver or None,
        "warnings": list(value.warnings),
    }


def model(spec: ModelSpec) -> dict[str, Any]:
    """The model as read."""
    return {
        "name": spec.name,
        "architecture": spec.architecture,
        "parameters": spec.params,
        "active_parameters": spec.active_params,
        "weight_bytes": spec.weight_bytes,
        "weights": spec.quantization.scheme,
        "layers": spec.num_layers,
        "layers_by_cache": {c.kind: len(c.layers) for c in spec.caches},
        "experts": spec.moe.num_experts if spec.moe else 0,
        "max_position": spec.max_position,
        "provenance": spec.provenance,
        "unknowns": list(spec.unknowns),
        "checkpoints": [{"name": name, "weights": scheme} for name, scheme in spec.siblings],
    }


def workload(load: Workload) -> dict[str, Any]:
    """The load that every figure is for."""
    return {
        "name": load.name,
        "input_tokens": load.input_tokens,
        "output_tokens": load.output_tokens,
        "concurrency": load.concurrency,
        "context": load.context or None,
        "request_rate": load.request_rate,
        "shared_prefix_tokens": load.shared_prefix_tokens,
        "sensitivity": str(load.sensitivity),
        "objective": str(load.objective),
        "sla": {"ttft_ms": load.sla.ttft_ms, "tpot_ms": load.sla.tpot_ms},
    }


def ranked(value: Ranked) -> dict[str, Any]:
    """One proposed plan."""
    return {
        "plan": plan(value.plan),
        "trade": value.trade or None,
        "memory": budget(value.budget),
        "estimate": estimate(value.estimate),
        "reasons": [finding(f) for f in value.findings],
        "kernels": dict(value.kernels),
        "command": command(value.command),
        "weights": value.model.quantization.scheme,
        "provenance": value.model.provenance,
    }


def cost(value: Ranked, price: float) -> dict[str, Any]:
    """What a million tokens cost on this plan, in the currency of `price` (of one device an hour)."""
    devices = value.plan.world_size
    return {
        "cost": {
            "price_per_device_hour": price,
            "per_million_output_tokens": interval(per_million_output(value.estimate, devices, price)),
            "per_million_tokens": interval(per_million_total(value.estimate, devices, price)),
        }
    }


def plan(value: Plan) -> dict[str, Any]:
    """VLLM's own names."""
    return {
        "checkpoint": value.checkpoint,
        "layout": value.layout,
        "quantization": value.quantization,
        "kv_cache_dtype": value.kv_cache_dtype,
        "tensor_parallel_size": value.tensor_parallel_size,
        "pipeline_parallel_size": value.pipeline_parallel_size,
        "data_parallel_size": value.data_parallel_size,
        "decode_context_parallel_size": value.decode_context_parallel_size,
        "enable_expert_parallel": value.enable_expert_parallel,
        "enable_eplb": value.enable_eplb,
        "max_model_len": value.max_model_len,
        "max_model_len_auto": value.auto_max_model_len,
        "max_num_seqs": value.max_num_seqs,
        "max_num_batched_tokens": value.max_num_batched_tokens,
        "gpu_memory_utilization": value.gpu_memory_utilization,
        "kv_cache_memory_bytes": value.kv_cache_memory_bytes,
        "enforce_eager": value.enforce_eager,
        "performance_mode": value.performance_mode,
        "env": dict(value.env),
    }


def budget(value: MemoryBudget) -> dict[str, Any]:
    """Bytes on the device that limits."""
    return {
        "verdict": value.verdict,
        "total_bytes": value.total,
        "requested_bytes": value.requested,
        "weights_bytes": value.weights,
        "activation_bytes": interval(value.activation),
        "cuda_graph_bytes": interval(value.graphs),
        "non_torch_bytes": interval(value.non_torch),
        "kv_cache_bytes": interval(value.kv_cache),
        "kv_bytes_per_token": value.kv_bytes_per_token,
        "block_size": value.block_size,
        "num_blocks": value.num_blocks,
        "kv_tokens": value.kv_tokens,
        "max_concurrency": round(value.max_concurrency, 2),
        "max_context": value.max_context,
        "limits": list(value.limits),
    }


def estimate(value: Estimate) -> dict[str, Any]:
    """Predicted speed; `kind` says that nothing of it was measured."""
    return {
        "kind": "estimate",
        "output_tok_s": interval(value.output_tok_s),
        "total_tok_s": interval(value.total_tok_s),
        "mean_ttft_ms": interval(value.ttft_ms),
        "mean_tpot_ms": interval(value.tpot_ms),
        "running": round(value.running, 1),
        "bound": value.bound,
        "notes": list(value.notes),
    }


def finding(value: Finding) -> dict[str, Any]:
    """One reason with where it comes from."""
    return {
        "rule": value.rule,
        "level": value.level,
        "message": value.message,
        "source": value.source,
        "hint": value.hint or None,
    }


def rejected(value: Rejected) -> dict[str, Any]:
    """One plan that was turned down."""
    return {
        "plan": plan(value.plan),
        "memory": budget(value.budget),
        "reasons": [finding(f) for f in value.findings],
    }


def command(value: LaunchCommand) -> dict[str, Any]:
    """What to run."""
    return {"argv": list(value.argv), "env": dict(value.env), "notes": dict(value.notes)}


def interval(value: Interval) -> dict[str, float]:
    """Four significant digits are more than any model of ours deserves."""
    return {name: float(f"{x:.4g}") for name, x in zip(("low", "mid", "high"), value, strict=True)}


def _miss(value: Miss) -> dict[str, Any]:
    changes = [{"change": r.change, "plan": plan(r.plan), "memory": budget(r.budget)} for r in value.remedies]
    return {**rejected(value.rejected), "would_fit_with": changes}
