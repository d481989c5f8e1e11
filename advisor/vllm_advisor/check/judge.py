"""What a command means: every finding that only the model, the device or the command as a whole tells.

Without a device, what the model alone tells; without a model, what the device alone tells; a note says what is missing.
Stand-ins take the missing part's place, and nothing is said that depends on one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.check import configuration, conflicts, matrix, mend, performance, plugin, ranks, security, speculation
from vllm_advisor.check.finding import ERROR, NOTE, WARNING
from vllm_advisor.errors import AdvisorError


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vllm_advisor.check.configuration import Asked, Judged
    from vllm_advisor.check.finding import Finding
    from vllm_advisor.check.invocation import Reading
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.vllm.surface import Surface

_RANK = {ERROR: 0, WARNING: 1, NOTE: 2}


def findings(
    reading: Reading,
    surface: Surface,
    node: Node | None,
    model: ModelSpec | None,
    plugins: tuple[str, ...] | None = None,
) -> tuple[Finding, ...]:
    """All that can be said of meaning: errors first, then warnings, then notes. Pure.

    `plugins`: names of the vLLM plugins in the server's environment, None where it was not asked.
    """
    given = configuration.asked(reading, surface)
    found = _memory_last(dict.fromkeys((*_all(given, node, model), *plugin.findings(given, model, plugins))))
    return tuple(sorted(found, key=lambda f: _RANK[f.level]))


def _memory_last(found: Iterable[Finding]) -> list[Finding]:
    """Memory is mended when nothing else is left to mend: another change may make it fit."""
    listed = list(found)
    if not any(f.change and (f.change.end > f.change.word) and not f.id.startswith(_SIZED) for f in listed):
        return listed
    return [f._replace(change=None) if f.id.startswith(_SIZED) else f for f in listed]


_SIZED = ("MEM-", "BAT-01")


def _all(given: Asked, node: Node | None, model: ModelSpec | None) -> Iterator[Finding]:
    yield from _of_words(given, node, model)
    if node is not None:
        yield from _of_node(given, node)
    if model is not None:
        yield from _of_model(given, model)
    yield from _of_plan(given, node, model)
    yield from _missing(given, node, model)
    yield from security.findings(given, model)


def _of_words(given: Asked, node: Node | None, model: ModelSpec | None) -> Iterator[Finding]:
    yield from conflicts.findings(given)
    yield from ranks.findings(given, model, node)
    if given.speculative is not None:
        yield from speculation.findings(given, model)
    yield from performance.findings(given)


def _of_node(given: Asked, node: Node) -> Iterator[Finding]:
    from vllm_advisor.check import fit, quantization  # noqa: PLC0415

    yield from fit.devices(given, node)
    yield from quantization.of_device(given, node)
    yield from performance.of_node(given, node)


def _of_model(given: Asked, model: ModelSpec) -> Iterator[Finding]:
    from vllm_advisor.check import quantization  # noqa: PLC0415

    yield from quantization.of_model(given, model)
    yield from conflicts.of_model(given, model)


def _of_plan(given: Asked, node: Node | None, model: ModelSpec | None) -> Iterator[Finding]:
    """The plan, with stand-ins for what is not known: only rules that need what is known are then shown."""
    from vllm_advisor.check import fit, scales, stand_in  # noqa: PLC0415

    known = (*(("model",) if model else ()), *(("node",) if node else ()))
    try:
        found = configuration.judged(given, node or stand_in.node(given), model or stand_in.model(given))
    except AdvisorError as error:
        yield mend.said("FIT-01", f"the plan cannot be judged: {error.message}", given, hint=error.hint)
        yield from scales.calculated(given, None)
        return
    yield from scales.calculated(given, found if model else None)
    said = matrix.findings(found, known)
    yield from said
    if model is not None:
        refused = {"KV-01", "KV-08", "KV-09"} & {f.id for f in said}
        yield from () if refused else scales.findings(found, device=node is not None)
        yield from conflicts.of_plan(found) if _has_lengths(found, node) else ()
    if model is not None and node is not None:
        yield from fit.findings(found)
        yield from performance.of_plan(found)


def _has_lengths(found: Judged, node: Node | None) -> bool:
    """Whether batch and length are the command's own or a known device's defaults."""
    return node is not None or (found.asked.max_num_batched_tokens is not None and found.asked.max_num_seqs is not None)


def _missing(given: Asked, node: Node | None, model: ModelSpec | None) -> Iterator[Finding]:
    """FIT-01: what was not judged, and what to give."""
    if model is None:
        named = f"{given.reading.model} is not known" if given.reading.model else "no model is given"
        text = f"{named}: nothing that depends on the model is judged (memory, heads, quantization, KV scales)"
        yield mend.said("FIT-01", text, given, hint="a local folder with its config.json, or a model of the catalog")
    if node is None:
        text = "no device is given: memory, kernels and links are not judged"
        yield mend.said("FIT-01", text, given, hint="--gpu 8xH100, or --node FILE")
