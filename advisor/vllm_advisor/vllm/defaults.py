"""What vLLM takes when nobody says: the defaults that depend on the version, the device and the way it is started.

Sources, one a version: `engine/arg_utils.py` get_batch_defaults (0.24.0:2375-2451, 0.32.0:2894-2983,
0.33.0:2940-3036) and `_set_default_max_num_seqs_and_batched_tokens_args`; `config/cache.py` for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.hardware import Vendor
from vllm_advisor.units import GIB


if TYPE_CHECKING:
    from vllm_advisor.hardware import Gpu, Node
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
# A CPU's defaults grow with TP × PP (0.33.0 engine/arg_utils.py:3026-3036; the same in 0.24.0 and 0.32.0).
_CPU = {False: (2048, 128), True: (4096, 256)}
# config/cache.py: 0.24.0:46,67; 0.33.0:185,215. LLM() names the same utilization (entrypoints/llm.py:195 and :196).
_UTILIZATION = 0.92
_BLOCK = 16
# platforms/cpu.py, 0.24.0:125, 0.33.0:563.
_CPU_BLOCK = 128


class Defaults(NamedTuple):
    """What a server gets with no flag. `block_size` is in tokens, before a backend or a hybrid model raises it."""

    max_num_batched_tokens: int
    max_num_seqs: int
    gpu_memory_utilization: float
    block_size: int
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True


def serve_defaults(
    surface: Surface, node: Node, *, world_size: int = 1, offline_llm: bool = False, performance_mode: str | None = None
) -> Defaults:
    """The defaults of `vllm serve` (or of `LLM()` with `offline_llm`) on this node's device.

    `world_size` is TP × PP (only CPU defaults depend on it). `performance_mode` "throughput" doubles both batch
    limits (0.24.0 engine/arg_utils.py:2601, 0.33.0:3184).
    """
    gpu = node.gpu
    if gpu.vendor is Vendor.CPU:
        tokens, seqs = (n * world_size for n in _CPU[offline_llm])
    else:
        tokens, seqs = _TIERS[_tier(surface, gpu), offline_llm]
    factor = 2 if performance_mode == "throughput" else 1
    block = _CPU_BLOCK if gpu.vendor is Vendor.CPU else _BLOCK
    return Defaults(tokens * factor, seqs * factor, _UTILIZATION, block)


def _tier(surface: Surface, gpu: Gpu) -> str:
    """Memory decides, but A100 (by name) stays small, and since 0.33 GB10 (compute capability 12.1) does too.

    The tier from 160 GiB on is in 0.32.0 and 0.33.0 and not in 0.24.0; the versions between were not read.
    """
    memory = gpu.memory_bytes
    if memory >= 160 * GIB and surface.at_least(0, 32):
        return _LARGEST
    if memory < 70 * GIB or "a100" in gpu.name.lower():
        return _SMALL
    return _SMALL if gpu.capability == 121 and surface.at_least(0, 33) else _LARGE
