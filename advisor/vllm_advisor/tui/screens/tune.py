"""Step 7: measured instead of estimated: `tuner serve` as a child, its trials, its best so far, and what it keeps."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Button, Input, Static

from vllm_advisor.errors import UsageError
from vllm_advisor.tui import searched, tuning
from vllm_advisor.tui.messages import Failed
from vllm_advisor.tui.processes import own_machine
from vllm_advisor.tui.screens.child import ChildStep
from vllm_advisor.tui.widgets.choice import Choice
from vllm_advisor.tui.widgets.trials import Trials


if TYPE_CHECKING:
    from textual.app import ComposeResult

    from vllm_advisor.tui.processes import Child
    from vllm_advisor.tui.screens.planned import Chosen
    from vllm_advisor.tui.state import State

# The tuner's own rows (vllm_tuner/effort.py, which a test compares): trials beside the defaults, and time.
EFFORTS = {"quick": "6 trials, 15 min", "normal": "24 trials, 2 h", "thorough": "80 trials, 8 h"}
BEST, ONLY = "the best plans", "only the chosen plan"
FOREVER = ("events",)  # the group of workers that run as long as the search


class TuneStep(ChildStep):
    """Before the start: how much effort. After it: time, best so far, every trial, the result."""

    STEP = "tune"
    HELP = """Tune

Measures on this machine what the other steps only estimate: vLLM's defaults first, then configurations around the
best plans, each with a real server under a real load; at last the best against the defaults in turns, until it is
sure that one is better.

It takes long, needs the GPUs for itself, and may be stopped at any time: x stops it, and everything that was
measured is kept; the same search goes on from there later. The result is kept as a profile, which
`advisor recommend` puts first from then on.

The search goes on when you leave this step. At the end you are asked whether to stop it."""
    STOP = "Stop and keep (x)"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "start", "Start"),
        Binding("x", "stop", "Stop"),
        Binding("e", "effort", "Effort"),
        Binding("y,c", "copy", "Copy"),
    ]
    clock = staticmethod(time.time)
    progress: tuning.Progress | None = None
    _over: tuning.Over | None = None

    def body(self) -> ComposeResult:
        """What to search, how it goes, what came of it."""
        yield Static(id="which", classes="title", markup=False)
        with Vertical(id="setup"):
            yield Choice(*EFFORTS, label="Effort ", id="effort")
            yield Choice(BEST, ONLY, label="Measure", id="which-plans")
            yield from self.field("Time", "budget", "empty: as the effort has it; else 30m, 2h")
            yield from self.field("vLLM's Python", "python", "empty: the `vllm` on the PATH")
            yield Static(id="will", markup=False)
        yield from self.buttons()
        yield Trials(id="watched")

    # -- before the start

    def show(self, state: State) -> None:
        """The command that would run; the search that runs, whoever started it."""
        field = self.query_one("#python", Input)
        if not field.has_focus:
            field.value = state.vllm_python
        running = self.wizard.processes.search
        if running is not None and running is not self.child:
            self._watch(running)
        self._draw_will()
        super().show(state)

    def planned(self, chosen: Chosen) -> None:
        """What it would start from."""
        which = f"{chosen.ranked.model.name}\n{chosen.says}"
        self.query_one("#which", Static).update(which)
        self.rearrange()

    def unplanned(self) -> None:
        """Nothing to start from."""
        self.query_one("#which", Static).update("")
        self.rearrange()

    def _words(self) -> tuple[str, ...]:
        """The command without `tuner`. Raises UsageError where it would measure another machine than was asked for."""
        state = self.wizard.state
        if not own_machine(state.gpu, state.node):
            raise UsageError(
                f"the plans are for {state.node or state.gpu}, and a search measures this machine",
                "press 1 and choose this machine",
            )
        effort, budget = self.query_one("#effort", Choice).chosen, self.query_one("#budget", Input).value.strip()
        only = state.plan if self.query_one("#which-plans", Choice).chosen == ONLY else 0
        return tuning.words(state, effort, budget, only)

    def _draw_will(self) -> None:
        effort = self.query_one("#effort", Choice).chosen
        lines = [f"At most {EFFORTS[effort]}, or less where it is sure earlier.", ""]
        try:
            lines.append(f"tuner {shlex.join(self._words())}")
        except UsageError as error:
            lines.append(f"{self.wizard.glyphs.warning} {error.message}: {error.hint}")
        left_out = tuning.left_behind(self.wizard.state)
        lines += [f"{self.wizard.glyphs.warning} Not taken along: {shlex.join(left_out)}"] if left_out else []
        self.query_one("#will", Static).update("\n".join(lines))

    def on_choice_chosen(self) -> None:
        """Another effort, or other plans."""
        self._draw_will()

    def action_effort(self) -> None:
        """The next effort."""
        if not self.runs:
            self.query_one("#effort", Choice).action_by(1)

    def take(self, field: Input) -> None:
        """The Python is that of the launch, too."""
        if field.id == "python":
            self.wizard.change(vllm_python=field.value.strip())
        self._draw_will()

    # -- starting and stopping

    @property
    def is_over(self) -> bool:
        """Whether the search has ended."""
        return self._over is not None

    def begin(self) -> None:
        """`tuner serve …`; after a search, the questions first."""
        server = self.wizard.processes.server
        if self.is_over:
            self._begin_again()
        elif self.chosen is None:
            self.status("there is nothing to measure: press 4", failed=True)
        elif server is not None and server.ended() is None:
            self.status("the server of step 6 holds the memory that a search needs: stop it there first", failed=True)
        else:
            self._begin()

    def _begin(self) -> None:
        try:
            typed = self._words()
        except UsageError as error:
            self.post_message(Failed(error.message, error.hint))
            return
        children, model = self.wizard.processes, self.wizard.state.model
        self.be_busy("starting")
        self.work("starting the tuner", lambda: children.tune(typed, model), self._watch, group="search")

    def _begin_again(self) -> None:
        """Back to the questions; the last result goes."""
        self.child, self.progress, self._over = None, None, None
        self.status("")
        self.query_one(Trials).show(tuning.Progress(), self.wizard.glyphs)
        self._draw_will()
        self.rearrange()
        self.query_one("#effort").focus()

    def end(self) -> None:
        """As Ctrl-C does: servers stop, trials that ended are kept."""
        child = self.child
        if child is not None:
            self.be_busy("stopping: its server ends first")
            self.work("stopping the search", child.stop, lambda _: self._stopped(), group="search")

    def _watch(self, child: Child) -> None:
        self.child, self.progress, self._over = child, tuning.Progress(), None
        self.in_thread(FOREVER[0], lambda cancelled: tuning.follow(child, self.post_message, cancelled))
        self.be_busy("")
        self._draw()
        self.query_one(Trials).focus_table()

    # -- what happens

    def on_told(self, told: tuning.Told) -> None:
        """Events."""
        if told.child is self.child and self.progress is not None:
            for event in told.events:
                self.progress.take(event)
            self._draw()

    def on_over(self, over: tuning.Over) -> None:
        """It ended: with a result, stopped, or with an error."""
        if over.child is not self.child or self.progress is None:
            return
        self.busy, self._over = "", over
        self.wizard.processes.search = None
        if self.progress.result is not None and self.progress.result.profile:
            self.wizard.processes.kept += 1  # plans are decided anew: the measured one comes first
        self._say_end()
        self.rearrange()
        self._draw()

    def _say_end(self) -> None:
        """How it ended, where that is no result."""
        over, progress = self._over, self.progress
        if over is None or progress is None or progress.result is not None:
            return
        if over.how in ("SIGINT", "SIGTERM", "exit code 130"):
            self.status("stopped: what was measured is kept, and the same search goes on from there")
            return
        hint = f"  ({over.hint})" if over.hint else ""
        self.status(
            f"{self.wizard.glyphs.fails} {over.what or over.how or 'it ended without a result'}{hint}", failed=True
        )

    def _stopped(self) -> None:
        self.be_busy("")
        self._say_end()

    def _draw(self) -> None:
        """Everything that events say."""
        self.draw_state()
        if self.progress is not None:
            self.query_one(Trials).show(self.progress, self.wizard.glyphs)

    def draw_state(self) -> None:
        """How it stands, and the time."""
        super().draw_state()
        now = None if self.is_over or self.progress is None else self.clock()
        wizard = self.wizard
        self.query_one(Trials).time(self.progress, now, wizard.glyphs, plain=wizard.plain)

    def says(self) -> str:
        """How it stands."""
        child, glyphs = self.child, self.wizard.glyphs
        if child is None:
            return ""
        if self.busy:
            return f"{glyphs.ring} {self.busy}"
        if self.is_over:
            return f"{glyphs.ring} ended"
        found = ", found running" if child.is_found else ""
        doing = self.progress.doing if self.progress and self.progress.doing else "reading the machine and the model"
        place = f" ({self.progress.place})" if self.progress and self.progress.place else ""
        return f"{glyphs.dot} {doing}{place}{found}"

    def action_copy(self) -> None:
        """The command that won."""
        result = self.progress.result if self.progress else None
        if result is None or not result.argv:
            self.status("there is no winner yet", failed=True)
            return
        self.app.copy_to_clipboard(searched.command(result))
        self.notify("copied: the command that won", timeout=3)

    def rearrange(self) -> None:
        """Questions before the first search, its result after it."""
        self.query_one("#setup").display = self.child is None
        self.query_one("#start", Button).label = "Another search (s)" if self.child is not None else "Start (s)"
        super().rearrange()
