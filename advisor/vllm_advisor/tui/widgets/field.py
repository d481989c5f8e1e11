"""A labelled value that keys, typing and the mouse change, with its meaning beside it, in one line.

    Concurrency    ━━━━━━━━●───────  32*       32 answers written at once
    Objective      balanced [throughput] latency cost   most tokens a second in all

`*` marks what was set by hand; everything else is the default, which Backspace gives back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from vllm_advisor.errors import AdvisorError
from vllm_advisor.tui.glyphs import UTF8


if TYPE_CHECKING:
    from collections.abc import Callable

    from textual import events
    from textual.geometry import Size

    from vllm_advisor.tui.app import Wizard
    from vllm_advisor.tui.widgets.kinds import Kind

_CURSOR = "▏"
_LABEL, _VALUE = 15, 10
_LEAST_SLIDER, _MOST_SLIDER = 8, 30
_MEANING = 32
_ONE_LINE = 70  # columns from which the meaning stands beside
_LETTERS = frozenset("kKmMgG")
_EDIT = frozenset("0123456789.,") | _LETTERS


class Field(Widget, can_focus=True):
    """`show` gives it a value and a default; `Changed` says what somebody made of it ("": back to the default)."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "by(-1)", "Less", key_display="←"),
        Binding("right,l", "by(1)", "More", key_display="→"),
        Binding("home", "end(0)", show=False),
        Binding("end", "end(-1)", show=False),
        Binding("up,k", "neighbour(-1)", show=False),
        Binding("down,j", "neighbour(1)", show=False),
        Binding("backspace,delete", "reset", "Default", show=False),
        Binding("enter", "edit", "Type a value", show=False),
    ]

    class Changed(Message):
        """A value was chosen."""

        def __init__(self, field: Field, value: str) -> None:
            super().__init__()
            self.field = field
            self.value = value

    class Refused(Message):
        """What was typed cannot be: why, and what helps."""

        def __init__(self, field: Field, what: str, hint: str) -> None:
            super().__init__()
            self.field = field
            self.what = what
            self.hint = hint

    def __init__(
        self,
        label: str,
        kind: Kind,
        meaning: Callable[[str], str] = lambda _: "",
        *,
        id: str | None = None,  # noqa: A002 - Textual's own word
    ) -> None:
        super().__init__(id=id)
        self.label = label
        self.kind = kind
        self.value = ""
        self.default = ""
        self._meaning = meaning
        self._typed: str | None = None
        self._spans: list[tuple[int, int, str]] = []
        self._slider = (0, 0)
        self._dragged = False

    # -- what it shows

    @property
    def shown(self) -> str:
        """The value that counts."""
        return self.value or self.default

    def show(self, value: str, default: str = "", kind: Kind | None = None) -> None:
        """Take a value from the state; a new kind where the choice itself has changed."""
        if kind is not None and kind != self.kind:
            self.kind = kind
        elif (value, default) == (self.value, self.default):
            self.refresh()  # its meaning may rest on another field
            return
        self.value, self.default = value, default
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - same
        """A second line where the first has no room for the meaning."""
        return 1 if width >= _ONE_LINE or not self._meaning(self.shown) else 2

    def render(self) -> Text:
        """The line."""
        wide, app = self.size.width, cast("Wizard", self.app)
        line = Text(no_wrap=True, overflow="ellipsis")
        marker = app.glyphs.here if self.has_focus else " "
        line.append(f"{marker}{self.label:<{_LABEL - 1}.{_LABEL - 2}}", "bold" if self.has_focus else "")
        self._control(line, wide, app)
        if wide >= _ONE_LINE:
            line.append("  ")
        elif self._meaning(self.shown):
            line.append("\n    ")
        line.append(self._meaning(self.shown), "dim")
        return line

    def _control(self, line: Text, wide: int, app: Wizard) -> None:
        room = wide - _LABEL - (_MEANING if wide >= _ONE_LINE else 0)
        options = sum(len(self.kind.name(stop)) + 2 for stop in self.kind.stops)
        self._spans, self._slider = [], (0, 0)
        if self._typed is not None:
            line.append(
                f"{self._typed}{_CURSOR if app.glyphs == UTF8 else '_'}".ljust(max(room - 2, _VALUE)), "reverse"
            )
        elif self.kind.read is None and options <= wide - _LABEL:
            self._options(line, room)
        elif app.plain:
            self._in_words(line, room)
        else:
            self._scale(line, room)

    def _options(self, line: Text, room: int) -> None:
        """All that can be chosen, the chosen one in brackets."""
        start = len(line.plain)
        for stop in self.kind.stops:
            name, chosen = self.kind.name(stop), stop == self.shown
            at = len(line.plain)
            line.append(f"[{name}]" if chosen else f" {name} ", "bold" if chosen else "")
            self._spans.append((at, len(line.plain), stop))
        width = min(room - 2, _MOST_SLIDER + 2 + _VALUE)  # as wide as a slider with its value
        line.append(" " * max(0, width - (len(line.plain) - start)))

    def _in_words(self, line: Text, room: int) -> None:
        named = [self.kind.name(stop) for stop in self.kind.stops if stop]
        line.append(f"{self._value} ({named[0]} to {named[-1]})".ljust(room - 2))

    def _scale(self, line: Text, room: int) -> None:
        glyphs = cast("Wizard", self.app).glyphs
        full, rest, knob = ("━", "─", "●") if glyphs == UTF8 else ("=", "-", "o")
        width = max(_LEAST_SLIDER, min(_MOST_SLIDER, room - _VALUE - 3))
        at = self.kind.place(self.shown) * (width - 1) // max(1, len(self.kind.stops) - 1)
        self._slider = (len(line.plain), len(line.plain) + width)
        line.append(full * at, "dim")
        line.append(knob, "bold")
        line.append(rest * (width - 1 - at), "dim")
        line.append(f"  {self._value:<{_VALUE}}"[: _VALUE + 2], "bold" if self.value else "")

    @property
    def _value(self) -> str:
        return self.kind.name(self.shown) + ("*" if self.value else "")

    # -- keys

    def on_key(self, event: events.Key) -> None:
        """Digits begin to type a value; while one is typed, every key is its own."""
        if self._typed is None:
            if self.kind.read is not None and (event.character or "") in _EDIT - _LETTERS:
                self._edit(event.character or "")
                self._done(event)
            return
        if event.key not in ("tab", "shift+tab") and self._while_typing(event):
            self._done(event)

    def check_consume_key(self, key: str, character: str | None) -> bool:  # noqa: ARG002 - Textual's signature
        """Digits are its own where a value can be typed."""
        return (
            self.kind.read is not None
            and (character or " ") in _EDIT
            and (self._typed is not None or character not in _LETTERS)
        )

    @staticmethod
    def _done(event: events.Key) -> None:
        event.stop()
        event.prevent_default()

    def _while_typing(self, event: events.Key) -> bool:
        typed = self._typed or ""
        if event.key == "enter":
            self._take()
        elif event.key == "escape":
            self._edit(None)
        elif event.key in ("backspace", "delete", "left", "ctrl+h"):
            self._edit(typed[:-1])
        elif event.is_printable:
            self._edit(typed + (event.character or "") if (event.character or "") in _EDIT else typed)
        else:
            return False
        return True

    def on_paste(self, event: events.Paste) -> None:
        """As if it had been typed."""
        if self.kind.read is not None:
            self._edit((self._typed or "") + "".join(c for c in event.text.strip() if c in _EDIT))
            event.stop()

    def on_blur(self) -> None:
        """Leaving it is as good as Enter."""
        if self._typed:
            self._take()
        self._edit(None)

    def _edit(self, typed: str | None) -> None:
        self._typed = typed
        self.refresh()

    def _take(self) -> None:
        typed, self._typed = (self._typed or "").strip(), None
        self.refresh()
        try:
            if typed and self.kind.read is not None:
                self.kind.read(typed)
        except AdvisorError as error:
            self.post_message(self.Refused(self, error.message, error.hint))
            return
        self._change(typed)

    def _change(self, value: str) -> None:
        if value != self.value:
            self.post_message(self.Changed(self, value))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        """While a value is typed, keys are part of it."""
        return self._typed is None or action not in ("by", "end", "neighbour", "reset", "edit")

    def action_by(self, by: int) -> None:
        """A stop more or less."""
        self._change(self.kind.beside(self.shown, by))

    def action_end(self, index: int) -> None:
        """The first or the last stop."""
        self._change(self.kind.stops[index])

    def action_neighbour(self, by: int) -> None:
        """The field above or below."""
        (self.screen.focus_next if by > 0 else self.screen.focus_previous)()

    def action_reset(self) -> None:
        """The default again."""
        self._change("")

    def action_edit(self) -> None:
        """Type over the value; a choice goes one on."""
        if self.kind.read is not None:
            self._edit(self.value)
        else:
            at = self.kind.place(self.shown) + 1
            self._change(self.kind.stops[at % len(self.kind.stops)])

    # -- mouse

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """On the slider: go there, and follow while the button is held."""
        if event.y == 0 and self._slider[0] <= event.x < self._slider[1]:
            self._dragged = True
            self.capture_mouse()
            self._go(event.x)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Follow the mouse."""
        if self._dragged:
            self._go(event.x)

    def on_mouse_up(self, event: events.MouseUp) -> None:  # noqa: ARG002 - Textual's signature
        """Let go."""
        if self._dragged:
            self._dragged = False
            self.release_mouse()

    def on_click(self, event: events.Click) -> None:
        """On an option: choose it. Right of the slider: type."""
        for start, end, stop in self._spans:
            if start <= event.x < end and event.y == 0:
                self._change(stop)
        if self._slider[1] and self._slider[1] < event.x < self._slider[1] + _VALUE + 2:
            self.action_edit()

    def _go(self, x: int) -> None:
        start, end = self._slider
        if end - start > 1:
            share = min(1.0, max(0.0, (x - start) / (end - start - 1)))
            self._change(self.kind.stops[round(share * (len(self.kind.stops) - 1))])
