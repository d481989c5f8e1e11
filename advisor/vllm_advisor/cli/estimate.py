"""What `advisor estimate` prints: one configuration's memory as bars, its verdict and fixes; or a batch, row by row."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, BinaryIO

from vllm_advisor import __version__
from vllm_advisor.cli import document, output
from vllm_advisor.errors import BadInput
from vllm_advisor.memory.budget import CANNOT_TELL, DOES_NOT_FIT, FITS
from vllm_advisor.units import GIB, count, gib, milliseconds, rate


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vllm_advisor.estimate import Estimated
    from vllm_advisor.facts import Estimate, Finding, Remedy


def batch(file: Path, folder: Path | None, *, given_kv: bool) -> None:
    """Every row of a file, answered as it is read. Raises BadInput where file or folder is not there."""
    from vllm_advisor.estimate.checkpoint import Shelf
    from vllm_advisor.estimate.rows import answers

    if folder is not None and not folder.is_dir():
        raise BadInput(f"{folder} is no folder", "--models takes a folder of configs, publisher--name.json")
    with _opened(file) as lines:
        for line in answers(lines, Shelf(folder), given_kv=given_kv):
            sys.stdout.write(line + "\n")


def _opened(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}") from None


def show(
    found: Estimated, vetoes: tuple[Finding, ...], remedies: tuple[Remedy, ...], speed: Estimate | None = None
) -> None:
    """The answer as text: verdict, bars, what vLLM will log, speed, what would make it fit, what was assumed."""
    budget = found.budget
    title = f"Memory of one rank, a device of {gib(budget.total)} (vLLM may take {gib(budget.requested)})"
    lines = [*_header(found, vetoes), "", output.bold(title), *output.memory_bars(budget), "", *_logged(found), ""]
    lines += [*_speed(speed), *_refusals(vetoes), *_reasons(found, remedies)]
    lines += [output.bold("Taken where nothing was given"), *(f"  {text}" for text in found.assumed)]
    output.write(lines)


def _header(found: Estimated, vetoes: tuple[Finding, ...]) -> Iterator[str]:
    plan, budget = found.plan, found.budget
    weights = f"{plan.quantization} online" if plan.quantization else found.model.quantization.scheme
    yield output.bold(f"{found.model.name} on {found.node.label}, vLLM {found.surface.version}")
    yield (
        f"{plan.layout}, {weights}, KV {plan.kv_cache_dtype}, {count(plan.max_model_len)} tokens a request, "
        f"{count(plan.max_num_seqs)} sequences, {count(plan.max_num_batched_tokens)} tokens a step"
        + (", eager" if plan.enforce_eager else "")
    )
    yield from (output.dim(line) for line in _unverified(found))
    yield output.bold(_VERDICTS[DOES_NOT_FIT if vetoes else budget.verdict])


def _unverified(found: Estimated) -> Iterator[str]:
    """What the answer rests on that nobody read in the published files."""
    gpu, spec = found.node.gpu, found.model
    if "memory_bytes" in gpu.unverified:
        yield f"unverified: memory of {gpu.name} (no source read)"
    if spec.provenance in ("assembled", "derived-quant"):
        yield f"unverified: {spec.name}: configuration is {spec.provenance}, not the published file"
    yield from (f"warning: {warning}" for warning in found.node.warnings)


_VERDICTS = {
    FITS: "It starts.",
    DOES_NOT_FIT: "It does not start.",
    CANNOT_TELL: "It cannot be told whether it starts.",
}


def _logged(found: Estimated) -> list[str]:
    """The figures under which vLLM's own log shows them, with as many digits."""
    budget, plan = found.budget, found.plan
    rows = [
        ("model weights", f"{budget.weights / GIB:.2f} GiB"),
        ("available KV cache memory", f"{budget.kv_cache.mid / GIB:.2f} GiB"),
        ("KV cache size", f"{count(budget.kv_tokens)} tokens"),
        (f"concurrency at {count(plan.max_model_len)} tokens", f"{budget.max_concurrency:.2f}x"),
    ]
    width = max(len(name) for name, _ in rows)
    title = output.bold("What its log will say (a prediction)")
    return [title, *(f"  {name:<{width}}  {value}" for name, value in rows)]


def _speed(predicted: Estimate | None) -> list[str]:
    """Speed at the load that was named, each figure with its interval."""
    if predicted is None:
        return []
    rows = [
        ("output", predicted.output_tok_s, rate),
        ("total", predicted.total_tok_s, rate),
        ("time to first token", predicted.ttft_ms, milliseconds),
        ("time per output token", predicted.tpot_ms, milliseconds),
    ]
    width = max(len(name) for name, _, _ in rows)
    lines = [f"  {name:<{width}}  {form(i.mid)} ({form(i.low)} to {form(i.high)})" for name, i, form in rows]
    notes = [line for note in predicted.notes for line in output.wrapped("  ", note)]
    title = output.bold(f"Speed (an estimate); decode waits for {predicted.bound}")
    return [title, *lines, *notes, ""]


def _refusals(vetoes: tuple[Finding, ...]) -> list[str]:
    """What memory does not say."""
    lines = [line for f in vetoes for line in output.wrapped("  ", _refusal(f))]
    return [output.bold("What vLLM refuses"), *lines, ""] if lines else []


def _refusal(finding: Finding) -> str:
    return f"{finding.message} [{finding.source}]" + (f"; {finding.hint}" if finding.hint else "")


def _reasons(found: Estimated, remedies: tuple[Remedy, ...]) -> list[str]:
    if found.budget.fits:
        return []
    lines = [output.bold("Why"), *(line for limit in found.budget.limits for line in output.wrapped("  ", limit)), ""]
    if found.budget.verdict == CANNOT_TELL:
        return lines
    fixes = [line for remedy in remedies for line in output.wrapped("  ", _fix(remedy))]
    return [*lines, output.bold("It fits with one of these (the smallest first)"), *(fixes or [_NONE]), ""]


_NONE = "  no single change makes it fit"


def _fix(remedy: Remedy) -> str:
    budget = remedy.budget
    return f"{remedy.change}: {gib(budget.kv_cache.mid)} of KV cache, {budget.max_concurrency:.1f} requests"


def show_json(
    found: Estimated, vetoes: tuple[Finding, ...], remedies: tuple[Remedy, ...], speed: Estimate | None = None
) -> None:
    """The answer as one JSON document, bytes not rounded; with speed where a load was named."""
    from vllm_advisor.estimate.speed import named

    output.write_json(_document(found, vetoes, remedies) | ({"speed": named(speed)} if speed else {}))


def _document(found: Estimated, vetoes: tuple[Finding, ...], remedies: tuple[Remedy, ...]) -> dict[str, Any]:
    changes = [
        {"change": r.change, "plan": document.plan(r.plan), "memory": document.budget(r.budget)} for r in remedies
    ]
    return {
        "schema": document.SCHEMA,
        "advisor": __version__,
        "vllm": found.surface.version,
        "model": document.model(found.model),
        "node": document.node(found.node),
        "plan": document.plan(found.plan),
        "verdict": found.budget.verdict,
        "starts": found.budget.fits and not vetoes,
        "memory": document.budget(found.budget),
        "kv_blocks": found.budget.num_blocks,
        "block_size": found.budget.block_size,
        "refused": [document.finding(f) for f in vetoes],
        "assumed": list(found.assumed),
        "would_fit_with": changes,
    }
