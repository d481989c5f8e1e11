"""A mixture of requests in fixed space: lengths by octave, tokens, load and prefix hits, all of them sums."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vllm_advisor.hardware import Unknown
from vllm_tuner.daemon.drift_sample import OCTAVES, distance


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_tuner.daemon.drift_sample import Lengths, Sample

_SUMS = 7
_LENGTHS = 2 * OCTAVES + _SUMS


class Mix:
    """Sums over some time. It is added to in place: it is touched at every tick for months.

    `flight` is requests running × seconds in which that was known (`seconds`).
    """

    __slots__ = ("flight", "hits", "output_tokens", "outputs", "prompt_tokens", "prompts", "queries", "seconds", "time")

    def __init__(self) -> None:
        self.prompts, self.outputs = [0.0] * OCTAVES, [0.0] * OCTAVES
        self.prompt_tokens = self.output_tokens = self.hits = self.queries = 0.0
        self.flight = self.seconds = self.time = 0.0

    @property
    def requests(self) -> float:
        """Those whose prompt length is known."""
        return sum(self.prompts)

    def add(self, sample: Sample) -> None:
        """One more interval; what it does not know is left out."""
        self.time += sample.seconds
        self.prompt_tokens += _into(self.prompts, sample.prompts)
        self.output_tokens += _into(self.outputs, sample.outputs)
        if not isinstance(sample.running, Unknown):
            self.flight += sample.running * sample.seconds
            self.seconds += sample.seconds
        if not isinstance(sample.hits, Unknown) and not isinstance(sample.queries, Unknown):
            self.hits += min(sample.hits, sample.queries)
            self.queries += sample.queries

    def join(self, other: Mix, weight: float = 1.0) -> None:
        """Another mixture on top."""
        for mine, theirs in ((self.prompts, other.prompts), (self.outputs, other.outputs)):
            mine[:] = [a + weight * b for a, b in zip(mine, theirs, strict=True)]
        for name in self.__slots__:
            if name not in ("prompts", "outputs"):
                setattr(self, name, getattr(self, name) + weight * getattr(other, name))

    def plain(self) -> list[float]:
        """All sums as numbers, four digits each, for a JSON text."""
        sums = (self.prompt_tokens, self.output_tokens, self.hits, self.queries, self.flight, self.seconds, self.time)
        return [_short(value) for value in (*self.prompts, *self.outputs, *sums)]

    @classmethod
    def read(cls, plain: Sequence[float]) -> Mix:
        """From those numbers. Raises ValueError for anything else."""
        values = [float(value) for value in plain]
        if len(values) != _LENGTHS or not all(math.isfinite(v) and v >= 0 for v in values):
            raise ValueError("no mixture of requests")
        mix = cls()
        mix.prompts, mix.outputs = values[:OCTAVES], values[OCTAVES : 2 * OCTAVES]
        sums = values[2 * OCTAVES :]
        mix.prompt_tokens, mix.output_tokens, mix.hits, mix.queries, mix.flight, mix.seconds, mix.time = sums
        return mix


def _into(counts: list[float], found: Lengths | Unknown) -> float:
    """Add lengths to counts; returns their tokens."""
    if isinstance(found, Unknown) or not found.tokens:
        return 0.0
    for octave, count in enumerate(found.counts):
        if count:
            counts[octave] += count
    return found.tokens


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def prompts_apart(now: Mix, then: Mix) -> float:
    """How far prompts lie apart, in octaves."""
    return _apart(now.prompts, then.prompts, prompt_mean(now), prompt_mean(then))


def outputs_apart(now: Mix, then: Mix) -> float:
    """The same of what was generated."""
    return _apart(now.outputs, then.outputs, output_mean(now), output_mean(then))


def prompts_toward(now: Mix, then: Mix) -> float:
    """How many octaves longer prompts are on the whole, negative for shorter ones."""
    return _toward(now.prompts, then.prompts, prompt_mean(now), prompt_mean(then))


def outputs_toward(now: Mix, then: Mix) -> float:
    """The same of what was generated."""
    return _toward(now.outputs, then.outputs, output_mean(now), output_mean(then))


def _toward(now: list[float], then: list[float], mean_now: float, mean_then: float) -> float:
    """By the middle of the shape, or by the mean where all lengths are alike, as in `_apart`."""
    if _is_narrow(now) and _is_narrow(then):
        return _octaves(mean_now, mean_then)
    return _middle(now) - _middle(then) if sum(now) and sum(then) else 0.0


def _middle(counts: list[float]) -> float:
    return sum(octave * count for octave, count in enumerate(counts)) / sum(counts)


def _apart(now: list[float], then: list[float], mean_now: float, mean_then: float) -> float:
    """By shape; by the mean as well where all lengths are alike, since one bucket can hide a doubling of them.

    Elsewhere the mean would only tell of a few very long ones.
    """
    shape = distance(now, then)
    if shape >= 1 or not (_is_narrow(now) and _is_narrow(then)):
        return shape
    return max(shape, abs(_octaves(mean_now, mean_then)))


def _is_narrow(counts: list[float]) -> bool:
    """Nine tenths within three octaves, which is what one bucket spreads over."""
    widest = max(map(sum, zip(counts, counts[1:], counts[2:], strict=False)))
    return widest >= 0.9 * sum(counts)


def load_apart(now: Mix, then: Mix) -> float:
    """How far the mean number of running requests lies apart, in octaves; half a request more on both sides."""
    if now.seconds <= 0 or then.seconds <= 0:
        return 0.0
    return abs(_octaves(load_mean(now) + 0.5, load_mean(then) + 0.5))


def hits_apart(now: Mix, then: Mix) -> float:
    """How far the shares of prompt tokens found in the prefix cache lie apart."""
    return abs(hit_share(now) - hit_share(then)) if now.queries > 0 and then.queries > 0 else 0.0


def prompt_mean(mix: Mix) -> float:
    """Tokens of a prompt; 0 where there was none."""
    requests = sum(mix.prompts)
    return mix.prompt_tokens / requests if requests > 0 else 0.0


def output_mean(mix: Mix) -> float:
    """Tokens of an answer; 0 where there was none."""
    requests = sum(mix.outputs)
    return mix.output_tokens / requests if requests > 0 else 0.0


def load_mean(mix: Mix) -> float:
    """Requests running, on average."""
    return mix.flight / mix.seconds if mix.seconds > 0 else 0.0


def hit_share(mix: Mix) -> float:
    """Prompt tokens found in the prefix cache."""
    return mix.hits / mix.queries if mix.queries > 0 else 0.0


def _octaves(now: float, then: float) -> float:
    return math.log2(now / then) if now > 0 and then > 0 else 0.0
