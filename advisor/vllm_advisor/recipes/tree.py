"""A YAML document of somebody else's, taken by its keys: what is missing or of another kind is empty, never an error.

The format changes from month to month (github.com/vllm-project/recipes, its own CLAUDE.md calls itself the schema), so
that nothing here relies on more than it asks for.
"""

from __future__ import annotations

import shlex
from typing import Any, NamedTuple


_MOST_WORDS, _LONGEST_WORD = 400, 20_000


class Tree(NamedTuple):
    """One value of the document."""

    value: Any = None

    def __bool__(self) -> bool:
        return bool(self.value)

    def at(self, *keys: str) -> Tree:
        """What stands under these keys; an empty Tree where nothing does."""
        value = self.value
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return Tree(value)

    def first(self, *keys: str) -> Tree:
        """The first of these keys that is there."""
        return next((found for found in map(self.at, keys) if found.value is not None), Tree())

    def names(self) -> tuple[str, ...]:
        """Its keys that are text, in order."""
        return tuple(k for k in self.value if isinstance(k, str)) if isinstance(self.value, dict) else ()

    def text(self, *keys: str) -> str:
        """Text, or a number as text; "" for anything else."""
        value = self.at(*keys).value
        return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""

    def number(self, *keys: str) -> float | None:
        """A positive number."""
        value = self.at(*keys).value
        known = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e15
        return float(value) if known else None

    def words(self, *keys: str) -> tuple[str, ...]:
        """Words of a command: a list of them, or one text of them."""
        value = self.at(*keys).value
        if isinstance(value, str):
            return _split(value)
        listed = value[:_MOST_WORDS] if isinstance(value, list) else []
        return tuple(_word(item) for item in listed if isinstance(item, str | int | float) and str(item))

    def variables(self, *keys: str) -> dict[str, str]:
        """Environment variables."""
        value = self.at(*keys).value
        pairs = list(value.items())[:_MOST_WORDS] if isinstance(value, dict) else []
        return {k: _word(v) for k, v in pairs if isinstance(k, str) and isinstance(v, str | int | float)}


def _split(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text[:_LONGEST_WORD]))[:_MOST_WORDS]
    except ValueError:
        return ()


def _word(item: object) -> str:
    text = str(item).lower() if isinstance(item, bool) else str(item)
    return text[:_LONGEST_WORD]
