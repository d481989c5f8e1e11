"""The only way that a value leaves a config: typed, bounded, and refused in one line when it is not what it says.

A config.json comes from strangers. Nothing in it is trusted to have a type, a sign or a sane size, and `auto_map` (code
to run) is never looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.errors import BadInput


if TYPE_CHECKING:
    from collections.abc import Mapping


# Ceilings far above anything published (largest known: 16,384 hidden, 126 layers, 896 experts), to refuse nonsense.
MAX_SIZE = 1 << 24
MAX_LAYERS = 1024
MAX_POSITIONS = 1 << 31
MAX_ROWS = 1 << 34
MAX_LIST = 1 << 16

_HINT = "check the model's config.json; `advisor recommend` reads the file that transformers writes"


class Fields:
    """One JSON object of a config, read by key. A key that is null counts as absent, as transformers treats it."""

    __slots__ = ("_map", "where")

    def __init__(self, mapping: object, where: str = "") -> None:
        if not isinstance(mapping, dict):
            raise BadInput(f"{where or 'the config'} is {_kind(mapping)}, not a JSON object", _HINT)
        self._map: Mapping[str, object] = mapping
        self.where = where

    def has(self, key: str) -> bool:
        """Whether the key holds anything but null."""
        return self._map.get(key) is not None

    def raw(self, key: str) -> object:
        """The value as it stands, for the few who can take any type."""
        return self._map.get(key)

    def keys(self) -> tuple[str, ...]:
        """The keys, in file order."""
        return tuple(k for k in self._map if isinstance(k, str))

    def count(self, *keys: str, default: int | None = None, low: int = 1, high: int = MAX_SIZE) -> int:
        """An integer in [low, high] under the first key that is present; without any, the default, else BadInput."""
        for key in keys:
            value = self._map.get(key)
            if value is not None:
                return self.bounded(key, value, low, high)
        if default is None:
            raise BadInput(f"{self._path(keys[0])} is missing", _HINT)
        return default

    def bounded(self, key: str, value: object, low: int, high: int) -> int:
        """`value` as an integer in [low, high], or BadInput that names the key."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadInput(f"{self._path(key)} is {_kind(value)}, not a whole number", _HINT)
        if not low <= value <= high:
            raise BadInput(f"{self._path(key)} is {_short(value)}, outside {low} to {high}", _HINT)
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """A boolean."""
        value = self._map.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise BadInput(f"{self._path(key)} is {_kind(value)}, not true or false", _HINT)
        return value

    def number(self, key: str, default: float, low: float, high: float) -> float:
        """A real number in [low, high]."""
        value = self._map.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise BadInput(f"{self._path(key)} is {_short(value)}, not a number in {low:g} to {high:g}", _HINT)
        return float(value)

    def text(self, key: str, default: str = "") -> str:
        """A string."""
        value = self._map.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise BadInput(f"{self._path(key)} is {_kind(value)}, not text", _HINT)
        return value

    def over(self, defaults: Mapping[str, object]) -> Fields:
        """These fields with defaults for keys that are absent; a null stays a null, as transformers treats it."""
        return Fields({**defaults, **self._map}, self.where)

    def sub(self, key: str) -> Fields | None:
        """The object under a key, or None."""
        value = self._map.get(key)
        return None if value is None else Fields(value, self._path(key))

    def ints(self, key: str, length: int | None = None, low: int = 0, high: int = MAX_SIZE) -> tuple[int, ...]:
        """A list of integers (() when absent or empty), of at least `length` items when that is given."""
        items = self._list(key, length)
        return tuple(self.bounded(key, v, low, high) for v in items)

    def texts(self, key: str, length: int | None = None) -> tuple[str, ...]:
        """A list of strings (() when absent)."""
        return self._typed(key, length, str, "text")

    def flags(self, key: str, length: int | None = None) -> tuple[bool, ...]:
        """A list of booleans, or of the numbers 0 and 1."""
        items = self._list(key, length)
        if any(v not in (0, 1) for v in items if isinstance(v, (int, float))) or not all(
            isinstance(v, int) for v in items
        ):
            raise BadInput(f"{self._path(key)} holds something else than 0 and 1", _HINT)
        return tuple(bool(v) for v in items)

    def objects(self, key: str, length: int | None = None) -> tuple[Fields, ...]:
        """A list of objects (() when absent)."""
        return tuple(Fields(v, f"{self._path(key)}[{i}]") for i, v in enumerate(self._list(key, length)))

    def _typed(self, key: str, length: int | None, kind: type[str], noun: str) -> tuple[str, ...]:
        items = self._list(key, length)
        for v in items:
            if not isinstance(v, kind):
                raise BadInput(f"{self._path(key)} holds {_kind(v)}, not {noun}", _HINT)
        return tuple(items)  # type: ignore[arg-type]

    def _list(self, key: str, length: int | None) -> list[object]:
        value = self._map.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise BadInput(f"{self._path(key)} is {_kind(value)}, not a list", _HINT)
        if not value:
            return []
        if len(value) > MAX_LIST or (length is not None and len(value) < length):
            raise BadInput(f"{self._path(key)} has {len(value)} entries for {length or 'few'} layers", _HINT)
        return value

    def _path(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", int: "a number", float: "a fraction"}
    return names.get(type(value), "null" if value is None else "something else")


def _short(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of more than 4,300 digits, or a nest too deep to print
        return "an absurd value"
    return text if len(text) <= 24 else text[:24] + "…"
