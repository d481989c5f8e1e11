"""The steps in their order, each loaded when it is first entered."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from vllm_advisor.tui.state import STEPS


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.tui.screens.base import StepScreen


def screen(step: str) -> StepScreen:
    """A new screen of a step: class `HardwareStep` of `screens/hardware.py`, and so on."""
    module = importlib.import_module(f"vllm_advisor.tui.screens.{step}")
    made: StepScreen = getattr(module, f"{step.title()}Step")()
    return made


def modes() -> dict[str, Callable[[], StepScreen]]:
    """A factory for each step: Textual keeps what it made, so that nothing is lost between them."""
    return {step: (lambda step=step: screen(step)) for step in STEPS}  # type: ignore[misc]
