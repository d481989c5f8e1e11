"""The load to tune for: that of the busiest time of the last day, since it is at night that there is time to tune.

Traffic is cut into blocks that hold enough requests to speak for themselves. Of the last day's blocks only those are
kept that can still be the busiest since some moment: few, whatever happens.
"""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.doctor.live_facts import ENOUGH
from vllm_advisor.errors import BadInput
from vllm_advisor.hardware import Unknown
from vllm_advisor.vllm.live import Live
from vllm_tuner import traces


if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_advisor.vllm.metrics import Metrics

DAY_S = 86400.0
LEAST_S = 3600.0  # of a block, unless comparisons are made more often; a choice of ours
_LONGEST_S = 6 * 3600.0  # in which too few requests ended for a block: what follows begins anew
_LABEL = "live traffic"


class Counted(NamedTuple):
    """Counters, and when they were read: by a clock that is never set (`steady`), and in UTC seconds (`at`)."""

    steady: float
    at: float
    counters: Metrics


class Block(NamedTuple):
    """One time and its load; `began` and `ended` in UTC seconds."""

    began: float
    ended: float
    load: traces.Recorded

    @property
    def busy(self) -> float:
        """Tokens a second, of prompts and answers."""
        tokens = self.load.inputs.total + self.load.outputs.total
        return (self.load.rate or 0.0) * tokens / self.load.requests


class Busiest:
    """The blocks of one deployment."""

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        self._blocks = deque(blocks)
        self._first: Counted | None = None
        self._last: Counted | None = None

    def anew(self, reading: Counted) -> None:
        """The server began anew: its counters are not to be compared with those before."""
        self._first = self._last = reading

    def see(self, reading: Counted, least_s: float) -> None:
        """One reading of the server. A block ends once it is as long and holds enough requests."""
        self._last = reading
        if self._first is None:
            self._first = reading
        seconds = reading.steady - self._first.steady
        if seconds < min(least_s, LEAST_S):
            return
        if _ended(self._first, reading) >= ENOUGH:
            self._keep(self._first, reading)
        elif seconds < _LONGEST_S:
            return
        self._first = reading

    def _keep(self, first: Counted, last: Counted) -> None:
        try:
            made = Block(first.at, last.at, _recorded(first, last))
        except BadInput:
            return
        while self._blocks and self._blocks[-1].busy <= made.busy:
            self._blocks.pop()
        self._blocks.append(made)
        while not last.at - DAY_S <= self._blocks[0].ended <= last.at:  # too old, or the clock was set
            self._blocks.popleft()

    def load(self, since: float = 0.0) -> traces.Recorded | None:
        """That of the busiest block that began since a moment; of all kept ones, where none did.

        Before there is a block: what the counters of the server's life say. None where no request ended yet.
        """
        later = next((block for block in self._blocks if block.began >= since), None)
        if later or self._blocks:
            return (later or self._blocks[-1]).load
        if self._first is None or self._last is None:
            return None
        try:
            return _recorded(self._first, self._last)
        except BadInput:
            return None

    def dumps(self) -> str:
        """The blocks as a JSON text: 2 kB each."""
        return json.dumps(
            [[block.began, block.ended, traces.document(block.load)] for block in self._blocks], separators=(",", ":")
        )

    @classmethod
    def loads(cls, text: str) -> Busiest:
        """From that text. Raises ValueError for anything else: what is lost is a day."""
        try:
            return cls(Block(float(began), float(ended), traces.load(load)) for began, ended, load in json.loads(text))
        except (KeyError, TypeError, IndexError, RecursionError, OverflowError) as error:
            raise ValueError(f"not the loads of a day: {error!r}") from None


def _ended(first: Counted, last: Counted) -> float:
    """Requests that ended in between; 0 where the server does not count them."""
    name = "request_prompt_tokens"
    before, after = first.counters.histogram(name), last.counters.histogram(name)
    if isinstance(before, Unknown) or isinstance(after, Unknown):
        return 0.0
    return after.observed - before.observed


def _recorded(first: Counted, last: Counted) -> traces.Recorded:
    seconds = last.steady - first.steady
    return traces.of_live(Live(_LABEL, True, Unknown("not asked"), (), first.counters, last.counters, seconds))
