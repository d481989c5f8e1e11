"""What the launch step writes: phases, the doctor's reading, memory beside the estimate, counters. Texts only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vllm_advisor.doctor.failure import CONSEQUENCE
from vllm_advisor.units import count, rate, significant


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from vllm_advisor.doctor.comparison import Comparison, Row
    from vllm_advisor.doctor.live import Answer
    from vllm_advisor.doctor.phases import Phase
    from vllm_advisor.doctor.remedies import Fix
    from vllm_advisor.tui.glyphs import Glyphs
    from vllm_advisor.tui.serving import Measured, Reading

_LEVELS = {"ok": " ", "watch": "!", "act": "!!", "unknown": "?"}
# Of the doctor's answers about a running server: those that its start-up log does not give.
_TOPICS = ("KV pressure", "preemptions", "queue", "rejections", "prefix cache", "latency")


def home(path: Path) -> str:
    """A path without the name of the user."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except ValueError:
        return str(path)


def phases(found: Sequence[Phase], glyphs: Glyphs, *, going_on: bool) -> str:
    """`✓ settings  ✓ weights 15.3 GiB  ▶ KV cache  · warm-up  · serving`, what was said of the last one behind it."""
    if not found:
        return f"{glyphs.here} starting Python and its libraries" if going_on else ""
    here = next((place for place, phase in enumerate(found) if not phase.done), len(found))
    signs = [
        glyphs.done if place < here else (glyphs.here if going_on else glyphs.fails) if place == here else glyphs.open
        for place in range(len(found))
    ]
    line = "  ".join(f"{sign} {phase.name}" for sign, phase in zip(signs, found, strict=True))
    says = [phase.says for phase in found if phase.says and phase.name != "serving"]
    return f"{line}\n{'; '.join(says)}" if says else line


def diagnosis(reading: Reading, glyphs: Glyphs, *, ended: str | None) -> str:
    """The cause and its fix, as `advisor doctor` names them; "" while nothing is wrong."""
    finding = reading.finding
    cause = finding.cause
    if cause is None:
        if not ended or finding.start.facts.ready:
            return ""
        head = f"{glyphs.fails} It did not get ready, and the failure is none that we know."
        return "\n".join([head, *_last_words(reading)])
    started = finding.start.facts.ready
    when = "It failed while serving" if started else "It did not start" if ended is not None else "Trouble"
    lines = [f"{glyphs.fails} {when}: {cause.failure.name} ({cause.failure.id}).", f"  {_sentence(cause.cause)}"]
    lines += [] if reading.fixes else [f"  Fix: {_sentence(cause.fix)}"]
    lines += _last_words(reading) if cause.failure.weight == CONSEQUENCE else []
    return "\n".join(lines)


def _last_words(reading: Reading) -> list[str]:
    """Lines that name an error, else the last line of all."""
    finding = reading.finding
    words = finding.errors[-3:] or ((finding.log.last,) if finding.log.last else ())
    return ["  Its last words:", *(f"  {text}" for text in words)] if words else ["  It wrote nothing."]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def fix(found: Fix, fields: object) -> str:
    """One remedy: what, with which flags, and on what it rests; by hand where it is no limit of the plan."""
    how = "Enter applies it" if fields else "by hand"
    return f"{found.words[:1].upper()}{found.words[1:]}: {added(found)}  ({found.basis}; {how})"


def added(found: Fix) -> str:
    """Its flags, as a shell takes them."""
    from vllm_advisor.doctor import command

    return command.added(found.change)


def memory(compared: Comparison) -> RenderableType:
    """What vLLM printed beside what we expected, with the interval, and how far off."""
    from rich.console import Group
    from rich.text import Text

    from vllm_advisor.tui.widgets.pairs import columns

    if not compared.rows:
        return Text(
            f"No comparison: {compared.why_not}" if compared.why_not else "vLLM has not printed its memory yet."
        )
    rows = [(_name(row), _value(row, row.printed), _range(row), _off(row)) for row in compared.rows]
    title = Text("Memory: as vLLM reports it, beside our estimate", style="bold")
    assumed = [Text(f"assumed: {text}") for text in compared.assumed]
    return Group(title, columns(("a rank", "vLLM", "estimate", "off by"), rows, (1, 2, 3)), *assumed)


_NAMES = {
    "weights per rank": "weights", "KV cache memory": "KV cache", "KV cache size": "KV cache",
    "requests of full length": "longest requests", "CUDA graphs": "graphs",
}  # fmt: skip


def _name(row: Row) -> str:
    name = _NAMES.get(row.name, row.name)
    return f"{name}, {row.unit}" if row.unit != "x" else name


def _value(row: Row, value: float | None) -> str:
    if value is None:
        return "?"
    return count(value) if row.unit == "tokens" else f"{value:.2f}"


def _range(row: Row) -> str:
    if row.predicted is None or row.low is None or row.high is None or row.low == row.high:
        return _value(row, row.predicted)
    return f"{significant(row.predicted)} ({significant(row.low)}–{significant(row.high)})"


def _off(row: Row) -> str:
    off = row.difference
    return "" if off is None else f"{100 * off:+.1f} %"


def metrics(found: Measured, glyphs: Glyphs) -> RenderableType:
    """The server's counters, and what they say."""
    from rich.text import Text

    from vllm_advisor.tui.widgets.pairs import pairs

    if found.seen is None:
        return Text(f"{glyphs.warning} no counters: {found.why_not}")
    rows = [*_rates(found), *((answer.topic, _marked(answer.level, answer.text)) for answer in _chosen(found))]
    return pairs(rows, "Its own counters, read every 2 s")


def _rates(found: Measured) -> Iterator[tuple[str, str]]:
    from vllm_advisor.hardware import Unknown

    seen = found.seen
    if seen is None:
        return
    running = "?" if isinstance(seen.running, Unknown) else significant(seen.running, 2)
    waiting = "?" if isinstance(seen.waiting, Unknown) else significant(seen.waiting, 2)
    yield "requests", f"{running} running, {waiting} waiting"
    output, prompt = seen.output_rate, seen.prompt_rate
    if not isinstance(output, Unknown) and not isinstance(prompt, Unknown):
        yield "now", f"{rate(output)} out, {rate(prompt)} in"


def _chosen(found: Measured) -> Iterator[Answer]:
    yield from (answer for answer in found.told if answer.topic in _TOPICS and answer.level != "unknown")


def _marked(level: str, text: str) -> str:
    mark = _LEVELS.get(level, " ").strip()
    return f"{mark} {text}" if mark else text
