"""The knobs around ranked plans, each with the values that are legal here: by version, device, model and effort.

Breadth 1 turns what every search turns, 2 each knob once, 3 every value of it. What no plan could have, because a rule
vetoes it for all of them, is not among the values; what only some can is left to `Space.objection`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.candidates import Layout, Restrictions, layouts
from vllm_advisor.hardware import Vendor
from vllm_advisor.vllm import environment


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vllm_advisor.facts import Facts, Ranked
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.profile import Scalar

BIND = "VLLM_CPU_OMP_THREADS_BIND"
SPECULATIVE = "--speculative-config"
DTYPE = "--dtype"
FP32 = "float32"
# Flags of processors that multiply in BF16 (x86-64, Arm); others convert every number first.
_BF16_UNITS = frozenset(("avx512_bf16", "amx_bf16", "bf16"))
# Tokens that a draft proposes at once, and the window of n-gram lookup: starting points of ours, to be measured.
_NGRAM_TOKENS, _NGRAM_MORE, _NGRAM_WINDOW = 3, (5,), 4
_DRAFT_TOKENS, _DRAFT_MORE = 3, (2, 5)
_MOST_LAYOUTS = 4  # at breadth 2, beyond the plans' own: a choice of ours


class Knob(NamedTuple):
    """One thing to change. `ordered`: neighbours in the list are neighbours in effect. `default`: what a plan has."""

    name: str
    values: tuple[Scalar, ...]
    default: Scalar
    ordered: bool = False

    def neighbours(self, value: Scalar) -> tuple[Scalar, ...]:
        """The next values on both sides; every other one of a knob without order."""
        if not self.ordered:
            return tuple(other for other in self.values if other != value)
        at = self.values.index(value)
        return (*self.values[max(0, at - 1) : at], *self.values[at + 1 : at + 2])


class Around(NamedTuple):
    """What knobs are made for: facts, ranked plans, breadth, whether prompts are real text, drafts that the user has.

    `stands` says of a plan with its model whether no rule vetoes it.
    """

    facts: Facts
    plans: Sequence[tuple[int, Ranked]]
    breadth: int
    texts: bool
    drafts: tuple[str, ...]
    stands: Callable[[Plan, ModelSpec], bool]

    @property
    def on_processor(self) -> bool:
        """Whether the device is a CPU."""
        return self.facts.node.gpu.vendor is Vendor.CPU


def processor(around: Around, *, eager: bool) -> Iterator[Knob]:
    """What matters most on a CPU, and no model of ours predicts: whether vLLM compiles, which takes minutes, and FP32.

    Checkpoints of 16 bits are served in 16 bits by themselves. Without units for BF16 that is emulated, FP32 is not.
    """
    facts, plans = around.facts, around.plans
    if not eager:
        yield Knob("enforce_eager", (True, False), plans[0][1].plan.enforce_eager)
    flags = facts.node.host.cpu_flags
    if flags and not _BF16_UNITS.intersection(flags) and any(in_sixteen_bits(ranked) for _, ranked in plans):
        yield Knob("dtype", (FP32, None), FP32)


def in_sixteen_bits(ranked: Ranked) -> bool:
    """Whether all of the weights are computed with in 16 bits, unless told."""
    whole = ranked.plan.quantization is None and ranked.model.quantization.method == "none"
    return whole and ranked.model.dtype in ("bfloat16", "float16")


def more(around: Around) -> Iterator[Knob]:
    """Every knob beyond the batch limits."""
    yield from (_threads if around.on_processor else _device)(around)
    yield from _everywhere(around)
    yield from _speculation(around)


def _threads(around: Around) -> Iterator[Knob]:
    """On a CPU: where threads run (utils/ompmultiprocessing.py: auto takes a thread a core and leaves a core free)."""
    facts, first = around.facts, around.plans[0][1].plan
    if facts.vllm.has_env(BIND) and first.world_size == 1:
        cores = facts.node.host.cores
        known = cores if isinstance(cores, int) else 1
        every = (f"0-{known - 1}",) if known > 1 else ()
        half = (f"0-{known // 2 - 1}",) if known > 3 and around.breadth > 2 else ()
        yield Knob("threads", (None, "nobind", *every, *half), None)


def _device(around: Around) -> Iterator[Knob]:
    """On a GPU: layout, KV dtype, and which batch sizes have a graph (0.33.0 config/vllm.py:2452-2590)."""
    facts, plans = around.facts, around.plans
    for name, found in (("layout", _layouts(around)), ("kv_cache_dtype", _kv_dtypes(around))):
        if found:
            yield Knob(name, (None, *found), None)
    if facts.vllm.has_flag("--performance-mode"):
        modes = dict.fromkeys((plans[0][1].plan.performance_mode, None, "interactivity"))
        yield Knob("performance_mode", tuple(modes), plans[0][1].plan.performance_mode)
    if facts.vllm.has_flag("--max-cudagraph-capture-size"):
        most = max(ranked.plan.max_num_seqs for _, ranked in plans)
        small = (max(1, most // 2),) if around.breadth > 2 else ()
        yield Knob("graph_size", (None, *dict.fromkeys((*small, most, 2 * most))), None)


def _layouts(around: Around) -> tuple[str, ...]:
    """Other splits over as many devices as a plan uses; pipelines and split caches only where all is tried."""
    plans, wide = around.plans, around.breadth > 2
    sizes = {ranked.plan.world_size for _, ranked in plans}
    found: dict[str, None] = {}
    for _, ranked in plans:
        for layout in layouts(around.facts, ranked.model, Restrictions()):
            plan = split(ranked.plan, layout)
            simple = layout.pp == layout.dcp == 1 and not layout.eplb
            if plan.world_size in sizes and (simple or wide) and around.stands(plan, ranked.model):
                found[plan.layout + _eplb(layout)] = None
    own = {ranked.plan.layout + (" EPLB" if ranked.plan.enable_eplb else "") for _, ranked in plans}
    others = [name for name in found if name not in own]
    kept = others if wide else others[:_MOST_LAYOUTS]
    # The plans' own stand in the list too: plan 1's checkpoint and format with plan 2's layout.
    return (*sorted(own), *kept) if kept or len(own) > 1 else ()


def _eplb(layout: Layout) -> str:
    """What a layout's name lacks."""
    return " EPLB" if layout.eplb else ""


def named(text: str) -> Layout:
    """The layout of a name: `TP4 DP2 EP8`."""
    parts = {part.rstrip("0123456789"): part.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for part in text.split()}
    sizes = {name: int(parts.get(name) or 1) for name in ("TP", "PP", "DP", "DCP")}
    return Layout(sizes["TP"], sizes["PP"], sizes["DP"], "EP" in parts, "EPLB" in parts, sizes["DCP"])


def split(plan: Plan, layout: Layout) -> Plan:
    """The plan in another layout, which lets as many sequences run: the limit is one of each data-parallel rank."""
    return replace(
        plan,
        max_num_seqs=-(-plan.max_num_seqs * plan.data_parallel_size // layout.dp),
        tensor_parallel_size=layout.tp,
        pipeline_parallel_size=layout.pp,
        data_parallel_size=layout.dp,
        decode_context_parallel_size=layout.dcp,
        enable_expert_parallel=layout.ep,
        enable_eplb=layout.eplb,
    )


def with_environment(plan: Plan, model: ModelSpec, facts: Facts) -> Plan:
    """The variables that a changed layout or format needs, as `candidates` gives them to every plan."""
    settings = environment.environment(plan, model, facts.node, facts.vllm)
    return replace(plan, env=tuple(sorted((s.name, s.value) for s in settings)))


def _kv_dtypes(around: Around) -> tuple[str, ...]:
    """Those that any plan may have: what the checkpoint asks for, and FP8 (0.33.0 config/cache.py CacheDType)."""
    facts = around.facts
    known = [name for name in ("auto", "fp8") if name in facts.vllm.kv_cache_dtypes]
    found = [
        name
        for name in known
        if any(around.stands(replace(ranked.plan, kv_cache_dtype=name), ranked.model) for _, ranked in around.plans)
    ]
    own = {ranked.plan.kv_cache_dtype for _, ranked in around.plans}
    return tuple(found) if set(found) - own or len(own) > 1 else ()


def _everywhere(around: Around) -> Iterator[Knob]:
    """Both are on by themselves where vLLM can: off is what is worth a look."""
    facts = around.facts
    if facts.vllm.has_flag("--async-scheduling"):
        yield Knob("async_scheduling", (None, False), None)
    if facts.vllm.has_flag("--enable-prefix-caching") and not facts.workload.shared_prefix_tokens:
        yield Knob("prefix_caching", (None, False), None)


def _speculation(around: Around) -> Iterator[Knob]:
    """Drafts, for real text only: how many proposals are accepted is a matter of the text.

    After random tokens a model falls into loops, which n-grams predict perfectly: such a gain would be nobody's.
    """
    if around.texts and around.facts.vllm.has_flag(SPECULATIVE):
        found = [_text(config) for config in _configs(around)]
        yield Knob("speculative", (None, *dict.fromkeys(found)), None)


def _configs(around: Around) -> Iterator[dict[str, Scalar]]:
    """N-grams always, the checkpoint's MTP layers (a multiple of them: config/speculative.py), the user's drafts."""
    wide = around.breadth > 2
    for number in (_NGRAM_TOKENS, *(_NGRAM_MORE if wide else ())):
        yield {"method": "ngram", "num_speculative_tokens": number, "prompt_lookup_max": _NGRAM_WINDOW}
    own = max(ranked.model.mtp_layers for _, ranked in around.plans)
    for times in (1, 2) if own else ():
        yield {"method": "mtp", "num_speculative_tokens": own * times}
    for draft in around.drafts:
        for number in (_DRAFT_TOKENS, *(_DRAFT_MORE if wide else ())):
            yield {"model": draft, "num_speculative_tokens": number}


def _text(config: dict[str, Scalar]) -> str:
    return json.dumps(config)


def method(config: str) -> str:
    """The method of a speculative configuration, "" where vLLM finds it out from the draft."""
    return str(json.loads(config).get("method", ""))


def speculation(config: str) -> str:
    """The same for people: `speculative ngram ×3`, or the draft's name."""
    found = json.loads(config)
    return f"speculative {found.get('method') or found.get('model')} ×{found.get('num_speculative_tokens', '?')}"
