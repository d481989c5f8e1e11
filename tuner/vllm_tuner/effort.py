"""How much a search may do, as three frozen rows: no number of this kind stands anywhere else.

All of them are choices of ours, not measurements: quick answers within a coffee break on a small model, thorough uses a
night. What bounds every search is its time budget; the counts only say what is worth it inside.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from vllm_advisor.errors import UsageError


class Effort(NamedTuple):
    """One row.

    `trials`: configurations tried, the defaults left out. `plans`: how many of the ranked plans are taken. `breadth` 1:
    batch limits, and on a CPU compilation; 2: every knob; 3: every value of each. `least`, `most`: repeats of a
    measurement; it ends early once the interval's half is below `tight` of its middle. `rounds`: most pairs of the
    final comparison (the gate needs 7). `waves`: requests of a repeat as a multiple of those in flight. `budget_s`:
    seconds for all of it unless told.
    """

    name: str
    trials: int
    plans: int
    breadth: int
    least: int
    most: int
    tight: float
    rounds: int
    waves: int
    budget_s: float


EFFORTS = {
    row.name: row
    for row in (
        #      name        trials plans breadth least most tight rounds waves budget_s
        Effort("quick",         6,    2,      1,    3,   4, 0.10,    11,    2,    15 * 60),
        Effort("normal",       24,    3,      2,    3,   6, 0.05,    13,    4, 2 * 60 * 60),
        Effort("thorough",     80,    5,      3,    3,  12, 0.03,    20,    8, 8 * 60 * 60),
    )
}  # fmt: skip


def effort(name: str) -> Effort:
    """The row of a name. Raises UsageError."""
    if name not in EFFORTS:
        raise UsageError(f"no effort {name!r}", f"one of {', '.join(EFFORTS)}")
    return EFFORTS[name]


_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> float:
    """`90`, `90s`, `10m`, `2h` in seconds. Raises UsageError for anything else, zero included."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip().lower())
    value = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if value <= 0:
        raise UsageError(f"{text!r} is no time", "write 90s, 10m or 2h")
    return value
