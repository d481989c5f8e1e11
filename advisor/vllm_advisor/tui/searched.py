"""What the tune step writes: time left, the best so far, trials, the result. Texts only."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from vllm_advisor.units import milliseconds, significant


if TYPE_CHECKING:
    from vllm_advisor.tui.glyphs import Glyphs
    from vllm_advisor.tui.tuning import Progress, Result, Row

HEAD = ("", "#", "configuration", "tok/s", "a token", "1st token", "state")
_WIDTH = 30


def time_left(progress: Progress, now: float, glyphs: Glyphs, *, plain: bool) -> str:
    """`████████░░░░  40 % of the time, 9:00 left`."""
    left, total = progress.left(now), progress.total_s
    if left is None or not total:
        return "how long it takes is not known yet"
    share = min(1.0, max(0.0, 1 - left / total))
    said = f"{share:.0%} of the time is used, {clock(left)} left"
    if plain:
        return said
    full = round(share * _WIDTH)
    return f"{glyphs.shades[-1] * full}{glyphs.shades[0] * (_WIDTH - full)}  {said}"


def clock(seconds: float) -> str:
    """`9:05`, `1:20:00`."""
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def best(progress: Progress) -> str:
    """The best so far, against vLLM's defaults; nothing is claimed of it before the comparison in turns."""
    found, gain = progress.best, progress.gain
    if found is None or progress.result is not None:
        return ""
    name = "vLLM's defaults" if found.trial == progress.defaults else f"trial {found.trial}"
    speed = f"{significant(found.output_tok_s)} tok/s out" if found.output_tok_s is not None else ""
    if found.trial == progress.defaults:
        more = "nothing beats them yet"
    else:
        more = f"{gain:+.0%} on vLLM's defaults, not proven yet" if gain is not None else "vLLM's defaults did not run"
    return f"Best so far: {name}, {found.label}: {speed} ({more})"


def rows(progress: Progress, glyphs: Glyphs) -> tuple[list[tuple[str, ...]], list[str]]:
    """The table, and the keys of its rows: trials as they came."""
    leader = progress.best.trial if progress.best else None
    chosen = progress.result.chosen if progress.result else leader
    shown = [_row(row, progress, glyphs, chosen) for row in progress.rows.values()]
    return shown, [str(number) for number in progress.rows]


def _row(row: Row, progress: Progress, glyphs: Glyphs, chosen: int | None) -> tuple[str, ...]:
    label = row.label + (" (defaults)" if row.trial == progress.defaults else "")
    sign = {"running": glyphs.here, "infeasible": glyphs.fails, "failed": glyphs.fails}.get(row.state, glyphs.open)
    speeds = (
        significant(row.output_tok_s) if row.output_tok_s is not None else "",
        milliseconds(row.tpot_ms) if row.tpot_ms is not None else "",
        milliseconds(row.ttft_ms) if row.ttft_ms is not None else "",
    )
    mark = glyphs.done if row.trial == chosen and row.worth is not None else sign
    return (mark, str(row.trial), label, *speeds, row.state)


def why(progress: Progress, trial: str) -> str:
    """All that was said of one trial."""
    row = progress.rows.get(int(trial)) if trial.isdigit() else None
    return f"trial {row.trial}: {row.state}{row.why and f': {row.why}'}" if row else ""


def result(progress: Progress, glyphs: Glyphs) -> str:
    """The verdict with its numbers, what was kept, and the command."""
    found = progress.result
    if found is None:
        return ""
    name = "vLLM's defaults" if found.chosen == progress.defaults else f"trial {found.chosen}"
    lines = [f"{glyphs.done} {found.verdict}: run {name}" if found.chosen else f"{glyphs.fails} {found.verdict}"]
    lines += [found.says] if found.says else []
    lines += [f"Gain in turns: {_gain(found.gain)}"] if found.gain and not found.says else []
    if found.profile:
        lines.append(
            f"Kept as profile {found.profile[:12]}: `advisor recommend` puts it first from now on (F2 shows it)."
        )
    return "\n".join([*lines, "", command(found)] if found.argv else lines)


def _gain(gain: tuple[float | None, ...]) -> str:
    low, middle, high = (f"{100 * end:+.1f} %" if end is not None else "open" for end in (*gain, None, None, None)[:3])
    return f"{middle} ({low} to {high})"


def command(found: Result) -> str:
    """As a shell takes it."""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in found.env), shlex.join(found.argv)])
