"""What a known failure is: how the log shows it, its cause in one sentence, and the smallest change that answers it."""

from __future__ import annotations

from typing import NamedTuple


# How much a match says. A cause explains the death; a generic one is true and says little; a symptom is printed by
# healthy starts too and counts only where nothing else is found; a consequence follows from a cause that stands above.
CAUSE, GENERIC, SYMPTOM, CONSEQUENCE = "cause", "generic", "symptom", "consequence"

# Where a start stood when memory ran out.
LOAD, PROFILE, GRAPHS, SAMPLER, ENCODER, CACHE, SERVING = (
    "load", "profile", "graphs", "sampler", "encoder", "cache", "serving",
)  # fmt: skip


class Change(NamedTuple):
    """A mending of the command. `flags`: (name, value), "" for a switch, None to take it away; `env` likewise."""

    flags: tuple[tuple[str, str | None], ...] = ()
    env: tuple[tuple[str, str | None], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.flags or self.env)


class Failure(NamedTuple):
    """One row of the table.

    `marks` are literals of the line, without digits, one of which it must hold; `patterns` are tried in order on its
    text, and their named groups fill `cause`, `fix` and `change` (no pattern: the mark is enough). `warns`: it counts
    on lines of any level, not only on errors. `stage` narrows running out of memory. `source` is where vLLM, or which
    library, prints it.
    """

    id: str
    name: str
    marks: tuple[str, ...]
    cause: str
    fix: str
    source: str
    patterns: tuple[str, ...] = ()
    change: Change = Change()
    weight: str = CAUSE
    warns: bool = False
    stage: str = ""


class Diagnosis(NamedTuple):
    """A failure that a log shows: the line that says so (masked), and what was read in it."""

    failure: Failure
    cause: str
    fix: str
    change: Change
    line: int
    process: str
    quote: str
    read: tuple[tuple[str, str], ...] = ()

    def value(self, name: str) -> str | None:
        """A figure that was read in the line."""
        return dict(self.read).get(name)
