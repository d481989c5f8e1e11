"""What vLLM takes when nobody says: the defaults that depend on the version, the device and the way it is started.

Sources, one a version: `engine/arg_utils.py` get_batch_defaults (0.24.0:2375-2451, 0.32.0:2894-2983,
0.33.0:2940-3036) and `_set_default_max_num_seqs_and_batched_tokens_args`; `config/cache.py` for the rest. What older
versions did otherwise stands in the table of `history`, row by row with its source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.hardware import Vendor
from vllm_advisor.units import GIB
from vllm_advisor.vllm import history


if TYPE_CHECKING:
    from vllm_advisor.hardware import Gpu, Node
    from vllm_advisor.vllm.history import Era
    from vllm_advisor.vllm.surface import Surface

_LARGEST, _LARGE, _SMALL = "largest", "large", "small"
# (max_num_batched_tokens, max_num_seqs) by tier and by `LLM()` (True) or server (False).
_TIERS = {
    (_LARGEST, False): (16384, 1024),
    (_LARGEST, True): (16384, 1024),
    (_LARGE, False): (8192, 1024),
    (_LARGE, True): (16384, 1024),
    (_SMALL, False): (2048, 256),
    (_SMALL, True): (8192, 256),
}
# A CPU's defaults grow with TP × PP (0.33.0 engine/arg_utils.py:3026-3036; the same since 0.9.2).
_CPU = {False: (2048, 128), True: (4096, 256)}
_BLOCK = 16
# platforms/cpu.py, 0.24.0:125, 0.33.0:563.
_CPU_BLOCK = 128
# V0: engine/arg_utils.py max_num_seqs, and the least batch without chunked prefill (config.py SchedulerConfig).
_V0_SEQS, _V0_LEAST_TOKENS, _V0_LONG = 256, 2048, 32768


class Defaults(NamedTuple):
    """What a server gets with no flag. `block_size` is in tokens, before a backend or a hybrid model raises it."""

    max_num_batched_tokens: int
    max_num_seqs: int
    gpu_memory_utilization: float
    block_size: int
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True


class Prompts(NamedTuple):
    """What V0's defaults (before 0.8, and what fell back to it until 0.10.1) also depend on.

    `max_model_len` in tokens; `multimodal`: the model takes more than text; `latent`: MLA; `windowed`: a sliding
    window; `adapted`: LoRA or a draft model.
    """

    max_model_len: int = 0
    multimodal: bool = False
    latent: bool = False
    windowed: bool = False
    adapted: bool = False


def serve_defaults(
    surface: Surface,
    node: Node,
    *,
    world_size: int = 1,
    offline_llm: bool = False,
    performance_mode: str | None = None,
    prompts: Prompts = Prompts(),  # noqa: B008 - an immutable tuple
    era: Era | None = None,
) -> Defaults:
    """The defaults of `vllm serve` (or of `LLM()` with `offline_llm`) on this node's device.

    `world_size` is TP × PP (only CPU defaults depend on it). `performance_mode` "throughput" doubles both batch
    limits (0.24.0 engine/arg_utils.py:2601, 0.33.0:3184). `era`: what `history.era_of` says of this configuration;
    by default what holds for the surface's release. `prompts` matters to V0 alone.
    """
    gpu = node.gpu
    facts = era or history.era_of(surface.release, gpu)
    if facts.engine == "V0":
        return _on_v0(facts, gpu, prompts)
    tokens, seqs = _batch(facts, gpu, world_size=world_size, offline_llm=offline_llm)
    factor = 2 if performance_mode == "throughput" else 1
    block = _CPU_BLOCK if gpu.vendor is Vendor.CPU else _BLOCK
    return Defaults(tokens * factor, seqs * factor, facts.gpu_memory_utilization, block, facts.prefix_caching)


def _batch(facts: Era, gpu: Gpu, *, world_size: int, offline_llm: bool) -> tuple[int, int]:
    """Tokens and sequences of a batch on V1."""
    if gpu.vendor is Vendor.CPU:
        tokens, seqs = _CPU[offline_llm]
        return tokens * world_size, seqs * world_size
    tokens, seqs = _TIERS[_tier(facts.batch_tiers, gpu), offline_llm]
    return tokens, 1024 if facts.batch_tiers == "by name, many" else seqs


def _tier(tiers: str, gpu: Gpu) -> str:
    """Names decided first, then memory; A100 (by name) is small but in 0.8.5, and since 0.33 GB10 is too.

    From 160 GiB on there is a tier of its own since 0.28.
    """
    name, memory = gpu.name.lower(), gpu.memory_bytes
    if tiers.startswith("by name"):
        return _LARGE if "h100" in name or "h200" in name else _SMALL
    if tiers.startswith("three tiers") and memory >= 160 * GIB:
        return _LARGEST
    if memory < 70 * GIB or ("a100" in name and tiers != "by memory"):
        return _SMALL
    return _SMALL if tiers.endswith("GB10 small") and gpu.capability == 121 else _LARGE


def _on_v0(facts: Era, gpu: Gpu, prompts: Prompts) -> Defaults:
    """V0: 256 sequences; a batch holds one whole prompt, or chunks where V0 turns chunking on by itself."""
    chunked = _chunks(facts, gpu, prompts)
    tokens = facts.chunk_tokens if chunked else max(prompts.max_model_len, _V0_LEAST_TOKENS)
    if prompts.multimodal:
        tokens = max(tokens, facts.multimodal_tokens)
    return Defaults(tokens, _V0_SEQS, facts.gpu_memory_utilization, _BLOCK, facts.prefix_caching, chunked)


def _chunks(facts: Era, gpu: Gpu, prompts: Prompts) -> bool:
    return (
        facts.chunks_when_long
        and prompts.max_model_len > _V0_LONG
        and (gpu.vendor is Vendor.NVIDIA or (gpu.vendor is Vendor.AMD and facts.chunks_on_amd))
        and not (prompts.windowed or prompts.adapted)
        and (facts.chunks_multimodal or not prompts.multimodal)
        and (facts.chunks_latent or not prompts.latent)
    )
