"""A few words of which one is chosen, in one line: `command [env] json`. Arrows, h and l, and the mouse choose."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget


if TYPE_CHECKING:
    from textual import events
    from textual.geometry import Size


class Choice(Widget, can_focus=True):
    """The chosen word stands in brackets, so that no colour is needed. `Chosen` says what somebody took."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l", "by(1)", "Next", show=False),
        Binding("left,h", "by(-1)", "Previous", show=False),
        Binding("home,g", "end(0)", show=False),
        Binding("end,G", "end(-1)", show=False),
        Binding("enter,space", "by(1)", show=False),
    ]

    class Chosen(Message):
        """Another word."""

        def __init__(self, choice: Choice, word: str) -> None:
            super().__init__()
            self.choice = choice
            self.word = word

        @property
        def control(self) -> Choice:
            """Whose."""
            return self.choice

    def __init__(self, *words: str, label: str = "", id: str | None = None) -> None:  # noqa: A002 - Textual's own word
        super().__init__(id=id)
        self._words, self._label = words, label
        self.chosen = words[0]
        self._places: list[tuple[int, int, str]] = []

    def show(self, word: str) -> None:
        """Take the state's word."""
        if word != self.chosen:
            self.chosen = word
            self.refresh()

    def get_content_width(self, container: Size, viewport: Size) -> int:  # noqa: ARG002 - Textual's signature
        """All of the line."""
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - same
        """As many lines as the words need."""
        return self._drawn(max(width, 1)).plain.count("\n") + 1

    def render(self) -> Text:
        """The words; the label is bold while the keys go here."""
        return self._drawn(max(self.size.width, 1))

    def _drawn(self, width: int) -> Text:
        line, column, row = Text(), 0, 0
        if self._label:
            line.append(f"{self._label} ", "bold reverse" if self.has_focus else "bold")
            column = len(self._label) + 1
        self._places = []
        for word in self._words:
            shown = f"[{word}]" if word == self.chosen else f" {word} "
            if column and column + len(shown) > width:
                line.append("\n")
                column, row = 0, row + 1
            style = ("bold reverse" if self.has_focus else "bold") if word == self.chosen else ""
            line.append(shown, style)
            self._places.append((row * 10_000 + column, row * 10_000 + column + len(shown), word))
            column += len(shown)
        return line

    def _take(self, word: str) -> None:
        if word != self.chosen:
            self.show(word)
            self.post_message(self.Chosen(self, word))

    def action_by(self, by: int) -> None:
        """The word beside; behind the last comes the first."""
        self._take(self._words[(self._words.index(self.chosen) + by) % len(self._words)])

    def action_end(self, place: int) -> None:
        """The first or the last word."""
        self._take(self._words[place])

    def on_click(self, event: events.Click) -> None:
        """A word."""
        at = event.y * 10_000 + event.x
        for start, end, word in self._places:
            if start <= at < end:
                self._take(word)
