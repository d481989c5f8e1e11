"""Which experts the prompts reached, and prompts aimed at those that they did not.

Ordinary text leaves some experts almost untouched; their quantization error shows up only later, on the text that does
use them. So after the text, prompts are built from the windows that came closest to being routed to a cold expert, and
from tokens drawn at random, until every expert has seen enough or the budget ends. What is cold then is named.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import torch

from vllm_tuner.calibrate.experts import Coverage, Expert
from vllm_tuner.calibrate.forward import Hooks, run


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm_tuner.calibrate.config import ModelConfig
    from vllm_tuner.calibrate.weights import Weights

WINDOW = 12  # tokens before a near miss that are kept with it
_NEAR_MISSES = 24  # kept an expert
_A_CALL = 16  # looked at an expert and pass
_AIMED_LENGTH = 192
_PROMPTS = 8  # a round


class ExpertCounter(Hooks):
    """Counts tokens a layer and expert, and keeps the windows that nearly reached a cold one."""

    def __init__(self, experts: int, wanted: int) -> None:
        self._experts, self.wanted = experts, wanted
        self._ids: list[int] = []
        self._starts: list[int] = []
        self.counts: dict[int, torch.Tensor] = {}
        self._text: dict[int, torch.Tensor] | None = None
        self.rounds = self.spent = 0
        self._near: dict[tuple[int, int], dict[tuple[int, ...], float]] = {}

    def prompts(self, prompts: Sequence[Sequence[int]]) -> None:
        """Remember the tokens, for the windows, which don't reach from one prompt into another."""
        self._ids = [token for prompt in prompts for token in prompt]
        ends = itertools.accumulate(map(len, prompts))
        self._starts = [
            start for end, prompt in zip(ends, prompts, strict=True) for start in [end - len(prompt)] * len(prompt)
        ]

    def routed(self, layer: int, logits: torch.Tensor, chosen: torch.Tensor) -> None:
        """Count, then look for near misses of the experts that are still cold."""
        zeros = torch.zeros(self._experts, dtype=torch.int64)
        counts = self.counts.setdefault(layer, zeros)
        counts += torch.bincount(chosen.flatten(), minlength=self._experts)
        margins = logits - logits.gather(-1, chosen).amin(-1, keepdim=True)
        for expert in (counts < self.wanted).nonzero().flatten().tolist():
            self._remember(layer, expert, margins[:, expert])

    def _remember(self, layer: int, expert: int, margins: torch.Tensor) -> None:
        near = self._near.setdefault((layer, expert), {})
        best = margins.topk(min(_A_CALL, margins.shape[0]))
        for margin, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            window = tuple(self._ids[max(place - WINDOW, self._starts[place]) : place + 1])
            near[window] = max(margin, near.get(window, margin))
        kept = sorted(near.items(), key=lambda item: -item[1])[:_NEAR_MISSES]
        self._near[layer, expert] = dict(kept)

    def cold(self) -> list[tuple[int, int]]:
        """(layer, expert) below the wanted count."""
        return [(n, e) for n, c in sorted(self.counts.items()) for e in (c < self.wanted).nonzero().flatten().tolist()]

    def text_ends(self) -> None:
        """What comes from here on is aimed; the first call counts."""
        if self._text is None:
            self._text = {layer: counts.clone() for layer, counts in self.counts.items()}

    def coverage(self) -> Coverage:
        """As far as it has come."""
        text = self._text or self.counts
        experts = (
            Expert(layer, expert, int(text[layer][expert]), tokens)
            for layer, counts in sorted(self.counts.items())
            for expert, tokens in enumerate(counts.tolist())
        )
        return Coverage(tuple(experts), self.wanted, self.rounds, self.spent)

    def windows(self, layer: int, expert: int) -> list[tuple[int, ...]]:
        """What came nearest to this expert, the nearest first."""
        return list(self._near.get((layer, expert), {}))


def cover(
    weights: Weights, config: ModelConfig, counter: ExpertCounter, *, budget: int, rounds: int, seed: int,
    tell: Callable[[str], None],
) -> Coverage:  # fmt: skip
    """After the text has been counted: rounds of aimed prompts, `budget` tokens at most."""
    chance = random.Random(seed)  # noqa: S311  repeatable
    counter.text_ends()
    while counter.rounds < rounds and (cold := counter.cold()):
        prompts = _aimed(counter, cold, config.vocab, chance)
        tokens = sum(map(len, prompts))
        if counter.spent + tokens > budget:
            break
        run(weights, config, prompts, [counter])
        counter.rounds, counter.spent = counter.rounds + 1, counter.spent + tokens
        tell(f"coverage round {counter.rounds}: {len(cold)} cold experts before, {len(counter.cold())} after")
    return counter.coverage()


def _aimed(counter: ExpertCounter, cold: list[tuple[int, int]], vocab: int, chance: random.Random) -> list[list[int]]:
    """Three prompts of near misses for each of random tokens."""
    pool = [window for layer, expert in cold for window in counter.windows(layer, expert)]
    return [_prompt(pool if n % 4 else [], vocab, chance) for n in range(_PROMPTS)]


def _prompt(pool: list[tuple[int, ...]], vocab: int, chance: random.Random) -> list[int]:
    prompt: list[int] = []
    while len(prompt) < _AIMED_LENGTH:
        prompt += chance.choice(pool) if pool else [chance.randrange(vocab)]
    return prompt[:_AIMED_LENGTH]
