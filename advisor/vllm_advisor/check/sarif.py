"""Findings as SARIF 2.1.0 (OASIS standard), which code hosts show beside the lines of a file.

A fix is written only where its words can be found again in their line: SARIF replaces text, and quoting may have
changed it. A command from the command line has a logical location, no file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.check import ids
from vllm_advisor.check.report import where


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vllm_advisor.check.finding import Finding
    from vllm_advisor.check.invocation import Invocation
    from vllm_advisor.check.report import Report

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


class _Rule(NamedTuple):
    level: str
    title: str


def document(reports: Sequence[Report], texts: Mapping[str, str], version: str) -> dict[str, Any]:
    """One run over all commands. `texts`: the files that were read, for the columns of fixes."""
    found = [(r.invocation, f) for r in reports for f in r.findings]
    rules = {f.id: _rule(f) for _, f in sorted(found, key=lambda pair: pair[1].id)}
    index = {rule_id: number for number, rule_id in enumerate(rules)}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "vllm-advisor",
                        "version": version,
                        "rules": [_described(rule_id, rule) for rule_id, rule in rules.items()],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(invocation, f, index[f.id], texts) for invocation, f in found],
            }
        ],
    }


def _rule(finding: Finding) -> _Rule:
    """From our own table, or from the decision matrix, whose ids are kept."""
    row = ids.BY_ID.get(finding.id)
    if row:
        return _Rule(row.level, row.title)
    from vllm_advisor.rules.table import RULES  # noqa: PLC0415

    says = [(rule.when.__doc__ or "").strip().partition("\n")[0] for rule in RULES if rule.id == finding.id]
    return _Rule(finding.level, says[0] if says and says[0] else finding.id)


def _described(rule_id: str, rule: _Rule) -> dict[str, Any]:
    return {"id": rule_id, "shortDescription": {"text": rule.title}, "defaultConfiguration": {"level": rule.level}}


def _result(invocation: Invocation, finding: Finding, index: int, texts: Mapping[str, str]) -> dict[str, Any]:
    name, line = where(invocation, finding)
    hint = f" {finding.hint[:1].upper()}{finding.hint[1:]}." if finding.hint else ""
    result: dict[str, Any] = {
        "ruleId": finding.id,
        "ruleIndex": index,
        "level": finding.level,
        "message": {"text": f"{finding.text}.{hint}"},
        "locations": [_location(invocation, name, line, name in texts)],
        "properties": {"source": finding.source, "subject": finding.subject},
    }
    replaced = _replacement(invocation, finding, texts.get(name, ""))
    if replaced:
        change = {"artifactLocation": {"uri": _uri(name)}, "replacements": [replaced]}
        result["fixes"] = [{"description": {"text": finding.hint or finding.text}, "artifactChanges": [change]}]
    return result


def _location(invocation: Invocation, name: str, line: int, is_file: bool) -> dict[str, Any]:
    if not is_file:
        return {"logicalLocations": [{"fullyQualifiedName": invocation.place}]}
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(name)}, "region": {"startLine": max(line, 1)}}
    return {"physicalLocation": place}


def _uri(name: str) -> str:
    from pathlib import PurePath  # noqa: PLC0415
    from urllib.parse import quote  # noqa: PLC0415

    return quote(PurePath(name).as_posix())


def _replacement(invocation: Invocation, finding: Finding, text: str) -> dict[str, Any] | None:
    """The words of a change as a region of one line; None where they cannot be found there exactly once."""
    change = finding.change
    if change is None or change.word >= change.end or not text or change.end > len(invocation.lines):
        return None
    lines = set(invocation.lines[change.word : change.end])
    written = text.splitlines()
    number = max(lines)
    if len(lines) != 1 or not 1 <= number <= len(written):
        return None
    words = r"[ \t]+".join(map(re.escape, invocation.argv[change.word : change.end]))
    matches = list(re.finditer(rf"(?<!\S){words}(?!\S)", written[number - 1]))
    if len(matches) != 1 or any(set(w) & set("'\"$ \\;&|<>(){}*#") for w in change.words):
        return None
    start, end = matches[0].span()
    region = {"startLine": number, "startColumn": start + 1, "endLine": number, "endColumn": end + 1}
    inserted = {"insertedContent": {"text": " ".join(change.words)}} if change.words else {}
    return {"deletedRegion": region, **inserted}
