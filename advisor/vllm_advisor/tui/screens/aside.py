"""What lies beside the steps: profiles, the decision matrix, `check`, the daemon. Escape goes back to the step."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, ClassVar

from textual.containers import VerticalScroll
from textual.widgets import Footer, Static

from vllm_advisor.tui.screens.base import StepScreen
from vllm_advisor.tui.widgets.rail import Rail


if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

# Name, key, and the line of the palette.
ASIDES = {
    "profiles": ("f2", "Measured deployments: list, compare, export, remove"),
    "matrix": ("f3", "The decision matrix of a GPU, and the rules behind it"),
    "check": ("f4", "Judge a vllm serve command that you paste, and mend it"),
    "daemon": ("f5", "What the background re-tuning does, and did"),
}


class Aside(StepScreen):
    """One of them. A subclass gives `HEADING`, `HELP`, `body` and `show`."""

    HEADING: ClassVar[str] = ""
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "close", "Back")]

    def compose(self) -> ComposeResult:
        """Rail, heading, body, status, keys. The body's parts scroll; itself only in a tiny terminal."""
        self.fit()
        yield Rail()
        with VerticalScroll(id="body", can_focus=False):
            yield Static(self.HEADING, classes="title", markup=False)
            yield from self.body()
        yield Static(id="status", markup=False)
        yield Footer()

    def draw(self) -> None:
        """The rail says which step it goes back to."""
        wizard = self.wizard
        self.query_one(Rail).mark(wizard.state.step, wizard.answered(), wizard.glyphs)
        self.show(wizard.state)

    def action_close(self) -> None:
        """Back to the step."""
        self.app.pop_screen()


def made(name: str) -> Aside:
    """A new screen: class `ProfilesAside` of `screens/profiles.py`, and so on."""
    module = importlib.import_module(f"vllm_advisor.tui.screens.{name}")
    found: Aside = getattr(module, f"{name.title()}Aside")()
    return found
