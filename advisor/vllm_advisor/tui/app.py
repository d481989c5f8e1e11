"""The wizard's frame: the state and its past, the steps, what every screen's keys do, and a clean end."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.events import InputEvent
from textual.widgets import TextArea

from vllm_advisor.tui import keep
from vllm_advisor.tui.asking import Asker
from vllm_advisor.tui.glyphs import UTF8, Glyphs, fitting
from vllm_advisor.tui.messages import StateChanged
from vllm_advisor.tui.screens import aside, steps
from vllm_advisor.tui.screens.aside import ASIDES, Aside
from vllm_advisor.tui.screens.base import StepScreen
from vllm_advisor.tui.state import STEPS, History, State
from vllm_advisor.tui.tidying import EVERY_S, Tidying


if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from textual.events import Event
    from textual.filter import LineFilter
    from textual.screen import Screen

    from vllm_advisor.question import Answer, Question
    from vllm_advisor.tui.processes import Children
    from vllm_advisor.tui.widgets.rail import Stop

_LIGHT, _DARK = "textual-light", "textual-dark"


class Crash(NamedTuple):
    """What ended the wizard, in a line, and where the report lies; None: it could not be written."""

    said: str
    file: Path | None


class Wizard(App[State]):
    """`advisor wizard`. It returns the state that was reached, for the command that gives the same answer."""

    TITLE = "vllm-advisor"
    CSS_PATH = "wizard.tcss"
    MODES = steps.modes()  # type: ignore[assignment]
    BINDINGS: ClassVar[list[BindingType]] = [
        # Alt and an arrow, too: Ctrl+B is what tmux itself listens to.
        Binding("ctrl+n,alt+right", "step(1)", "Next", priority=True),
        Binding("ctrl+b,alt+left", "step(-1)", "Back", priority=True),
        Binding("ctrl+z", "undo", "Undo", priority=True),
        Binding("ctrl+y", "redo", "Redo", show=False, priority=True),
        Binding("question_mark,f1", "help", "Help"),
        *(Binding(key, f"open({name!r})", name.title(), show=False) for name, (key, _) in ASIDES.items()),
        Binding("f6", "light", "Light or dark", show=False),
        *(Binding(str(number), f"go({step!r})", show=False) for number, step in enumerate(STEPS, 1)),
    ]

    def __init__(
        self, state: State, *, file: Path | None = None, glyphs: Glyphs | None = None, plain: bool = False
    ) -> None:
        super().__init__(css_path=["wizard.tcss", "plain.tcss"] if plain else None)
        self.history = History(state)
        self.asker = Asker()
        self._answer: tuple[Question, Answer] | None = None
        self.glyphs = glyphs or fitting()
        self.plain = plain
        self.crash: Crash | None = None
        self._tidying = Tidying()
        self._file = file or keep.place()

    @cached_property
    def processes(self) -> Children:
        """The server and the search at its side; notes of them lie beside the state."""
        from vllm_advisor.tui.processes import Children

        return Children(self._file.parent / "children")

    async def action_quit(self) -> None:
        """End, with the state that was reached; what runs at its side is asked about first."""
        from vllm_advisor.tui import leaving

        leaving.leave(self)

    @property
    def state(self) -> State:
        """What was chosen so far."""
        return self.history.state

    def on_mount(self) -> None:
        """The step where the state stands."""
        self.set_class(self.glyphs != UTF8, "ascii")
        self.set_class(self.plain, "plain")
        if self.plain:
            self.animation_level = "none"
        self._heed_signals()
        self._tidying.begin()
        self.set_interval(EVERY_S, self._tidying.tidy)
        self.switch_mode(self.state.step)
        if (self._file.parent / "children").is_dir():
            self.call_after_refresh(self._look_around)

    def on_unmount(self) -> None:
        """Python collects as it likes again."""
        self._tidying.end()

    async def on_event(self, event: Event) -> None:
        """Every key and every move of the mouse: not a moment to tidy up in."""
        if isinstance(event, InputEvent):
            self._tidying.typed()
        await super().on_event(event)

    def _look_around(self) -> None:
        """Servers and searches that an earlier wizard left behind."""
        from vllm_advisor.tui import leaving

        leaving.look_around(self)

    def _heed_signals(self) -> None:
        """Asked to end, it gives the terminal back first; where a browser shows it, it ends with the server."""
        if not self.is_headless and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, self.exit)
        if self.is_web:
            server = os.getppid()
            self.set_interval(2, lambda: None if os.getppid() == server else self.exit())

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's own (NO_COLOR), and for a terminal without UTF-8 the one that leaves nothing else than ASCII."""
        found = super().get_line_filters()
        if self.glyphs is UTF8:
            return found
        from vllm_advisor.tui.ascii import Ascii

        return [*found, Ascii()]

    def _handle_exception(self, error: Exception) -> None:
        """Whatever nobody expected: the state is kept, a report is written, the terminal is given back.

        In place of Textual's traceback with all local values, which may hold what a stranger should not read.
        """
        self._return_code = 1
        if self._exception is None:
            self._exception = error
            self._exception_event.set()
        if self.crash is None:
            cause = getattr(error, "error", None)  # a worker's own error is inside of Textual's
            self.crash = self._report(cause if isinstance(cause, BaseException) else error)
        self._close_messages_no_wait()

    def _report(self, error: BaseException) -> Crash:
        """As much of it as can be kept."""
        from vllm_advisor.tui import crash

        said, file = crash.one_line(error), None
        with suppress(OSError):
            keep.save(self.state, self._file)
        with suppress(OSError):
            file = crash.write(error, self._file.parent, f"step {self.state.step}")
        return Crash(said, file)

    @property
    def answer(self) -> Answer | None:
        """What the engine said to the question as it is now; None where it was another one that it answered."""
        return self._answer[1] if self._answer and self._answer[0] == self.state.question else None

    @answer.setter
    def answer(self, found: Answer | None) -> None:
        self._answer = (self.state.question, found) if found else None

    def answered(self) -> frozenset[str]:
        """Steps that need nothing more: the machine and the load always have a value, the rest rests on the model."""
        found = {"hardware", "workload"} | ({"model"} if self.state.model else set())
        return frozenset(found | ({"plans", "command"} if self.answer and self.answer.found.plans else set()))

    def change(self, **fields: Any) -> None:
        """Set fields of the state: kept on disk, told to the screen. Another question has another first plan."""
        if "plan" not in fields and self.state._replace(**fields).question != self.state.question:
            fields["plan"] = 1
        if self.history.change(**fields):
            self._changed()

    def show(self, step: str) -> None:
        """Go to a step that has something new beside the state: where it is shown already, nothing else draws it."""
        here = self.current_mode == step
        self.action_go(step)
        if here:
            self._draw()

    def _draw(self) -> None:
        if isinstance(self.screen, StepScreen):
            self.screen.draw()

    def _changed(self) -> None:
        self._save()
        self._draw()
        self.screen.post_message(StateChanged(self.state))

    def _save(self) -> None:
        try:
            keep.save(self.state, self._file)
        except OSError as error:
            self.notify(f"the state is not kept: {error.strerror or error}", severity="warning", markup=False)

    def action_step(self, by: int) -> None:
        """The next or the previous step; not while a question waits for its answer."""
        if self.screen.is_modal:
            return
        at = STEPS.index(self.state.step) + by
        if 0 <= at < len(STEPS):
            self.action_go(STEPS[at])

    def action_go(self, step: str) -> None:
        """A step by name."""
        if isinstance(self.screen, Aside):
            self.pop_screen()
        self.change(step=step)
        if self.current_mode != step:
            self.switch_mode(step)

    def action_open(self, name: str) -> None:
        """What lies beside the steps, in place of another one of them."""
        if type(self.screen).__name__ == f"{name.title()}Aside" or self.screen.is_modal:
            return
        found = aside.made(name)
        if isinstance(self.screen, Aside):
            self.switch_screen(found)
        else:
            self.push_screen(found)

    def action_light(self) -> None:
        """Between light and dark."""
        self.theme = _DARK if self.theme == _LIGHT else _LIGHT

    def on_stop_chosen(self, chosen: Stop.Chosen) -> None:
        """A click on the rail."""
        self.action_go(chosen.step)

    def action_undo(self) -> None:
        """Take the last edit back; in a text of several lines, what was typed last."""
        if isinstance(self.focused, TextArea):
            self.focused.undo()
            return
        self._walked("nothing to undo", done=self.history.undo())

    def action_redo(self) -> None:
        """Do what was undone again."""
        if isinstance(self.focused, TextArea):
            self.focused.redo()
            return
        self._walked("nothing to redo", done=self.history.redo())

    def _walked(self, otherwise: str, *, done: bool) -> None:
        if done:
            self._changed()
        else:
            self.notify(otherwise, timeout=2)

    def action_help(self) -> None:
        """What this screen is for, and its keys."""
        from vllm_advisor.tui.screens.help import Help

        if not isinstance(self.screen, Help):
            self.push_screen(Help(getattr(self.screen, "HELP", ""), self.screen))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: Textual's own, and a way to each step."""
        yield from super().get_system_commands(screen)
        for step in STEPS:
            yield SystemCommand(
                f"Go to {step}", f"Step {STEPS.index(step) + 1}", lambda step=step: self.action_go(step)
            )
        for name, (key, line) in ASIDES.items():
            yield SystemCommand(f"Open {name}", f"{key.upper()}: {line}", lambda name=name: self.action_open(name))
