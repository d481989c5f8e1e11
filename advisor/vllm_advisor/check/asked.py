"""A command judged as somebody asks for it: the version found, the model looked up, each with where it came from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor import question
from vllm_advisor.errors import AdvisorError, BadInput, UnknownVllm
from vllm_advisor.question import DEFAULT_VLLM


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.check.invocation import Invocation
    from vllm_advisor.check.report import Report
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.vllm.surface import Surface


class Judged(NamedTuple):
    """A report, what it was judged for, and why there is no model, if so."""

    report: Report
    chosen: str
    node: Node | None
    model: ModelSpec | None
    unjudged: str


def _silent(_: str) -> None: ...


def split(text: str) -> list[str]:
    """A whole command in one text. Raises BadInput."""
    import shlex  # noqa: PLC0415 - most commands come as words

    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadInput(f"cannot read the command: {error}", "close the quote") from None


def pasted(text: str) -> tuple[Invocation, ...]:
    """Every server that a pasted text starts: a command, a script, Compose, a manifest, a unit. Raises BadInput."""
    from vllm_advisor.check import read  # noqa: PLC0415 - the reader is for those who give a text

    found: tuple[Invocation, ...] = ()
    try:
        found = read.text(text)
    except BadInput:
        if "\n" in text.strip():
            raise
    return found or (read.command_line(split(text)),)


def judge(
    invocation: Invocation,
    vllm: str | None,
    node: Node | None,
    plugins: tuple[str, ...] | None = None,
    *,
    offline: bool,
    tell: Callable[[str], None] = _silent,
) -> Judged:
    """Judge one command. `vllm` None: the image's version or the default; `tell` gets remarks, a line each."""
    from vllm_advisor.check import report  # noqa: PLC0415 - it brings all findings
    from vllm_advisor.check.parse import parse  # noqa: PLC0415 - same

    surface, chosen = _surface(invocation, vllm)
    reading = parse(invocation, surface)
    model, unjudged = _model(reading.model, reading.value("--revision"), offline=offline, tell=tell)
    return Judged(report.judge(invocation, surface, node, model, plugins), chosen, node, model, unjudged)


def mended(judged: Judged) -> Judged:
    """The same with every change that needs no question; what it still finds is for its owner."""
    from vllm_advisor.check import report  # noqa: PLC0415 - it brings all findings

    return judged._replace(report=report.mended(judged.report, judged.node, judged.model))


def _surface(invocation: Invocation, vllm: str | None) -> tuple[Surface, str]:
    """The version to judge for, and where it was taken from; of an image's unknown patch, the release's own."""
    if vllm is not None:
        return question.surface(vllm), "--vllm"
    if invocation.version is None:
        return question.surface(DEFAULT_VLLM), "the default"
    try:
        return question.surface(invocation.version), "the image's tag"
    except UnknownVllm:
        nearby = ".".join(invocation.version.split(".")[:2])
        return question.surface(nearby), f"the release of the image's tag, {invocation.version}"


def _model(
    name: str | None, revision: str | None, *, offline: bool, tell: Callable[[str], None]
) -> tuple[ModelSpec | None, str]:
    """The model, or why it is not known."""
    from vllm_advisor.check.values import is_unresolved  # noqa: PLC0415 - it brings all findings

    if name is None or is_unresolved(name):
        return None, ""
    try:
        return question.model(name, revision, offline=offline, tell=tell), ""
    except (AdvisorError, OSError, ValueError) as error:
        return None, error.message if isinstance(error, AdvisorError) else f"{name!r} cannot be looked up"


def is_file(name: str) -> bool:
    """Whether a word names a file that is there, whatever the word is."""
    try:
        return bool(name) and Path(name).is_file()
    except (OSError, ValueError):
        return False
