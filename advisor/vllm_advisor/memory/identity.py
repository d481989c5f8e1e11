"""A cache key for a value that is too large to hash: the object itself, not its content.

A `ModelSpec` holds hundreds of layer numbers, and hashing it costs as much as the work that a cache would save. The
key keeps its object alive, so that an address is never given to another one while a cache still knows it.
"""

from __future__ import annotations

from typing import Generic, TypeVar


T = TypeVar("T")


class Identity(Generic[T]):
    """Equal to another key only of the very same object."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value
