"""From a candidate to a server that runs it, and back: every phase compares what runs with what should run."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from vllm_tuner.daemon.policy_state import (
    REFUSED_KEPT,
    Action,
    Adopt,
    BackOff,
    Canary,
    Compare,
    Health,
    Inputs,
    Mode,
    Notify,
    Phase,
    Record,
    Restart,
    Rollback,
    State,
    Verdict,
)  # fmt: skip


if TYPE_CHECKING:
    Stepped: TypeAlias = tuple[State, tuple[Action, ...]]


def begin_switch(state: State) -> Stepped:
    """Order the restart with the candidate."""
    begun = state._replace(phase=Phase.SWITCHING, tries=1, phase_s=0.0, waiting="")
    return begun, (Restart(state.candidate, state.attempt),)


def roll_back(state: State, why: str) -> Stepped:
    """Order the way back to the incumbent, which is proven."""
    back = state._replace(phase=Phase.ROLLING_BACK, tries=1, phase_s=0.0, waiting=why)
    return back, (Rollback(state.incumbent, why), Record("rollback", why, (("candidate", state.candidate),)))


def _switching(state: State, inputs: Inputs) -> Stepped:
    against = _withdrawn(state, inputs)
    unit = inputs.unit
    if against:
        return roll_back(state, against)
    if unit.profile == state.candidate and unit.health is Health.HEALTHY:
        compare = Compare(state.candidate, state.incumbent, state.attempt)
        return state._replace(phase=Phase.CANARY), (compare,)
    if state.phase_s > inputs.timing.start_s:
        return roll_back(state, f"the candidate did not start within {inputs.timing.start_s:g} s")
    if unit.health is Health.DOWN:
        return roll_back(state, "the candidate did not start")
    if unit.health is Health.HEALTHY and unit.profile == state.incumbent:
        return _again(state, inputs)
    return state, ()


def _again(state: State, inputs: Inputs) -> Stepped:
    """The order was never carried out, or without effect: the incumbent serves as before."""
    if state.tries < inputs.timing.switches:
        return state._replace(tries=state.tries + 1), (Restart(state.candidate, state.attempt),)
    return _back(state, "the unit could not be restarted")


def _withdrawn(state: State, inputs: Inputs) -> str:
    """Why an unproven plan must not run on."""
    if inputs.stopping:
        return "the service stops before the candidate was proven"
    if inputs.mode is not Mode.ADOPT and not state.asked:
        return f"the mode is {inputs.mode}"
    return ""


def _canary(state: State, inputs: Inputs) -> Stepped:
    report = inputs.canary if inputs.canary.attempt == state.attempt else Canary()
    against = _withdrawn(state, inputs) or _worse(state, inputs, report)
    if against:
        return roll_back(state, against)
    if report.verdict is Verdict.PASSED and inputs.unit.health is Health.HEALTHY:
        return _adopted(state, report)
    if report.verdict is Verdict.NONE:
        return state, (Compare(state.candidate, state.incumbent, state.attempt),)
    return state, ()


def _worse(state: State, inputs: Inputs, report: Canary) -> str:
    """What live traffic says against the candidate; without an answer in time it is not proven."""
    unit = inputs.unit
    if unit.health in (Health.DOWN, Health.STARTING) or unit.profile != state.candidate:
        return "the candidate did not keep running"
    if report.verdict is Verdict.WORSE:
        return f"the candidate is worse on live traffic: {report.says}"
    passed = report.verdict is Verdict.PASSED and unit.health is Health.HEALTHY
    if not passed and state.phase_s > inputs.timing.canary_s:
        return f"no proof on live traffic within {inputs.timing.canary_s:g} s"
    return ""


def _adopted(state: State, report: Canary) -> Stepped:
    text = f"profile {state.candidate} runs now, {state.incumbent or 'what ran before'} is the way back: {report.says}"
    actions = (Adopt(state.candidate, state.incumbent), Record("adopted", text), Notify("adopted", text))
    after = state._replace(
        phase=Phase.WATCHING, incumbent=state.candidate, previous=state.incumbent, candidate="", asked=False, tries=0
    )
    return after, actions


def _rolling_back(state: State, inputs: Inputs) -> Stepped:
    """Never gives up: the order is repeated, less and less often, until the proven plan serves."""
    unit = inputs.unit
    if unit.health is Health.UNMANAGED:
        left = Notify("gave up", f"the unit is not managed any more: see to it that {state.candidate} does not run")
        return state._replace(phase=Phase.WATCHING, candidate="", waiting="", asked=False, tries=0), (left,)
    if unit.profile == state.incumbent and unit.health is Health.HEALTHY:
        return _back(state, state.waiting)
    loading = unit.profile == state.incumbent and unit.health is Health.STARTING
    timing = inputs.timing
    patience = timing.start_s if loading else min(timing.longest_retry_s, timing.retry_s * 2 ** min(state.tries, 20))
    if state.phase_s < patience:
        return state, ()
    return state._replace(tries=state.tries + 1, phase_s=0.0), (Rollback(state.incumbent, state.waiting),)


def _back(state: State, why: str) -> Stepped:
    """The proven plan serves; what failed is not tried again by itself."""
    text = f"profile {state.incumbent or 'that ran before'} runs again, {state.candidate} does not: {why}"
    refused = (*(one for one in state.refused if one != state.candidate), state.candidate)[-REFUSED_KEPT:]
    back_off = () if state.asked else (BackOff(why),)
    after = state._replace(phase=Phase.WATCHING, candidate="", refused=refused, waiting="", asked=False, tries=0)
    kept = Adopt(state.incumbent, state.previous)
    return after, (*back_off, kept, Record("rolled back", text), Notify("rolled back", text))


SWITCHES = {Phase.SWITCHING: _switching, Phase.CANARY: _canary, Phase.ROLLING_BACK: _rolling_back}
