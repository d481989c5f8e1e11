"""When the wizard collects garbage: while nobody types.

A full collection looks at every object that there is and may hold the event loop for a tenth of a second. Python begins
one when enough has heaped up, which is while a screen is drawn. So the oldest generation waits for a pause.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE_S = 3.0
EVERY_S = 2.0  # how often a pause is looked for
_NEVER = 1 << 30
_TOO_LONG = 100  # times the usual heap: some minutes of typing without a pause


class Tidying:
    """Between `begin` and `end` full collections happen in `tidy` alone. Python's own thresholds come back after it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._usual = gc.get_threshold()
        self._typed = clock()
        self._settled = False

    def begin(self) -> None:
        """The younger generations, which are small, are collected as ever."""
        gc.set_threshold(*self._usual[:2], _NEVER)

    def end(self) -> None:
        """As before `begin`."""
        gc.set_threshold(*self._usual)

    def typed(self) -> None:
        """A key or the mouse."""
        self._typed = self._clock()

    def tidy(self) -> None:
        """Collect where Python would have, and nobody types. What is there at the first pause, the catalog, stays."""
        heap = gc.get_count()[2]
        paused = self._clock() - self._typed >= PAUSE_S
        if heap <= self._usual[2] * (1 if paused else _TOO_LONG):
            return
        gc.collect()
        if not self._settled:
            gc.freeze()
            self._settled = True
