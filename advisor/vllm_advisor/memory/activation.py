"""The peak of the profile run: what one forward pass of max_num_batched_tokens and a sampler pass allocate.

vLLM measures it (v1/worker/gpu_model_runner.py profile_run: encoder, then a dummy batch, then the sampler on
max_num_seqs rows); we add up the tensors that live together. It is a model: the interval says how far off it may be.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vllm_advisor.memory.encoder import encoding, largest_item, sees
from vllm_advisor.memory.pages import state_bytes
from vllm_advisor.units import GIB, Interval


if TYPE_CHECKING:
    from vllm_advisor.memory.era import Era
    from vllm_advisor.model.spec import ModelSpec
    from vllm_advisor.plan import Plan

_ELEMENT = 2  # bytes of a 16-bit activation
# Bytes a logit while the sampler filters by top-k and top-p (v1/sample/sampler.py, ops/topk_topp_sampler.py). All
# start from 16-bit logits (2) and their float32 copy (4).
#   sort        sorted values 4, indices 8, the sort's own buffers 12, softmax 4, masks: 38, as H100 start-ups of
#               0.11 printed for three vocabularies (7.38, 5.64 and 4.84 GiB for 1,024 rows)
#   triton      filtered in place; probabilities 4 and noise 4
#   flashinfer  probabilities 4
#   logits      16-bit logits alone: V1 before 0.8
_SAMPLER_BYTES = {"sort": 38, "triton": 14, "flashinfer": 10, "logits": 2, "all logits": 2}
_TRITON_PROGRAMS = (
    108  # each keeps a row of float32: multiprocessors of the device, of an A100 here (topk_topp_triton.py)
)
_GATHERED = 2  # logits of all ranks, put in order (distributed/communication_op.py all_gather, then a copy)
# Hidden-sized tensors alive in a layer: residual, normalised input, output. Start-ups of V0 with one prompt of 20,000
# and 29,000 tokens (vllm#10517) peaked at 3.0 of them beside the MLP's three wide ones.
_HIDDEN_COPIES = 3
_SOFT_CAPPED = ("gemma2", "gemma4")  # logits / cap, tanh, × cap: two more 16-bit copies (layers/logits_processor.py)
# Block diffusion samples a canvas of 256 tokens a request, 8 requests unless fewer than 128 are asked for, and holds
# their logits in 16 and in 32 bits (0.24.0 models/config.py:149, models/diffusion_gemma.py _softcap_logits).
_CANVAS, _CANVAS_SEQS, _CANVAS_ASKED, _CANVAS_BYTES = 256, 8, 128, 6
# Sparse latent attention reserves a workspace for 5 contexts of 576 16-bit elements, or 40 of 132 bytes where it
# gathers FP8 keys, and 512 MiB of logits (v1/attention/backends/mla/indexer.py:219, flashmla_sparse.py:237,
# layers/sparse_attn_indexer.py VLLM_SPARSE_INDEXER_MAX_LOGITS_MB).
_SPARSE_KEY, _SPARSE_LOGITS, _LONG_CONTEXT = 132, 512 << 20, 256 << 10
_MARLIN = ("int4", "int8")  # one workspace holds both projections' outputs in turn (fused_moe/fused_marlin_moe.py)
# What kernels and torch.compile keep beside these tensors (estimate).
_BASE = 0.10 * GIB
# How far the parts may be off (start-ups that print the peak or from which it follows, 9 of 10 inside): the layer, and
# the sampler, which a build with another one (FlashInfer's) makes much smaller and hardly anything larger.
_LAYER = (0.4, 1.6)
_SAMPLER = (0.35, 1.25)
# Towers are known by family only (encoder.py).
_ENCODER = (0.4, 1.6)
# What reserves memory by the context is known to the byte, but not which backend reserves it.
_RESERVED = (0.3, 2.0)


def activation(model: ModelSpec, plan: Plan, era: Era, *, samples: bool = True) -> Interval:
    """Bytes on one rank: the encoder, or its outputs with the larger of a layer's forward pass and the sampler.

    `samples`: the rank is of the last pipeline stage, the others run no sampler.
    """
    tokens = plan.max_num_batched_tokens
    kept = tokens * model.hidden_size * _ELEMENT
    layer, sampler = _layer(model, plan, tokens, era), _sampler(model, plan, era) if samples else 0.0
    encoder = encoding(model, plan, engine_v1=era.engine_v1)
    states = _BASE + (0 if era.states_in_pool else _states(model, plan))
    sparse = _sparse(model, plan, era)

    def peak(factor: int) -> float:
        """The peak at the low (0) or the high (1) end of every part."""
        decoder = max(layer * _LAYER[factor], kept + sampler * _SAMPLER[factor]) + sparse * _RESERVED[factor]
        return states + max(decoder + encoder.kept, encoder.peak * _ENCODER[factor])

    mid = states + max(max(layer, kept + sampler) + sparse + encoder.kept, encoder.peak)
    low = states + layer * _LAYER[0] if plan.tensor_parallel_size > 1 and not era.engine_v1 else peak(0)
    return Interval(min(low, mid), mid, max(peak(1), mid))


def _states(model: ModelSpec, plan: Plan) -> float:
    """States of all requests at once, as hybrids kept them before V1 (models/mamba_cache.py)."""
    if not model.is_hybrid:
        return 0.0
    each = sum(len(c.layers) * state_bytes(c, plan.tensor_parallel_size) for c in model.caches if c.kind == "state")
    return float(each * plan.max_num_seqs)


def _sampler(model: ModelSpec, plan: Plan, era: Era) -> float:
    if model.architecture.startswith("Diffusion"):
        seqs = plan.max_num_seqs if plan.max_num_seqs < _CANVAS_ASKED else _CANVAS_SEQS
        return seqs * _CANVAS * model.vocab_size * _CANVAS_BYTES
    tokens = plan.max_num_batched_tokens
    rows = tokens if era.sampler == "all logits" else min(plan.max_num_seqs, tokens)
    if not era.engine_v1 and sees(model):  # V0 profiles as many requests as the batch holds largest images
        rows = min(rows, max(1, tokens // largest_item(model)))
    gathered = _GATHERED if plan.tensor_parallel_size > 1 else 0
    capped = 4 if model.model_type.startswith(_SOFT_CAPPED) else 0
    buffer = 4 * _TRITON_PROGRAMS if era.sampler == "triton" else 0
    return model.vocab_size * (rows * (_SAMPLER_BYTES[era.sampler] + gathered + capped) + buffer)


def _sparse(model: ModelSpec, plan: Plan, era: Era) -> float:
    if not any(c.kind == "indexer" for c in model.caches):
        return 0.0
    contexts = era.sparse_contexts[plan.max_model_len > _LONG_CONTEXT]
    return _SPARSE_LOGITS + plan.max_model_len * contexts * _SPARSE_KEY


def _layer(model: ModelSpec, plan: Plan, tokens: int, era: Era) -> float:
    """The widest layer: attention is left out, since an MLP or an expert layer is wider in every model we know."""
    hidden = tokens * model.hidden_size * _ELEMENT * _HIDDEN_COPIES
    dense = tokens * 3 * model.intermediate_size / plan.tensor_parallel_size * _ELEMENT
    return hidden + max(dense, _experts(model, plan, tokens, era.moe_chunk))


def _experts(model: ModelSpec, plan: Plan, tokens: int, chunk: int) -> float:
    """The two workspaces of a fused expert layer (fused_moe/modular_kernel.py workspace_shapes).

    Data-parallel ranks gather each other's tokens first, and share the experts: whole ones or a slice of each.
    """
    moe = model.moe
    if moe is None:
        return 0.0
    gathered = min(tokens * plan.data_parallel_size, chunk or math.inf)
    split = 1 if plan.enable_expert_parallel else plan.tensor_parallel_size * plan.data_parallel_size
    width = moe.intermediate_size / split
    first = max(2 * width, model.hidden_size)
    second = width if model.quantization.scheme in _MARLIN else max(width, model.hidden_size)
    return gathered * moe.experts_per_token * (first + second) * _ELEMENT
