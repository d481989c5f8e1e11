"""Whether it fits: the memory model's verdict with its numbers, and the smallest changes that make it fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.check import mend
from vllm_advisor.check.finding import NOTE, WARNING, Change, Finding
from vllm_advisor.check.loaded import draft
from vllm_advisor.check.values import mapping
from vllm_advisor.rules import predicates_memory as memory
from vllm_advisor.rules import predicates_serving as serving
from vllm_advisor.units import count, gib


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vllm_advisor.check.configuration import Asked, Judged
    from vllm_advisor.facts import Remedy
    from vllm_advisor.hardware import Node
    from vllm_advisor.plan import Plan

_LENGTH, _SEQS, _SHARE = "--max-model-len", "--max-num-seqs", "--gpu-memory-utilization"
_SHOWN_REMEDIES = 3
# What the memory model has no term for: options, and whether they may make a plan fit that does not.
_LEFT_OUT = (
    ("--cpu-offload-gb", "all weights are counted on the device", True),
    ("--offload-group-size", "all weights are counted on the device", True),
    ("--hf-overrides", "the model is taken as published", True),
    ("--quantization-config", "all layers are counted as --quantization says", True),
    ("--kv-cache-dtype-skip-layers", "all layers are counted in one cache dtype", False),
    ("--num-gpu-blocks-override", "the number of blocks is computed", True),
    ("--enable-lora", "adapters are not counted", False),
    ("--prefill-context-parallel-size", "its buffers are not counted", False),
    ("--enable-dbo", "buffers of the second batch are not counted", False),
)


def devices(given: Asked, node: Node) -> Iterator[Finding]:
    """PAR-18: more ranks than this machine has devices."""
    if given.devices <= node.world:
        return
    parts = (("TP", given.tp), ("PP", given.pp), ("PCP", given.pcp), ("DP", given.dp))
    layout = " × ".join(f"{name} {size}" for name, size in parts if size > 1)
    text = f"{layout} needs {given.devices} devices, {node.label} has {node.world}"
    fewer = str(1 << node.world.bit_length() - 1)  # heads divide by powers of two
    change = mend.put(given, "--tensor-parallel-size", fewer) if given.devices == given.tp else None
    yield mend.said(
        "PAR-18",
        text,
        given,
        *(f"--{n}-parallel-size" for n in ("tensor", "data", "pipeline", "prefill-context")),
        hint=f"TP × PP × DP of at most {node.world}",
        change=change,
        source="config/parallel.py:1068",
    )


def findings(found: Judged) -> tuple[Finding, ...]:
    """The verdict, what limits, what would make it fit, and what the estimate leaves out."""
    budget = found.case.budget
    verdict = budget.verdict
    if found.case.plan.kv_cache_memory_bytes and budget.requested > budget.total:
        return (_too_large(found),)
    if verdict == "cannot tell":
        return (_untold(found),)
    if verdict != "fits":
        return tuple(_too_small(found))
    return tuple(_fits(found))


def _too_large(found: Judged) -> Finding:
    """A cache given in bytes is not checked against what is left: allocating it fails (gpu_worker.py:656)."""
    budget, name = found.case.budget, "--kv-cache-memory-bytes"
    rest = budget.requested - budget.kv_cache.mid
    text = f"a KV cache of {gib(budget.kv_cache.mid)} beside {gib(rest)} for all else exceeds {gib(budget.total)}"
    change = mend.drop(found.asked, name)
    return mend.said("MEM-13", text, found.asked, name, hint="leave it out: vLLM measures what is left", change=change)


def _untold(found: Judged) -> Finding:
    missing = "; ".join(found.case.facts.model.unknowns) or "the architecture is not known"
    return mend.said("MEM-03", f"whether it fits cannot be told: {missing}", found.asked)


def _fits(found: Judged) -> Iterator[Finding]:
    budget, plan, given = found.case.budget, found.case.plan, found.asked
    tight = memory.fits_only_on_average(found.case)
    if tight:
        text = "it fits on average ({mid} for KV); at worst {low} are left, and one request needs {one}"
        yield mend.said("MEM-04", text.format_map(tight), given, _LENGTH, _SHARE, hint=_roomier(found))
    if found.auto_length:
        text = f"--max-model-len auto: {count(plan.max_model_len)} tokens are predicted"
        yield mend.said("MEM-11", text, given, _LENGTH)
    requests = f"{significant(budget.max_concurrency)} requests of {count(plan.max_model_len)}"
    each = " on each rank" if plan.world_size > 1 else ""
    text = f"it fits: {gib(budget.kv_cache.mid)} are left for the KV cache{each}, {count(budget.kv_tokens)} tokens"
    yield mend.said("MEM-10", f"{text}, {requests}", given)
    yield from _unmodelled(given)


def significant(number: float) -> str:
    """Concurrency with the digits that an estimate deserves."""
    return f"{number:.0f}" if number >= 10 else f"{number:.1f}"


def _roomier(found: Judged) -> str:
    shorter = max(1024, int(found.case.budget.max_context * 0.8) // 1024 * 1024)
    return f"{_LENGTH} {shorter} is on the safe side" if shorter < found.case.plan.max_model_len else ""


def _others(found: Judged, facts: Mapping[str, object]) -> Finding:
    text = f"{facts['free']} are free on a device and vLLM asks for {facts['requested']}: it refuses to start"
    share = str(facts["utilization"])
    hint = f"stop what holds the memory, or {_SHARE} {share}"
    return mend.said("MEM-06", text, found.asked, _SHARE, hint=hint, source="v1/worker/utils.py:716-760")


def _too_small(found: Judged) -> Iterator[Finding]:
    others = memory.others_hold_memory(found.case)
    if others and not memory.weights_exceed_memory(found.case):
        yield _others(found, others)
        return
    rule, text, source = _why(found)
    if rule == "MEM-08" and serving.more_sequences_than_state_blocks(found.case):
        return  # BAT-01 says it
    remedies = _remedies(found)
    here = [r for r in remedies if r.plan.world_size <= found.case.facts.node.world]
    doubtful = [f"{name}: {why}" for name, why, helps in _LEFT_OUT if helps and _given(found.asked, name)]
    hints = [f"it fits with {r.change}" for r in remedies[:_SHOWN_REMEDIES]] or ["no single change makes it fit"]
    yield mend.said(
        rule,
        f"it does not fit: {text}" + (f" (but {'; '.join(doubtful)})" if doubtful else ""),
        found.asked,
        _LENGTH,
        _SEQS if rule == "MEM-08" else _SHARE,
        "--tensor-parallel-size",
        hint="; or ".join(hints).replace("; or it fits with", "; or with"),
        change=next((c for r in here if (c := _written(found, r))), None),
        level=WARNING if doubtful else "",
        source=source,
    )
    yield from _unmodelled(found.asked)


def _why(found: Judged) -> tuple[str, str, str]:
    """(rule, what does not fit with the numbers, source)."""
    case = found.case
    weights = memory.weights_exceed_memory(case)
    if weights:
        text = "weights need {need} on each rank with {layout}, {have} are usable"
        return "MEM-01", text.format_map(weights), "v1/worker/gpu_worker.py:683-757"
    cache = memory.cache_too_small(case)
    if cache:
        text = "{left} are left for the KV cache, which hold {holds} tokens; one request of {asked} needs more"
        return "MEM-02", text.format_map(cache), "v1/core/kv_cache_utils.py:1061-1130"
    return "MEM-08", "; ".join(case.budget.limits), "v1/worker/utils.py:720-760; config/compilation.py:1511-1533"


def _remedies(found: Judged) -> tuple[Remedy, ...]:
    """Changes that make it fit and add no refusal to those that the command already has."""
    from vllm_advisor.estimate.configuration import objections  # noqa: PLC0415  only where it does not fit
    from vllm_advisor.memory.remedies import remedies  # noqa: PLC0415

    (node, model, _, surface), plan, budget = found.case
    refused = {f.rule for f in objections(model, plan, node, surface, budget)}
    return tuple(
        r
        for r in remedies(model, plan, node, surface, budget)
        if refused.issuperset(f.rule for f in objections(model, r.plan, node, surface, r.budget))
    )


# Plan fields and the options that set them. Fewer bits are not among them: they cost accuracy, so the owner decides.
_OPTIONS = (
    ("gpu_memory_utilization", _SHARE),
    ("max_num_seqs", _SEQS),
    ("max_num_batched_tokens", "--max-num-batched-tokens"),
    ("max_model_len", _LENGTH),
    ("tensor_parallel_size", "--tensor-parallel-size"),
    ("pipeline_parallel_size", "--pipeline-parallel-size"),
)


def _written(found: Judged, remedy: Remedy) -> Change | None:
    """The remedy as one change of the command, None where it takes several, fewer bits or another checkpoint."""
    before, after, given = found.case.plan, remedy.plan, found.asked
    if any(_differs(before, after, field) for field in ("checkpoint", "kv_cache_dtype", "quantization")):
        return None
    changes = [mend.put(given, name, str(getattr(after, f))) for f, name in _OPTIONS if _differs(before, after, f)]
    if after.enforce_eager and not before.enforce_eager:
        changes.append(mend.add(given, "--enforce-eager"))
    end = len(given.reading.invocation.argv)
    if len(changes) > 1 and any(c.word != end for c in changes):
        return None
    return Change(changes[0].word, changes[0].end, tuple(w for c in changes for w in c.words)) if changes else None


def _differs(before: Plan, after: Plan, field: str) -> bool:
    return bool(getattr(before, field) != getattr(after, field))


def _unmodelled(given: Asked) -> Iterator[Finding]:
    said = [f"{name} ({why})" for name, why, _ in _LEFT_OUT if _given(given, name)]
    if given.speculative is not None and _draft_is_elsewhere(given):
        said.append("--speculative-config (the draft model's weights and cache are not counted)")
    if said:
        yield mend.said("MEM-12", f"the memory estimate leaves out {'; '.join(said)}", given, level=NOTE)


def _given(given: Asked, name: str) -> bool:
    setting = given.last(name)
    if setting is None:
        return bool(mapping(given.reading, name))
    return (setting.value or "1").strip() not in ("0", "0.0", "1" if name.endswith("-parallel-size") else "")


def _draft_is_elsewhere(given: Asked) -> bool:
    """A draft model of its own: neither layers of the checkpoint nor a lookup in the prompt."""
    return draft(given) not in ("mtp", "eagle", "ngram", "ngram_gpu", "suffix")
