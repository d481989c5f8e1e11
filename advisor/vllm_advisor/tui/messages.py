"""What the screens tell each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message


if TYPE_CHECKING:
    from vllm_advisor.question import Answer
    from vllm_advisor.tui.state import State


class StateChanged(Message):
    """Something was chosen, undone, or a step was taken."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state


class Answered(Message):
    """The engine answered for a state."""

    def __init__(self, state: State, answer: Answer) -> None:
        super().__init__()
        self.state = state
        self.answer = answer


class Failed(Message):
    """A worker came back with an expected error: what, and what helps."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__()
        self.what = what
        self.hint = hint
