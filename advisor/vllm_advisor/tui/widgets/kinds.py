"""What a field may hold: stops in their order, and between them whatever can be read as such a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.errors import AdvisorError


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Kind(NamedTuple):
    """What may be chosen: `stops` as typed, in order ("": none); `read` makes an order of typed ones, and checks them.

    Without `read` only the stops can be chosen. `names` say a stop in other words.
    """

    stops: tuple[str, ...]
    read: Callable[[str], float] | None = None
    names: dict[str, str] = {}  # noqa: RUF012 - never changed
    unit: str = ""

    def name(self, text: str) -> str:
        """How a value is shown."""
        if text in self.names:
            return self.names[text]
        return (f"{int(text):,}" if text.isdigit() else text) + self.unit

    def place(self, text: str) -> int:
        """The stop of a value, or the last one below it."""
        if text in self.stops or self.read is None:
            return self.stops.index(text) if text in self.stops else 0
        wanted = self._size(text)
        return max((i for i, stop in enumerate(self.stops) if self._size(stop) <= wanted), default=0)

    def beside(self, text: str, by: int) -> str:
        """The next stop up or down; from between two, the nearer of them on that side."""
        at = self.place(text)
        between = self.read is not None and text not in self.stops and self._size(self.stops[at]) < self._size(text)
        return self.stops[max(0, min(len(self.stops) - 1, at + by + (1 if between and by < 0 else 0)))]

    def _size(self, text: str) -> float:
        """Where a text stands in the order; what is no number (none, 0) stands first."""
        try:
            return self.read(text) if self.read and text else float("-inf")
        except AdvisorError:
            return float("-inf")


def choices(*stops: str, names: dict[str, str] | None = None) -> Kind:
    """A kind of which only these can be chosen."""
    return Kind(stops, None, names or {})


def scale(stops: Sequence[Any], read: Callable[[str], float], none: str | None = None, unit: str = "") -> Kind:
    """A kind of numbers; `none` names the first stop, which is no number."""
    first = ("",) if none is not None else ()
    return Kind((*first, *map(str, stops)), read, {"": none} if none is not None else {}, unit)
