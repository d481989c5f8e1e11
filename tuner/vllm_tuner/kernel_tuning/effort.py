"""How much a kernel search may do, as three frozen rows: no number of this kind stands anywhere else in this room.

All are choices of ours. The time budget bounds a search; the counts say what is worth it inside.
"""

from __future__ import annotations

from typing import NamedTuple

from vllm_advisor.errors import UsageError


class Effort(NamedTuple):
    """One row.

    `trials`: points timed for one problem; a space of at most that many is searched whole. `compiled`: points compiled
    ahead of time, those with the least bounds first. `slice_ms`: how long one timing launches, after `warmup` launches;
    at least `repeats` of them. `finalists`: the best points that are timed once more, in turns, before one of them
    meets the default. `rounds`: most pairs of that comparison (the gate needs 7), each the medians of a slice a side.
    `tokens`: batch sizes that are tuned. `budget_s`: seconds for all of it.
    """

    name: str
    trials: int
    compiled: int
    slice_ms: float
    repeats: int
    warmup: int
    finalists: int
    rounds: int
    tokens: tuple[int, ...]
    budget_s: float


_EVERY = tuple(1 << power for power in range(13))  # 1 … 4096
EFFORTS = {
    row.name: row
    for row in (
        #      name     trials compiled slice_ms repeats warmup finalists rounds tokens                      budget_s
        Effort("quick",     24,     200,      20,      5,     2,        2,    11, (1, 16, 256),                  600),
        Effort("normal",    80,   1_000,      60,     11,     3,        4,    20, (1, 4, 16, 64, 256, 1024),   3_600),
        Effort("thorough", 400,   5_000,     200,     21,     5,        8,    30, _EVERY,                     28_800),
    )
}  # fmt: skip

LOOK = 5  # launches before a timing: the least of them tells whether the rest is worth it
HOPELESS = 2.0  # this many times over the best it is not
MOST_LAUNCHES = 500  # of one timing, however short they are
COMPILE_SHARE = 0.5  # of a problem's time that compiling may take
COMPILE_LIMIT_S = 60.0  # of one point: the "compile limit"
CHUNK = 4  # points a job that are compiled at once, between two looks at the clock
FAILURES = 3  # in a row, which no candidate explains: the device or the kernels are broken


def launches(row: Effort, us: float) -> int:
    """How many launches of this time fill a slice."""
    return max(row.repeats, min(MOST_LAUNCHES, int(row.slice_ms * 1e3 / max(us, 1e-3))))


def effort(name: str) -> Effort:
    """The row of a name. Raises UsageError."""
    if name not in EFFORTS:
        raise UsageError(f"no effort {name!r}", f"one of {', '.join(EFFORTS)}")
    return EFFORTS[name]
