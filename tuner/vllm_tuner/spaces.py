"""The space of a search: what may be changed around the plans that `recommend` ranks, and what a point means for vLLM.

A plan brings what rules and memory have judged; the knobs around it (`knobs`) are those whose best value no model
predicts. Only flags and variables of the asked version are in it, and a point that a rule vetoes, or that our own
`check` of the command calls an error, is never tried.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor import tuned_kernels
from vllm_advisor.check import report
from vllm_advisor.check.finding import ERROR
from vllm_advisor.check.invocation import Invocation
from vllm_advisor.check.loaded import in_dtype
from vllm_advisor.errors import BadInput
from vllm_advisor.estimate.draft import drafted
from vllm_advisor.facts import Case
from vllm_advisor.memory.budget import budget
from vllm_advisor.plan import Plan
from vllm_advisor.rules.engine import judge
from vllm_advisor.vllm.command import build
from vllm_advisor.vllm.defaults import serve_defaults
from vllm_tuner.knobs import (
    BIND,
    DTYPE,
    FP32,
    SPECULATIVE,
    Around,
    Knob,
    in_sixteen_bits,
    method,
    more,
    named,
    processor,
    speculation,
    split,
    with_environment,
)
from vllm_tuner.trial import Candidate


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm_advisor.facts import Facts, Ranked
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.plan import LaunchCommand
    from vllm_advisor.profile import Scalar, Settings

__all__ = ["Knob", "Point", "Space", "defaults", "flags_note", "label", "space"]

# One value a knob, in the order of the space's knobs.
Point = tuple["Scalar", ...]

_LEAST_TOKENS = 256  # below it one prompt takes many steps: a bound of ours
# Fields of Plan that a knob sets under its own name.
_FIELDS = ("max_num_seqs", "max_num_batched_tokens", "enforce_eager", "performance_mode")


class Space(NamedTuple):
    """Plans and the knobs around them. `plans` are (number in `recommend`'s answer, ranked)."""

    facts: Facts
    plans: tuple[tuple[int, Ranked], ...]
    knobs: tuple[Knob, ...]

    @property
    def size(self) -> int:
        """Points, vetoed ones included."""
        count = 1
        for knob in self.knobs:
            count *= len(knob.values)
        return count

    def starts(self) -> tuple[Point, ...]:
        """Each ranked plan as it was recommended; in FP32 on a processor that emulates BF16."""
        return tuple(self._start(number, ranked.plan) for number, ranked in self.plans)

    def _start(self, number: int, plan: Plan) -> Point:
        own = {"plan": number} | {name: getattr(plan, name) for name in _FIELDS}
        return tuple(own.get(knob.name, knob.default) for knob in self.knobs)

    def openings(self) -> tuple[Point, ...]:
        """What is worth a look before anything is known: the starts, and each as vLLM would compile it by itself."""
        at = next((i for i, knob in enumerate(self.knobs) if knob.name == "enforce_eager"), None)
        starts = self.starts()
        compiled = () if at is None else tuple((*start[:at], False, *start[at + 1 :]) for start in starts)
        return tuple(dict.fromkeys((*starts[:1], *compiled[:1], *starts, *compiled)))

    def points(self) -> Iterator[Point]:
        """All of them: those that differ least from an opening first."""
        starts = self.openings()
        every = sorted(product(*(knob.values for knob in self.knobs)), key=lambda point: _apart(point, starts))
        yield from every

    def neighbours(self, point: Point) -> tuple[Point, ...]:
        """The points that are one step of one knob away."""
        return tuple(
            (*point[:i], value, *point[i + 1 :])
            for i, knob in enumerate(self.knobs)
            for value in knob.neighbours(point[i])
        )

    def candidate(self, point: Point) -> Candidate:
        """What a point means for vLLM."""
        chosen = {knob.name: value for knob, value in zip(self.knobs, point, strict=True)}
        ranked = dict(self.plans)[int(chosen.pop("plan", None) or self.plans[0][0])]
        if not in_sixteen_bits(ranked):
            chosen.pop("dtype", None)
        fields = {name: chosen[name] for name in _FIELDS if name in chosen}
        plan = _shaped(replace(ranked.plan, **fields), ranked.model, chosen, self.facts)  # type: ignore[arg-type]
        if chosen.get("threads"):
            plan = replace(plan, env=tuple(sorted({**dict(plan.env), BIND: str(chosen["threads"])}.items())))
        return Candidate(plan, tuple(sorted(_flags(chosen))))

    def model(self, candidate: Candidate) -> ModelSpec:
        """The checkpoint that it loads, in the dtype that it is served in."""
        known = {ranked.model.name: ranked.model for _, ranked in self.plans}
        model = known.get(candidate.plan.checkpoint, self.facts.model)
        return in_dtype(model, FP32) if (DTYPE, FP32) in candidate.flags else model

    def objection(self, candidate: Candidate) -> str:
        """Why it need not be tried: vLLM's own check, a veto of the rules, an error of `check`; "" for none."""
        plan = candidate.plan
        if plan.max_num_batched_tokens < plan.max_num_seqs:  # vLLM refuses it: config/scheduler.py:331 (0.33.0)
            return f"{plan.max_num_batched_tokens} tokens a step for {plan.max_num_seqs} sequences"
        model = self.model(candidate)
        speculative = dict(candidate.flags).get(SPECULATIVE)
        loaded = drafted(model, method(str(speculative))).spec if speculative else model
        return _veto(self.facts, plan, loaded) or self._refused(candidate, model)

    def _refused(self, candidate: Candidate, model: ModelSpec) -> str:
        """The first error that `advisor check` finds in the command."""
        try:
            command = self.command(candidate)
        except BadInput as missing:
            return missing.message
        invocation, facts = Invocation(command.argv, command.env), self.facts
        found = report.judge(invocation, facts.vllm, facts.node, model, None).findings
        return next((f"{f.id}: {f.text}" for f in found if f.level == ERROR), "")

    def command(self, candidate: Candidate) -> LaunchCommand:
        """The `vllm serve` of it. Raises BadInput for what the version lacks."""
        facts = self.facts
        model = self.model(candidate)
        built = build(candidate.plan, model, facts.node, facts.vllm, facts.workload)
        tuned = tuned_kernels.place()
        if tuned_kernels.holds(tuned, facts.node):
            built = tuned_kernels.with_file(built, model, candidate.plan, tuned)
        words = [word for flag, value in candidate.flags for word in ((flag,) if value is True else (flag, str(value)))]
        return replace(built, argv=(*built.argv, *words))


def _shaped(plan: Plan, model: ModelSpec, chosen: dict[str, Scalar], facts: Facts) -> Plan:
    """The plan with another layout or KV dtype, and the variables that it then needs."""
    layout, dtype = chosen.get("layout"), chosen.get("kv_cache_dtype")
    if not layout and not dtype:
        return plan
    plan = split(plan, named(str(layout))) if layout else plan
    return with_environment(replace(plan, kv_cache_dtype=str(dtype or plan.kv_cache_dtype)), model, facts)


def _veto(facts: Facts, plan: Plan, model: ModelSpec) -> str:
    case = Case(facts._replace(model=model), plan, budget(model, plan, facts.node, facts.vllm))
    return next((f"{f.rule}: {f.message}" for f in judge(case) if f.level == "veto"), "")


def _apart(point: Point, starts: Sequence[Point]) -> int:
    """Knobs that differ from the nearest start."""
    return min(sum(a != b for a, b in zip(point, start, strict=True)) for start in starts)


def _flags(chosen: dict[str, Scalar]) -> Iterator[tuple[str, Scalar]]:
    """What Plan has no field for; a default is not written."""
    if chosen.get("prefix_caching") is False:
        yield "--no-enable-prefix-caching", True
    if chosen.get("async_scheduling") is not None:
        yield ("--async-scheduling" if chosen["async_scheduling"] else "--no-async-scheduling"), True
    if chosen.get("graph_size"):
        yield "--max-cudagraph-capture-size", chosen["graph_size"]
    if chosen.get("dtype"):
        yield DTYPE, chosen["dtype"]
    if chosen.get("speculative"):
        yield SPECULATIVE, chosen["speculative"]


def space(
    facts: Facts,
    plans: Sequence[tuple[int, Ranked]],
    breadth: int,
    *,
    texts: bool = False,
    drafts: tuple[str, ...] = (),
    eager: bool = False,
) -> Space:
    """The space around ranked plans: what matters most at `breadth` 1, every knob of this version and device from 2 on.

    `texts`: prompts are real ones, so that speculative decoding can be judged; `drafts`: models to speculate with;
    `eager`: nothing is compiled.
    """
    first = plans[0][1].plan
    knobs = [
        Knob("plan", tuple(number for number, _ in plans), plans[0][0]),
        Knob("max_num_seqs", _sequences(facts, plans), first.max_num_seqs, ordered=True),
        Knob("max_num_batched_tokens", _batched(facts, plans), first.max_num_batched_tokens, ordered=True),
    ]
    around = Around(facts, plans, breadth, texts, drafts, lambda plan, model: not _veto(facts, plan, model))
    knobs += processor(around, eager=eager) if around.on_processor else ()
    return Space(facts, tuple(plans), (*knobs, *(more(around) if breadth > 1 else ())))


def _sequences(facts: Facts, plans: Sequence[tuple[int, Ranked]]) -> tuple[Scalar, ...]:
    """Half, all and twice of what the plans have, and vLLM's default."""
    found = {_default(facts, ranked.plan)[0] for _, ranked in plans}
    for _, ranked in plans:
        own = ranked.plan.max_num_seqs
        found |= {max(1, own // 2), own, own * 2}
    return tuple(sorted(found))


def _batched(facts: Facts, plans: Sequence[tuple[int, Ranked]]) -> tuple[Scalar, ...]:
    """Powers of two around the plans' own, as far as the load can fill a step."""
    load, found = facts.workload, set[int]()
    fullest = load.concurrency * load.input_tokens
    for _, ranked in plans:
        own = ranked.plan.max_num_batched_tokens
        around = (own // 4, own // 2, own * 2, own * 4)
        found |= {own, _default(facts, ranked.plan)[1]} | {n for n in around if _LEAST_TOKENS <= n <= 2 * fullest}
    return tuple(sorted(found))


def _default(facts: Facts, plan: Plan) -> tuple[int, int]:
    """(max_num_seqs, max_num_batched_tokens) that vLLM would take."""
    world = plan.tensor_parallel_size * plan.pipeline_parallel_size
    defaults = serve_defaults(facts.vllm, facts.node, world_size=world)
    return defaults.max_num_seqs, defaults.max_num_batched_tokens


def defaults(facts: Facts, plans: Sequence[tuple[int, Ranked]]) -> Candidate:
    """What vLLM does by itself with the model that was asked for: the incumbent.

    It gets only what it cannot do without: the context that is asked for, room for it (on a CPU, and beside other
    programs on a GPU), and the fewest devices that hold it.
    """
    first = plans[0][1].plan
    node, surface, model = facts.node, facts.vllm, facts.model
    found = serve_defaults(surface, node)
    plain = Plan(
        model.name,
        max_model_len=first.max_model_len,
        max_num_seqs=found.max_num_seqs,
        max_num_batched_tokens=found.max_num_batched_tokens,
        gpu_memory_utilization=min(found.gpu_memory_utilization, first.gpu_memory_utilization),
        kv_cache_memory_bytes=first.kv_cache_memory_bytes,
        block_size=first.block_size,
        auto_max_model_len=first.auto_max_model_len,
    )
    sizes = [tp for tp in (1, 2, 4, 8, 16) if tp <= len(node.gpus)]
    split = [_on(facts, plain, tp) for tp in sizes]
    return Candidate(next((plan for plan in split if budget(model, plan, node, surface).fits), split[0]))


def _on(facts: Facts, plain: Plan, tp: int) -> Plan:
    own = serve_defaults(facts.vllm, facts.node, world_size=tp)
    return replace(
        plain,
        tensor_parallel_size=tp,
        max_num_seqs=own.max_num_seqs,
        max_num_batched_tokens=own.max_num_batched_tokens,
    )


def label(candidate: Candidate, against: Plan | None = None) -> str:
    """`TP2, 64 seqs, 4096 tokens, KV fp8, --no-async-scheduling`: what tells candidates apart."""
    plan = candidate.plan
    parts = [plan.layout, f"{plan.max_num_seqs} seqs", f"{plan.max_num_batched_tokens} tokens"]
    parts += [plan.quantization] if plan.quantization else []
    parts += [f"KV {plan.kv_cache_dtype}"] if plan.kv_cache_dtype != "auto" else []
    parts += [plan.performance_mode] if plan.performance_mode else []
    parts += ["eager"] if plan.enforce_eager else []
    parts += [f"threads {value}" for name, value in plan.env if name == BIND]
    parts += [_flag(flag, value) for flag, value in candidate.flags]
    parts += [plan.checkpoint] if against and plan.checkpoint != against.checkpoint else []
    return ", ".join(parts)


def flags_note(flags: Settings) -> str:
    """The flags beyond a plan, as typed; "" for none."""
    return " ".join(flag if value is True else f"{flag} {shlex.quote(str(value))}" for flag, value in flags)


def _flag(flag: str, value: Scalar) -> str:
    if flag == SPECULATIVE:
        return speculation(str(value))
    return flag if value is True else f"{flag} {value}"
