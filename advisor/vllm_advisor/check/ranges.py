"""What a configuration of vLLM allows for a number beyond its type: the bounds of its pydantic fields."""

from __future__ import annotations

from typing import NamedTuple


class Range(NamedTuple):
    """`low` and `high` as the field has them; `above`: the low bound itself is refused; `below`: the high one is."""

    low: float
    high: float | None
    source: str
    since: tuple[int, int] = (0, 24)
    above: bool = False
    below: bool = False

    def holds(self, value: float) -> bool:
        """Whether the value lies inside."""
        low = value > self.low if self.above else value >= self.low
        return low and (self.high is None or (value < self.high if self.below else value <= self.high))

    def __str__(self) -> str:
        low = f"above {self.low:g}" if self.above else f"at least {self.low:g}"
        if self.high is None:
            return low
        return f"{low} and {'below' if self.below else 'at most'} {self.high:g}"


_CACHE, _PARALLEL, _SCHEDULER = "config/cache.py", "config/parallel.py", "config/scheduler.py"
_MODEL, _LORA, _MM, _OFFLOAD = "config/model.py", "config/lora.py", "config/multimodal.py", "config/offload.py"

# Fields of 0.24.0 and 0.33.0 with ge=, gt=, le= or lt=; `since` where 0.24.0 had no bound or another one.
# fmt: off
RANGES: dict[str, Range] = {
    "--gpu-memory-utilization":          Range(0, 1, f"{_CACHE}:215", above=True),
    "--block-size":                      Range(0, None, f"{_CACHE}:187", above=True),
    "--prefix-match-unit":               Range(0, None, f"{_CACHE}:203", above=True),
    "--prefix-cache-retention-interval": Range(0, None, f"{_CACHE}:275"),
    "--mamba-block-size":                Range(0, None, f"{_CACHE}:293", above=True),
    "--tensor-parallel-size":            Range(1, None, f"{_PARALLEL}:142"),
    "--pipeline-parallel-size":          Range(1, None, f"{_PARALLEL}:140"),
    "--prefill-context-parallel-size":   Range(1, None, f"{_PARALLEL}:144"),
    "--decode-context-parallel-size":    Range(1, None, f"{_PARALLEL}:389"),
    "--data-parallel-size":              Range(1, None, f"{_PARALLEL}:147"),
    "--data-parallel-size-local":        Range(0, None, f"{_PARALLEL}:150"),
    "--data-parallel-rank":              Range(0, None, f"{_PARALLEL}:154"),
    "--data-parallel-rpc-port":          Range(1, 65535, f"{_PARALLEL}:161", (0, 33)),
    "--dp-sync-interval":                Range(1, None, f"{_PARALLEL}:163", (0, 33)),
    "--max-parallel-loading-workers":    Range(1, None, f"{_PARALLEL}:236"),
    "--ubatch-size":                     Range(0, None, f"{_PARALLEL}:260"),
    "--dbo-decode-token-threshold":      Range(0, None, f"{_PARALLEL}:263"),
    "--dbo-prefill-token-threshold":     Range(0, None, f"{_PARALLEL}:268"),
    "--node-rank":                       Range(0, None, f"{_PARALLEL}:323"),
    "--nnodes":                          Range(1, None, f"{_PARALLEL}:326"),
    "--max-num-batched-tokens":          Range(1, None, f"{_SCHEDULER}:48"),
    "--max-num-seqs":                    Range(1, None, f"{_SCHEDULER}:62"),
    "--max-num-active-seqs":             Range(1, None, f"{_SCHEDULER}:69", (0, 33)),
    "--max-num-queued-reqs":             Range(0, None, f"{_SCHEDULER}:92", (0, 33)),
    "--max-num-queued-tokens":           Range(0, None, f"{_SCHEDULER}:105", (0, 33)),
    "--stream-interval":                 Range(1, None, f"{_SCHEDULER}:216"),
    "--max-model-len":                   Range(-1, None, f"{_MODEL}:249"),
    "--max-logprobs":                    Range(-1, None, f"{_MODEL}:286", (0, 33)),
    "--max-loras":                       Range(1, None, f"{_LORA}:36"),
    "--mm-processor-cache-gb":           Range(0, None, f"{_MM}:357"),
    "--mm-shm-cache-max-object-size-mb": Range(0, None, f"{_MM}:375"),
    "--video-pruning-rate":              Range(0, 1, f"{_MM}:430", below=True),
    "--cpu-offload-gb":                  Range(0, None, f"{_OFFLOAD}:23"),
    "--offload-group-size":              Range(0, None, f"{_OFFLOAD}:54"),
    "--offload-num-in-group":            Range(1, None, f"{_OFFLOAD}:62"),
    "--offload-prefetch-step":           Range(0, None, f"{_OFFLOAD}:66"),
}
# fmt: on
