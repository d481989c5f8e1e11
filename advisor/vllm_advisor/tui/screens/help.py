"""`?`: what the screen below is for, and every key that works there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static


if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.screen import Screen


class Help(ModalScreen[None]):
    """Text and keys; any of Escape, q and ? closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,question_mark,f1", "dismiss", "Close")]

    def __init__(self, text: str, below: Screen[Any]) -> None:
        super().__init__()
        # Paragraphs are folded to the box's width, not where the source breaks its lines.
        paragraphs = (" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))
        self._lines = ["\n\n".join(paragraphs), *_keys(below)]

    def compose(self) -> ComposeResult:
        """One text that scrolls."""
        with VerticalScroll(id="help"):
            yield Static("\n".join(self._lines), markup=False)

    async def action_dismiss(self, result: None = None) -> None:
        """Back to the screen below."""
        self.dismiss(result)


def _keys(below: Screen[Any]) -> Iterator[str]:
    """Every key once: this screen's own, those of what has the cursor, those that work anywhere."""
    groups: dict[str, dict[str, str]] = {"Keys of this screen": {}, "Where the cursor is": {}, "Everywhere": {}}
    own, here, everywhere = groups.values()
    for active in below.active_bindings.values():
        binding = active.binding
        general = active.node is below.app or binding.action.startswith(("app.", "screen."))
        of = everywhere if general else own if active.node is below else here
        if active.enabled and binding.description and binding.description not in of:
            of[binding.description] = below.app.get_key_display(binding)
    everywhere |= {"Go to a step": "1 … 7", "Move in lists and tables": "arrows, h j k l, g G"}
    for title, keys in groups.items():
        yield from ["", title, *(f"  {key:<20} {description}" for description, key in keys.items())] if keys else []
