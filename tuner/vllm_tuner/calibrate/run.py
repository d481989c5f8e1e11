"""The whole calibration of a model folder: one pass for the scales, one for the cache, one for the losses, coverage.

Each pass fills in what the result says of it as it goes, so that Ctrl-C or the end of the time loses only the layer, or
the round, that was running. Without the first pass there are no scales, and nothing to keep.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_advisor.errors import UsageError
from vllm_tuner.calibrate import prompts as text
from vllm_tuner.calibrate.config import read_config
from vllm_tuner.calibrate.coverage import ExpertCounter, cover
from vllm_tuner.calibrate.divergence import compare
from vllm_tuner.calibrate.forward import Hooks, logits, run
from vllm_tuner.calibrate.losses import ModuleLosses, layer_loss
from vllm_tuner.calibrate.observe import KvObserver
from vllm_tuner.calibrate.scales import LayerScales, LayerStats, scales_of
from vllm_tuner.calibrate.simulate import CacheLoss, CacheLosses, SimulatedCache
from vllm_tuner.calibrate.weights import Weights
from vllm_tuner.trial import BudgetSpent


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import torch

    from vllm_tuner.calibrate.config import ModelConfig
    from vllm_tuner.calibrate.experts import Coverage
    from vllm_tuner.calibrate.forward import Each, Layer
    from vllm_tuner.calibrate.proposals import LayerLoss, ModuleLoss
    from vllm_tuner.quality import Compared

    Tell = Callable[[str], None]

_TELL_S = 2.0  # seconds between two lines of progress


@dataclass(frozen=True, slots=True)
class Settings:
    """How much: tokens of text, of the longest prompt, of aimed prompts; which formats are tried; the time for all."""

    tokens: int = 8192
    longest: int = 2048
    compared_tokens: int = 1024
    expert_tokens: int = 32
    expert_budget: int = 65_536
    expert_rounds: int = 16
    formats: tuple[str, ...] = ("mxfp4", "fp8")
    seed: int = 0
    seconds: float | None = None


@dataclass(slots=True)
class Calibration:
    """All that was found so far. `plain`, `scaled`: exact logits against a cache with scale 1, and with these scales.

    `prompts`: their lengths. `stopped`: why it ended early, "" where it did not.
    """

    prompts: tuple[int, ...]
    stats: tuple[LayerStats, ...] = ()
    scales: tuple[LayerScales, ...] = ()
    cache_losses: tuple[CacheLoss, ...] = ()
    plain: tuple[Compared, ...] = ()
    scaled: tuple[Compared, ...] = ()
    module_losses: tuple[ModuleLoss, ...] = ()
    layer_losses: tuple[LayerLoss, ...] = ()
    coverage: Coverage | None = None
    stopped: str = ""


class Several(Hooks):
    """Several watchers of one exact pass; what they return is not taken."""

    def __init__(self, *hooks: Hooks) -> None:
        self._hooks = hooks

    def prompts(self, prompts: Sequence[Sequence[int]]) -> None:
        """Tell all."""
        for hooks in self._hooks:
            hooks.prompts(prompts)

    def cached(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Show all; the first sees a layer before the next one does."""
        for hooks in self._hooks:
            hooks.cached(layer, q, k, v)
        return k, v

    def routed(self, layer: int, logits: torch.Tensor, chosen: torch.Tensor) -> None:
        """Show all."""
        for hooks in self._hooks:
            hooks.routed(layer, logits, chosen)


@dataclass(slots=True)
class Clock:
    """Time for all of it, and what of the pass that runs is left. `now` is a clock that never goes back."""

    tell: Tell
    layers: int
    seconds: float | None = None
    now: Callable[[], float] = time.monotonic
    begun: float = field(init=False)
    _said: float = field(init=False)

    def __post_init__(self) -> None:
        self.begun = self._said = self.now()

    def check(self) -> None:
        """Raises BudgetSpent once the time is up."""
        if self.seconds is not None and self.now() - self.begun >= self.seconds:
            raise BudgetSpent

    def layers_of(self, name: str, then: Each = None) -> Each:
        """What a pass calls after each layer: `then`, a line of progress now and then, and the limit."""
        start = self.now()

        def each(layer: Layer, before: list[torch.Tensor], after: list[torch.Tensor]) -> None:
            if then is not None:
                then(layer, before, after)
            self._progress(name, layer.index + 1, start)
            self.check()

        return each

    def _progress(self, name: str, done: int, start: float) -> None:
        now = self.now()
        if done < self.layers and now - self._said < _TELL_S:
            return
        self._said = now
        left = (now - start) / done * (self.layers - done)
        more = f", about {left:.0f} s left of this pass" if left else ""
        self.tell(f"{name}: layer {done} of {self.layers}{more}")


def calibrate(folder: Path, prompts: Sequence[Sequence[int]] | None, settings: Settings, tell: Tell) -> Calibration:
    """Calibrate a local model. `prompts`: token ids, or None for the bundled text.

    Raises BadInput, UnsupportedModel, UsageError (torch or the tokenizer's library is missing; the time was up before
    there was anything to keep).
    """
    config, weights = read_config(folder), Weights(folder)
    longest = min(settings.longest, config.length)
    if prompts is None:
        prompts = text.of_text(text.tokenizer(folder), budget=settings.tokens, longest=longest, bos=config.bos)
    text.check_ids(prompts, config.vocab)
    tell(f"{len(prompts)} prompts, {sum(map(len, prompts))} tokens, {config.layers} layers")
    work = _Work(weights, config, settings, Clock(tell, config.layers, settings.seconds))
    found = Calibration(tuple(map(len, prompts)))
    try:
        work.all(found, prompts)
    except BudgetSpent:
        found.stopped = "the time was up"
    except KeyboardInterrupt:
        found.stopped = "interrupted"
        if not found.scales:
            raise
    if not found.scales:
        raise UsageError("the time was up before every layer had its scales", "a longer --budget, or fewer --tokens")
    return found


class _Work:
    """The passes, in the order in which their results are wanted."""

    def __init__(self, weights: Weights, config: ModelConfig, settings: Settings, clock: Clock) -> None:
        self.weights, self.config, self.settings, self.clock = weights, config, settings, clock
        self._counter = ExpertCounter(config.moe.experts, settings.expert_tokens) if config.moe else None

    def all(self, found: Calibration, prompts: Sequence[Sequence[int]]) -> None:
        """Every pass; what is known is in `found` whenever one raises."""
        self._text(found, prompts)
        sample = sampled(prompts, self.settings.compared_tokens)
        self._caches(found, sample)
        self._losses(found, sample)
        self._cover(found)

    def _text(self, found: Calibration, prompts: Sequence[Sequence[int]]) -> None:
        """Scales, and how many tokens of the text each expert saw."""
        observer = KvObserver()
        watchers = Several(observer, *([self._counter] if self._counter else []))
        run(self.weights, self.config, prompts, [watchers], self.clock.layers_of("text"))
        found.stats = tuple(observer)
        found.scales = tuple(map(scales_of, observer))
        if self._counter:
            found.coverage = self._counter.coverage()

    def _caches(self, found: Calibration, sample: list[list[int]]) -> None:
        by_layer = {scales.layer: scales for scales in found.scales}
        losses = CacheLosses(by_layer.__getitem__, self.config.window)
        variants = [losses, SimulatedCache(), SimulatedCache(by_layer.__getitem__)]
        streams = run(self.weights, self.config, sample, variants, self.clock.layers_of("cache"))
        found.cache_losses = losses.losses()
        for ids, *hidden in zip(sample, *streams, strict=True):  # a prompt's logits at a time: the vocabulary is wide
            exact, one, ours = logits(self.weights, self.config, hidden)
            found.plain += (compare(exact, one, ids),)
            found.scaled += (compare(exact, ours, ids),)

    def _losses(self, found: Calibration, sample: list[list[int]]) -> None:
        if not self.settings.formats:
            return
        modules = ModuleLosses(self.settings.formats)

        def each(layer: Layer, before: list[torch.Tensor], after: list[torch.Tensor]) -> None:
            found.layer_losses += tuple(layer_loss(layer, before, after, fmt) for fmt in self.settings.formats)
            found.module_losses = modules.losses()

        run(self.weights, self.config, sample, [modules], self.clock.layers_of("quantization", each))

    def _cover(self, found: Calibration) -> None:
        if self._counter is None:
            return

        def tell(line: str) -> None:
            found.coverage = self._counter.coverage() if self._counter else None
            self.clock.tell(line)
            self.clock.check()

        settings = self.settings
        found.coverage = cover(
            self.weights, self.config, self._counter, budget=settings.expert_budget, rounds=settings.expert_rounds,
            seed=settings.seed, tell=tell,
        )  # fmt: skip


def sampled(prompts: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Some prompts for the dearer comparisons, `tokens` in all: the first ones, cut to an eighth of that each."""
    longest = max(tokens // 8, 2)
    cut = [list(prompt[:longest]) for prompt in prompts if len(prompt) > 1]
    return cut[: max(tokens // longest, 1)]
