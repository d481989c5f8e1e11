"""The peak of the profile run: what one forward pass of max_num_batched_tokens and a sampler pass allocate.

vLLM measures it (v1/worker/gpu_model_runner.py profile_run: encoder, then a dummy batch, then the sampler on
max_num_seqs rows); we add up the tensors that live together. It is a model: the interval says how far off it may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.units import GIB, Interval


if TYPE_CHECKING:
    from vllm_advisor.model.spec import ModelSpec
    from vllm_advisor.plan import Plan

_ELEMENT = 2  # bytes of a 16-bit activation
# Bytes a logit in the sampler: 16-bit logits, their float32 copy, probabilities, exponential noise
# (v1/sample/sampler.py forward, ops/topk_topp_sampler.py forward_native).
_SAMPLER_BYTES = 2 + 4 + 4 + 4
# Hidden-sized tensors alive in a layer: residual, normalised input, attention output, projection output.
_HIDDEN_COPIES = 4
# Encoder and encoder cache for one item of the largest size; the towers differ too much for a formula (estimate).
_ENCODER = Interval(0.1 * GIB, 0.6 * GIB, 3.0 * GIB)
# What kernels and torch.compile keep beside these tensors (estimate).
_BASE = 0.10 * GIB
_LOW, _HIGH = 0.5, 2.0


def activation(model: ModelSpec, plan: Plan) -> Interval:
    """Bytes on one rank (the larger of a layer's forward pass and the sampler), encoder included."""
    tokens = plan.max_num_batched_tokens
    kept = tokens * model.hidden_size * _ELEMENT
    peak = _BASE + max(_layer(model, plan, tokens), kept + _sampler(model, plan))
    low, high = peak * _LOW, peak * _HIGH
    if not set(model.modalities) - {"text"}:
        return Interval(low, peak, high)
    return Interval(low, peak + _ENCODER.mid, high + _ENCODER.high)


def _sampler(model: ModelSpec, plan: Plan) -> float:
    rows = min(plan.max_num_seqs, plan.max_num_batched_tokens)
    return rows * model.vocab_size * _SAMPLER_BYTES


def _layer(model: ModelSpec, plan: Plan, tokens: int) -> float:
    """The widest layer: attention is left out, since an MLP or an expert layer is wider in every model we know."""
    hidden = tokens * model.hidden_size * _ELEMENT * _HIDDEN_COPIES
    dense = tokens * 3 * model.intermediate_size / plan.tensor_parallel_size * _ELEMENT
    return hidden + max(dense, _experts(model, plan, tokens))


def _experts(model: ModelSpec, plan: Plan, tokens: int) -> float:
    """The two workspaces of a fused expert layer (fused_moe/modular_kernel.py workspace_shapes).

    Data-parallel ranks gather each other's tokens first, and share the experts: whole ones or a slice of each.
    """
    moe = model.moe
    if moe is None:
        return 0.0
    gathered = tokens * plan.data_parallel_size
    split = 1 if plan.enable_expert_parallel else plan.tensor_parallel_size * plan.data_parallel_size
    width = moe.intermediate_size / split
    first = max(2 * width, model.hidden_size)
    second = max(width, model.hidden_size)
    return gathered * moe.experts_per_token * (first + second) * _ELEMENT
