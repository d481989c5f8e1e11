"""What the steps after the plans share: the plan that was chosen, decided again where the question has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import Binding, BindingType

from vllm_advisor.errors import AdvisorError, NoFeasiblePlan, UsageError
from vllm_advisor.tui.messages import Failed
from vllm_advisor.tui.screens.base import StepScreen
from vllm_advisor.tui.widgets.rail import Rail


if TYPE_CHECKING:
    from vllm_advisor.facts import Ranked
    from vllm_advisor.question import Answer
    from vllm_advisor.tui.asking import Asker
    from vllm_advisor.tui.state import State


class Chosen(NamedTuple):
    """The plan of a state's number, in the answer that it stands in."""

    answer: Answer
    ranked: Ranked
    number: int

    @property
    def says(self) -> str:
        """`Plan 2 of 31: TP2 on 2xL40S, vLLM 0.33.0`."""
        found = self.answer.found
        where = f"{found.facts.node.label}, vLLM {found.facts.vllm.version}"
        return f"Plan {self.number} of {found.accepted}: {self.ranked.plan.layout} on {where}"


def choose(asker: Asker, state: State) -> Chosen:
    """Decide, and take the plan. Raises UsageError, NoFeasiblePlan, and whatever cannot be read."""
    if not state.model:
        raise UsageError("no model is chosen yet", "press 2 for the model step")
    answer = asker.answer(state)
    plans, facts = answer.found.plans, answer.found.facts
    if not plans:
        raise NoFeasiblePlan(
            f"no plan fits {facts.model.name} on {facts.node.label}", "press 4: what would make it fit"
        )
    if state.plan > len(plans):
        raise UsageError(f"there is no plan {state.plan}: {len(plans)} stand", "press 4 and choose one")
    return Chosen(answer, plans[state.plan - 1], state.plan)


def _tried(asker: Asker, state: State) -> Chosen | AdvisorError:
    try:
        return choose(asker, state)
    except AdvisorError as error:
        return error


class PlannedStep(StepScreen):
    """A step about the chosen plan. A subclass gives `planned`, and `unplanned` for when there is none."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_body(1)", show=False),
        Binding("k", "scroll_body(-1)", show=False),
    ]
    _decided_for: tuple[State, int] | None = None
    chosen: Chosen | None = None

    def show(self, state: State) -> None:
        """Decide where anything that matters has changed."""
        key = (state._replace(step="", fmt="", vllm_python="", port=1), self.wizard.processes.kept)
        if key == self._decided_for:
            return
        self._decided_for = key
        self.work("deciding", lambda: _tried(self.wizard.asker, state), self._decided)

    def _decided(self, found: Chosen | AdvisorError) -> None:
        if isinstance(found, AdvisorError):
            self.chosen, self._decided_for = None, None  # asked again when somebody comes back
            self.post_message(Failed(found.message, found.hint))
            self.unplanned()
            return
        self.chosen = found
        self.wizard.answer = found.answer
        self.query_one(Rail).mark(self.STEP, self.wizard.answered(), self.wizard.glyphs)
        self.planned(found)

    def planned(self, chosen: Chosen) -> None:
        """Draw the plan."""
        raise NotImplementedError

    def unplanned(self) -> None:
        """Draw that there is none."""

    def action_scroll_body(self, by: int) -> None:
        """As the arrows do."""
        self.query_one("#body").scroll_relative(y=by, animate=False)
