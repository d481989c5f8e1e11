"""What the server is for: lengths, load, what counts as better, and how much accuracy may cost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Objective(StrEnum):
    """What a plan is ranked by."""

    BALANCED = "balanced"
    THROUGHPUT = "throughput"
    LATENCY = "latency"
    COST = "cost"


class Sensitivity(StrEnum):
    """How much a small loss of accuracy hurts: chat forgives it, code, maths and retrieval do not."""

    TOLERANT = "tolerant"
    NORMAL = "normal"
    SENSITIVE = "sensitive"
    RETRIEVAL = "retrieval"


@dataclass(frozen=True, slots=True)
class Sla:
    """Upper limits in milliseconds; None: no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Lengths in tokens; `concurrency` requests are in flight together.

    `context` is the longest request (input and output) that must be served; 0: nobody asked, and the model's own
    length is the wish.
    """

    name: str = "chat"
    input_tokens: int = 1024
    output_tokens: int = 512
    concurrency: int = 32
    context: int = 0
    request_rate: float | None = None
    shared_prefix_tokens: int = 0
    sensitivity: Sensitivity = Sensitivity.NORMAL
    objective: Objective = Objective.BALANCED
    sla: Sla = Sla()


# Starting points for people who do not know their lengths: assumptions of ours, said in the output, each one a flag
# away from the truth. Sensitivity follows public reports on FP8 and 4-bit for code, maths and retrieval.
PRESETS = {
    "chat": Workload("chat", 1024, 512, 32),
    "code": Workload("code", 4096, 1024, 16, sensitivity=Sensitivity.SENSITIVE),
    "maths": Workload("maths", 512, 4096, 16, sensitivity=Sensitivity.SENSITIVE),
    "agent": Workload("agent", 16_384, 1024, 16, shared_prefix_tokens=8192),
    "rag": Workload("rag", 8192, 512, 32),
    "retrieval": Workload("retrieval", 65_536, 512, 4, context=131_072, sensitivity=Sensitivity.RETRIEVAL),
    "summarize": Workload("summarize", 8192, 512, 32, sensitivity=Sensitivity.TOLERANT),
    "batch": Workload("batch", 1024, 512, 256, sensitivity=Sensitivity.TOLERANT, objective=Objective.THROUGHPUT),
}
