"""What a rule is: an id that never changes meaning, a predicate, a verdict, a sentence and a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple


if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vllm_advisor.facts import Case


class Verdict(NamedTuple):
    """`level` as in a Finding. `weight` multiplies a plan's score: a small preference beside the speed estimate."""

    level: str
    weight: float = 1.0


veto = Verdict("veto", 0.0)
info = Verdict("info")


def discourage(factor: float) -> Verdict:
    """The plan may stand, at `factor` (below 1) of its score."""
    return Verdict("discourage", factor)


def prefer(factor: float) -> Verdict:
    """The plan counts `factor` (above 1) times its score."""
    return Verdict("prefer", factor)


class Rule(NamedTuple):
    """`when` is a predicate of a Case, never text to evaluate; `says` and `hint` are formatted with what it returns."""

    id: str
    when: Callable[[Case], Mapping[str, Any] | None]
    verdict: Verdict
    says: str
    source: str
    hint: str = ""
