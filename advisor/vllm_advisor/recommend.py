"""Facts → candidates → judge → estimate → rank: the answer, pure, from values that are already in memory.

A candidate with any veto is rejected with every reason, never silently dropped. The rest is ranked by predicted speed
under the objective, times the preferences of the rules. Nothing here reads a file, a clock or a device.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from vllm_advisor.candidates import Restrictions, candidates
from vllm_advisor.facts import Case, Estimate, Facts, Finding, Miss, Ranked, Recommendation, Rejected
from vllm_advisor.memory.budget import budget
from vllm_advisor.memory.remedies import remedies
from vllm_advisor.plan import LaunchCommand
from vllm_advisor.rules.engine import judge
from vllm_advisor.rules.kernels import kernels
from vllm_advisor.score import score, sla_findings, trade
from vllm_advisor.throughput.estimate import estimate
from vllm_advisor.vllm import plugin
from vllm_advisor.vllm.command import build
from vllm_advisor.vllm.schemes import scheme_of, weight_bits


if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vllm_advisor.facts import MemoryBudget
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.plan import Plan

# What vLLM rounds a context to matters little; a round number is easier to read and never too long.
_CONTEXT_STEP = 1024
_NEAREST_MISSES = 3
OUR_PLUGIN = "QNT-30"


def recommend(
    facts: Facts, siblings: tuple[ModelSpec, ...] = (), restrictions: Restrictions | None = None, top: int = 5
) -> Recommendation:
    """The `top` plans for these facts, best first, and every rejected one with its reasons.

    `siblings` are other checkpoints of the same base model that may be loaded instead. No plan at all is an answer:
    `plans` is empty then, and `misses` holds the nearest misses with what would make each fit.
    """
    limits = restrictions or Restrictions()
    checkpoints = (facts.model, *(siblings if limits.siblings else ()))
    cases = [_case(facts, plan, model) for plan, model in candidates(facts, checkpoints, limits)]
    judged = [(case, judge(case)) for case in cases]
    accepted, rejected = _split(judged)
    ranked = sorted(accepted, key=lambda plan: -plan.score)
    best = _with_trades(_beside_ours(_distinct(ranked)[:top], ranked, facts, siblings, limits))
    misses = () if best else _misses(facts, rejected, checkpoints)
    return Recommendation(facts, _finished(best, facts), tuple(rejected), misses, accepted=len(ranked))


def _case(facts: Facts, plan: Plan, model: ModelSpec) -> Case:
    """The plan with the memory that it needs; a context that nobody asked for shrinks to what fits."""
    found = budget(model, plan, facts.node, facts.vllm)
    if not found.fits and not facts.workload.context:
        plan, found = _shortened(facts, plan, model, found)
    return Case(facts if model is facts.model else facts._replace(model=model), plan, found)


def _shortened(facts: Facts, plan: Plan, model: ModelSpec, found: MemoryBudget) -> tuple[Plan, MemoryBudget]:
    """VLLM finds the longest context by itself (`--max-model-len auto`), better than a number of ours could."""
    length = found.max_context // _CONTEXT_STEP * _CONTEXT_STEP
    if length < facts.workload.input_tokens + facts.workload.output_tokens:
        return plan, found
    shorter = replace(plan, max_model_len=length, auto_max_model_len=True)
    return shorter, budget(model, shorter, facts.node, facts.vllm)


def _split(judged: Iterable[tuple[Case, tuple[Finding, ...]]]) -> tuple[list[Ranked], list[Rejected]]:
    accepted: list[Ranked] = []
    rejected: list[Rejected] = []
    for case, findings in judged:
        if any(f.level == "veto" for f in findings):
            rejected.append(Rejected(case.plan, findings, case.budget))
            continue
        predicted = _estimate(case)
        all_findings = findings + sla_findings(case, predicted)
        if any(f.level == "veto" for f in all_findings):
            rejected.append(Rejected(case.plan, all_findings, case.budget))
        else:
            accepted.append(_ranked(case, all_findings, predicted))
    return accepted, rejected


def _estimate(case: Case) -> Estimate:
    facts = case.facts
    return estimate(facts.model, case.plan, case.budget, facts.node, facts.vllm, facts.workload)


def _ranked(case: Case, findings: tuple[Finding, ...], predicted: Estimate) -> Ranked:
    value = score(case, predicted, findings)
    return Ranked(case.plan, case.facts.model, case.budget, predicted, findings, LaunchCommand(()), value)


def _distinct(ranked: list[Ranked]) -> list[Ranked]:
    """The best of each kind: plans that store their weights in the same bits by another scheme are one choice."""
    kinds: dict[tuple[object, ...], Ranked] = {}
    for plan in ranked:
        bits = weight_bits(scheme_of(plan.model, plan.plan))
        kinds.setdefault((plan.plan.layout, plan.plan.kv_cache_dtype, bits), plan)
    return list(kinds.values())


def _beside_ours(
    shown: list[Ranked], ranked: list[Ranked], facts: Facts, siblings: tuple[ModelSpec, ...], limits: Restrictions
) -> list[Ranked]:
    """Plans by our plugin name the best plan that vLLM runs alone, even where the user fixed our quantization."""
    if not any(plugin.serves(p.model, p.plan) for p in shown):
        return shown
    others: Sequence[Ranked] = ranked
    if limits.quantization == plugin.NAME:
        others = recommend(facts, siblings, limits._replace(quantization=None, allow_plugin=False), 1).plans
    alone = next((p for p in others if not plugin.serves(p.model, p.plan)), None)
    said = _alone(alone, facts) if alone else "without it no plan fits"
    return [p._replace(findings=tuple(map(partial(_completed, said), p.findings))) for p in shown]


def _alone(best: Ranked, facts: Facts) -> str:
    """`the best plan without it: Qwen/Qwen3-8B, fp8_per_channel online, TP1, through CutlassFP8…`."""
    weights = f"{best.plan.quantization} online" if best.plan.quantization else scheme_of(best.model, best.plan)
    picked = dict(kernels(Case(facts._replace(model=best.model), best.plan, best.budget)))
    through = picked.get("experts") or picked.get("linear layers", "no kernel that we know")
    return f"the best plan without it: {best.plan.checkpoint}, {weights}, {best.plan.layout}, through {through}"


def _completed(said: str, finding: Finding) -> Finding:
    return finding._replace(message=f"{finding.message}; {said}") if finding.rule == OUR_PLUGIN else finding


def _with_trades(plans: list[Ranked]) -> tuple[Ranked, ...]:
    return tuple(plan._replace(trade=trade(plans[0], plan)) if i else plan for i, plan in enumerate(plans))


def _finished(plans: tuple[Ranked, ...], facts: Facts) -> tuple[Ranked, ...]:
    """What only the plans that are shown need: the command, and which kernels it will run."""
    return tuple(
        plan._replace(
            command=build(plan.plan, plan.model, facts.node, facts.vllm, facts.workload),
            kernels=kernels(Case(facts._replace(model=plan.model), plan.plan, plan.budget)),
        )
        for plan in plans
    )


def _misses(facts: Facts, rejected: list[Rejected], checkpoints: tuple[ModelSpec, ...]) -> tuple[Miss, ...]:
    """The rejected plans that lack least, one for each way to store the weights, with what would make each fit."""
    by_name = {model.name: model for model in checkpoints}
    near = sorted(rejected, key=lambda r: (_other_vetoes(r), -r.budget.kv_cache.mid))
    by_weights = {(r.plan.checkpoint, r.plan.quantization): r for r in reversed(near)}
    nearest = [r for r in near if r is by_weights[r.plan.checkpoint, r.plan.quantization]][:_NEAREST_MISSES]
    return tuple(
        Miss(
            miss,
            remedies(by_name[miss.plan.checkpoint], miss.plan, facts.node, facts.vllm, miss.budget, checkpoints),
        )
        for miss in nearest
    )


def _other_vetoes(rejected: Rejected) -> int:
    return sum(f.level == "veto" and not f.rule.startswith("MEM") for f in rejected.findings)
