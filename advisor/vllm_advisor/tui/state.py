"""What a person has chosen so far, as values that can be kept, undone, and typed as a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from vllm_advisor.candidates import Restrictions
from vllm_advisor.errors import BadInput
from vllm_advisor.question import DEFAULT_VLLM, Load, Question, flags


STEPS = ("hardware", "model", "workload", "plans", "command", "launch", "tune")
_MOST_UNDONE = 200
_SCHEMA = 1


class State(NamedTuple):
    """Everything typed, as typed. `gpu` and `node` empty: this machine. `plan` counts from 1, as `recommend` does."""

    gpu: str = ""
    node: str = ""
    model: str = ""
    revision: str = ""
    vllm: str = DEFAULT_VLLM
    load: Load = Load()
    limits: Restrictions = Restrictions()
    plan: int = 1
    fmt: str = "command"
    vllm_python: str = ""
    port: int = 8000
    offline: bool = False
    step: str = STEPS[0]

    @property
    def question(self) -> Question:
        """The same as the command line would ask it."""
        node = Path(self.node) if self.node else None
        return Question(
            self.model, self.gpu or None, node, self.vllm, self.load, self.limits, self.offline, self.revision or None
        )

    def recommend(self) -> tuple[str, ...]:
        """`advisor recommend …`: the command that gives the same answer."""
        return ("advisor", "recommend", *flags(self.question))

    def launch(self) -> tuple[str, ...]:
        """`advisor launch …`: the command that starts the same plan."""
        words = ["advisor", "launch", *flags(self.question)]
        words += ["--plan", str(self.plan)] if self.plan > 1 else []
        words += ["--port", str(self.port)] if self.port != State().port else []
        return (*words, *(["--vllm-python", self.vllm_python] if self.vllm_python else []))


class History:
    """A state with its past: `change` goes on, `undo` and `redo` walk. Moving between steps is no edit."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._past: list[State] = []
        self._future: list[State] = []

    def change(self, **fields: Any) -> bool:
        """Set fields of the state; False where nothing differs."""
        changed = self.state._replace(**fields)
        if changed == self.state:
            return False
        if changed._replace(step="") != self.state._replace(step=""):
            self._past = [*self._past, self.state][-_MOST_UNDONE:]
            self._future = []
        self.state = changed
        return True

    def undo(self) -> bool:
        """The state before the last edit; False where there was none. The step stays."""
        return self._walk(self._past, self._future)

    def redo(self) -> bool:
        """What was undone last."""
        return self._walk(self._future, self._past)

    def _walk(self, source: list[State], target: list[State]) -> bool:
        if not source:
            return False
        target.append(self.state)
        self.state = source.pop()._replace(step=self.state.step)
        return True


def to_json(state: State) -> str:
    """A document that `from_json` reads."""
    plain = state._asdict() | {"load": state.load._asdict(), "limits": state.limits._asdict(), "schema": _SCHEMA}
    return json.dumps(plain, indent=1, sort_keys=True)


def from_json(text: str) -> State:
    """The state of a document. Raises BadInput for anything that is none."""
    try:
        plain = json.loads(text)
        load, limits = Load(**plain.pop("load")), Restrictions(**plain.pop("limits"))
        schema = plain.pop("schema")
        state = State(load=load, limits=limits, **plain)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadInput(f"not a kept state of the wizard: {error}", "start without --resume") from error
    if schema != _SCHEMA or state.step not in STEPS or not all(map(_as_declared, State(), state)):
        raise BadInput("not a state of this version of the wizard", "start without --resume")
    return state


def _as_declared(default: object, value: object) -> bool:
    return type(value) is type(default)
