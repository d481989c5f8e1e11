"""One number a plan, so that plans can be ranked: predicted speed under the objective, times the rules' preferences.

throughput   output tokens a second of the deployment
latency      what one user gets: output length / (time to first token + output length × time per output token)
balanced     the geometric mean of both
cost         output tokens a second a device used
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vllm_advisor.facts import Finding
from vllm_advisor.units import significant
from vllm_advisor.workload import Objective


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.facts import Case, Estimate, Ranked
    from vllm_advisor.units import Interval
    from vllm_advisor.workload import Workload

# A plan that meets the SLA only with luck ranks below any that meets it, and above none at all.
_SLA_RISK = 0.3
# Of pairs of public measurements that differ in hardware, precision or parallelism, 0.98 were ranked right from this
# predicted ratio on (fits without their source, docs/speed-model.md).
TIE = 1.1
# Differences below this are inside any interval of ours and are not called a trade.
_WORTH_SAYING = 0.05


def score(case: Case, predicted: Estimate, findings: tuple[Finding, ...]) -> float:
    """Higher is better; only the order means something."""
    return worth(case.facts.workload, predicted, case.plan.world_size) * math.prod(f.weight for f in findings)


def worth(load: Workload, predicted: Estimate, devices: int) -> float:
    """What the objective counts, without the rules' preferences."""
    throughput = predicted.output_tok_s.mid
    one_user = load.output_tokens * 1000 / (predicted.ttft_ms.mid + load.output_tokens * predicted.tpot_ms.mid)
    return {
        Objective.THROUGHPUT: throughput,
        Objective.LATENCY: one_user,
        Objective.BALANCED: math.sqrt(throughput * one_user),
        Objective.COST: throughput / devices,
    }[load.objective]


def ties(plans: Sequence[Ranked], load: Workload) -> tuple[int, ...]:
    """Positions of the plans that the model cannot tell from the first, the first itself among them; () for none.

    What two predictions share (the machine, the model, the version) cancels between them, so that their own intervals
    say too little: a tie is a ratio at which public measurements were still ranked wrong.
    """
    if not plans:
        return ()
    values = [worth(load, p.estimate, p.plan.world_size) for p in plans]
    tied = tuple(i for i, v in enumerate(values) if max(v, values[0]) < TIE * min(v, values[0]))
    return tied if len(tied) > 1 else ()


def settled_by(tied: tuple[int, ...]) -> str:
    """What would tell tied plans apart, in words; positions are counted from 1, as they are shown."""
    if not tied:
        return ""
    numbers = ",".join(str(i + 1) for i in tied)
    words = "these two" if len(tied) == 2 else f"these {len(tied)}"
    return f"measure {words}: tuner serve --only {numbers}"


def sla_findings(case: Case, predicted: Estimate) -> tuple[Finding, ...]:
    """What the predicted latencies say of the limits that were asked for."""
    sla = case.facts.workload.sla
    limits = (
        ("SLA-01", "first token", sla.ttft_ms, predicted.ttft_ms),
        ("SLA-02", "token", sla.tpot_ms, predicted.tpot_ms),
    )
    return tuple(_sla(rule, what, limit, value) for rule, what, limit, value in limits if limit and value.mid > limit)


def _sla(rule: str, what: str, limit: float, value: Interval) -> Finding:
    asked = f"you asked for at most {significant(limit)} ms a {what}"
    if value.low > limit:
        return Finding(
            rule, "veto", f"{asked}; even the optimistic estimate is {significant(value.low)} ms", "workload"
        )
    message = f"{asked}; the estimate is {significant(value.low)} to {significant(value.high)} ms"
    return Finding(rule, "discourage", message, "workload", weight=_SLA_RISK)


def trade(best: Ranked, other: Ranked) -> str:
    """What one gets and gives by taking `other` instead of `best`, in a few words."""
    pairs = (
        ("output tok/s", best.estimate.output_tok_s.mid, other.estimate.output_tok_s.mid),
        ("first token", best.estimate.ttft_ms.mid, other.estimate.ttft_ms.mid),
        ("ms a token", best.estimate.tpot_ms.mid, other.estimate.tpot_ms.mid),
        ("KV tokens", best.budget.kv_tokens, other.budget.kv_tokens),
    )
    parts = [f"{_percent(ours, theirs)} {what}" for what, ours, theirs in pairs if _differs(ours, theirs)]
    devices = best.plan.world_size - other.plan.world_size
    parts += [f"{devices} devices fewer"] if devices > 0 else []
    return ", ".join(parts) or "no difference that we can predict"


def _differs(ours: float, theirs: float) -> bool:
    return ours > 0 and abs(theirs / ours - 1) >= _WORTH_SAYING


def _percent(ours: float, theirs: float) -> str:
    ratio = theirs / ours
    return f"{ratio:.1f} ×" if ratio >= 2 else f"{(ratio - 1) * 100:+.0f} %"
