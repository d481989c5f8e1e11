"""Numbers for people, and people's numbers: the only place that formats or parses a quantity.

Memory is binary (GiB, as vLLM and the drivers print it); rates are decimal (GB/s, as datasheets do).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from vllm_advisor.errors import UsageError


GIB = 1 << 30
GB = 10**9
TERA = 10**12

_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Interval(NamedTuple):
    """A modelled figure: `mid` is the estimate, the truth is expected between `low` and `high`."""

    low: float
    mid: float
    high: float

    def scaled(self, factor: float) -> Interval:
        """The same interval in another unit."""
        return Interval(self.low * factor, self.mid * factor, self.high * factor)


def gib(n_bytes: float) -> str:
    """`62.4 GiB`; one decimal, because the models behind are not better than that."""
    return f"{n_bytes / GIB:,.1f} GiB"


def count(n: float) -> str:
    """`131,072`."""
    return f"{math.floor(n + 0.5):,}"


def rate(per_second: float) -> str:
    """`1,234 tok/s`, three significant digits."""
    return f"{significant(per_second)} tok/s"


def milliseconds(ms: float) -> str:
    """`12.3 ms`, or seconds from ten thousand on."""
    return f"{significant(ms / 1000)} s" if ms >= 10_000 else f"{significant(ms)} ms"


def significant(x: float, digits: int = 3) -> str:
    """`1,230`, `12.3`, `0.0123`: as many digits as an estimate deserves."""
    if x == 0 or not math.isfinite(x):
        return f"{x:g}"
    shift = digits - 1 - math.floor(math.log10(abs(x)))
    rounded = round(x, shift)
    return f"{rounded:,.{max(0, shift)}f}"


def parse_tokens(text: str) -> int:
    """Tokens as vLLM takes them: `131072`, `128k` (decimal), `128K` (binary).

    Raises UsageError when it is not a positive number.
    """
    cleaned = text.strip().replace(",", "").replace("_", "")
    factor = _SUFFIXES.get(cleaned[-1:], 1)
    digits = cleaned[:-1] if factor != 1 else cleaned
    try:
        value = float(digits)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value * factor >= 1):
        raise UsageError(f"{text!r} is not a number of tokens", "write 131072, 128k (decimal) or 128K (binary)")
    return int(value * factor)
