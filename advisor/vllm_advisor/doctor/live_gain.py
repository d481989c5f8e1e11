"""Changes to a running server, each with what it is predicted to gain on the load that was observed.

A gain is the ratio of two estimates of ours, and its interval is as wide as such ratios have been wrong: over pairs of
public measurements that differ in that kind of setting alone. A change whose interval holds "no gain" is not offered.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.candidates import Restrictions, layouts
from vllm_advisor.estimate.configuration import objections
from vllm_advisor.facts import Facts
from vllm_advisor.memory.budget import budget as budget_of
from vllm_advisor.memory.weights import ONLINE_BITS
from vllm_advisor.throughput.estimate import estimate as speed_of
from vllm_advisor.units import Interval, count
from vllm_advisor.vllm import backends, environment


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.doctor.live_plan import Inferred
    from vllm_advisor.facts import Estimate, MemoryBudget
    from vllm_advisor.plan import Plan

BATCH, LAYOUT, WEIGHTS, OTHER = "batch", "layout", "weights", "other"


class Errors(NamedTuple):
    """Factors within which nine of ten measured gains lay of the predicted one; `pairs`: of how many (output rate)."""

    output: float
    first: float
    token: float
    pairs: int


# benchmarks/gain_pairs.py, over public serving measurements of equal model, device and version, rounded up. The speed
# model was fitted on some of these runs: nine tenths, where a fresh sample would ask for less.
ERRORS = {
    BATCH: Errors(1.5, 2.1, 3.0, 196),
    LAYOUT: Errors(1.6, 2.1, 1.8, 66),
    WEIGHTS: Errors(1.5, 3.0, 1.8, 41),
    OTHER: Errors(1.2, 1.7, 1.25, 54),
}
_MOST = 3
_UTILIZATION = 0.94  # the first step of memory/remedies.py
_SHORTEST = 1024
_BATCHED = (2048, 4096, 8192, 16_384, 32_768)


class Candidate(NamedTuple):
    """One change: `about` groups those of which one is enough; `flags` is what to type; `price` what it costs."""

    about: str
    kind: str
    words: str
    flags: str
    plan: Plan
    price: str = ""


class Change(NamedTuple):
    """A change worth trying: ratios after to before, each with its interval.

    Above 1 is better for `output` (tokens a second), below 1 for `ttft` and `tpot`.
    """

    candidate: Candidate
    budget: MemoryBudget
    output: Interval
    ttft: Interval
    tpot: Interval
    pairs: int


class Considered(NamedTuple):
    """The changes worth trying, best first, and in words those that were looked at and why they are not.

    `doubt`: how far the measured time per token lies outside our estimate's interval (1: inside); it widens every gain.
    """

    changes: tuple[Change, ...]
    others: tuple[str, ...]
    doubt: float = 1.0


def consider(found: Inferred, measured_tpot_ms: float | None = None) -> Considered:
    """All changes, judged. `measured_tpot_ms`: where it lies outside our estimate, gains are that much less sure."""
    doubt = _doubt(found.speed.tpot_ms, measured_tpot_ms)
    best: dict[str, _Judged] = {}
    for candidate in candidates(found):
        judged = _judged(found, candidate, doubt)
        if candidate.about not in best or judged.gain > best[candidate.about].gain:
            best[candidate.about] = judged
    ranked = sorted((j.change for j in best.values() if j.change), key=lambda change: -change.output.mid)
    others = tuple(f"{j.candidate.words}: {j.why}" for j in best.values() if not j.change)
    return Considered(tuple(ranked[:_MOST]), others, doubt)


class _Judged(NamedTuple):
    """A candidate with its predicted gain (0: none can be told), and the change that it makes or why it makes none."""

    candidate: Candidate
    gain: float
    change: Change | None
    why: str = ""


def _doubt(predicted: Interval, measured: float | None) -> float:
    if not measured or predicted.low <= 0:
        return 1.0
    return max(1.0, measured / predicted.high, predicted.low / measured)


def _judged(found: Inferred, candidate: Candidate, doubt: float) -> _Judged:
    """The change, or why it is none."""
    model, node, surface = found.model, found.node, found.surface
    raw = budget_of(model, candidate.plan, node, surface)
    held = raw if candidate.plan.kv_cache_memory_bytes else found.as_here(raw)
    vetoes = objections(model, candidate.plan, node, surface, raw)
    if vetoes:
        return _Judged(candidate, 0.0, None, vetoes[0].message)
    if not raw.fits or held.max_concurrency < 1:
        return _Judged(candidate, 0.0, None, "it would not fit")
    after = speed_of(model, candidate.plan, held, node, surface, found.workload)
    change = _change(candidate, held, found.speed, after, doubt)
    low, mid, high = change.output
    if low > 1:
        return _Judged(candidate, mid, change)
    why = f"predicted {mid:.2f} times as fast ({low:.2f} to {high:.2f}), no sure gain"
    return _Judged(candidate, mid, None, why)


def _change(candidate: Candidate, budget: MemoryBudget, now: Estimate, after: Estimate, doubt: float) -> Change:
    errors = ERRORS[candidate.kind]
    return Change(
        candidate,
        budget,
        _ratio(now.output_tok_s, after.output_tok_s, errors.output * doubt),
        _ratio(now.ttft_ms, after.ttft_ms, errors.first * doubt),
        _ratio(now.tpot_ms, after.tpot_ms, errors.token * doubt),
        errors.pairs,
    )


def _ratio(now: Interval, after: Interval, factor: float) -> Interval:
    mid = after.mid / now.mid if now.mid > 0 else 1.0
    return Interval(mid / factor, mid, mid * factor)


def candidates(found: Inferred) -> Iterator[Candidate]:
    """Everything that is looked at, in a fixed order."""
    yield from _sequences(found.plan)
    yield from _batched(found.plan)
    yield from _cache(found)
    yield from _weights(found)
    yield from _layouts(found)
    yield from _aiter(found)
    yield from _graphs(found)
    yield from _shorter(found)


def _sequences(plan: Plan) -> Iterator[Candidate]:
    for factor in (2, 4, 8):
        seqs = plan.max_num_seqs * factor
        if seqs <= plan.max_num_batched_tokens:
            changed = replace(plan, max_num_seqs=seqs)
            yield Candidate("seqs", BATCH, f"max_num_seqs {count(seqs)}", f"--max-num-seqs {seqs}", changed)


def _batched(plan: Plan) -> Iterator[Candidate]:
    for tokens in _BATCHED:
        if tokens != plan.max_num_batched_tokens and tokens >= plan.max_num_seqs:
            words, flags = f"max_num_batched_tokens {count(tokens)}", f"--max-num-batched-tokens {tokens}"
            yield Candidate("batched", OTHER, words, flags, replace(plan, max_num_batched_tokens=tokens))


def _cache(found: Inferred) -> Iterator[Candidate]:
    plan = found.plan
    own = plan.kv_cache_dtype in ("auto", "bfloat16", "float16") and not found.model.quantization.kv_cache_dtype
    if own and "fp8" in found.surface.kv_cache_dtypes:
        changed = replace(plan, kv_cache_dtype="fp8")
        price = "accuracy: without scales in the checkpoint they are 1.0; compare answers on long prompts"
        yield Candidate("kv", BATCH, "an FP8 KV cache", "--kv-cache-dtype fp8", changed, price)
    if plan.kv_cache_memory_bytes is None and plan.gpu_memory_utilization < _UTILIZATION:
        changed = replace(plan, gpu_memory_utilization=_UTILIZATION)
        flags = f"--gpu-memory-utilization {_UTILIZATION}"
        price = "memory that other processes on the device may need"
        yield Candidate("utilization", BATCH, f"gpu_memory_utilization {_UTILIZATION}", flags, changed, price)


def _weights(found: Inferred) -> Iterator[Candidate]:
    if found.plan.quantization is None:
        for name, scheme in backends.online_quantizations(found.surface, found.node.gpu.arch, found.model):
            changed = replace(found.plan, quantization=name)
            bits = int(ONLINE_BITS.get(name, 8))
            price = f"accuracy: weights are rounded to {bits} bits while loading; compare answers first"
            words = f"quantization {name} ({scheme})"
            yield Candidate("weights", WEIGHTS, words, f"--quantization {name}", changed, price)


def _layouts(found: Inferred) -> Iterator[Candidate]:
    """Other layouts on as many devices as the server uses."""
    plan = found.plan
    facts = Facts(found.node, found.model, found.workload, found.surface)
    for tp, pp, dp, ep, eplb, dcp in layouts(facts, found.model, Restrictions()):
        changed = replace(
            plan, tensor_parallel_size=tp, pipeline_parallel_size=pp, data_parallel_size=dp, enable_expert_parallel=ep,
            enable_eplb=eplb, decode_context_parallel_size=dcp,
        )  # fmt: skip
        if changed.world_size == plan.world_size and changed != plan:
            yield Candidate("layout", LAYOUT, changed.layout, _layout_flags(changed), changed)


def _layout_flags(plan: Plan) -> str:
    sizes = (
        ("--tensor-parallel-size", plan.tensor_parallel_size, 0),
        ("--pipeline-parallel-size", plan.pipeline_parallel_size, 1),
        ("--data-parallel-size", plan.data_parallel_size, 1),
        ("--decode-context-parallel-size", plan.decode_context_parallel_size, 1),
    )
    words = [f"{flag} {size}" for flag, size, default in sizes if size != default]
    words += ["--enable-expert-parallel"] * plan.enable_expert_parallel + ["--enable-eplb"] * plan.enable_eplb
    return " ".join(words)


def _aiter(found: Inferred) -> Iterator[Candidate]:
    settings = environment.environment(found.plan, found.model, found.node, found.surface)
    if settings and not found.plan.env:
        env = tuple((s.name, s.value) for s in settings)
        words = "AITER's kernels, if they are not on already (variables do not show)"
        flags = " ".join(f"{name}={value}" for name, value in env)
        yield Candidate("aiter", OTHER, words, flags, replace(found.plan, env=env))


def _graphs(found: Inferred) -> Iterator[Candidate]:
    if found.eager:
        words = "CUDA graphs, if it runs with --enforce-eager (the time per token looks like it)"
        changed = replace(found.plan, enforce_eager=False)
        yield Candidate("graphs", OTHER, words, "without --enforce-eager", changed, "a little memory for the graphs")


def _shorter(found: Inferred) -> Iterator[Candidate]:
    """The context halved, where requests stay far below it."""
    longest = found.workload.input_tokens + found.workload.output_tokens
    length = found.plan.max_model_len // 2
    if length >= max(_SHORTEST, 4 * longest):
        changed = replace(found.plan, max_model_len=length)
        price = "requests longer than this are refused"
        yield Candidate("length", BATCH, f"max_model_len {count(length)}", f"--max-model-len {length}", changed, price)
