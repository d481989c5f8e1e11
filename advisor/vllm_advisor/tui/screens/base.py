"""What every step has: the rail, a body that scrolls, a line for what is done or went wrong, the keys."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from textual.containers import VerticalScroll
from textual.events import ScreenResume
from textual.screen import Screen
from textual.widgets import Footer, Static
from textual.worker import get_current_worker

from vllm_advisor.errors import AdvisorError
from vllm_advisor.tui.messages import Failed
from vllm_advisor.tui.widgets.rail import Rail


if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult
    from textual.events import Event

    from vllm_advisor.tui.app import Wizard
    from vllm_advisor.tui.state import State

T = TypeVar("T")


class StepScreen(Screen[None]):
    """One step. A subclass gives `STEP`, `HELP`, `body` and `show`."""

    STEP: ClassVar[str] = ""
    HELP: ClassVar[str] = ""
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 - declared so by Textual
        (0, "-narrow"),
        (80, "-normal"),
        (120, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [(0, "-usual"), (45, "-tall")]  # noqa: RUF012 - same

    @property
    def wizard(self) -> Wizard:
        """The app, by its own type."""
        return cast("Wizard", self.app)

    def compose(self) -> ComposeResult:
        """Rail, body, status, keys."""
        self.fit()
        yield Rail()
        with VerticalScroll(id="body"):
            yield from self.body()
        yield Static(id="status", markup=False)
        yield Footer()

    def fit(self) -> None:
        """The width's class before anything is drawn: Textual would style all of it a second time for it."""
        width = self.app.size.width
        self.add_class([name for least, name in self.HORIZONTAL_BREAKPOINTS or () if width >= least][-1])

    def body(self) -> ComposeResult:
        """The step's own widgets."""
        raise NotImplementedError

    def show(self, state: State) -> None:
        """Draw a state; called when the step is entered and when anything changed."""
        raise NotImplementedError

    def on_screen_resume(self) -> None:
        """Entered: whatever was changed elsewhere is drawn."""
        self.draw()

    async def on_event(self, event: Event) -> None:
        """Keys get their turn once Textual has laid out a screen that is entered: much follows that."""
        await super().on_event(event)
        if isinstance(event, ScreenResume):
            await asyncio.sleep(0)

    def draw(self) -> None:
        """The rail, then the step itself."""
        self.mark()
        self.show(self.wizard.state)

    def mark(self) -> None:
        """The rail alone: something became answered."""
        wizard = self.wizard
        self.query_one(Rail).mark(self.STEP, wizard.answered(), wizard.glyphs)

    def work(self, what: str, do: Callable[[], T], done: Callable[[T], None], *, group: str = "asking") -> None:
        """Run `do` in a thread while the status line says `what` ("": nothing); then `done`, or the error in that line.

        A later call of the same group takes the place of an earlier one, whose result is dropped.
        """
        if what:
            self.status(f"{what} …")

        def run() -> None:
            worker = get_current_worker()
            try:
                found = do()
            except AdvisorError as error:
                if not worker.is_cancelled:
                    self.app.call_from_thread(self.post_message, Failed(error.message, error.hint))
                return
            if not worker.is_cancelled:
                self.app.call_from_thread(self._finished, done, found, said=bool(what))

        self.run_worker(run, thread=True, exclusive=True, group=group, exit_on_error=True)

    def _finished(self, done: Callable[[T], None], found: T, *, said: bool) -> None:
        if not self.query("#status"):  # somebody left meanwhile, and the screen is being taken down
            return
        if said:
            self.status("")
        done(found)

    def status(self, text: str, *, failed: bool = False) -> None:
        """The line above the keys; "" clears it."""
        line = self.query_one("#status", Static)
        line.update(text)
        line.set_class(failed, "failed")
        line.display = bool(text)

    def on_failed(self, failed: Failed) -> None:
        """An expected error: one line, and what helps."""
        if not self.query("#status"):
            return
        hint = f"  ({failed.hint})" if failed.hint else ""
        self.status(f"{self.wizard.glyphs.fails} {failed.what}{hint}", failed=True)
