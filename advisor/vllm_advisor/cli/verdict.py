"""vLLM's verdict beside ours, as text and as JSON: what vLLM says is vLLM's, what we say is ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.check.invocation import Reading
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.vllm.oracle_compare import Cell
    from vllm_advisor.vllm.oracle_verdict import Refusal, Verdict

# What vLLM's parser refuses; other errors of ours belong to its configuration, or to what neither stage looks at.
_PARSER_IDS = ("FLG-", "VAL-")


class Ours(NamedTuple):
    """A command as we judge it. `errors` are (id, text); `kernels` (part, backend) where the plan could be told."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    reading: Reading
    model: ModelSpec
    errors: tuple[tuple[str, str], ...]
    kernels: tuple[tuple[str, str], ...]

    @property
    def parser(self) -> tuple[str, ...]:
        """Errors that the parser would stop at."""
        return tuple(text for finding, text in self.errors if finding.startswith(_PARSER_IDS))

    @property
    def later(self) -> tuple[str, ...]:
        """Errors that come after the parser."""
        return tuple(text for finding, text in self.errors if not finding.startswith(_PARSER_IDS))


class Compared(NamedTuple):
    """Both verdicts. `release` is the vLLM that answered."""

    ours: Ours
    theirs: Verdict
    cells: tuple[Cell, ...]
    release: str

    @property
    def good(self) -> bool:
        """Both accept it, and no cell differs."""
        return self.theirs.accepted and not self.ours.errors and all(c.agrees is not False for c in self.cells)


def show(found: Compared, node: Node) -> None:
    """Both verdicts as text: stage by stage, part by part, then every refusal in its own words."""
    from vllm_advisor.cli import output

    header = ("", "vLLM", "ours", "")
    title = f"{found.ours.model.name} on {node.label}: vLLM {found.release} under a stand-in of {node.gpu.name}"
    lines = [output.bold(title), " ".join(["$", *_environment(found), *found.ours.argv]), ""]
    lines += output.table([header, *_stages(found), *_cells(found)])
    lines += _refusals(found)
    output.write([*lines, "", _sum(found)])


def _environment(found: Compared) -> Iterator[str]:
    return (f"{name}={value}" for name, value in found.ours.env)


def _stages(found: Compared) -> Iterator[tuple[str, ...]]:
    theirs, ours = found.theirs, found.ours
    took = "refused" if theirs.parser else "accepted"
    yield ("parser", took, "refused" if ours.parser else "accepted", _mark(bool(theirs.parser) == bool(ours.parser)))
    if theirs.parser is None:
        took = "refused" if theirs.configuration else "accepted"
        ours_later = "refused" if ours.later else "accepted"
        alone = "" if theirs.configuration or not ours.later else "ours alone"  # memory, kernels: not looked at there
        yield ("configuration", took, ours_later, alone or _mark(not theirs.configuration or bool(ours.errors)))


def _cells(found: Compared) -> Iterator[tuple[str, ...]]:
    for cell in found.cells:
        theirs = ", ".join(cell.theirs) or "no verdict"
        yield (cell.part, theirs, cell.ours, "unverified" if cell.agrees is None else _mark(cell.agrees))


def _mark(agrees: bool) -> str:
    return "" if agrees else "DIFFERS"


def _refusals(found: Compared) -> Iterator[str]:
    from vllm_advisor.cli import output

    theirs = found.theirs
    stages = (("parser", theirs.parser), ("configuration", theirs.configuration), ("model", theirs.failed))
    for stage, refusal in stages:
        if refusal:
            yield from ("", *output.wrapped(f"vLLM ({stage}): ", str(refusal)))
            yield from (output.wrapped("  under the stand-in only: ", refusal.artefact) if refusal.artefact else ())
    for text in (*found.ours.parser, *found.ours.later):
        yield from output.wrapped("ours: ", text)


def _sum(found: Compared) -> str:
    if not found.theirs.accepted:
        return "vLLM refuses this command"
    if found.ours.errors:
        return "vLLM takes this command; we do not"
    differing = [cell.part for cell in found.cells if cell.agrees is False]
    if differing:
        return f"vLLM takes this command, but other kernels than we say: {', '.join(differing)}"
    return "vLLM takes this command, and we agree on its kernels"


def show_json(found: Compared, node: Node) -> None:
    """The same as one JSON document."""
    from vllm_advisor import __version__
    from vllm_advisor.cli import document, output

    theirs, ours = found.theirs, found.ours
    output.write_json({
        "schema": document.SCHEMA,
        "advisor": __version__,
        "vllm": found.release,
        "model": ours.model.name,
        "node": document.node(node),
        "command": {"argv": list(ours.argv), "env": dict(ours.env)},
        "accepted": theirs.accepted,
        "good": found.good,
        "theirs": {
            "parser": _refusal(theirs.parser),
            "configuration": _refusal(theirs.configuration),
            "model": _refusal(theirs.failed),
            "effective": dict(theirs.effective),
            "layers": [layer._asdict() for layer in theirs.layers],
        },
        "ours": {"parser": list(ours.parser), "later": list(ours.later)},
        "cells": [cell._asdict() | {"agrees": cell.agrees} for cell in found.cells],
    })  # fmt: skip


def _refusal(value: Refusal | None) -> dict[str, str | None] | None:
    return {"error": value.error, "text": value.text, "artefact": value.artefact or None} if value else None
