"""What a judgement may look at, and what it says: the values that pass between the rooms of the engine.

NamedTuples, because a dozen frozen dataclasses would cost the command line 6 ms of its start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.plan import LaunchCommand, Plan
    from vllm_advisor.units import Interval
    from vllm_advisor.vllm.surface import Surface
    from vllm_advisor.workload import Workload


class Facts(NamedTuple):
    """All that a rule may look at: the machine, the checkpoint, the load and the vLLM version's surface."""

    node: Node
    model: ModelSpec
    workload: Workload
    vllm: Surface


class MemoryBudget(NamedTuple):
    """Bytes on the rank that limits. `requested` = total × utilization; `kv_cache` is what is left for KV.

    `verdict` is "fits", "does not fit" or "cannot tell". `kv_tokens` and `max_concurrency` as vLLM prints them for the
    plan's max_model_len; `max_context` is the longest single request that the KV cache holds (0: none).
    `kv_bytes_per_token` is the growth of one request with length, on one rank, beyond any window.
    `limits` says what does not fit, with the numbers, in words. `graphs` is what this version takes off for CUDA graphs
    before it sizes the cache, `captured` what they take in the end, charged or not.
    """

    total: int
    requested: int
    weights: int
    activation: Interval
    graphs: Interval
    non_torch: Interval
    kv_cache: Interval
    kv_bytes_per_token: float
    block_size: int
    num_blocks: int
    kv_tokens: int
    max_concurrency: float
    max_context: int
    verdict: str
    limits: tuple[str, ...] = ()
    captured: Interval | None = None

    @property
    def fits(self) -> bool:
        """Whether the server is predicted to start and to hold one request of max_model_len."""
        return self.verdict == "fits"


class Estimate(NamedTuple):
    """Predicted speed at the workload's load, never a measurement.

    Whole deployment: `output_tok_s`, `total_tok_s`; one request: `ttft_ms`, `tpot_ms`. `running` is how many requests
    are in flight at once after the KV cache's bound. `bound` names what limits decode: weights, kv, compute,
    communication or overhead.
    """

    output_tok_s: Interval
    total_tok_s: Interval
    ttft_ms: Interval
    tpot_ms: Interval
    running: float
    bound: str
    notes: tuple[str, ...] = ()


class Case(NamedTuple):
    """One candidate under judgement. `facts.model` is the checkpoint that the plan loads."""

    facts: Facts
    plan: Plan
    budget: MemoryBudget


class Finding(NamedTuple):
    """What one rule says of one case. `level`: veto, discourage, prefer or info. `weight` multiplies the score."""

    rule: str
    level: str
    message: str
    source: str
    hint: str = ""
    weight: float = 1.0


class Rejected(NamedTuple):
    """A plan that will not be proposed, with every reason and its memory."""

    plan: Plan
    findings: tuple[Finding, ...]
    budget: MemoryBudget


class Ranked(NamedTuple):
    """A plan that is proposed: memory, predicted speed, reasons, and what it trades against the best.

    `kernels` are (part of the model, the backend that this version picks for it on this device).
    """

    plan: Plan
    model: ModelSpec
    budget: MemoryBudget
    estimate: Estimate
    findings: tuple[Finding, ...]
    command: LaunchCommand
    score: float
    trade: str = ""
    kernels: tuple[tuple[str, str], ...] = ()


class Remedy(NamedTuple):
    """A change that makes a plan fit, checked by computing its memory again."""

    change: str
    plan: Plan
    budget: MemoryBudget


class Miss(NamedTuple):
    """A rejected plan that lacks little, and what would make it fit, the smallest change first."""

    rejected: Rejected
    remedies: tuple[Remedy, ...]


class Recommendation(NamedTuple):
    """The answer: `plans` best first, `rejected` with their reasons; no plan: the nearest `misses`.

    `accepted` counts all plans that stand, shown or not. Pure: the same facts give the same bytes.
    """

    facts: Facts
    plans: tuple[Ranked, ...]
    rejected: tuple[Rejected, ...]
    misses: tuple[Miss, ...] = ()
    accepted: int = 0

    @property
    def verdict(self) -> str:
        """One of three answers: `fits`, `does not fit`, or `cannot tell` where the model is not fully understood."""
        if self.plans:
            return "fits"
        return "cannot tell" if self.facts.model.unknowns else "does not fit"
