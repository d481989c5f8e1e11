"""The service's status for people: the same document that its socket gives, as a few lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from vllm_advisor.cli import output


if TYPE_CHECKING:
    from collections.abc import Iterator


def shown(page: bytes, *, as_json: bool) -> str:
    """The document as it is, or as a few lines."""
    if as_json:
        return page.decode().rstrip("\n") + "\n"
    return "\n".join(lines(json.loads(page))) + "\n"


def lines(seen: dict[str, Any]) -> Iterator[str]:
    """What it is and does, what it waits for, and what is wrong."""
    if not seen:
        yield "nothing is known yet: another daemon has this node, or the store does not answer"
        return
    known = "" if seen.get("running", True) else "no daemon runs; last known: "
    yield output.bold(f"{seen['node']}: {known}{seen['phase']} (mode {seen['mode']})")
    yield f"  runs         {seen['incumbent'] or 'the command that it came with'}"
    if seen.get("unit", {}).get("makes_way"):
        yield "               the unit makes way for a run, and is started again after it"
    if seen["candidate"]:
        yield f"  candidate    {seen['candidate']}"
    if seen.get("work", {}).get("says"):
        yield f"  run          {seen['work']['state']}: {seen['work']['says']}"
    for one in seen["reasons"]:
        yield f"  reason       {one['kind']}: {one['says']}" + (" (answered)" if one["answered"] else "")
    for one in seen["against"]:
        yield f"  waits for    {one['by']}: {one['why']}"
    for text in seen["trouble"]:
        yield f"  trouble      {text}"
