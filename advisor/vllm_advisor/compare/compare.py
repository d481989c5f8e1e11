"""Facts and formats → one row a format, all at the same layout where they fit: memory, load, speed, kernels, accuracy.

Each row is a plan of `recommend`'s: judged by the same rules, its memory and speed from the same models. The layout is
that of the best plan of the first format that fits; a format that does not fit it takes its own best, and says so.
vLLM fills its share of the memory in every row: what a format saves shows in the KV cache, never in the total.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.candidates import Restrictions
from vllm_advisor.compare.formats import BASE, sources
from vllm_advisor.compare.paths import Path, accuracy, paths
from vllm_advisor.facts import Case, Facts
from vllm_advisor.hardware import Vendor
from vllm_advisor.memory.budget import CANNOT_TELL, DOES_NOT_FIT, FITS, budget
from vllm_advisor.recommend import recommend
from vllm_advisor.vllm import plugin


if TYPE_CHECKING:
    from vllm_advisor.compare.formats import Format, Source
    from vllm_advisor.facts import Estimate, Finding, MemoryBudget, Ranked, Rejected
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.plan import LaunchCommand, Plan

NOT_SUPPORTED, NOT_PUBLISHED = "not supported", "not published"
_QUANTIZED = "QNT-08"  # what is quantized already is converted to nothing: only a checkpoint would do
_LARGEST_TP = 64
_VARIANTS = 4  # plans of one TP, PP and DP: with or without EPLB and decode context parallelism


class Row(NamedTuple):
    """One format. `verdict`: fits, does not fit, not supported, not published or cannot tell; `reasons` say why not.

    `moved`: it fits, and only in another layout than that of the comparison. `needs`: ranks of TP that would hold it,
    0 where it fits or none would. `together`: requests of the comparison's length in the KV cache at once.
    `budget` is that of one GPU, for a plan that does not fit too; None where there is nothing to load.
    """

    format: Format
    verdict: str
    model: ModelSpec | None = None
    plan: Plan | None = None
    budget: MemoryBudget | None = None
    together: float = 0.0
    estimate: Estimate | None = None
    command: LaunchCommand | None = None
    reasons: tuple[Finding, ...] = ()
    paths: tuple[Path, ...] = ()
    accuracy: tuple[str, ...] = ()
    moved: bool = False
    needs: int = 0

    @property
    def fits(self) -> bool:
        """Whether it may run."""
        return self.verdict == FITS

    @property
    def replica_weights(self) -> int:
        """Bytes of weights on all ranks of a replica, the limiting one's times their number."""
        if self.plan is None or self.budget is None:
            return 0
        return self.budget.weights * self.plan.tensor_parallel_size * self.plan.pipeline_parallel_size


class Comparison(NamedTuple):
    """All rows at one load. `layout` is the common one, `length` the tokens of a request that `together` counts."""

    facts: Facts
    layout: str
    length: int
    rows: tuple[Row, ...]

    @property
    def base(self) -> Row | None:
        """The row that ratios are to: BF16, or the first that has a memory at all."""
        known = [row for row in self.rows if row.budget]
        return next((row for row in known if row.format == BASE), known[0] if known else None)


class _Tried(NamedTuple):
    """One source in one layout: accepted or rejected."""

    source: Source
    plan: Plan
    budget: MemoryBudget
    findings: tuple[Finding, ...]
    ranked: Ranked | None


class _Search(NamedTuple):
    """What all rows are about. `known` keeps answers: a format that fits nowhere is asked about twice."""

    facts: Facts
    limits: Restrictions
    known: dict[tuple[Format, str, str | None, Restrictions, int], list[_Tried]]

    @property
    def free(self) -> Restrictions:
        """The limits with any layout."""
        return self.limits._replace(
            tensor_parallel_size=None, pipeline_parallel_size=None, data_parallel_size=None, expert_parallel=None
        )

    def tries(self, source: Source, form: Format, limits: Restrictions, top: int = 1) -> list[_Tried]:
        """The source in the layouts that the limits leave: the best `top`, and all that are refused."""
        key = (form, source.model.name, source.flag, limits, top)
        if key not in self.known:
            self.known[key] = _tries(self.facts, source, form, limits, top)
        return self.known[key]

    def alike(self, source: Source, form: Format, common: Plan) -> list[_Tried]:
        """The source in the common layout."""
        asked = self.limits._replace(
            tensor_parallel_size=common.tensor_parallel_size,
            pipeline_parallel_size=common.pipeline_parallel_size,
            data_parallel_size=common.data_parallel_size,
            expert_parallel=common.enable_expert_parallel,
        )
        return [t for t in self.tries(source, form, asked, _VARIANTS) if t.plan.layout == common.layout]


def compare(
    facts: Facts, checkpoints: tuple[ModelSpec, ...], wanted: tuple[Format, ...], fixed: Restrictions | None = None
) -> Comparison:
    """A row for each wanted format, in their order. `checkpoints`: the asked model first, then its siblings.

    `fixed` may fix a layout and limits; its formats are not looked at. Pure: the same facts give the same rows.
    """
    search = _Search(facts, (fixed or Restrictions())._replace(siblings=False), {})
    found = {form: sources(facts, checkpoints, form) for form in wanted}
    common = _common(search, found)
    rows = tuple(_row(search, form, found[form], common) for form in wanted)
    return Comparison(facts, common.layout if common else "", _length(facts), rows)


def _length(facts: Facts) -> int:
    load = facts.workload
    return load.context or load.input_tokens + load.output_tokens


def _common(search: _Search, found: dict[Format, tuple[Source, ...]]) -> Plan | None:
    """The plan whose layout all share: of the first format that fits, else of what lacks least."""
    nearest: _Tried | None = None
    every = [(form, source) for form, origins in found.items() for source in origins]
    for form, source in sorted(every, key=lambda pair: not pair[1].offered):
        best = _best(search.tries(source, form, search.limits))
        if best and best.ranked:
            return best.plan
        nearest = nearest or best
    return nearest.plan if nearest else None


def _row(search: _Search, form: Format, origins: tuple[Source, ...], common: Plan | None) -> Row:
    if not origins or common is None:
        return Row(form, NOT_PUBLISHED)
    here = _best([t for source in origins for t in search.alike(source, form, common)])
    if here and (here.ranked or not here.source.offered):
        return _told(search.facts, form, here) if here.ranked else _refusal(search, form, here, origins)
    elsewhere = _best([t for source in origins for t in search.tries(source, form, search.free)])
    if elsewhere and elsewhere.ranked:
        return _told(search.facts, form, elsewhere)._replace(moved=True)
    tried = here or elsewhere
    return _refusal(search, form, tried, origins) if tried else Row(form, NOT_PUBLISHED)


def _tries(facts: Facts, source: Source, form: Format, limits: Restrictions, top: int) -> list[_Tried]:
    asked = limits._replace(
        quantization=source.flag or "none",
        kv_cache_dtype=form.kv or _sixteen_bits(source.model),
        allow_plugin=source.flag == plugin.NAME,
    )
    answer = recommend(facts._replace(model=source.model), (), asked, top)
    taken = [_Tried(source, p.plan, p.budget, p.findings, p) for p in answer.plans]
    return taken + [_refused(source, rejected) for rejected in answer.rejected]


def _refused(source: Source, rejected: Rejected) -> _Tried:
    return _Tried(source, rejected.plan, rejected.budget, rejected.findings, None)


def _sixteen_bits(model: ModelSpec) -> str:
    """A checkpoint that asks for a quantized cache is told otherwise."""
    return model.dtype if model.quantization.kv_cache_dtype else "auto"


def _best(tried: list[_Tried]) -> _Tried | None:
    """The accepted one that ranks first; else what lacks least: refused for memory alone, first named, split most."""
    taken = [t for t in tried if t.ranked]
    if taken:
        return max(taken, key=_score)
    order = list(dict.fromkeys(_origin(t) for t in tried))
    return min(tried, key=lambda t: (len(_others(t)), order.index(_origin(t)), *_width(t)), default=None)


def _width(tried: _Tried) -> tuple[float, ...]:
    """Least for the most ranks of TP, then for the most room."""
    return -tried.plan.tensor_parallel_size, -tried.budget.kv_cache.mid


def _origin(tried: _Tried) -> tuple[str, str | None]:
    return tried.source.model.name, tried.source.flag


def _score(tried: _Tried) -> float:
    return tried.ranked.score if tried.ranked else 0.0


def _vetoes(tried: _Tried) -> tuple[Finding, ...]:
    return tuple(f for f in tried.findings if f.level == "veto")


def _others(tried: _Tried) -> tuple[Finding, ...]:
    return tuple(f for f in _vetoes(tried) if not f.rule.startswith("MEM-"))


def _refusal(search: _Search, form: Format, tried: _Tried, origins: tuple[Source, ...]) -> Row:
    """A row that may not run. What this version cannot load has no memory to speak of."""
    reasons = _others(tried)
    if reasons:
        verdict = NOT_PUBLISHED if any(f.rule == _QUANTIZED for f in reasons) else NOT_SUPPORTED
        return Row(form, verdict, tried.source.model, tried.plan, reasons=reasons)
    row = _told(search.facts, form, tried)._replace(reasons=_vetoes(tried))
    if tried.budget.verdict == CANNOT_TELL:
        return row._replace(verdict=CANNOT_TELL)
    return row._replace(verdict=DOES_NOT_FIT, needs=_needs(search, form, origins))


def _told(facts: Facts, form: Format, tried: _Tried) -> Row:
    model, ranked = tried.source.model, tried.ranked
    case = Case(facts._replace(model=model), tried.plan, tried.budget)
    return Row(
        form,
        FITS,
        model,
        tried.plan,
        tried.budget,
        _together(case),
        ranked.estimate if ranked else None,
        ranked.command if ranked else None,
        (),
        paths(case),
        accuracy(case, tried.findings),
    )


def _together(case: Case) -> float:
    """Requests of the comparison's length, whatever length the plan allows."""
    facts, plan = case.facts, case.plan
    length = _length(facts)
    if case.budget.kv_cache.mid <= 0:
        return 0.0
    at = replace(plan, max_model_len=length, auto_max_model_len=False)
    return budget(facts.model, at, facts.node, facts.vllm).max_concurrency * plan.data_parallel_size


def _needs(search: _Search, form: Format, origins: tuple[Source, ...]) -> int:
    """Ranks of TP on more such devices than the machine has, 0: none up to 64 would do."""
    node = search.facts.node
    if node.gpu.vendor is Vendor.CPU:
        return 0
    ranks = 1
    while ranks <= _LARGEST_TP:
        if ranks > node.world and _holds(search, form, origins, ranks):
            return ranks
        ranks *= 2
    return 0


def _holds(search: _Search, form: Format, origins: tuple[Source, ...], ranks: int) -> bool:
    """Whether so many of these devices in one machine would do."""
    node = search.facts.node
    larger = search.facts._replace(node=replace(node, gpus=(node.gpu,) * ranks, count=1))
    one = search.free._replace(tensor_parallel_size=ranks, pipeline_parallel_size=1, data_parallel_size=1)
    return any(t.ranked for source in origins for t in _tries(larger, source, form, one, 1))
