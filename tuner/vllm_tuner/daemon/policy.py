r"""What to do at a tick, a pure function of the state and of what is seen: `step(state, inputs) -> (state, actions)`.

                    reasons (not in observe)
      WATCHING ───────────────────────────────► DUE ◄─────────────────────┐
       ▲ ▲ ▲ ▲      they went away, or observe    │  ▲                      │
       │ │ │ └───────────────────────────────────┘  │ lost, aborted, or    │ newer
       │ │ │                 lease, window, guard,   │ failed (back-off)    │ reasons
       │ │ │                 allowance, idle granted ▼ │                      │
       │ │ │   incumbent kept, or gave up          TUNING ──── won ───► CANDIDATE
       │ │ └──────────────────────────────────────┘                       │ │
       │ │   advise: stored, notified                                     │ │ adopt: lease and window,
       │ └────────────────────────────────────────────────────────────────┘ │ or an operator asked
       │     passed: ADOPTED               healthy                          ▼
       ├─────────────────────── CANARY ◄───────────────────────────── SWITCHING
       │                          │ worse, died, no proof in time,          │ did not start
       │   the proven plan runs   │ stopping, mode changed                  │
       └───────────────────── ROLLING_BACK ◄─────────────────────────────────┘
                                  ▲ an operator asked (from WATCHING)

The state is saved before its actions are carried out, and every phase looks at what is there, not at what it ordered:
so a kill at any point is an ordinary tick afterwards. A run that should be there and is not was lost; a unit that does
not run what it should is started again; orders are repeated until what they ask for is seen. Without the node's lease
nothing is ordered but the stop of one's own run. No unproven plan stays where nobody watches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from vllm_tuner.daemon.drift_reason import Part
from vllm_tuner.daemon.permit import Permit
from vllm_tuner.daemon.policy_state import (
    Abort,
    Action,
    Ask,
    BackOff,
    Health,
    Inputs,
    Mode,
    Notify,
    Phase,
    Record,
    Recover,
    Settle,
    State,
    StoreCandidate,
    Tune,
    Work,
    WorkState,
)  # fmt: skip
from vllm_tuner.daemon.policy_switch import SWITCHES, begin_switch, roll_back


if TYPE_CHECKING:
    from vllm_tuner.daemon.drift_reason import Reason

Stepped: TypeAlias = "tuple[State, tuple[Action, ...]]"


def step(state: State, inputs: Inputs) -> Stepped:
    """The next state, to be saved first, and what is to be done then, in order."""
    state = state._replace(phase_s=state.phase_s + max(0.0, inputs.elapsed_s))
    if not inputs.leased:
        return _without_lease(state, inputs)
    state, told = _news(state, inputs)
    after, actions = _asked(state, inputs) or _PHASES[state.phase](state, inputs)
    if after.phase is not state.phase:
        after = after._replace(phase_s=0.0)
        moved = Record("state", f"{state.phase} → {after.phase}", (("attempt", after.attempt),))
        actions = (*actions, moved)
    return after, (*told, *_stray(state, inputs), *actions)


def _stray(state: State, inputs: Inputs) -> tuple[Action, ...]:
    """A run that nobody waits for: of an earlier attempt, or of a state that was lost."""
    running = inputs.work.state is WorkState.RUNNING
    wanted = state.phase is Phase.TUNING and inputs.work.attempt == state.attempt
    return (Abort(inputs.work.attempt, "nobody waits for this run"),) if running and not wanted else ()


def _without_lease(state: State, inputs: Inputs) -> Stepped:
    """Another tuner has the node: whatever of ours runs must stop, and the state is the other one's to go on with."""
    if inputs.work.state is WorkState.RUNNING:
        return state, (Abort(inputs.work.attempt, "the lease of this node is lost"),)
    return state, ()


def _news(state: State, inputs: Inputs) -> Stepped:
    """Each reason is told once, and those that went away are forgotten, so that they can come anew."""
    if not (inputs.reasons or state.told or state.handled):
        return state, ()
    standing = {reason.key for reason in inputs.reasons}
    new = tuple(reason for reason in inputs.reasons if reason.key not in state.told)
    state = state._replace(
        told=(*(key for key in state.told if key in standing), *(reason.key for reason in new)),
        handled=tuple(key for key in state.handled if key in standing),
    )
    actions: list[Action] = []
    for reason in new:
        details = (("key", reason.key), ("parts", "+".join(reason.parts)))
        actions += [Record("drift", reason.says, details), Notify("drift", reason.says)]
    return state, tuple(actions)


def fresh(state: State, inputs: Inputs) -> tuple[Reason, ...]:
    """Reasons that no re-tune has answered."""
    return tuple(reason for reason in inputs.reasons if reason.key not in state.handled)


def _watching(state: State, inputs: Inputs) -> Stepped:
    if inputs.stopping:
        return state, ()
    if inputs.mode is not Mode.OBSERVE and fresh(state, inputs):
        return state._replace(phase=Phase.DUE, waiting="", failures=0, interruptions=0), ()
    return state, ()


def _asked(state: State, inputs: Inputs) -> Stepped | None:
    """An operator's wish, where it can be met now; None: there is none, or it is being met."""
    if inputs.ask is Ask.NOTHING or inputs.stopping or state.phase is Phase.ROLLING_BACK:
        return None
    if inputs.ask is Ask.ROLLBACK:
        return _asked_back(state, inputs)
    if state.phase in (Phase.WATCHING, Phase.CANDIDATE):
        return _asked_adopt(state, inputs)
    if state.phase in (Phase.SWITCHING, Phase.CANARY):
        return None
    return _refuse(state, inputs, f"there is no candidate to adopt: the service is {state.phase}")


def _refuse(state: State, inputs: Inputs, text: str) -> Stepped:
    """The wish cannot be met, and everything else goes on."""
    after, actions = _PHASES[state.phase](state, inputs)
    return after, (Notify("refused", text), *actions)


def _asked_back(state: State, inputs: Inputs) -> Stepped:
    why = "an operator asked for it"
    if state.phase in (Phase.SWITCHING, Phase.CANARY):
        return roll_back(state, why)
    if state.phase is Phase.TUNING:  # its run must end first: the wish stands until then
        return _tuning(state._replace(aborting=state.aborting or why), inputs)
    if state.previous is None or inputs.unit.health is Health.UNMANAGED:
        return _refuse(state, inputs, "there is nothing to go back to")
    back = state._replace(candidate=state.incumbent, incumbent=state.previous, previous=None, asked=True)
    return roll_back(back, why)


def _asked_adopt(state: State, inputs: Inputs) -> Stepped:
    if not state.candidate or inputs.unit.health is Health.UNMANAGED:
        return _refuse(state, inputs, "there is no candidate, or no managed unit to adopt it")
    return begin_switch(state._replace(asked=True))


def _due(state: State, inputs: Inputs) -> Stepped:
    reasons = fresh(state, inputs)
    if inputs.mode is Mode.OBSERVE or not reasons:
        why = "the mode is observe" if reasons else "the reasons went away"
        return state._replace(phase=Phase.WATCHING, waiting=""), (Record("waiting", why),)
    refused = _refused(inputs)
    if refused is not None:
        told = () if refused.by == state.waiting else (Record("waiting", refused.why, (("by", refused.by),)),)
        return state._replace(waiting=refused.by), told
    attempt = state.attempt + 1
    parts = tuple(part for part in Part if any(part in reason.parts for reason in reasons))
    answering = tuple((reason.kind, reason.key) for reason in reasons)
    begun = state._replace(phase=Phase.TUNING, attempt=attempt, answering=answering, waiting="", aborting="")
    return begun._replace(candidate=""), (Tune(attempt, parts, reasons),)


def _refused(inputs: Inputs) -> Permit | None:
    """The first that stands against a tuning run; None: all of them grant it."""
    if inputs.stopping:
        return Permit(granted=False, by="stopping", why="the service stops")
    if inputs.work.state is WorkState.RUNNING:
        return Permit(granted=False, by="work", why="an earlier run has not ended yet")
    permits = (inputs.window, inputs.guard, inputs.allowance, inputs.idle)
    return next((permit for permit in permits if not permit.granted), None)


def _tuning(state: State, inputs: Inputs) -> Stepped:
    work = inputs.work if inputs.work.attempt == state.attempt else Work()
    ends = {
        WorkState.RUNNING: _running,
        WorkState.WON: _won,
        WorkState.KEPT: _kept,
        WorkState.FAILED: _failed,
        WorkState.ABORTED: _aborted,
        WorkState.NONE: _lost,
    }
    return ends[work.state](state, inputs, work)


def _running(state: State, inputs: Inputs, work: Work) -> Stepped:
    """Go on, or stop it and say so again until it has stopped."""
    against = _refused(inputs._replace(work=Work()))
    why = state.aborting or (against.why if against else "")
    why = why or ("the mode is observe" if inputs.mode is Mode.OBSERVE else "")
    if not why:
        return state, ()
    return state._replace(aborting=why), (Abort(work.attempt, why),)


def _won(state: State, inputs: Inputs, work: Work) -> Stepped:
    if not work.candidate or work.candidate in (*state.refused, state.incumbent):
        says = "the winner is what runs, or was rolled back before"
        return _kept(state, inputs, work._replace(says=f"{says}: {work.says}"))
    state, settled = _answered(state, inputs)
    text = f"profile {work.candidate} is better than what runs: {work.says}"
    actions = (
        *settled,
        Recover(),
        StoreCandidate(work.candidate, state.attempt),
        Record("candidate", text, (("profile", work.candidate), ("attempt", state.attempt))),
        Notify("candidate", text),
    )
    return state._replace(phase=Phase.CANDIDATE, candidate=work.candidate, asked=False), actions


def _kept(state: State, inputs: Inputs, work: Work) -> Stepped:
    state, settled = _answered(state, inputs)
    told = Record("kept", work.says or "nothing better was found", (("attempt", state.attempt),))
    return state._replace(phase=Phase.WATCHING), (*settled, Recover(), told)


def _answered(state: State, _inputs: Inputs) -> Stepped:
    """One reason leads to one re-tune, whatever came of it."""
    keys = tuple(key for _, key in state.answering)
    kinds = tuple(dict.fromkeys(kind for kind, _ in state.answering))
    handled = tuple(dict.fromkeys((*state.handled, *keys)))
    return state._replace(handled=handled, answering=(), failures=0, interruptions=0), (Settle(kinds),)


def _failed(state: State, inputs: Inputs, work: Work) -> Stepped:
    failures = state.failures + 1
    told = (BackOff(work.says), Record("failed", work.says, (("attempt", state.attempt),)))
    if failures < inputs.timing.failures:
        again = state._replace(phase=Phase.DUE, failures=failures, interruptions=0, answering=(), waiting="")
        return again, told
    text = f"gave up after {failures} failures, the last: {work.says}"
    state, settled = _answered(state, inputs)
    return state._replace(phase=Phase.WATCHING), (*told, *settled, Notify("gave up", text))


def _aborted(state: State, _inputs: Inputs, work: Work) -> Stepped:
    why = state.aborting or work.says or "it was stopped"
    return state._replace(phase=Phase.DUE, aborting="", answering=(), waiting=""), (Record("aborted", why),)


def _lost(state: State, inputs: Inputs, work: Work) -> Stepped:
    """Neither it nor its end is there: it was killed with its daemon, or before its daemon could start it."""
    if state.aborting:
        return _aborted(state, inputs, work)
    lost = state.interruptions + 1
    if lost >= inputs.timing.interruptions:
        return _failed(state, inputs, work._replace(says=f"the run was lost {lost} times"))
    return (
        state._replace(phase=Phase.DUE, interruptions=lost, answering=(), waiting=""),
        (Record("lost", "the run was killed", (("attempt", state.attempt),)),),
    )


def _candidate(state: State, inputs: Inputs) -> Stepped:
    """A candidate is worth what it was tuned on: newer reasons come first."""
    if inputs.mode is not Mode.ADOPT or inputs.unit.health is Health.UNMANAGED:
        return state._replace(phase=Phase.WATCHING, waiting=""), ()
    if fresh(state, inputs):
        return state._replace(phase=Phase.DUE, waiting="", failures=0, interruptions=0), ()
    ready = inputs.unit.health is Health.HEALTHY and inputs.unit.profile == state.incumbent
    if inputs.stopping or not ready or not inputs.window.granted:
        by = "window" if ready else "unit"
        why = inputs.window.why if ready else "the unit does not run the incumbent in good health"
        return state._replace(waiting=by), () if by == state.waiting else (Record("waiting", why, (("by", by),)),)
    return begin_switch(state)


_PHASES = {
    Phase.WATCHING: _watching,
    Phase.DUE: _due,
    Phase.TUNING: _tuning,
    Phase.CANDIDATE: _candidate,
    **SWITCHES,
}
