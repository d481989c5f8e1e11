"""What `advisor check` says of a command: one finding a fault, with the change that mends it."""

from __future__ import annotations

from typing import NamedTuple


ERROR, WARNING, NOTE = "error", "warning", "note"


class Change(NamedTuple):
    """A mending of a command: take out the words [word, end) of argv, put `words` in their place.

    `env`: variables to set (value) or to take away (None). An insertion has word == end == len(argv).
    """

    word: int = 0
    end: int = 0
    words: tuple[str, ...] = ()
    env: tuple[tuple[str, str | None], ...] = ()


class Finding(NamedTuple):
    """One fault of a command. `level`: error (vLLM refuses, or serves something else than meant), warning, note.

    `id` is stable (`FLG-01`). `subject` is the flag or variable it is about; `word` its place in argv (-1: none).
    `change` mends it, where that can be done without asking anybody.
    """

    id: str
    level: str
    text: str
    source: str
    hint: str = ""
    subject: str = ""
    word: int = -1
    change: Change | None = None
