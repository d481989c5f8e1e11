"""What `advisor doctor LOG` prints: the verdict and the fix first, then what vLLM found, then what we predict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_advisor import __version__
from vllm_advisor.cli import document, output
from vllm_advisor.doctor import command, diagnosis, remedies
from vllm_advisor.doctor.comparison import limiting
from vllm_advisor.doctor.failure import CONSEQUENCE, Change
from vllm_advisor.doctor.mask import mask
from vllm_advisor.units import count


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vllm_advisor.doctor.comparison import Comparison, Row
    from vllm_advisor.doctor.diagnosis import Finding
    from vllm_advisor.doctor.failure import Diagnosis
    from vllm_advisor.doctor.remedies import Fix
    from vllm_advisor.vllm.logs_facts import Facts

_MOST_RANKS = 8
_SHORT_OF_ROOM = 2.0  # requests of full length: fewer, and long requests wait for each other


def show(found: Finding, compared: Comparison) -> None:
    """The whole answer as text."""
    facts = found.start.facts
    lines = [*_header(found, facts), ""]
    if found.cause:
        lines += [*_failure(found, found.cause, compared), ""]
    elif found.verdict == diagnosis.UNKNOWN:
        lines += [*_last_errors(found), ""]
    lines += _section("What vLLM found", output.described(_printed(facts)))
    lines += _section("Advice", (line for text in advice(facts) for line in output.wrapped("  ", text)))
    lines += _compared(compared)
    output.write(line for line in lines[:-1] if line is not None)


def _header(found: Finding, facts: Facts) -> Iterator[str]:
    what = mask(facts.model or "a model that the log does not name", 200)
    yield output.bold(f"{what}, vLLM {facts.version or '(version not printed)'}")
    yield output.bold(_verdict(found))
    starts = f"{found.log.begun} starts in this log; this is about the last" if found.log.begun > 1 else ""
    if found.earlier:
        starts = f"{found.log.begun} starts in this log; the last got too short to tell, this is about the one before"
    yield from [starts] if starts else []


def _verdict(found: Finding) -> str:
    if found.cause:
        when = "It failed while serving" if found.start.facts.ready else "It did not start"
        return f"{when}: {found.cause.failure.name} ({found.cause.failure.id})."
    return {
        diagnosis.HEALTHY: "It started.",
        diagnosis.UNKNOWN: "It did not get ready, and none of the failures that we know is in this log.",
        diagnosis.UNFINISHED: "It was not ready where the log ends, and no error is in it: still starting, or cut off.",
    }[found.verdict]


def _failure(found: Finding, cause: Diagnosis, compared: Comparison) -> Iterator[str]:
    yield output.bold("Cause")
    yield from output.wrapped("  ", f"{cause.cause[:1].upper()}{cause.cause[1:]}.")
    yield from output.wrapped(f"  line {cause.line}: ", cause.quote)
    yield ""
    yield output.bold("Fix")
    yield from output.wrapped("  ", f"{cause.fix[:1].upper()}{cause.fix[1:]}.")
    yield from _fixes(found, cause, compared)
    others = found.failures[1:]
    if others:
        yield ""
        yield output.bold("Also in this log")
        for other in others:
            yield from output.wrapped(f"  {other.failure.id}  ", f"{other.failure.name} (line {other.line})")
    if cause.failure.weight == CONSEQUENCE and found.errors:
        yield ""
        yield from _last_errors(found)


def _fixes(found: Finding, cause: Diagnosis, compared: Comparison) -> Iterator[str]:
    ways = remedies.fixes(cause, found.start.facts, compared.estimated)
    for place, way in enumerate(ways):
        written = command.rebuilt(found.start.facts, way.change)
        yield ""
        words = way.words if way.words != cause.fix else "so"
        yield from output.wrapped("  or: " if place else "  ", f"{words[:1].upper()}{words[1:]} ({way.basis}):")
        yield f"    {written.text}" if written else f"    add to your command: {command.added(way.change)}"
        if written and written.lost and not place:
            yield from output.wrapped("    ", f"not repeated here: {', '.join(written.lost)}")


def _last_errors(found: Finding) -> Iterator[str]:
    yield output.bold("Its last words")
    for text in found.errors[-5:] or (mask(found.log.last),):
        yield from output.wrapped("  ", text)


def _section(title: str, lines: Iterable[str]) -> list[str]:
    body = list(lines)
    return [output.bold(title), *body, ""] if body else []


def _printed(facts: Facts) -> Iterator[tuple[str, str]]:
    """(label, value) of all that a log gave; nothing for what it did not."""
    asked = command.rebuilt(facts, Change()) if facts.args else None
    if asked:
        yield "  command", asked.text
    yield from _ranks(facts)
    yield from _cache(facts)
    for (part, _), backend in facts.backends.items():
        among = f" (of {', '.join(backend.candidates)})" if len(backend.candidates) > 1 else ""
        yield "  kernels", mask(f"{part}: {backend.name}{among}", 300)
    if facts.block_size:
        padding = f", states padded by {facts.page_padding:g} %" if facts.page_padding else ""
        yield "  blocks", f"{count(facts.block_size)} tokens each, so that a block holds a state{padding}"
    times = [(facts.compile_s, "to compile"), (facts.init_s, "from profiling to ready")]
    told = ", ".join(f"{value:.0f} s {what}" for value, what in times if value is not None)
    if told:
        yield "  times", told
    if facts.address:
        yield "  address", mask(facts.address, 200)


def _ranks(facts: Facts) -> Iterator[tuple[str, str]]:
    ranks = list(facts.ranks.values())
    for rank in ranks[:_MOST_RANKS]:
        parts = [
            (rank.weights_gib, "{:.2f} GiB of weights"),
            (rank.load_s, "loaded in {:.0f} s"),
            (rank.kv_gib, "{:.2f} GiB for the KV cache"),
            (rank.graphs_gib, "{:.2f} GiB of graphs"),
            (rank.graphs_estimated_gib, "{:.2f} GiB charged for graphs"),
        ]
        told = ", ".join(form.format(value) for value, form in parts if value is not None)
        if told:
            yield "  rank", f"{mask(rank.name, 60)}: {told}"
    if len(ranks) > _MOST_RANKS:
        yield "  rank", f"and {len(ranks) - _MOST_RANKS} more"
    memory = facts.memory
    if memory:
        yield (
            "  memory",
            (
                f"{memory.free:.2f} of {memory.total:.2f} GiB free at start, {memory.requested:.2f} GiB asked for "
                f"({memory.utilization:g}), {memory.activation or 0:.2f} GiB peak activation"
            ),
        )


def _cache(facts: Facts) -> Iterator[tuple[str, str]]:
    for pool in facts.pools.values():
        times = ""
        if pool.concurrency and pool.length:
            times = f", {pool.concurrency:.2f} requests of {count(pool.length)} tokens"
        yield "  KV cache", f"{mask(pool.engine, 60)} ({pool.device}): {count(pool.tokens)} tokens{times}"
    if facts.blocks is not None:
        yield "  KV cache", f"{count(facts.blocks)} blocks"
    if facts.auto_fit and facts.auto_fit[0] != facts.auto_fit[1]:
        yield "  context", f"vLLM cut it from {count(facts.auto_fit[0])} to {count(facts.auto_fit[1])} tokens to fit"


def advice(facts: Facts) -> Iterator[str]:
    """What a server that starts could do better, as far as its log shows."""
    pool = limiting(facts)
    if pool and pool.concurrency is not None and pool.concurrency < _SHORT_OF_ROOM:
        yield (
            f"The KV cache holds {pool.concurrency:.2f} requests of full length: long ones will wait for each other; "
            "lower --max-model-len to what is needed, or add devices"
        )
    if facts.unit_scales:
        yield "The FP8 cache runs with scales of 1.0, since the checkpoint brings none: check the answers' quality"
    missing = [name for name, is_there in facts.moe_configs.items() if not is_there]
    if missing:
        yield f"No tuned MoE kernel configuration for this device was found ({mask(missing[0], 160)}): tuning one helps"


def _compared(compared: Comparison) -> list[str]:
    title = output.bold("Against our prediction (the memory model's, for the same command)")
    if not compared.rows:
        return [output.dim(f"no prediction: {mask(compared.why_not, 300)}"), ""]
    rows = [("", "printed", "predicted", "difference"), *(_cells(row) for row in compared.rows)]
    said = [output.dim(f"  {mask(text, 300)}") for text in compared.assumed]
    return [title, *output.table(rows), *said, ""]


def _cells(row: Row) -> tuple[str, ...]:
    difference = "" if row.difference is None else f"{row.difference:+.1%}"
    between = "" if row.low is None or row.high is None else f" ({_figure(row, row.low)} to {_figure(row, row.high)})"
    return row.name, _shown(row, row.printed), _shown(row, row.predicted) + between, difference


def _shown(row: Row, value: float | None) -> str:
    if value is None:
        return "not printed"
    return f"{_figure(row, value)}{'x' if row.unit == 'x' else f' {row.unit}'}"


def _figure(row: Row, value: float) -> str:
    return count(value) if row.unit == "tokens" else f"{value:.2f}"


def show_json(found: Finding, compared: Comparison) -> None:
    """The whole answer as one JSON document."""
    output.write_json(_document(found, compared))


def _document(found: Finding, compared: Comparison) -> dict[str, Any]:
    facts = found.start.facts
    ways = remedies.fixes(found.cause, facts, compared.estimated) if found.cause else ()
    return {
        "schema": document.SCHEMA,
        "advisor": __version__,
        "verdict": found.verdict,
        "vllm": facts.version,
        "model": facts.model and mask(facts.model, 300),
        "ready": facts.ready,
        "starts": found.log.begun,
        "lines": found.log.lines,
        "cause": _failed(found.cause) if found.cause else None,
        "others": [_failed(other) for other in found.failures[1:]],
        "fixes": [_way(way, facts) for way in ways],
        "last_errors": list(found.errors),
        "found": _facts(facts),
        "advice": list(advice(facts)),
        "prediction": _prediction(compared),
    }


def _failed(found: Diagnosis) -> dict[str, Any]:
    return {
        "id": found.failure.id,
        "name": found.failure.name,
        "cause": found.cause,
        "fix": found.fix,
        "line": found.line,
        "process": found.process,
        "quote": found.quote,
        "read": {name: mask(value, 300) for name, value in found.read},
        "source": found.failure.source,
    }


def _way(way: Fix, facts: Facts) -> dict[str, Any]:
    written = command.rebuilt(facts, way.change)
    return {
        "words": way.words,
        "basis": way.basis,
        "flags": dict(way.change.flags),
        "env": dict(way.change.env),
        "command": written.text if written else None,
    }


def _facts(facts: Facts) -> dict[str, Any]:
    return {
        "arguments": {name: _masked(name, value) for name, value in command.arguments(facts).items()},
        "ranks": [rank._asdict() for rank in facts.ranks.values()],
        "kv_cache": [pool._asdict() for pool in facts.pools.values()],
        "kv_blocks": facts.blocks,
        "backends": [backend._asdict() for backend in facts.backends.values()],
        "memory_gib": facts.memory._asdict() if facts.memory else None,
        "auto_fit": list(facts.auto_fit) if facts.auto_fit else None,
        "attention_block_size": facts.block_size,
        "compile_s": facts.compile_s,
        "init_s": facts.init_s,
        "unit_kv_scales": facts.unit_scales,
        "moe_configs_missing": [mask(name, 200) for name, there in facts.moe_configs.items() if not there],
    }


def _masked(name: str, value: object) -> object:
    if name in ("api_key", "hf_token"):
        return "***"
    return mask(value, 1000) if isinstance(value, str) else value


def _prediction(compared: Comparison) -> dict[str, Any]:
    rows = [row._asdict() | {"difference": row.difference} for row in compared.rows]
    return {"rows": rows, "assumed": list(compared.assumed), "why_not": mask(compared.why_not, 300) or None}
