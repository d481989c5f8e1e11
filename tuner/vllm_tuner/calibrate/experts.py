"""What each expert of a model saw; no torch is needed to keep or to show it."""

from __future__ import annotations

from typing import NamedTuple


class Expert(NamedTuple):
    """One expert, and the tokens that it saw: of the text, and in all."""

    layer: int
    expert: int
    text_tokens: int
    tokens: int


class Coverage(NamedTuple):
    """Every expert; `wanted` tokens each were the aim, `rounds` of aimed prompts with `spent` tokens were run."""

    experts: tuple[Expert, ...]
    wanted: int
    rounds: int
    spent: int

    def cold(self) -> tuple[Expert, ...]:
        """Those that saw fewer tokens than wanted, the coldest first."""
        few = (e for e in self.experts if e.tokens < self.wanted)
        return tuple(sorted(few, key=lambda e: (e.tokens, e.layer, e.expert)))

    def unreached(self) -> tuple[Expert, ...]:
        """Those that saw nothing at all."""
        return tuple(e for e in self.experts if not e.tokens)
