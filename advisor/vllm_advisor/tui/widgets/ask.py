"""One question over the screen: yes or no, or a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static


if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.events import Key


class Confirm(ModalScreen[bool]):
    """Yes or no; Escape and n are no, y is yes, and the button that has the focus is the harmless one."""

    BINDINGS: ClassVar[list[BindingType]] = [("y", "answer(True)", "Yes"), ("n,escape", "answer(False)", "No")]

    def __init__(self, text: str, yes: str = "Yes", no: str = "No") -> None:
        super().__init__(classes="ask")
        self._text, self._yes, self._no = text, yes, no

    def compose(self) -> ComposeResult:
        """The question over two buttons."""
        with Vertical(classes="box"):
            yield Static(self._text, markup=False)
            with Horizontal(classes="buttons"):
                yield Button(f"{self._no} (n)", id="no")
                yield Button(f"{self._yes} (y)", id="yes", variant="warning")

    def on_button_pressed(self, pressed: Button.Pressed) -> None:
        """A click, or Enter on the button."""
        self.dismiss(pressed.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        """A key."""
        self.dismiss(yes)


class Pick(ModalScreen[str]):
    """One of several ways on, each with its key; Escape, and the first button, are the one that changes nothing: ""."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "take('')", "Never mind")]

    def __init__(self, text: str, ways: dict[str, str], nothing: str = "Never mind") -> None:
        super().__init__(classes="ask")
        self._text, self._ways, self._nothing = text, ways, nothing

    def compose(self) -> ComposeResult:
        """The question over a button for each way."""
        with Vertical(classes="box ways"):
            yield Static(self._text, markup=False)
            yield Button(f"{self._nothing} (Esc)", id="way-")
            for key, words in self._ways.items():
                yield Button(f"{words} ({key})", id=f"way-{key}")

    def on_key(self, event: Key) -> None:
        """The key of a way."""
        if event.key in self._ways:
            event.stop()
            self.dismiss(event.key)

    def on_button_pressed(self, pressed: Button.Pressed) -> None:
        """A click, or Enter on the button."""
        self.dismiss(str(pressed.button.id).removeprefix("way-"))

    def action_take(self, way: str) -> None:
        """Escape."""
        self.dismiss(way)


class Prompt(ModalScreen[str]):
    """A text; Enter takes it, Escape gives ""."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "give_up", "Never mind")]

    def __init__(self, text: str, value: str = "") -> None:
        super().__init__(classes="ask")
        self._text, self._value = text, value

    def compose(self) -> ComposeResult:
        """The question over a field."""
        with Vertical(classes="box"):
            yield Static(self._text, markup=False)
            yield Input(self._value, id="answer")
            yield Static("Enter takes it, Escape does not.", classes="muted", markup=False)

    def on_input_submitted(self, submitted: Input.Submitted) -> None:
        """Enter."""
        self.dismiss(submitted.value.strip())

    def action_give_up(self) -> None:
        """Escape."""
        self.dismiss("")
