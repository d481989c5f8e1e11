"""What a recommendation becomes when something was measured: the measured plan first, the other estimates corrected.

A strict match at the asked load is a truth: its plan comes first, with its measurement shown as one, unless a rule, a
limit or a restriction of the user now speaks against it. Everything else that was measured is a prior: it moves the
estimates (`throughput.measured`) and no more. Pure: the same facts and the same match give the same answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.facts import Case, Finding, Ranked, Rejected
from vllm_advisor.memory.budget import budget
from vllm_advisor.plan import LaunchCommand
from vllm_advisor.profiles_text import summary
from vllm_advisor.rules.engine import judge
from vllm_advisor.rules.kernels import kernels
from vllm_advisor.score import score, sla_findings, trade
from vllm_advisor.throughput.estimate import estimate
from vllm_advisor.throughput.measured import Measurement, corrected, correction, path_of
from vllm_advisor.throughput.traits import traits
from vllm_advisor.vllm import plugin
from vllm_advisor.vllm.command import build


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.candidates import Restrictions
    from vllm_advisor.facts import Estimate, Facts, Recommendation
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.profile import Profile, Settings
    from vllm_advisor.throughput.measured import Correction
    from vllm_advisor.workload import Workload

RULE = "PRF-01"
# Lengths and concurrency that differ by less are the same load: a choice of ours, inside any measurement's noise.
_SAME_LOAD = 0.1
# Truths first, then the newest: solving for a correction grows with the third power.
_MOST_LEARNT = 24
_FIGURES = ("output_tok_s", "ttft_ms", "tpot_ms")


class Match(NamedTuple):
    """What the store and the shipped profiles know of the asked machine and model.

    `truths` match strictly, `priors` loosely (each with what differs, in words); `models` are the checkpoints by name.
    `reported` are lines of what others measured. `notes` are for stderr.
    """

    truths: tuple[Profile, ...] = ()
    priors: tuple[tuple[Profile, str], ...] = ()
    models: tuple[ModelSpec, ...] = ()
    reported: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """The answer with what was measured in it. `measured`: the profile of plan 1, None where it is an estimate."""

    answer: Recommendation
    measured: Profile | None
    remarks: tuple[str, ...]


def apply(found: Recommendation, match: Match, restrictions: Restrictions | None = None, top: int = 5) -> Outcome:
    """Correct the estimates, rank again, and put the best measured plan first.

    `found` should hold more plans than `top`: a correction may bring up one that was not among the first.
    """
    facts = found.facts
    learnt = _learnt(facts, match)
    plans, vetoed = _again(found, learnt)
    adopted, remarks = _adopted(facts, match, learnt, restrictions)
    first = adopted[:1]
    others = [plan for plan in plans if not first or _kind(plan) != _kind(first[0][0])]
    ordered = [*(ranked for ranked, _ in first), *others][:top]
    shown = tuple(plan._replace(trade=trade(ordered[0], plan) if i else "") for i, plan in enumerate(ordered))
    accepted = found.accepted - len(vetoed) + (len(first) if len(others) == len(plans) else 0)
    answer = found._replace(
        plans=shown,
        rejected=found.rejected + tuple(vetoed),
        misses=() if shown else found.misses,
        accepted=accepted,
    )
    return Outcome(answer, first[0][1] if first else None, remarks)


def _kind(ranked: Ranked) -> tuple[object, ...]:
    plan = ranked.plan
    return plan.checkpoint, plan.layout, plan.quantization, plan.kv_cache_dtype


class _Learnt(NamedTuple):
    """Measured against predicted, by figure; `known` keeps the corrections that were solved for."""

    by_figure: Mapping[str, tuple[Measurement, ...]]
    here: bool
    known: dict[tuple[str, str], tuple[Correction, ...]]

    def corrections(self, name: str, path: str) -> tuple[Correction, ...]:
        """For each figure; configurations that were not measured differ by their kernel path alone."""
        measured = any(m.plan == name for rows in self.by_figure.values() for m in rows)
        asked = (name if measured else "", path)
        if asked not in self.known:
            self.known[asked] = tuple(correction(self.by_figure[figure], *asked) for figure in _FIGURES)
        return self.known[asked]


def _learnt(facts: Facts, match: Match) -> _Learnt:
    """Each profile's figures beside what is predicted now for its own plan and load."""
    rows: dict[str, list[Measurement]] = {name: [] for name in _FIGURES}
    models = {model.name: model for model in match.models}
    both = [(profile, True) for profile in match.truths] + [(profile, False) for profile, _ in match.priors]
    for profile, strict in both[:_MOST_LEARNT]:
        model, load = models.get(profile.plan.checkpoint), profile.measurement.workload
        if model is None or load is None:
            continue
        predicted = _predicted(facts, model, profile.plan, load)
        # Another driver, version or machine may have moved the configuration's own part: it is not shared then.
        name = _configuration(profile.plan) + ("" if strict else f" of {profile.id}")
        path = path_of(traits(model, profile.plan, facts.node, facts.vllm))
        for figure in _FIGURES:
            measured = profile.measurement.figure(figure)
            if measured is not None:
                rows[figure].append(Measurement(name, path, measured.mid, getattr(predicted, figure).mid))
    return _Learnt({name: tuple(found) for name, found in rows.items()}, bool(match.truths), {})


def _predicted(facts: Facts, model: ModelSpec, plan: Plan, load: Workload) -> Estimate:
    return estimate(model, plan, budget(model, plan, facts.node, facts.vllm), facts.node, facts.vllm, load)


def _configuration(plan: Plan) -> str:
    eager = " eager" if plan.enforce_eager else ""
    return f"{plan.checkpoint} {plan.layout} {plan.quantization} {plan.kv_cache_dtype}{eager}"


def _moved(facts: Facts, ranked: Ranked, learnt: _Learnt) -> Estimate:
    """The estimate after the corrections, whose note says where the measurements are from."""
    name = _configuration(ranked.plan)
    path = path_of(traits(ranked.model, ranked.plan, facts.node, facts.vllm))
    moved = corrected(ranked.estimate, *learnt.corrections(name, path))
    if moved is ranked.estimate or learnt.here:
        return moved
    return moved._replace(
        notes=(*moved.notes[:-1], f"{moved.notes[-1].partition(' on ')[0]} on machines like this one")
    )


def _again(found: Recommendation, learnt: _Learnt) -> tuple[list[Ranked], list[Rejected]]:
    """Every plan under its corrected estimate, best first; a limit may reject one now."""
    plans: list[Ranked] = []
    vetoed: list[Rejected] = []
    for ranked in found.plans:
        case = Case(found.facts._replace(model=ranked.model), ranked.plan, ranked.budget)
        moved = _moved(found.facts, ranked, learnt)
        findings = tuple(f for f in ranked.findings if not f.rule.startswith("SLA")) + sla_findings(case, moved)
        if any(f.level == "veto" for f in findings):
            vetoed.append(Rejected(ranked.plan, findings, ranked.budget))
        else:
            plans.append(ranked._replace(estimate=moved, findings=findings, score=score(case, moved, findings)))
    return sorted(plans, key=lambda plan: -plan.score), vetoed


def _adopted(
    facts: Facts, match: Match, learnt: _Learnt, restrictions: Restrictions | None
) -> tuple[list[tuple[Ranked, Profile]], tuple[str, ...]]:
    """Measured plans that stand for what is asked, the best first, and why the others do not."""
    standing: list[tuple[Ranked, Profile]] = []
    remarks: list[str] = []
    models = {model.name: model for model in match.models}
    for profile in match.truths:
        against = _against(facts, profile, models, restrictions)
        ranked = None if against else _ranked(facts, profile, models[profile.plan.checkpoint], learnt)
        vetoes = [f.message for f in ranked.findings if f.level == "veto"] if ranked else [against]
        if ranked is None or vetoes:
            remarks.append(f"profile {profile.id} is not put first: {vetoes[0]}")
        else:
            standing.append((ranked, profile))
            remarks += _unchecked(facts, profile)
    remarks += [f"profile {profile.id} is a prior only: {why}" for profile, why in match.priors]
    ordered = sorted(standing, key=lambda pair: (-pair[0].score, pair[1].id))
    return _proven(ordered, remarks, restrictions), tuple(remarks)


def _unchecked(facts: Facts, profile: Profile) -> list[str]:
    """A measured plan that computes something else than was asked for, and was never compared with it."""
    plan = profile.plan
    same = (plan.checkpoint, plan.quantization, plan.kv_cache_dtype) == (facts.model.name, None, "auto")
    if same or profile.quality or profile.provenance.validated_at:
        return []
    asked = facts.model.name
    says = f"its accuracy was not compared with {asked} (tuner serve {asked} --profile {profile.id})"
    return [f"profile {profile.id} is unvalidated: {says}"]


def _proven(
    ordered: list[tuple[Ranked, Profile]], remarks: list[str], restrictions: Restrictions | None
) -> list[tuple[Ranked, Profile]]:
    """Our own plugin goes first only where it was asked for, or where it beat a kernel of vLLM's on this machine."""
    if restrictions and restrictions.allow_plugin:
        return ordered
    others = [profile for _, profile in ordered if profile.plan.quantization != plugin.NAME]
    kept = [pair for pair in ordered if pair[1].plan.quantization != plugin.NAME or others]
    for ranked, profile in kept:
        if profile.plan.quantization == plugin.NAME:
            remarks.append(
                f"plan {ranked.plan.layout} runs our plugin {plugin.NAME}; vLLM's own best here: {others[0].id}"
            )
    remarks += [
        f"profile {profile.id} is not put first: {plugin.NAME} was not measured against a kernel of vLLM's here"
        for pair in ordered
        if pair not in kept
        for profile in pair[1:]
    ]
    return kept


def _against(facts: Facts, profile: Profile, models: Mapping[str, ModelSpec], restrictions: Restrictions | None) -> str:
    """What keeps a measured plan from being an answer to this question; "" for nothing."""
    load, measured, plan = facts.workload, profile.measurement.workload, profile.plan
    if plan.checkpoint not in models:
        return f"it loads {plan.checkpoint}"
    if not profile.accurate:
        return "it failed a check of accuracy"
    if measured is None or not same_load(load, measured):
        return "it was measured at another load"
    if plan.max_model_len < max(load.context, load.input_tokens + load.output_tokens):
        return f"it serves {plan.max_model_len:,} tokens at most"
    if restrictions and not allowed(plan, facts, restrictions):
        return "it is not what you fixed"
    return ""


def same_load(one: Workload, other: Workload) -> bool:
    """Whether a measurement at one load speaks of the other."""
    pairs = [
        (getattr(one, name) or 0, getattr(other, name) or 0)
        for name in ("input_tokens", "output_tokens", "shared_prefix_tokens", "request_rate")
    ]
    pairs += [] if one.request_rate else [(one.concurrency, other.concurrency)]
    return all(abs(a - b) <= _SAME_LOAD * max(a, b) for a, b in pairs)


def allowed(plan: Plan, facts: Facts, limits: Restrictions) -> bool:
    """Whether a plan is within what the user fixed."""
    fixed = (
        (limits.quantization, plan.quantization or "none"),
        (limits.kv_cache_dtype, plan.kv_cache_dtype),
        (limits.tensor_parallel_size, plan.tensor_parallel_size),
        (limits.pipeline_parallel_size, plan.pipeline_parallel_size),
        (limits.data_parallel_size, plan.data_parallel_size),
        (limits.expert_parallel, plan.enable_expert_parallel),
        (limits.gpu_memory_utilization, plan.gpu_memory_utilization),
        (limits.max_num_seqs, plan.max_num_seqs),
        (limits.max_num_batched_tokens, plan.max_num_batched_tokens),
        (limits.enforce_eager, plan.enforce_eager),
        (None if limits.siblings else facts.model.name, plan.checkpoint),
        (facts.node.world if limits.use_all else None, plan.world_size),
    )
    return not limits.offline_llm and all(wish is None or wish == value for wish, value in fixed)


def _ranked(facts: Facts, profile: Profile, model: ModelSpec, learnt: _Learnt) -> Ranked:
    """The measured plan as one of the answer: judged, ranked by what was measured, with its command."""
    plan = profile.plan
    case = Case(facts._replace(model=model), plan, budget(model, plan, facts.node, facts.vllm))
    predicted = _predicted(facts, model, plan, facts.workload)
    draft = Ranked(plan, model, case.budget, predicted, (), LaunchCommand(()), 0.0)
    figures = _as_measured(_moved(facts, draft, learnt), profile)
    findings = (said(profile), *judge(case), *sla_findings(case, figures))
    return draft._replace(
        estimate=_moved(facts, draft, learnt),
        findings=findings,
        score=score(case, figures, findings),
        command=_with_flags(build(plan, model, facts.node, facts.vllm, facts.workload), profile.flags),
        kernels=kernels(case),
    )


def _with_flags(command: LaunchCommand, flags: Settings) -> LaunchCommand:
    """The plan's command and what was given beside it when it was measured, said so."""
    words = [word for name, value in flags for word in ((name,) if value is True else (name, str(value)))]
    notes = tuple((name, "as it was measured") for name, _ in flags)
    return replace(command, argv=(*command.argv, *words), notes=(*command.notes, *notes))


def _as_measured(predicted: Estimate, profile: Profile) -> Estimate:
    """The estimate with the measured figures in it: for ranking and limits, never for showing."""
    known = {name: profile.measurement.figure(name) for name in (*_FIGURES, "total_tok_s")}
    values: dict[str, Any] = {name: value for name, value in known.items() if value is not None}
    return predicted._replace(**values)


def said(profile: Profile) -> Finding:
    """The measurement as the first reason of its plan."""
    return Finding(RULE, "prefer", f"measured here {summary(profile)}", f"profile {profile.id}")
