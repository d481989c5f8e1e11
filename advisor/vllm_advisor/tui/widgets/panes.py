"""What is seen of a server: its log, its memory beside the estimate, its first words and its counters.

One pane at a time, or, in a wide terminal, all of them side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Input, Static

from vllm_advisor.tui import told
from vllm_advisor.tui.widgets.choice import Choice
from vllm_advisor.tui.widgets.keyed import VimScroll
from vllm_advisor.tui.widgets.logpane import LogPane


if TYPE_CHECKING:
    from textual.app import ComposeResult

    from vllm_advisor.tui.glyphs import Glyphs
    from vllm_advisor.tui.processes import Child
    from vllm_advisor.tui.serving import Grew, Measured

PANES = ("log", "memory", "try")
PROMPT = "The capital of France is"
_FOCUS = {"log": "#log", "memory": "#memory", "try": "#prompt"}


class Panes(Vertical):
    """`Asked` says that somebody wants a completion."""

    class Asked(Message):
        """A prompt."""

        def __init__(self, prompt: str) -> None:
            super().__init__()
            self.prompt = prompt

    _is_picked = False

    def compose(self) -> ComposeResult:
        """The choice above the panes."""
        yield Choice(*PANES, label="View", id="pane")
        with Horizontal(id="panes"):
            yield LogPane(id="log-pane")
            with Vertical(id="side"):
                with VimScroll(id="memory"):
                    yield Static(id="memory-rows")
                with VimScroll(id="try"):
                    with Horizontal(classes="asked"):
                        yield Static("Prompt", classes="label")
                        yield Input(PROMPT, id="prompt", compact=True)
                    yield Static(id="answer", markup=False)
                    yield Static(id="metrics")

    @property
    def lines(self) -> LogPane:
        """The log and its search."""
        return self.query_one(LogPane)

    @property
    def is_watched(self) -> bool:
        """Whether somebody chose a pane, or reads in the log: then nothing is turned over before his eyes."""
        view = self.lines.view
        searching = view.match != (0, 0) or self.query_one("#search").display
        return self._is_picked or searching or not view.is_followed

    def begin(self, child: Child) -> None:
        """Another server."""
        self._is_picked = False
        self.lines.file = told.home(child.log)
        self.lines.view.clear()
        for name in ("answer", "metrics", "memory-rows"):
            self.query_one(f"#{name}", Static).update("")
        self.turn_to("log")

    def grew(self, grew: Grew) -> None:
        """New lines."""
        self.lines.write(grew.lines)
        self.query_one("#memory-rows", Static).update(told.memory(grew.reading.compared))

    def measured(self, measured: Measured, glyphs: Glyphs) -> None:
        """New counters."""
        self.query_one("#metrics", Static).update(told.metrics(measured, glyphs))

    def answer(self, text: str) -> None:
        """A completion."""
        self.query_one("#answer", Static).update(text)

    def turn_to(self, name: str) -> None:
        """Show a pane."""
        self.query_one("#pane", Choice).show(name)
        panes = self.query_one("#panes")
        for pane in PANES:
            panes.set_class(pane == name, f"shows-{pane}")

    def to_log(self) -> LogPane:
        """Show the log."""
        self.turn_to("log")
        return self.lines

    def next(self) -> None:
        """The pane behind this one, with the keys."""
        choice = self.query_one("#pane", Choice)
        choice.action_by(1)
        self.turn_to(choice.chosen)
        self.query_one(_FOCUS[choice.chosen]).focus()

    def on_choice_chosen(self, chosen: Choice.Chosen) -> None:
        """A pane."""
        chosen.stop()
        self._is_picked = True
        self.turn_to(chosen.word)

    def on_input_submitted(self, submitted: Input.Submitted) -> None:
        """Enter in the prompt."""
        submitted.stop()
        self.post_message(self.Asked(submitted.value))

    def on_input_blurred(self, blurred: Input.Blurred) -> None:
        """Nothing that anybody else has to take."""
        blurred.stop()
