"""What launch and tune share: a child process that outlives the step, its two buttons, fields before a start."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.containers import Horizontal
from textual.widgets import Button, Input, Static
from textual.worker import get_current_worker

from vllm_advisor.tui.screens.planned import PlannedStep


if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult

    from vllm_advisor.tui.messages import Failed
    from vllm_advisor.tui.processes import Child


class ChildStep(PlannedStep):
    """A subclass gives `is_over`, `says`, `take`, and `begin` and `end` for the two buttons."""

    AUTO_FOCUS = "#start"
    STOP: ClassVar[str] = "Stop (x)"
    child: Child | None = None
    busy = ""

    def buttons(self) -> ComposeResult:
        """Start, stop, and how it stands."""
        with Horizontal(id="buttons"):
            yield Button("Start (s)", id="start", compact=True)
            yield Button(self.STOP, id="stop", compact=True)
            yield Static(id="state", markup=False)

    @staticmethod
    def field(label: str, name: str, placeholder: str = "") -> ComposeResult:
        """A label and its field, in one line."""
        with Horizontal(classes="asked"):
            yield Static(label, classes="label")
            yield Input(id=name, placeholder=placeholder, compact=True)

    def on_mount(self) -> None:
        """The clock, and only what there is."""
        self.set_interval(1.0, self.draw_state)
        self.rearrange()

    # -- what a subclass says

    @property
    def is_over(self) -> bool:
        """Whether the child has ended."""
        raise NotImplementedError

    def says(self) -> str:
        """How it stands, in one line."""
        raise NotImplementedError

    def take(self, field: Input) -> None:
        """A field was left."""
        raise NotImplementedError

    def begin(self) -> None:
        """Start; something else does not run."""
        raise NotImplementedError

    def end(self) -> None:
        """Stop what runs."""
        raise NotImplementedError

    # -- what is the same

    @property
    def runs(self) -> bool:
        """Whether a child of ours, or one that was found, lives."""
        return self.child is not None and not self.is_over

    def on_button_pressed(self, pressed: Button.Pressed) -> None:
        """A click."""
        if pressed.button.id == "start":
            self.action_start()
        else:
            self.action_stop()

    def action_start(self) -> None:
        """A child that outlives this step."""
        if self.runs or self.busy:
            self.status("it runs already: x stops it", failed=True)
        else:
            self.begin()

    def action_stop(self) -> None:
        """All of its processes, in order."""
        if not self.runs:
            self.status("nothing runs here", failed=True)
        else:
            self.end()

    def on_input_blurred(self, blurred: Input.Blurred) -> None:
        """Leaving a field is as good as Enter."""
        self.take(blurred.input)

    def on_input_submitted(self, submitted: Input.Submitted) -> None:
        """Enter."""
        self.take(submitted.input)
        self.query_one("#start").focus()

    def on_failed(self, failed: Failed) -> None:  # noqa: ARG002 - the line itself is the base's to write
        """Whatever was tried is over."""
        self.be_busy("")

    def be_busy(self, what: str) -> None:
        """Buttons rest while something is under way; "": it is over."""
        self.busy = what
        self.rearrange()

    def in_thread(self, group: str, run: Callable[[Callable[[], bool]], None]) -> None:
        """Run what goes on as long as the child, until nobody wants it any more."""

        def worked() -> None:
            worker = get_current_worker()
            run(lambda: worker.is_cancelled)

        self.run_worker(worked, thread=True, exclusive=True, group=group, exit_on_error=True)

    def draw_state(self) -> None:
        """The line beside the buttons."""
        self.query_one("#state", Static).update(self.says())

    def rearrange(self) -> None:
        """Only what there is."""
        runs, start, stop = self.runs, self.query_one("#start", Button), self.query_one("#stop", Button)
        self.query_one("#watched").display = self.child is not None
        start.display, stop.display = not runs, runs
        start.disabled, stop.disabled = bool(self.busy) or self.chosen is None, bool(self.busy)
        self.set_class(self.child is not None, "has-child")
        self.draw_state()
