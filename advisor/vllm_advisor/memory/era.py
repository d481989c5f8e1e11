"""What a release does that changes memory: the facts of `vllm.history` for one plan, with what the plan switches.

Two kinds of facts stand here and not in the table, because only memory asks for them: what V1's profile run did before
it ran a sampler, and how ROCm reported loaded weights.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.hardware import Vendor
from vllm_advisor.vllm import history


if TYPE_CHECKING:
    from vllm_advisor.hardware import Gpu
    from vllm_advisor.model.spec import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.vllm.surface import Surface

Release = tuple[int, int, int]
Env = tuple[tuple[str, str], ...]
# Model type, whether it keeps states, pipeline stages, KV dtype, quantization method.
Asked = tuple[str, bool, int, str, str]

_FIRST_V1 = (0, 8, 0)  # V1 by default; on request before, and then nearly as 0.8.0 was
_LAST_LOGITS = (0, 7, 3)  # v1/worker/gpu_model_runner.py profile_run: before, the logits of every token
_STATE_LIMIT = (0, 20, 0)  # config/compilation.py "exceeds available Mamba cache blocks"
_CHECKPOINT_STATE_DTYPE = (0, 13, 0)  # models/config.py: mamba_ssm_cache_dtype of the checkpoint is taken
_ROCM_LOADED = (0, 21, 0)  # platforms/rocm.py get_current_memory_usage: what is held from the driver before
_ROCM_LEANER = (0, 13, 0)  # see non_torch
# Hybrids with Mamba layers, and those with gated delta nets, whose prefill FlashInfer does on these capabilities.
_MAMBA, _MAMBA_1 = ("nemotron_h", "jamba", "zamba2", "granitemoehybrid", "falcon_h1", "bamba"), "jamba"
_GATED_DELTA, _FLASHINFER_PREFILL = ("qwen3_next", "qwen3_5"), (90, 100, 103, 120, 121)
# envs.py VLLM_FUSED_MOE_CHUNK_SIZE: tokens that an expert layer takes at once, by first release.
_MOE_CHUNKS: tuple[tuple[Release, int], ...] = (((0, 18, 0), 0), ((0, 13, 0), 16384), ((0, 0, 0), 65536))
# Contexts of indexer keys that sparse attention reserves room for, up to 256k tokens and beyond, by first release
# (v1/attention/backends/mla/indexer.py get_max_prefill_buffer_size; 0.33.0 config/vllm.py:1872).
_SPARSE_CONTEXTS: tuple[tuple[Release, tuple[int, int]], ...] = (
    ((0, 32, 0), (40, 16)),
    ((0, 13, 0), (40, 40)),
    ((0, 0, 0), (2, 2)),
)


class Era(NamedTuple):
    """What one plan meets. `sampler`: how the profile run filters; "logits" and "all logits": it runs none.

    `moe_chunk`: tokens of an expert layer at once, 0 all. `sparse_contexts`: contexts of indexer keys that sparse
    attention reserves room for, up to 256k tokens and beyond. `state_blocks`: of a state group, that a request keeps;
    0: one each attention block.
    """

    facts: history.Era
    engine_v1: bool
    sampler: str
    charges_graphs: bool
    states_in_pool: bool
    limits_states: bool
    state_dtype_of_checkpoint: bool
    loaded_from_driver: bool
    older_rocm: bool
    moe_chunk: int
    sparse_contexts: tuple[int, int]
    state_blocks: int


def era_of(model: ModelSpec, plan: Plan, surface: Surface, gpu: Gpu) -> Era:
    """The era of a plan: its release, the engine that release takes for it, and what its environment switches.

    Looked at are VLLM_USE_V1, VLLM_USE_FLASHINFER_SAMPLER and VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS.
    """
    method = plan.quantization or model.quantization.method
    asked = (model.model_type, model.is_hybrid, plan.pipeline_parallel_size, plan.kv_cache_dtype, method)
    return _era(surface.release, gpu, asked, plan.env)


@functools.lru_cache(maxsize=2048)
def _era(release: Release, gpu: Gpu, asked: Asked, env: Env) -> Era:
    switches = dict(env)
    facts = _facts(release, gpu, asked, switches.get("VLLM_USE_V1", ""))
    charged = facts.charges_graphs(gpu.vendor)
    engine_v1 = facts.engine == "V1"
    return Era(
        facts,
        engine_v1,
        _sampler(facts, release, gpu, switches.get("VLLM_USE_FLASHINFER_SAMPLER", "")),
        charged and switches.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS") != "0",
        engine_v1,
        release >= _STATE_LIMIT,
        release >= _CHECKPOINT_STATE_DTYPE,
        gpu.vendor is Vendor.AMD and release < _ROCM_LOADED,
        gpu.vendor is Vendor.AMD and engine_v1 and release < _ROCM_LEANER,
        next(tokens for since, tokens in _MOE_CHUNKS if release >= since),
        next(contexts for since, contexts in _SPARSE_CONTEXTS if release >= since),
        _state_blocks(asked[0], facts, gpu.capability),
    )


def _facts(release: Release, gpu: Gpu, asked: Asked, wanted: str) -> history.Era:
    default = history.era(release)
    if wanted == "1" or not default.v0_is_left:
        return history.era(max(release, _FIRST_V1))
    if wanted == "0":
        return history.on_v0(release)
    _, states, stages, dtype, method = asked
    return history.era_of(
        release, gpu, has_states=states, pipeline_parallel_size=stages, kv_cache_dtype=dtype, quantization=method
    )


def _sampler(facts: history.Era, release: Release, gpu: Gpu, switch: str) -> str:
    """FlashInfer's on NVIDIA where it is the default or asked for.

    A device that shares the host's memory (GB10) came with NVIDIA's own builds: their start-ups of 0.13 left no room
    for a sampler that sorts, so FlashInfer's is taken there while others sorted (told from three start-ups).
    """
    if facts.engine == "V1" and release < _FIRST_V1:
        return "logits" if release >= _LAST_LOGITS else "all logits"
    usual = facts.sampler
    nvidia = gpu.vendor is Vendor.NVIDIA and facts.engine == "V1"
    if nvidia and (switch == "1" or (gpu.unified_memory and usual == "sort")):
        return "flashinfer"
    return usual if usual != "flashinfer" or (nvidia and switch != "0") else "triton"


def _state_blocks(model_type: str, facts: history.Era, capability: int) -> int:
    """Blocks of a state group that one request of a hybrid keeps; 0: one each attention block.

    Where hybrids cache prefixes: two (mode "align"), and one more at a prefill's checkpoint; Mamba kept a state each
    block in mode "all" (v1/kv_cache_interface.py MambaSpec; `vllm.history` state_cache_mode and checkpoint_blocks).
    """
    mamba = model_type.startswith(_MAMBA)
    if mamba and facts.state_cache_mode == "all or align":
        return 0
    if mamba and model_type != _MAMBA_1:
        return facts.state_blocks + facts.checkpoint_blocks_mamba2
    gated = model_type.startswith(_GATED_DELTA) and capability in _FLASHINFER_PREFILL
    return facts.state_blocks + (facts.checkpoint_blocks_gdn if gated else 0)
