"""What was measured before, below an answer of `advisor recommend`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from vllm_advisor.question import Answer


def lines(answer: Answer) -> list[str]:
    """For people; [] where nothing was measured."""
    from vllm_advisor import profiles

    return profiles.lines(answer.outcome, answer.match) if answer.outcome and answer.match else []


def document(answer: Answer) -> dict[str, Any]:
    """For `--json`; {} where nothing was measured."""
    from vllm_advisor import profiles

    return {"profiles": profiles.document(answer.outcome, answer.match)} if answer.outcome and answer.match else {}
