"""docs/vllm-versions.md, generated: `python -m vllm_advisor.vllm.versions_page > docs/vllm-versions.md`."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import TYPE_CHECKING

from vllm_advisor.vllm import diff as differences
from vllm_advisor.vllm.changes_behaviour import BEHAVIOURS
from vllm_advisor.vllm.surface import load, release_of, versions


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vllm_advisor.vllm.changes_behaviour import Behaviour
    from vllm_advisor.vllm.diff import Difference

_HEAD = """# What changes between vLLM versions, for who deploys them

Generated from the surfaces and from `vllm_advisor/vllm/changes_behaviour.py` by
`python -m vllm_advisor.vllm.versions_page`; do not edit.

For your own command, `advisor migrate --from {first} --to {last} -- vllm serve …` says which of this concerns it, and
writes the command for the new version. `advisor vllm diff {first} {last}` lists everything, parsers and architectures
with their names. Versions are those that a surface was read of; a change of a release between two of them stands in
the later step. Sources are files of the `vllm` package. What vLLM computes when it starts cannot be read from its
source and is not compared.
"""
# Groups that are told by name, by count, or not at all here.
_NAMED = (
    "flags", "choices", "defaults", "deprecations", "environment", "quantization methods", "online quantizations",
    "quantizations allowed on rocm", "KV-cache dtypes", "attention backends", "MoE backends", "linear backends",
    "all-to-all backends", "tokenizer modes", "metrics",
)  # fmt: skip
_COUNTED = ("architectures", "reasoning parsers", "tool parsers")
_SHORTEST = 4
_OVERVIEW = (
    "| version | flags | variables | architectures | quantization methods | KV dtypes | attention backends "
    "| MoE backends | metrics |"
)


def page() -> str:
    """The whole text."""
    known = versions()
    parts = [_HEAD.format(first=known[0], last=known[-1]), _overview(known), _everywhere()]
    parts += [_step(old, new) for old, new in pairwise(known)]
    return "\n".join(parts)


def _overview(known: tuple[str, ...]) -> str:
    rows = [
        f"| {s.version} | {len(s.flags)} | {len(s.env)} | {len(s.architectures)} | {len(s.quantizations)} "
        f"| {len(s.kv_cache_dtypes)} | {len(s.attention_backends)} | {len(s.moe_backends)} | {len(s.metrics)} |"
        for s in map(load, known)
    ]
    return "\n".join(["## Overview", "", _OVERVIEW, "|---|---|---|---|---|---|---|---|---|", *rows, ""])


def _everywhere() -> str:
    """All changes of behaviour on one page, by area."""
    lines = ["## Changes that no flag shows", "", "| since | area | concerns | before | now | source |"]
    lines.append("|---|---|---|---|---|---|")
    ordered = sorted(BEHAVIOURS, key=lambda b: (b.area, b.release))
    return "\n".join([*lines, *(_row(b) for b in ordered), ""])


def _row(b: Behaviour) -> str:
    cells = (b.since, b.area, b.concerns, b.before, b.after, f"`{b.source}`")
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def _step(old: str, new: str) -> str:
    """One section: what an upgrade from one shipped version to the next changes."""
    found = differences.diff(load(old), load(new))
    lines = [f"## {old} → {new}", "", *_behaviours(old, new)]
    for group in _NAMED:
        lines += _told([d for d in found if d.group == group])
    lines += _tiers(found)
    lines += [text for group in _COUNTED if (text := _counted(group, [d for d in found if d.group == group]))]
    lines += _kernels(found)
    return "\n".join([*lines, ""])


def _behaviours(old: str, new: str) -> Iterator[str]:
    for b in BEHAVIOURS:
        if release_of(old) < b.release <= release_of(new):
            since = "" if b.since == new else f" (since {b.since})"
            yield f"- **{b.area}**, {b.concerns}: {b.before} → **{b.after}**{since}."


def _told(rows: list[Difference]) -> Iterator[str]:
    """A group as one paragraph a kind: what went first, for it breaks commands."""
    title = f"{rows[0].group[0].upper()}{rows[0].group[1:]}" if rows else ""
    gone = [r for r in rows if r.kind == "removed"]
    if gone:
        yield f"- {title} removed: {'; '.join(f'`{r.name}`' + (f' ({r.note})' if r.note else '') for r in gone)}."
    for row in rows:
        if row.kind == "renamed":
            yield f"- {title}: `{row.name}` → `{row.after}` ({row.note.partition(': ')[2]})."
        elif row.kind == "changed":
            yield f"- {title}: `{row.name}` {_changed(row)}."
    came = [f"`{r.name}`" for r in rows if r.kind == "added"]
    if came:
        yield f"- {title} added: {', '.join(came)}."


def _changed(row: Difference) -> str:
    if row.group == "choices":
        if row.note:
            return f"({row.note})"
        lost = [f"without {', '.join(f'`{c}`' for c in row.before)}"] if row.before else []
        return "; ".join([*lost, *([f"with {', '.join(f'`{c}`' for c in row.after)}"] if row.after else [])])
    note = f"{row.note} " if row.note else ""
    return f"{note}`{_value(row.before)}` → `{_value(row.after)}`"


def _value(value: object) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value) or '""'


def _tiers(rows: Iterable[Difference]) -> Iterator[str]:
    for row in rows:
        if row.group == "defaults by card":
            sizes = row.after or row.before
            tokens, seqs = sizes["tokens"].get("server", "–"), sizes["seqs"].get("server", "–")
            sign = "gone" if row.kind == "removed" else f"a server takes {tokens} tokens and {seqs} sequences a step"
            yield f"- Defaults by card: `{row.name}`: {sign}."


def _counted(group: str, rows: list[Difference]) -> str:
    """Names that went, and how many came."""
    gone = [f"`{r.name}`" for r in rows if r.kind == "removed"]
    came = [f"`{r.name}`" for r in rows if r.kind == "added"]
    shown = f"{len(came)} added" if len(came) > _SHORTEST else f"added {', '.join(came)}" if came else ""
    parts = [part for part in (f"removed {', '.join(gone)}" if gone else "", shown) if part]
    return f"- {group[0].upper()}{group[1:]}: {'; '.join(parts)}." if parts else ""


def _kernels(rows: Iterable[Difference]) -> Iterator[str]:
    """Only where another kernel is the first choice; devices and cases that changed alike are one line."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row.group.endswith(" kernels"):
            was, now = (str(side).partition(">")[0].strip() or "none" for side in (row.before, row.after))
            if was != now:
                alike.setdefault((row.group, was, now), []).append(f"{row.name} on {row.note}")
    for (group, was, now), where in alike.items():
        more = f" and {len(where) - _SHORTEST} more cases" if len(where) > _SHORTEST else ""
        yield f"- {group[0].upper()}{group[1:]}: `{was}` → `{now}` for {'; '.join(where[:_SHORTEST])}{more}."


if __name__ == "__main__":
    sys.stdout.write(page())
