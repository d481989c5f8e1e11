"""How much may be spent on tuning a day, and how long to wait after failures: values that are kept across restarts.

Days are local ones, and the last few are kept, so that a clock that is set back and forth brings no fresh allowance.
Waits double from one failure to the next, with a jitter that a fleet's nodes do not share and that a test can repeat.
"""

from __future__ import annotations

import json
import math
import random
from typing import Any, NamedTuple

from vllm_tuner.daemon.permit import GRANTED, Permit


_DAYS_KEPT = 4
_VERSION = 1


class AllowanceLimits(NamedTuple):
    """Infinite: no limit. `jitter` 0.25: a wait is within a quarter of its middle. `seed`: the node's name."""

    seconds_a_day: float = 4 * 3600.0
    watt_hours_a_day: float = math.inf
    back_off_s: float = 1800.0
    longest_back_off_s: float = 86400.0
    jitter: float = 0.25
    seed: str = ""


class Day(NamedTuple):
    """What one local day was spent: `number` counts days since 1970."""

    number: int
    seconds: float
    watt_hours: float


class Allowance(NamedTuple):
    """Spent so far, failures in a row, and the wait that they brought (`waits_until`, UTC)."""

    days: tuple[Day, ...] = ()
    failures: int = 0
    waits_until: float = 0.0


def spend(state: Allowance, at: float, seconds: float, watt_hours: float = 0.0, offset_s: float = 0.0) -> Allowance:
    """A tick of a run that took so much; what is not a positive number is nothing."""
    today = _today(state, at, offset_s)
    grown = Day(today.number, today.seconds + _amount(seconds), today.watt_hours + _amount(watt_hours))
    others = [day for day in state.days if day.number != today.number]
    newest = sorted([*others, grown], key=lambda day: abs(day.number - grown.number))[:_DAYS_KEPT]
    return state._replace(days=tuple(sorted(newest)))


def _amount(value: float) -> float:
    return value if math.isfinite(value) and value > 0 else 0.0


def _today(state: Allowance, at: float, offset_s: float) -> Day:
    number = int((at + offset_s) // 86400)
    return next((day for day in state.days if day.number == number), Day(number, 0.0, 0.0))


def left_s(state: Allowance, limits: AllowanceLimits, at: float, offset_s: float = 0.0) -> float:
    """Seconds of tuning left today."""
    return max(0.0, limits.seconds_a_day - _today(state, at, offset_s).seconds)


def permit(state: Allowance, limits: AllowanceLimits, at: float, offset_s: float = 0.0) -> Permit:
    """Leave, or what is used up or waited for."""
    today, wait = _today(state, at, offset_s), state.waits_until - at
    # A wait longer than any of ours means that the clock was set back: it counts no longer.
    if 0 < wait <= (1 + limits.jitter) * limits.longest_back_off_s:
        return _no("back-off", f"{state.failures} failures in a row: the next attempt in {wait / 60:.0f} min")
    if today.seconds >= limits.seconds_a_day:
        return _no("allowance", f"{today.seconds / 3600:.1f} h today, {limits.seconds_a_day / 3600:g} allowed")
    if today.watt_hours >= limits.watt_hours_a_day:
        return _no("allowance", f"{today.watt_hours / 1000:.2f} kWh today, {limits.watt_hours_a_day / 1000:g} allowed")
    return GRANTED


def _no(by: str, why: str) -> Permit:
    return Permit(granted=False, by=by, why=why)


def failed(state: Allowance, limits: AllowanceLimits, at: float) -> Allowance:
    """One more failure: wait twice as long as after the one before."""
    failures = state.failures + 1
    return state._replace(failures=failures, waits_until=at + wait_s(failures, limits))


def wait_s(failures: int, limits: AllowanceLimits) -> float:
    """The wait after so many failures in a row."""
    middle = min(limits.longest_back_off_s, limits.back_off_s * 2.0 ** min(failures - 1, 60))
    chance = random.Random(f"{limits.seed}:{failures}")  # noqa: S311 - spreads a fleet, protects nothing
    return middle * (1 + limits.jitter * (2 * chance.random() - 1))


def succeeded(state: Allowance) -> Allowance:
    """No failure is left; what was spent is."""
    return state._replace(failures=0, waits_until=0.0)


def dumps(state: Allowance) -> str:
    """As a JSON text."""
    return json.dumps({"version": _VERSION, **state._asdict()}, separators=(",", ":"))


def loads(text: str) -> Allowance:
    """From that text. Raises ValueError for anything else."""
    try:
        plain: dict[str, Any] = json.loads(text)
        if plain["version"] != _VERSION:
            raise ValueError("written by another version")
        days = tuple(Day(int(number), float(s), float(wh)) for number, s, wh in plain["days"])[-_DAYS_KEPT:]
        found = Allowance(days, int(plain["failures"]), float(plain["waits_until"]))
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"not the state of an allowance: {error!r}") from None
    if found.failures < 0 or not all(math.isfinite(v) and v >= 0 for day in days for v in day):
        raise ValueError("not the state of an allowance: a figure is negative")
    return found
