"""How a comparison is shown: a table with a column a format, a bar of memory each, and what is behind each column."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.cli import output
from vllm_advisor.compare.compare import NOT_PUBLISHED
from vllm_advisor.compare.paths import EMULATED, NATIVE, NONE, PLAIN, WEIGHTS_ONLY
from vllm_advisor.hardware import Vendor
from vllm_advisor.memory.budget import DOES_NOT_FIT
from vllm_advisor.units import GIB, count, gib, significant


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vllm_advisor.compare.compare import Comparison, Row
    from vllm_advisor.compare.paths import Path
    from vllm_advisor.units import Interval

_ABREAST = 5  # columns that a line of 120 characters takes
_BAR = 48
_EMPTY = "-"
_FULL = (
    "Every column fills the share that vLLM may take (--gpu-memory-utilization): a smaller format shows as a larger KV "
    "cache, never as a smaller total."
)
_SET = "On a processor the KV cache is set to what the load needs (VLLM_CPU_KVCACHE_SPACE): it is equal in all columns."
_SPEEDS = "Speeds are estimates; ratios of 0.9 to 1.1 are within what they get wrong."


def lines(found: Comparison) -> list[str]:
    """The whole answer as text."""
    out = [*_header(found), ""]
    for start in range(0, len(found.rows), _ABREAST):
        out += [*_table(found, found.rows[start : start + _ABREAST]), ""]
    out += [*_bars(found), ""] if found.base else []
    for row in found.rows:
        out += _behind(found, row)
    return [*out, "", *output.wrapped("", f"{_SET if _on_processor(found) else _FULL} {_SPEEDS}")]


def _on_processor(found: Comparison) -> bool:
    return found.facts.node.gpu.vendor is Vendor.CPU


def _device(found: Comparison) -> str:
    return "the host" if _on_processor(found) else "one GPU"


def _header(found: Comparison) -> Iterator[str]:
    facts, load = found.facts, found.facts.workload
    yield output.bold(f"{facts.model.name} on {facts.node.label}, vLLM {facts.vllm.version}")
    context = f"{count(load.context)} asked for" if load.context else "the longest that fits"
    yield (
        f"{load.name}: {count(load.input_tokens)} tokens in, {count(load.output_tokens)} out, {load.concurrency} "
        f"requests at once, context {context}"
    )
    if found.layout:
        yield f"layout {found.layout}; {gib(facts.node.gpu.memory_bytes)} of memory; × is to {_base(found)}"
    yield from (output.dim(f"warning: {warning}") for warning in facts.node.warnings)


def _base(found: Comparison) -> str:
    return found.base.format.label if found.base else "nothing"


class _Line(NamedTuple):
    """One line of the table. `cell` is "" where the row has no such figure; `ratio` gives the number that × is of.

    `across`: the number means the same in another layout.
    """

    name: str
    cell: Callable[[Row], str]
    ratio: Callable[[Row], float] | None = None
    across: bool = False


def _table(found: Comparison, rows: tuple[Row, ...]) -> list[str]:
    head = ("", *(row.format.label for row in rows))
    return output.table([head, *((line.name, *(_cell(found, row, line) for row in rows)) for line in _lines(found))])


def _lines(found: Comparison) -> tuple[_Line, ...]:
    """What stands below each other; every cell copes with a row that has no memory or no speed."""
    return (
        _Line("verdict", _verdict),
        _Line("layout", lambda r: r.plan.layout if r.plan and r.budget else ""),
        _Line("weights, GiB", lambda r: _gib(r, "weights"), weights, across=True),
        _Line("activations", lambda r: _gib(r, "activation")),
        _Line("CUDA graphs", lambda r: _gib(r, "graphs")),
        _Line("KV cache, GiB", lambda r: _gib(r, "kv_cache"), room),
        _Line("KV bytes a token", _token_bytes, lambda r: r.budget.kv_bytes_per_token if r.budget else 0),
        _Line("longest request", lambda r: count(r.budget.max_context) if r.budget else ""),
        _Line(f"requests of {count(found.length)}", _together, lambda r: r.together),
        _Line("output tok/s", lambda r: _mid(r, "output_tok_s"), lambda r: speed(r, "output_tok_s")),
        _Line("  between", lambda r: _between(r, "output_tok_s")),
        _Line("ms a token", lambda r: _mid(r, "tpot_ms"), lambda r: speed(r, "tpot_ms")),
        _Line("  between", lambda r: _between(r, "tpot_ms")),
        _Line("arithmetic", lambda r: arithmetic(r.paths)),
    )


def _cell(found: Comparison, row: Row, line: _Line) -> str:
    shown = line.cell(row) or _EMPTY
    ratio = to_base(found, row, line.ratio, across=line.across) if line.ratio and shown != _EMPTY else None
    return f"{shown} ({ratio:.2f} ×)" if ratio is not None else shown


def to_base(found: Comparison, row: Row, of: Callable[[Row], float], *, across: bool) -> float | None:
    """The row's number as a multiple of the base's. None: of the base itself, and where layouts differ but `across`."""
    base = found.base
    if base is None or row is base or not row.budget:
        return None
    alike = bool(base.plan and row.plan and base.plan.layout == row.plan.layout)
    return of(row) / of(base) if of(base) > 0 and of(row) > 0 and (alike or across) else None


def weights(row: Row) -> float:
    """Of a whole replica, so that layouts can be compared."""
    return row.replica_weights


def _verdict(row: Row) -> str:
    if row.moved and row.plan:
        return f"fits with {row.plan.layout}"
    return f"{row.verdict}, needs TP{row.needs}" if row.needs else row.verdict


def _gib(row: Row, name: str) -> str:
    if row.budget is None:
        return ""
    value = getattr(row.budget, name)
    size = value if isinstance(value, int) else value.mid
    return f"{size / GIB:,.1f}" if size > 0 or name == "graphs" else "none is left"


def room(row: Row) -> float:
    return max(0.0, row.budget.kv_cache.mid) if row.budget else 0.0


def _token_bytes(row: Row) -> str:
    return count(row.budget.kv_bytes_per_token) if row.budget else ""


def _together(row: Row) -> str:
    return f"{row.together:,.1f}" if row.budget else ""


def _interval(row: Row, name: str) -> Interval | None:
    return getattr(row.estimate, name) if row.estimate else None


def _mid(row: Row, name: str) -> str:
    value = _interval(row, name)
    return significant(value.mid) if value else ""


def speed(row: Row, name: str) -> float:
    value = _interval(row, name)
    return value.mid if value else 0.0


def _between(row: Row, name: str) -> str:
    value = _interval(row, name)
    return f"{significant(value.low)} to {significant(value.high)}" if value else ""


def arithmetic(found: tuple[Path, ...]) -> str:
    """`8 bits, native`; two parts that differ are both said, the experts behind."""
    words = dict.fromkeys(_arithmetic(path) for path in found)
    return "; ".join(words)


def _arithmetic(path: Path) -> str:
    if path.kind == NONE:
        return "no kernel"
    return "16 bits" if path.kind == PLAIN else f"{path.bits} bits, {path.kind}"


_KINDS = {
    PLAIN: "multiplies in 16 bits",
    NATIVE: "the device multiplies the stored format itself",
    WEIGHTS_ONLY: "unpacks inside the kernel: less to hold and to read, no arithmetic saved",
    EMULATED: "emulated, unpacked to 16 bits in a step of its own: rules trust its estimate little (QNT-14)",
    NONE: "no kernel takes it",
}


def _behind(found: Comparison, row: Row) -> list[str]:
    """Where the weights come from, which kernels run, what it costs in accuracy; or why it does not run."""
    out = output.wrapped("", f"{output.bold(row.format.label)}: {_origin(row)}")
    for reason in row.reasons:
        out += output.wrapped("    ", f"{reason.rule}: {reason.message} [{reason.source}]")
    if row.verdict == DOES_NOT_FIT:
        out += output.wrapped("    ", _larger(found, row))
    for path in row.paths if row.budget else ():
        kind = _KINDS.get(path.kind, f"multiplies in {path.bits} bits")
        out += output.wrapped("    ", f"{path.part} in {path.scheme} through {path.kernel or 'no kernel'}: {kind}")
    for note in row.accuracy if row.budget else ():
        out += output.wrapped("    ", f"accuracy: {note}")
    return out


def _larger(found: Comparison, row: Row) -> str:
    if row.needs:
        return f"it fits from TP{row.needs} on: {row.needs} × {found.facts.node.gpu.name}"
    return "" if _on_processor(found) else "not on more of these devices either, up to TP64"


def _origin(row: Row) -> str:
    if row.model is None:
        return "no such checkpoint is known of this model, and vLLM converts to it from none"
    if row.verdict == NOT_PUBLISHED:
        return "no such checkpoint is known of this model, and what there is cannot be converted"
    flag = row.plan.quantization if row.plan else None
    how = f"converted while loading (--quantization {flag})" if flag else "as published"
    cache = f", --kv-cache-dtype {row.plan.kv_cache_dtype}" if row.plan and row.plan.kv_cache_dtype != "auto" else ""
    return f"{row.model.name}, {how}{cache}"


def _bars(found: Comparison) -> Iterator[str]:
    """One bar a format on the scale of the device's memory."""
    marks = "█▓░·" if output.utf8() else "Wok."
    yield output.bold(f"Memory of {_device(found)}") + (
        f"  {marks[0]} weights  {marks[1]} activations, graphs, libraries  {marks[2]} KV cache  {marks[3]} not taken"
    )
    rows = [row for row in found.rows if row.budget]
    width = max(len(row.format.label) for row in rows)
    for row in rows:
        yield f"  {row.format.label:<{width}}  {_bar(row, marks)}  {_sizes(row)}"


def _bar(row: Row, marks: str) -> str:
    """What is more than the device ends in a >."""
    budget = row.budget
    if budget is None:
        return ""
    rest = budget.activation.mid + budget.graphs.mid + budget.non_torch.mid
    ends = [budget.weights, budget.weights + rest, budget.weights + rest + max(0.0, budget.kv_cache.mid)]
    places = [round(end / budget.total * _BAR) for end in ends]
    cells = [next((m for m, end in zip(marks, places, strict=False) if at < end), marks[3]) for at in range(_BAR)]
    return "".join(cells[:-1] if places[1] > _BAR else cells) + (">" if places[1] > _BAR else "")


def _sizes(row: Row) -> str:
    budget = row.budget
    return f"{gib(budget.weights)} + {gib(max(0.0, budget.kv_cache.mid))} KV" if budget else ""
