"""Where requests come from: made to a Workload's lengths, recorded lengths, or conversations (`sources` reads files).

Every source is seeded: the same number and seed give the same requests, so that two servers get equal work. Another
seed gives other prompts of the same lengths, so that no cache of the first repeat serves the second.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

from vllm_advisor.errors import BadInput
from vllm_tuner.load import Request


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm_advisor.workload import Workload

# Lengths spread evenly by this share around the typical one: a choice of ours, for prompts are never all equal.
_SPREAD = 0.25
# Special tokens stand at an end of the vocabulary: its first and last tenth are left out.
_EDGE = 0.1
_PREFIX_SEED = 7
_LONGEST_GAP_S = 30.0  # a choice of ours


def seeded(seed: int) -> Random:
    """A generator of its own: the same seed, the same draws."""
    return Random(seed)  # noqa: S311 - loads, no secrets


class Source(Protocol):
    """Requests on demand. `label` names the source in a study; `timed`: requests carry their own times."""

    @property
    def label(self) -> str: ...

    @property
    def timed(self) -> bool: ...

    def requests(self, number: int, seed: int) -> tuple[Request, ...]: ...


class Shape(NamedTuple):
    """What prompts may hold: tokens 0 … vocab_size, input + output at most `longest`."""

    vocab_size: int
    longest: int


class Synthetic(NamedTuple):
    """Random tokens to the workload's lengths, behind one prefix that all share."""

    load: Workload
    shape: Shape

    @property
    def label(self) -> str:
        """Its lengths stand in the study's workload already."""
        return "synthetic"

    @property
    def timed(self) -> bool:
        """With a rate of requests."""
        return self.load.request_rate is not None

    def requests(self, number: int, seed: int) -> tuple[Request, ...]:
        """Every repeat has the same lengths in another order: what differs between repeats is then the server."""
        random = seeded(seed)
        taken = _spread(self.load.input_tokens, number, random)
        given = _spread(self.load.output_tokens, number, random)
        times = arrivals(self.load.request_rate, number, random)
        prefix = tokens(self.load.shared_prefix_tokens, self.shape, seeded(_PREFIX_SEED))
        pairs = zip(taken, given, strict=True)
        return tuple(request(pair, at, self.shape, random, prefix) for pair, at in zip(pairs, times, strict=True))


def _spread(typical: int, number: int, random: Random) -> list[int]:
    """Lengths evenly over typical ± a quarter, shuffled."""
    shares = [(i + 0.5) / number for i in range(number)]
    lengths = [max(1, round(typical * (1 - _SPREAD + 2 * _SPREAD * share))) for share in shares]
    random.shuffle(lengths)
    return lengths


def tokens(number: int, shape: Shape, random: Random) -> tuple[int, ...]:
    """Random ones of a vocabulary, without its ends."""
    low, high = int(shape.vocab_size * _EDGE), max(1, int(shape.vocab_size * (1 - _EDGE)))
    return tuple(random.choices(range(low, high), k=number))


def request(lengths: tuple[int, int], at: float, shape: Shape, random: Random, prefix: tuple[int, ...] = ()) -> Request:
    """One of random tokens, at most as long as the server takes: the output gives way to one token, then the input."""
    taken = max(1, min(lengths[0], shape.longest - 1))
    given = max(1, min(lengths[1], shape.longest - taken))
    own = max(0, taken - len(prefix))
    return Request(prefix[: taken - own] + tokens(own, shape, random), taken, given, at)


def arrivals(rate: float | None, number: int, random: Random) -> list[float]:
    """Seconds of a Poisson process of `rate` a second; all 0 without one."""
    if rate is None:
        return [0.0] * number
    times, at = [], 0.0
    for _ in range(number):
        times.append(at)
        at += random.expovariate(rate)
    return times


class Lengths(NamedTuple):
    """(input tokens, output tokens, seconds) of recorded requests, replayed with random tokens."""

    label: str
    rows: tuple[tuple[int, int, float], ...]
    timed: bool
    shape: Shape

    def requests(self, number: int, seed: int) -> tuple[Request, ...]:
        """A stretch of the trace that begins somewhere, round its end; its gaps are the recorded ones."""
        random = seeded(seed)
        start = random.randrange(len(self.rows))
        picked = [self.rows[(start + i) % len(self.rows)] for i in range(number)]
        times = self._times(start, number)
        return tuple(request(row[:2], at, self.shape, random) for row, at in zip(picked, times, strict=True))

    def workload(self, base: Workload) -> Workload:
        """The load to plan for: mean lengths, and the mean rate where times are known, in place of the base's."""
        taken, given = (sum(row[i] for row in self.rows) / len(self.rows) for i in (0, 1))
        lasted = gaps([row[2] for row in self.rows], 0, len(self.rows))[-1] if self.timed else 0.0
        rate = (len(self.rows) - 1) / lasted if lasted > 0 else base.request_rate
        given, taken = max(1, round(given)), max(1, round(taken))
        return replace(base, name=self.label, input_tokens=taken, output_tokens=given, request_rate=rate)

    def _times(self, start: int, number: int) -> list[float]:
        return gaps([row[2] for row in self.rows], start, number) if self.timed else [0.0] * number


def gaps(times: Sequence[float], start: int, number: int) -> list[float]:
    """Seconds from the first of `number` requests on, with recorded gaps, round the end of the record.

    A gap is at most half a minute: a night without requests is no load, and nobody measures through it.
    """
    found, at = [], 0.0
    for i in range(start, start + number):
        found.append(at)
        at += min(_LONGEST_GAP_S, max(0.0, times[(i + 1) % len(times)] - times[i % len(times)]))
    return found


class Conversations(NamedTuple):
    """(prompt, answer) texts; an answer's length is what `count` makes of it, asked once a text."""

    label: str
    pairs: tuple[tuple[str, str], ...]
    count: Callable[[str], int]
    shape: Shape
    timed: bool = False

    def requests(self, number: int, seed: int) -> tuple[Request, ...]:
        """A seeded choice, without repeats while there are enough; prompts that are too long are passed over."""
        random = seeded(seed)
        picked: list[Request] = []
        for prompt, answer in random.sample(self.pairs, len(self.pairs)):
            taken = self.count(prompt)
            if taken < self.shape.longest:
                given = max(1, min(self.count(answer), self.shape.longest - taken))
                picked.append(Request(prompt, taken, given))
            if len(picked) == number:
                return tuple(picked)
        if not picked:
            raise BadInput(f"{self.label} has no prompt below {self.shape.longest:,} tokens", "raise --context")
        return tuple(picked[i % len(picked)] for i in range(number))
