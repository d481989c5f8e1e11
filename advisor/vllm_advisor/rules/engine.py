"""Judging: every rule of the table looks at the case, in table order, and none stops another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.facts import Finding
from vllm_advisor.rules.table import RULES


if TYPE_CHECKING:
    from vllm_advisor.facts import Case


def judge(case: Case) -> tuple[Finding, ...]:
    """All findings, in table order. Pure: the same case gives the same findings."""
    findings = []
    for rule, when, (level, weight), says, source, hint in RULES:
        found = when(case)
        if found is not None:
            message, advice = says.format_map(found), hint and hint.format_map(found)
            findings.append(Finding(rule, level, message, source, advice, weight))
    return tuple(findings)
