"""All findings on one command for one version, device and model; and the command mended until nothing more mends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.check import environment, fix, flags, values
from vllm_advisor.check.finding import ERROR, NOTE, WARNING
from vllm_advisor.check.parse import parse


if TYPE_CHECKING:
    from vllm_advisor.check.finding import Finding
    from vllm_advisor.check.invocation import Invocation, Reading
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.vllm.surface import Surface

LEVELS = (ERROR, WARNING, NOTE)
# A change may uncover another fault (a renamed option that is then given twice); each round mends at least one word.
_ROUNDS = 6


class Report(NamedTuple):
    """What was found in a command, by level and then in the order of the command.

    `plugins`: the vLLM plugins of the environment that it was judged for, None where none was asked.
    """

    reading: Reading
    surface: Surface
    findings: tuple[Finding, ...]
    plugins: tuple[str, ...] | None = None

    @property
    def invocation(self) -> Invocation:
        """The command judged."""
        return self.reading.invocation

    def count(self, level: str) -> int:
        """Findings of that level."""
        return sum(f.level == level for f in self.findings)


def judge(
    invocation: Invocation,
    surface: Surface,
    node: Node | None = None,
    model: ModelSpec | None = None,
    plugins: tuple[str, ...] | None = None,
) -> Report:
    """Every finding. Without a node nothing of the hardware is judged, without a model nothing of the model."""
    from vllm_advisor.check import judge as semantic  # noqa: PLC0415  it brings the memory model and the rules

    reading = parse(invocation, surface)
    found = (
        *flags.findings(reading, surface),
        *values.findings(reading, surface),
        *environment.findings(reading, surface),
        *semantic.findings(reading, surface, node, model, plugins),
    )
    ordered = sorted(dict.fromkeys(found), key=lambda f: LEVELS.index(f.level))
    return Report(reading, surface, tuple(ordered), plugins)


def mended(report: Report, node: Node | None = None, model: ModelSpec | None = None) -> Report:
    """The report on the command after every change that needs no question; what it still finds is for its owner."""
    for _ in range(_ROUNDS):
        after = fix.apply(report.invocation, (f.change for f in report.findings))
        if (after.argv, after.env) == (report.invocation.argv, report.invocation.env):
            break
        report = judge(after, report.surface, node, model, report.plugins)
    return report


def where(invocation: Invocation, finding: Finding) -> tuple[str, int]:
    """(file or place, line) of a finding; line 0 where none is known."""
    at = finding.word
    line = invocation.lines[at] if 0 <= at < len(invocation.lines) else 0
    if at in invocation.joined:
        return invocation.config, line
    name, _, rest = invocation.place.rpartition(":")
    if name and rest.strip().isdecimal():
        return name, line or int(rest)
    return (invocation.place.partition(": ")[0], line) if line else (invocation.place, 0)
