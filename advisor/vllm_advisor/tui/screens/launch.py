"""Step 6: the plan as a real server: its log, what the doctor reads in it, its memory, first words, and counters.

The server lives on when the step is left. It survives the wizard, too, but not unnoticed: see `tui/processes.py`.
"""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static
from textual.worker import get_current_worker

from vllm_advisor.tui import remedy, serving, told
from vllm_advisor.tui.processes import own_machine
from vllm_advisor.tui.screens.child import ChildStep
from vllm_advisor.tui.widgets.panes import Panes
from vllm_advisor.tui.widgets.reading import ReadingPane


if TYPE_CHECKING:
    from textual.app import ComposeResult

    from vllm_advisor.tui.processes import Child
    from vllm_advisor.tui.screens.planned import Chosen
    from vllm_advisor.tui.serving import Answering, Ended, Grew, Measured, Reading
    from vllm_advisor.tui.state import State
    from vllm_advisor.tui.widgets.logpane import LogPane

FOREVER = ("log", "metrics")  # groups of workers that run as long as the server


class LaunchStep(ChildStep):
    """Before the start: where. After it: what happens, in three panes that stand side by side where there is room."""

    STEP = "launch"
    HELP = """Launch

Starts the chosen plan with the vLLM of this machine, and watches it: the log as it grows, how far the start has
come, what the doctor reads in it, and the memory that vLLM reports beside our estimate.

When it answers, write the beginning of a text and press Enter: the first completion. Below it stand the server's
own counters, read again every two seconds.

If it does not start: the cause, and remedies. Enter on one that is a limit of the plan sets it, and plans are
ranked again; then start once more.

The server goes on when you leave this step. At the end you are asked whether to stop it."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "start", "Start"),
        Binding("x", "stop", "Stop"),
        Binding("v", "pane", "View"),
        Binding("slash", "search", "Find", key_display="/"),
        Binding("c", "copy_address", "Copy address", show=False),
        Binding("escape", "away", "To the keys"),
    ]
    clock = staticmethod(time.monotonic)
    reading: Reading | None = None
    _begun = 0.0
    _took: float | None = None
    _ended: str | None = None

    def body(self) -> ComposeResult:
        """Where to start it, what happened, the panes."""
        yield Static(id="which", classes="title", markup=False)
        with Vertical(id="setup"):
            yield from self.field("vLLM's Python", "python", "empty: the `vllm` on the PATH")
            yield from self.field("Port", "port")
            yield Static(id="will", markup=False)
        yield from self.buttons()
        yield Static(id="phases", markup=False)
        yield ReadingPane(id="reading")
        yield Panes(id="watched")

    def on_mount(self) -> None:
        """Nothing is wrong yet."""
        self._draw_reading()

    def show(self, state: State) -> None:
        """Fields as the state has them; the server that runs, whoever started it."""
        for name, value in (("python", state.vllm_python), ("port", str(state.port))):
            field = self.query_one(f"#{name}", Input)
            if not field.has_focus:
                field.value = value
        running = self.wizard.processes.server
        if running is not None and running is not self.child:
            self._watch(running)
        self._draw_will()
        super().show(state)

    def planned(self, chosen: Chosen) -> None:  # noqa: ARG002 - it is `self.chosen` by now
        """The plan that would be started."""
        self.unplanned()

    def unplanned(self) -> None:
        """With or without one: a server that runs is shown all the same."""
        self._draw_will()
        self.rearrange()

    def _draw_will(self) -> None:
        """What Start would start, and what speaks against it."""
        chosen, state = self.chosen, self.wizard.state
        which = f"{chosen.ranked.model.name}\n{chosen.says}" if chosen else ""
        if self.child is not None:
            which = f"{self.child.model}\n" + (chosen.says if chosen else "started by another wizard")
        self.query_one("#which", Static).update(which)
        lines = ["", shlex.join(chosen.ranked.command.argv)] if chosen and self.child is None else []
        if chosen and self.child is None and not own_machine(state.gpu, state.node):
            where = chosen.answer.found.facts.node.label
            lines += ["", f"{self.wizard.glyphs.warning} This plan is for {where}; here it may not start."]
        will = self.query_one("#will", Static)
        will.update("\n".join(lines))
        will.display = bool(lines)

    def take(self, field: Input) -> None:
        """Into the state, where it can be."""
        if field.id == "python":
            self.wizard.change(vllm_python=field.value.strip())
        elif field.id == "port" and field.value.strip().isdigit() and 0 < int(field.value) < 1 << 16:
            self.wizard.change(port=int(field.value))
        elif field.id == "port":
            self.status(f"{field.value!r} is no port: 1 to 65535", failed=True)

    @property
    def is_over(self) -> bool:
        """Whether the server is gone."""
        return self._ended is not None

    def begin(self) -> None:
        """The chosen plan."""
        state, chosen = self.wizard.state, self.chosen
        if chosen is None:
            self.status("there is no plan to start: press 4", failed=True)
            return
        python = Path(state.vllm_python).expanduser() if state.vllm_python else None
        children, command = self.wizard.processes, chosen.ranked.command
        self.be_busy("starting")
        self.work("starting vLLM", lambda: children.serve(command, python, state.port), self._watch, group="server")

    def end(self) -> None:
        """The server first, then its engine and workers."""
        child = self.child
        if child is not None:
            self.be_busy("stopping")
            self.work("stopping vLLM (up to 30 s)", child.stop, lambda _: self.be_busy(""), group="server")

    def _watch(self, child: Child) -> None:
        """A server that was started, or found."""
        self.child, self.reading = child, None
        self._ended, self._took, self._begun = None, None, self.clock()
        self.query_one(Panes).begin(child)
        tell = self.post_message
        self.in_thread(
            "log", lambda cancelled: serving.follow(child, lambda: serving.expected(self.chosen), tell, cancelled)
        )
        self.in_thread("metrics", lambda cancelled: serving.measure(child, tell, cancelled))
        self._draw_will()
        self._draw_phases()
        self._draw_reading()
        self.be_busy("")
        self.query_one(Panes).lines.view.focus()

    def on_grew(self, grew: Grew) -> None:
        """New lines, and what they come to."""
        if grew.child is not self.child:
            return
        self.query_one(Panes).grew(grew)
        self.reading = grew.reading
        self._draw_phases()
        self._draw_reading()

    def on_answering(self, answering: Answering) -> None:
        """It is up."""
        if answering.child is not self.child:
            return
        self._took = self.clock() - self._begun
        self._draw_phases()
        self.draw_state()
        panes = self.query_one(Panes)
        if not panes.is_watched:
            panes.turn_to("try")
            if self.app.screen is self:
                self.query_one("#prompt").focus()

    def on_measured(self, measured: Measured) -> None:
        """Its counters."""
        if measured.child is self.child:
            self.query_one(Panes).measured(measured, self.wizard.glyphs)

    def on_ended(self, ended: Ended) -> None:
        """It is gone."""
        if ended.child is not self.child:
            return
        self._ended = ended.how
        self.wizard.processes.server = None
        self.busy = ""
        self._draw_phases()
        self._draw_reading()
        self.rearrange()
        pane = self.query_one(ReadingPane)
        if pane.has_remedies and self.app.screen is self:
            pane.focus_remedies()

    def says(self) -> str:
        """How it stands."""
        child, glyphs = self.child, self.wizard.glyphs
        if child is None:
            return ""
        if self._ended is not None:
            return f"{glyphs.ring} ended ({self._ended})" if self._ended else f"{glyphs.ring} ended"
        if self.busy:
            return f"{glyphs.ring} {self.busy}"
        found = ", found running" if child.is_found else ""
        if self._took is None:
            return f"{glyphs.ring} starting, {self.clock() - self._begun:.0f} s{found}; process {child.pid}"
        after = "" if child.is_found else f" after {self._took:.0f} s"
        return f"{glyphs.dot} ready{after}{found}: {child.url}/v1, process {child.pid}"

    def _draw_phases(self) -> None:
        phases = self.reading.phases if self.reading else ()
        if self._took is not None:
            phases = tuple(phase._replace(done=True) for phase in phases)
        line = told.phases(phases, self.wizard.glyphs, going_on=self._ended is None)
        self.query_one("#phases", Static).update(line)

    def _draw_reading(self) -> None:
        wizard = self.wizard
        pane = self.query_one(ReadingPane)
        pane.show(self.reading, wizard.state, self.chosen, wizard.glyphs, ended=self._ended)

    def on_reading_pane_remedied(self, remedied: ReadingPane.Remedied) -> None:
        """A limit of the plan is set, and plans are decided again; what is none has to be done by hand."""
        fix = remedied.fix
        if self.runs:
            self.status("a server runs: x stops it, then a remedy can be applied", failed=True)
            return
        fields = remedy.fields(fix, self.wizard.state, self.chosen)
        if not fields:
            self.status(f"this is none of the plan's limits; by hand: {told.added(fix)}", failed=True)
            return
        self.wizard.change(**fields)
        self.notify(f"applied: {told.added(fix)}. Start again with s, or look at the plans: 4.", markup=False)
        self.query_one("#start").focus()

    def on_panes_asked(self, asked: Panes.Asked) -> None:
        """A first completion."""
        child, prompt = self.child, asked.prompt
        if child is None or self._took is None or not self.runs:
            self.status("the server does not answer yet", failed=True)
            return
        begun = self.clock()

        def ask() -> str:
            worker = get_current_worker()
            return serving.completion(child, prompt, lambda: worker.is_cancelled)

        def answered(text: str) -> None:
            self.query_one(Panes).answer(f"{prompt}{text}\n({self.clock() - begun:.1f} s)")

        self.work("asking", ask, answered, group="completion")

    def action_copy_address(self) -> None:
        """For a client."""
        if self.child is not None:
            self.app.copy_to_clipboard(f"{self.child.url}/v1")
            self.notify(f"copied: {self.child.url}/v1", timeout=3)

    def action_pane(self) -> None:
        """The next one."""
        if self.child is not None:
            self.query_one(Panes).next()

    def action_search(self) -> None:
        """A field below the log."""
        if self.child is not None:
            self.query_one(Panes).to_log().search()

    def on_log_pane_searched(self, searched: LogPane.Searched) -> None:
        """Found or not."""
        nothing = bool(searched.text) and not searched.lines
        self.status(f"{searched.text!r} is not in the log" if nothing else "", failed=nothing)

    def action_away(self) -> None:
        """Out of a field, so that keys are keys again."""
        if self.child is not None:
            self.query_one(Panes).to_log().view.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Escape leads out of a field, and is offered only there."""
        return super().check_action(action, parameters) if action != "away" else isinstance(self.focused, Input)

    def rearrange(self) -> None:
        """Fields only where nothing runs."""
        self.query_one("#setup").display = not self.runs
        self.query_one("#phases").display = self.child is not None
        super().rearrange()
