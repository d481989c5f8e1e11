"""One deployment in vLLM's own words: the knobs that we set, frozen.

What is emitted is what was predicted: every estimate of ours is computed from this value, and the command is
written from this value, so that the two cannot differ.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """A `vllm serve` configuration. Field names are vLLM's. None: leave it to vLLM.

    `checkpoint` is the repository or folder to load (a quantized sibling has another one than the model asked for).
    `quantization` is the flag (online quantization only: a quantized checkpoint needs none).
    `max_num_seqs`, `max_num_batched_tokens`, `gpu_memory_utilization`, `max_model_len` are always the effective
    values; the command leaves out those that equal that version's default on that device.
    `auto_max_model_len`: nobody asked for a context and the model's own does not fit, so vLLM finds the longest
    (`--max-model-len auto`); `max_model_len` is then our prediction of what it finds.
    `kv_cache_memory_bytes` fixes the KV cache and takes the place of `gpu_memory_utilization`.
    `env` holds environment variables, sorted by name.
    """

    checkpoint: str
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    enable_expert_parallel: bool = False
    enable_eplb: bool = False
    max_model_len: int = 4096
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    gpu_memory_utilization: float = 0.92
    kv_cache_memory_bytes: int | None = None
    enforce_eager: bool = False
    block_size: int | None = None
    attention_backend: str | None = None
    moe_backend: str | None = None
    performance_mode: str | None = None
    num_nodes: int = 1
    auto_max_model_len: bool = False
    env: tuple[tuple[str, str], ...] = ()

    @property
    def world_size(self) -> int:
        """Devices used: TP × PP × DP (decode context parallelism adds none)."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size

    @property
    def expert_parallel_size(self) -> int:
        """Ranks that share the experts: TP × DP with expert parallelism, else 1."""
        if not self.enable_expert_parallel:
            return 1
        return self.tensor_parallel_size * self.data_parallel_size

    @property
    def layout(self) -> str:
        """`TP8`, `TP4 DP2 EP8`, `TP8 PP2`: how people write it."""
        parts = [f"TP{self.tensor_parallel_size}"]
        parts += [f"PP{self.pipeline_parallel_size}"] * (self.pipeline_parallel_size > 1)
        parts += [f"DP{self.data_parallel_size}"] * (self.data_parallel_size > 1)
        parts += [f"EP{self.expert_parallel_size}"] * self.enable_expert_parallel
        parts += [f"DCP{self.decode_context_parallel_size}"] * (self.decode_context_parallel_size > 1)
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """What to run: argv (`vllm`, `serve`, …) and the environment to add; `notes` maps a flag or variable to its why."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
