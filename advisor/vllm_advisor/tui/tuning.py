"""What a search has told so far: the events of `tuner … --json-lines` folded into what the tune step shows.

The schema is that of docs/tuner.md. Texts are for people and may change: nothing rests on them but what is shown.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from textual.message import Message


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from vllm_advisor.question import Question
    from vllm_advisor.tui.processes import Child
    from vllm_advisor.tui.state import State

_PLACE = re.compile(r"\((\d+) of at most (\d+)\)")
_STATES = ("complete", "infeasible", "failed", "aborted")
_MOST_SAID = 6


class Told(Message):
    """A search has told something."""

    def __init__(self, child: Child, events: tuple[dict[str, Any], ...]) -> None:
        super().__init__()
        self.child, self.events = child, events


class Over(Message):
    """A search has ended: how, and what it said last on stderr."""

    def __init__(self, child: Child, how: str, what: str, hint: str) -> None:
        super().__init__()
        self.child, self.how, self.what, self.hint = child, how, what, hint


class Row(NamedTuple):
    """One trial. Figures are middles; None: not measured."""

    trial: int
    label: str
    state: str
    output_tok_s: float | None = None
    tpot_ms: float | None = None
    ttft_ms: float | None = None
    worth: float | None = None
    why: str = ""


class Result(NamedTuple):
    """The last event. `gain` is (low, middle, high), an end None where it is open."""

    verdict: str
    says: str
    chosen: int | None
    gain: tuple[float | None, ...]
    profile: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


class Progress:
    """Filled event by event."""

    def __init__(self) -> None:
        self.opened = ""
        self.doing = ""
        self.place = ""
        self.left_s: float | None = None
        self.total_s: float | None = None
        self.at = 0.0
        self.rows: dict[int, Row] = {}
        self.defaults: int | None = None
        self.said: list[str] = []
        self.result: Result | None = None
        self._awaits_defaults = False

    def take(self, event: Mapping[str, Any]) -> None:
        """One event; what is unknown, or not as documented, is passed over."""
        kind, message = str(event.get("event", "")), str(event.get("message", ""))
        left, at = _number(event.get("left_s")), _number(event.get("at"))
        if left is not None:
            self.left_s, self.at = left, at or self.at
            self.total_s = self.total_s or left
        if kind == "opened":
            self.opened = message
        elif kind == "result":
            self.result = _result(event)
        elif kind == "trial" and isinstance(event.get("trial"), int):
            self._trial(event, message)
        else:
            self.doing = f"round {message}" if kind == "round" else message
            self._awaits_defaults = kind == "defaults"
            self.said = [*self.said, f"{kind}: {message}"][-_MOST_SAID:]

    def _trial(self, event: Mapping[str, Any], message: str) -> None:
        number = int(event["trial"])
        state, _, rest = message.partition(": ")
        if self._awaits_defaults:
            self.defaults, self._awaits_defaults = number, False
        if state not in _STATES:
            place = _PLACE.search(message)
            self.place = f"{place[1]} of at most {place[2]}" if place else ""
            self.doing = f"trial {number}: {rest}"
            state = "running" if state.startswith("started") else "known"
            self.rows[number] = Row(number, rest, state)
            return
        known = self.rows.get(number) or Row(number, "", state)
        figures = {name: _number(event.get(name)) for name in ("output_tok_s", "tpot_ms", "ttft_ms", "worth")}
        self.rows[number] = known._replace(state=state, why=rest, **figures)  # type: ignore[arg-type]

    @property
    def best(self) -> Row | None:
        """What is worth most so far, by the objective of the search."""
        measured = [row for row in self.rows.values() if row.worth is not None]
        return max(measured, key=lambda row: row.worth or 0.0, default=None)

    @property
    def gain(self) -> float | None:
        """The best against vLLM's defaults, one measurement each: 0.05 is 5 %."""
        best, defaults = self.best, self.rows.get(self.defaults or 0)
        if best is None or defaults is None or not defaults.worth or best.worth is None:
            return None
        return best.worth / defaults.worth - 1

    def left(self, now: float) -> float | None:
        """Seconds left of the budget, at `now` (since 1970)."""
        if self.left_s is None:
            return None
        gone = max(0.0, now - self.at) if self.at else 0.0
        return max(0.0, self.left_s - gone)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _result(event: Mapping[str, Any]) -> Result:
    gain = event.get("gain")
    env = event.get("env")
    return Result(
        str(event.get("verdict", "")),
        str(event.get("says", "")),
        event["chosen"] if isinstance(event.get("chosen"), int) else None,
        tuple(_number(x) for x in gain) if isinstance(gain, list) else (),
        str(event.get("profile") or ""),
        tuple(map(str, event.get("argv") or ())),
        tuple((str(name), str(value)) for name, value in env.items()) if isinstance(env, dict) else (),
    )


def events(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """JSON objects, a line each; a line that is none is passed over."""
    found = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            found.append(event)
    return found


def words(state: State, effort: str, budget: str, only: int) -> tuple[str, ...]:
    """`serve MODEL …` for this question: the flags that the tuner shares with `advisor recommend`."""
    from vllm_advisor.question import flags
    from vllm_advisor.tui.processes import absolute

    asked = _shared(state)
    typed = ["serve", *flags(asked), "--effort", effort]
    typed += ["--budget", budget] if budget else []
    typed += ["--only", str(only)] if only else []
    typed += ["--vllm-python", absolute(state.vllm_python)] if state.vllm_python else []
    return (*typed, "--json-lines")


def left_behind(state: State) -> tuple[str, ...]:
    """The flags of the question that the tuner does not have."""
    from vllm_advisor.question import flags

    every, shared = flags(state.question._replace(model="")), flags(_shared(state)._replace(model=""))
    return every[len(shared) :] if every[: len(shared)] == shared else tuple(w for w in every if w not in shared)


def _shared(state: State) -> Question:
    """The question as far as the tuner understands it; it runs in another folder: a local model is an absolute path."""
    from vllm_advisor.candidates import Restrictions
    from vllm_advisor.tui.processes import absolute

    asked, limits = state.question, state.limits
    kept = Restrictions(
        limits.quantization, limits.kv_cache_dtype, limits.tensor_parallel_size, siblings=limits.siblings
    )
    return asked._replace(model=absolute(asked.model), node=None, restrictions=kept, revision=None)


def failure(file: Path) -> tuple[str, str]:
    """What a search said last on stderr: its error and its hint, or its last words; ("", "") for nothing."""
    from vllm_advisor.launch.log import scrub, tail

    lines = [line.strip() for line in scrub(tail(file)).splitlines() if line.strip()]
    what = next((line.removeprefix("error: ") for line in reversed(lines) if line.startswith("error: ")), "")
    hint = next((line.removeprefix("hint: ") for line in reversed(lines) if line.startswith("hint: ")), "")
    return (what, hint) if what else (lines[-1] if lines else "", "")


def follow(child: Child, tell: Callable[[Message], object], cancelled: Callable[[], bool]) -> None:
    """Tell `Told` for what a search writes, at last `Over`; returns when nobody listens any more."""
    from vllm_advisor.tui.processes import Tail
    from vllm_advisor.tui.serving import pause
    from vllm_advisor.vllm.logs_lines import Cutter

    tail, cutter = Tail(child.log), Cutter()
    while not cancelled():
        how = child.ended()  # before the reading: so the last event is read, too
        while (block := tail.read()) and not cancelled():
            if found := events(cutter.lines(block)):
                tell(Told(child, tuple(found)))
        if how is not None:
            child.sweep()
            tell(Over(child, how, *failure(child.errors)))
            return
        pause(0.25, cancelled)
