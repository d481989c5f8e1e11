"""Terminals without UTF-8: whatever a widget draws leaves as ASCII, sign by sign, in the same cells."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from textual.filter import LineFilter


if TYPE_CHECKING:
    from textual.color import Color

_PLAIN = {
    "─━╌╍┄┅┈┉═╸╺╴╶╼╾–—‒−": "-",
    "│┃║╎╏┆┇┊┋╹╻╵╷": "|",
    "┌┐└┘├┤┬┴┼╭╮╯╰╔╗╚╝┏┓┗┛┣┫┳┻╋╠╣╦╩╬": "+",
    "▁▔": "-",
    "▌▍▎▏▐▊▋▕": "|",
    "▂▃▄▅▆▇█▀▉": "#",
    "░▒": ":",
    "▓": "%",
    "●◉⏺•∙": "*",
    "○◯◌": "o",
    "▶►▸→❯›⭢»": ">",
    "◀◄◂←❮‹⭠«": "<",
    "▲△↑⌃⭡": "^",
    "▼▽↓⌄⭣": "v",
    "✓✔☑": "x",
    "✗✘×✕╳": "x",
    "…": ".",
    "·": ".",
    "≈~": "~",
    "≤": "<",
    "≥": ">",
    "“”„": '"',
    "‘’‚": "'",
    "\xa0": " ",
    "µμ": "u",
    "²": "2",
}


class _Signs(dict[int, str]):
    """A sign that was not seen yet is looked up once."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        bare = unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode("ascii")
        width = max(0, cell_len(sign))
        self[code] = bare if len(bare) == width else "?" * width
        return self[code]


_SIGNS = _Signs({code: chr(code) for code in range(128)})
_SIGNS.update({ord(sign): plain for signs, plain in _PLAIN.items() for sign in signs})


def plain(text: str) -> str:
    """The text in ASCII, as wide as it was."""
    return text if text.isascii() else text.translate(_SIGNS)


class Ascii(LineFilter):
    """Textual's hook between a widget and the terminal."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - Textual's signature
        """The same segments in ASCII."""
        return [Segment(plain(text), style, control) for text, style, control in segments]
