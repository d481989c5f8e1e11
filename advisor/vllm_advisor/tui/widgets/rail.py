"""The rail: all steps in one line, which one this is, and which are answered. A click goes there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Static

from vllm_advisor.tui.state import STEPS


if TYPE_CHECKING:
    from textual.app import ComposeResult

    from vllm_advisor.tui.glyphs import Glyphs


class Stop(Static):
    """One step on the rail."""

    class Chosen(Message):
        """Somebody wants to go there."""

        def __init__(self, step: str) -> None:
            super().__init__()
            self.step = step

    def __init__(self, number: int, step: str) -> None:
        super().__init__(id=f"stop-{step}", classes="stop", markup=False)
        self.number = number
        self.step = step

    def on_click(self) -> None:
        """A click is a wish."""
        self.post_message(self.Chosen(self.step))


class Rail(Horizontal):
    """Seven stops. `mark` writes them."""

    def compose(self) -> ComposeResult:
        """The stops in their order."""
        for number, step in enumerate(STEPS, 1):
            yield Stop(number, step)

    def mark(self, here: str, answered: frozenset[str], glyphs: Glyphs) -> None:
        """`▶2 model`, `✓1 hardware`, `·3 workload`: sign, key, name."""
        for stop in self.query(Stop):
            state = "here" if stop.step == here else "done" if stop.step in answered else "open"
            stop.update(f"{getattr(glyphs, state)}{stop.number} {stop.step}")
            stop.set_classes(f"stop {state}")
