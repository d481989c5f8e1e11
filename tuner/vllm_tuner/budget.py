"""A hard limit of time: nothing starts that is not expected to end inside it, and nothing runs beyond it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Callable


class Budget:
    """Seconds from now on. `now` is a clock that never goes back."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._now = now
        self.end = now() + seconds
        self._longest = 0.0

    def left(self) -> float:
        """Seconds until the end, never below 0."""
        return max(0.0, self.end - self._now())

    def now(self) -> float:
        """The clock."""
        return self._now()

    def learn(self, seconds: float) -> None:
        """A trial took this long."""
        self._longest = max(self._longest, seconds)

    def allows(self, kept_back: float = 0.0) -> bool:
        """Whether one more trial is expected to end, with some seconds kept back for later."""
        return self.left() > self._longest + kept_back
