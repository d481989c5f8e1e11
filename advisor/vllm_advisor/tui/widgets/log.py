"""A log that grows: bounded, follows its end until somebody scrolls, can be searched. Levels are signs, not colours."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.tui.glyphs import Glyphs
    from vllm_advisor.tui.processes import Shown

MOST = 5000
_LOUD = ("ERROR", "CRITICAL", "FATAL")


class LogView(ScrollView, can_focus=True):
    """The last 5000 lines. `Looked` says that its state (followed, found) has changed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "Down", show=False),
        Binding("k,up", "move(-1)", "Up", show=False),
        Binding("h,left", "aside(-8)", "Left", show=False),
        Binding("l,right", "aside(8)", "Right", show=False),
        Binding("g,home", "first", "Top", show=False),
        Binding("G,end", "follow", "End, and follow", show=False),
        Binding("ctrl+d,pagedown", "page(1)", "Page down", show=False),
        Binding("ctrl+u,pageup", "page(-1)", "Page up", show=False),
        Binding("w", "whole", "Whole lines", show=False),
        Binding("n", "hit(1)", "Next match", show=False),
        Binding("N", "hit(-1)", "Match before", show=False),
    ]

    class Looked(Message):
        """Followed or not, whole lines or not, another match."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own word
        super().__init__(id=id)
        self._shown: deque[Shown] = deque(maxlen=MOST)
        self._dropped = 0
        self._wanted = ""
        self._hits: list[int] = []
        self._hit = -1
        self.is_followed = True
        self.is_whole = False

    # -- what it holds

    @property
    def line_count(self) -> int:
        """Lines since the beginning, those that are gone too."""
        return self._dropped + len(self._shown)

    def clear(self) -> None:
        """Another log."""
        self._shown.clear()
        self._dropped, self.is_followed = 0, True
        self._search()
        self._measure()

    def write(self, lines: Sequence[Shown]) -> None:
        """What is new."""
        dropped = max(0, len(self._shown) + len(lines) - MOST)
        self._dropped += dropped
        self._shown.extend(lines)
        if self._wanted:
            self._search()
        self._measure()
        if not self.is_followed and dropped:
            self.scroll_to(y=max(0, self.scroll_offset.y - dropped), animate=False)

    def _measure(self) -> None:
        width = max((len(self._text(shown)) for shown in self._shown), default=0) + 2
        self.virtual_size = Size(width, len(self._shown))
        if self.is_followed:
            self.scroll_end(animate=False, immediate=True, x_axis=False)
        self.refresh()
        self.post_message(self.Looked())

    def _text(self, shown: Shown) -> str:
        return shown.whole if self.is_whole else shown.short

    # -- how it is drawn

    def render_line(self, y: int) -> Strip:
        """One line of the window."""
        x, offset = self.scroll_offset
        number = y + offset
        if number >= len(self._shown):
            return Strip.blank(self.size.width, self.rich_style)
        shown = self._shown[number]
        glyphs: Glyphs = self.app.glyphs  # type: ignore[attr-defined]
        loud = shown.level in _LOUD
        sign = glyphs.fails if loud else glyphs.warning if shown.level == "WARNING" else " "
        style = self.rich_style + Style(bold=loud)
        here = self._hits and self._hits[self._hit] == number
        segments = [Segment(f"{sign} ", style), *self._parts(self._text(shown), style, current=bool(here))]
        return Strip(segments).crop(x, x + self.size.width).extend_cell_length(self.size.width, self.rich_style)

    def _parts(self, text: str, style: Style, *, current: bool) -> list[Segment]:
        """The line with its matches marked; those of the current match are underlined, too."""
        wanted, low, at, parts = self._wanted, text.lower(), 0, list[Segment]()
        marked = style + Style(reverse=True, underline=current)
        while wanted and (found := low.find(wanted, at)) >= 0:
            parts += [Segment(text[at:found], style), Segment(text[found : found + len(wanted)], marked)]
            at = found + len(wanted)
        return [*parts, Segment(text[at:], style)]

    # -- how one moves in it

    def on_resize(self) -> None:
        """Another window, the same end."""
        if self.is_followed:
            self.scroll_end(animate=False, immediate=True, x_axis=False)

    def watch_scroll_y(self, old: float, new: float) -> None:
        """Scrolling up stops the following, reaching the end begins it again."""
        super().watch_scroll_y(old, new)
        follows = round(new) >= self.max_scroll_y
        if follows != self.is_followed:
            self.is_followed = follows
            self.post_message(self.Looked())

    def action_move(self, by: int) -> None:
        """Lines."""
        self.scroll_relative(y=by, animate=False)

    def action_aside(self, by: int) -> None:
        """Columns."""
        self.scroll_relative(x=by, animate=False)

    def action_page(self, by: int) -> None:
        """Windows."""
        self.scroll_relative(y=by * max(1, self.size.height - 1), animate=False)

    def action_first(self) -> None:
        """The oldest line that is kept."""
        self.scroll_to(x=0, y=0, animate=False)

    def action_follow(self) -> None:
        """The end, and whatever comes."""
        self.is_followed = True
        self._measure()

    def action_whole(self) -> None:
        """Lines as they are in the file, or only their messages."""
        self.is_whole = not self.is_whole
        self._search()
        self._measure()

    # -- how one finds something

    @property
    def match(self) -> tuple[int, int]:
        """Which match of how many; (0, 0): none."""
        return (self._hit + 1, len(self._hits)) if self._hits else (0, 0)

    def find(self, text: str) -> int:
        """Mark a text, small or capital letters; go to its last place. How many lines hold it."""
        self._wanted = text.lower()
        self._search()
        if self._hits:
            self._go()
        self.refresh()
        self.post_message(self.Looked())
        return len(self._hits)

    def _search(self) -> None:
        wanted = self._wanted
        self._hits = [n for n, shown in enumerate(self._shown) if wanted in self._text(shown).lower()] if wanted else []
        self._hit = min(self._hit, len(self._hits) - 1) if self._hit >= 0 else len(self._hits) - 1

    def action_hit(self, by: int) -> None:
        """The next match, or the one before."""
        if self._hits:
            self._hit = (self._hit + by) % len(self._hits)
            self._go()
            self.post_message(self.Looked())

    def _go(self) -> None:
        line = self._hits[self._hit]
        self.scroll_to(y=max(0, line - self.size.height // 2), animate=False)
        column = self._text(self._shown[line]).lower().find(self._wanted)
        self.scroll_to(x=0 if column < self.size.width - 8 else column - 8, animate=False)
        self.refresh()
