"""The signs of the wizard, in UTF-8 and in ASCII. Meaning never rests on colour."""

from __future__ import annotations

import sys
from typing import NamedTuple


class Glyphs(NamedTuple):
    """One sign each; `bar` are eighths of a cell, from empty to full."""

    done: str
    here: str
    open: str
    fails: str
    warning: str
    dot: str
    ring: str
    bar: str
    shades: str


UTF8 = Glyphs("✓", "▶", "·", "✗", "!", "●", "○", " ▏▎▍▌▋▊▉█", "░▒▓█")
ASCII = Glyphs("x", ">", ".", "X", "!", "*", "o", " ##", ".:+#")


def fitting(encoding: str | None = None) -> Glyphs:
    """What a terminal of this encoding shows; None: that of stdout."""
    name = encoding if encoding is not None else getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "".join(UTF8).encode(name)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UTF8
