"""The policy, transition by transition: what is ordered, what waits for what, and what a kill at any point leaves."""

import pytest

from vllm_tuner.daemon.drift_reason import Kind, Part, Reason
from vllm_tuner.daemon.permit import Permit
from vllm_tuner.daemon.policy import step
from vllm_tuner.daemon.policy_state import (
    Abort,
    Adopt,
    Ask,
    BackOff,
    Canary,
    Compare,
    Health,
    Inputs,
    Mode,
    Notify,
    Phase,
    Record,
    Recover,
    Restart,
    Rollback,
    Settle,
    State,
    StoreCandidate,
    Tune,
    Unit,
    Verdict,
    Work,
    WorkState,
    dumps,
    loads,
)  # fmt: skip


MOVED = Reason(Kind.WORKLOAD, "workload:0", "the workload moved", (Part.SERVER,))
DRIVER = Reason(Kind.FINGERPRINT, "fingerprint:1", "driver 1 → 2", (Part.KERNELS,))
NO = Permit(granted=False, by="idle", why="GPU 0: 50% utilized")
OLD, NEW = Unit(Health.HEALTHY, "old"), Unit(Health.HEALTHY, "new")
WON = Work(WorkState.WON, 1, "new", "+9 %")
RUNNING = Work(WorkState.RUNNING, 1)


def seen(**more):
    return Inputs(**{"at": 0.0, "elapsed_s": 15.0, "mode": Mode.ADOPT, "unit": OLD} | more)


def told(actions, *kinds):
    """The actions of these kinds."""
    return tuple(action for action in actions if isinstance(action, kinds))


def at(phase, **more):
    """A state in a phase, as the way there leaves it."""
    usual = {"incumbent": "old", "attempt": 1, "told": (MOVED.key,)}
    later = (Phase.CANDIDATE, Phase.SWITCHING, Phase.CANARY, Phase.ROLLING_BACK)
    usual |= {"candidate": "new", "handled": (MOVED.key,)} if phase in later else {}
    usual |= {"answering": ((Kind.WORKLOAD, MOVED.key),)} if phase is Phase.TUNING else {}
    return State(phase, **usual | more)


# --- from a reason to a run -----------------------------------------------------------------------------------------


def test_nothing_to_do():
    """Without reasons nothing is ordered and nothing but time changes."""
    assert (State(phase_s=15.0), ()) == step(State(), seen())


def test_observe_only_reports():
    """In observe a reason is told, once, and leads to nothing."""
    state, first = step(State(), seen(mode=Mode.OBSERVE, reasons=(MOVED,)))
    again, second = step(state, seen(mode=Mode.OBSERVE, reasons=(MOVED,)))

    assert (Notify("drift", "the workload moved"),) == told(first, Notify)
    assert (Phase.WATCHING, Phase.WATCHING, ()) == (state.phase, again.phase, second)


def test_a_reason_leads_to_a_run():
    """A tick makes it due, the next one starts the run, for the parts that the reasons ask for."""
    due, _ = step(State(), seen(mode=Mode.ADVISE, reasons=(MOVED, DRIVER)))
    tuning, actions = step(due, seen(mode=Mode.ADVISE, reasons=(MOVED, DRIVER)))

    assert (Phase.DUE, Phase.TUNING, 1) == (due.phase, tuning.phase, tuning.attempt)
    assert (Tune(1, (Part.KERNELS, Part.SERVER), (MOVED, DRIVER)),) == told(actions, Tune)


@pytest.mark.parametrize("name", ["window", "idle", "allowance", "guard"])
def test_waiting(name):
    """What is refused is recorded once with who refuses, and the run starts when it is granted."""
    refused = {name: NO._replace(by=name)}
    state, first = step(at(Phase.DUE), seen(reasons=(MOVED,), **refused))
    state, second = step(state, seen(reasons=(MOVED,), **refused))

    assert (Phase.DUE, name) == (state.phase, state.waiting)
    assert (Record("waiting", NO.why, (("by", name),)),) == first
    assert () == second
    assert told(step(state, seen(reasons=(MOVED,)))[1], Tune)


def test_reasons_that_go_away():
    """What is no longer so is not tuned for."""
    state, actions = step(at(Phase.DUE), seen())

    assert (Phase.WATCHING, ()) == (state.phase, told(actions, Tune))


def test_observe_while_due():
    """A mode that was set back while waiting is obeyed."""
    assert Phase.WATCHING is step(at(Phase.DUE), seen(mode=Mode.OBSERVE, reasons=(MOVED,)))[0].phase


def test_no_second_run():
    """While an earlier run has not ended none is started, and the stray one is stopped."""
    stray = Work(WorkState.RUNNING, 7)
    due, actions = step(at(Phase.DUE), seen(reasons=(MOVED,), work=stray))
    tuning, more = step(at(Phase.TUNING), seen(reasons=(MOVED,), work=stray))

    assert ((Abort(7, "nobody waits for this run"),), ()) == (told(actions, Abort), told(actions, Tune))
    assert (Phase.DUE, (Abort(7, "nobody waits for this run"),)) == (due.phase, told(more, Abort))
    assert Phase.DUE is tuning.phase


# --- how a run ends -------------------------------------------------------------------------------------------------


def test_a_run_that_goes_on():
    """Nothing is ordered while it runs."""
    state, actions = step(at(Phase.TUNING), seen(reasons=(MOVED,), work=RUNNING))

    assert (Phase.TUNING, ()) == (state.phase, actions)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"window": NO}, NO.why),
        ({"idle": NO}, NO.why),
        ({"allowance": NO}, NO.why),
        ({"guard": NO}, NO.why),
        ({"stopping": True}, "the service stops"),
        ({"mode": Mode.OBSERVE}, "the mode is observe"),
        ({"ask": Ask.ROLLBACK}, "an operator asked for it"),
    ],
)
def test_a_run_that_must_stop(more, why):
    """It is told to stop until it has, even if the cause goes away; then it is due again, without a failure."""
    state, first = step(at(Phase.TUNING), seen(reasons=(MOVED,), work=RUNNING, **more))
    state, second = step(state, seen(reasons=(MOVED,), work=RUNNING))
    after, third = step(state, seen(reasons=(MOVED,), work=Work(WorkState.ABORTED, 1)))

    assert (Abort(1, why),) == told(first, Abort) == told(second, Abort)
    assert (Phase.DUE, "", 0) == (after.phase, after.aborting, after.failures)
    assert (Record("aborted", why),) == told(third, Record)[:1]
    assert Phase.DUE is step(state, seen(reasons=(MOVED,)))[0].phase


def test_kept():
    """The incumbent stays, the reason is answered, and does not lead to another run while it stands."""
    state, actions = step(at(Phase.TUNING), seen(reasons=(MOVED,), work=Work(WorkState.KEPT, 1, says="not better")))

    assert (Phase.WATCHING, (MOVED.key,)) == (state.phase, state.handled)
    assert (Settle((Kind.WORKLOAD,)), Recover()) == told(actions, Settle, Recover)
    assert Phase.WATCHING is step(state, seen(reasons=(MOVED,)))[0].phase
    gone, _ = step(state, seen())
    assert Phase.DUE is step(gone, seen(reasons=(MOVED,)))[0].phase


def test_won():
    """A winner is stored and told; in advise that is all, and it stays there to be asked for."""
    state, actions = step(at(Phase.TUNING), seen(mode=Mode.ADVISE, reasons=(MOVED,), work=WON))
    after, more = step(state, seen(mode=Mode.ADVISE, reasons=(MOVED,), work=WON))

    assert (StoreCandidate("new", 1), Notify("candidate", "profile new is better than what runs: +9 %")) == told(
        actions, StoreCandidate, Notify
    )
    assert (Phase.CANDIDATE, Phase.WATCHING, "new", ()) == (
        state.phase, after.phase, after.candidate, told(more, Restart, Tune),
    )  # fmt: skip


@pytest.mark.parametrize("winner", ["old", "bad", ""])
def test_no_winner(winner):
    """What runs already, what was rolled back before and what has no name is no candidate."""
    state, actions = step(
        at(Phase.TUNING, refused=("bad",)), seen(reasons=(MOVED,), work=WON._replace(candidate=winner))
    )

    assert (Phase.WATCHING, "", ()) == (state.phase, state.candidate, told(actions, StoreCandidate))


def test_failures_back_off_and_end():
    """Each failure waits longer; after five it is told and the reason is given up."""
    state = at(Phase.TUNING)
    for number in range(1, 6):
        state, actions = step(state, seen(reasons=(MOVED,), work=Work(WorkState.FAILED, state.attempt, says="no")))
        assert (BackOff("no"),) == told(actions, BackOff)
        assert (Phase.DUE if number < 5 else Phase.WATCHING) is state.phase
        if number < 5:
            state, _ = step(state, seen(reasons=(MOVED,)))

    assert (Notify("gave up", "gave up after 5 failures, the last: no"),) == told(actions, Notify)
    assert Phase.WATCHING is step(state, seen(reasons=(MOVED,)))[0].phase


def test_a_lost_run():
    """A run that is not there was killed: it is started anew, and from the third time on that is a failure."""
    state = at(Phase.TUNING)
    orders = []
    for _ in range(3):
        state, actions = step(state, seen(reasons=(MOVED,)))
        orders.append(told(actions, BackOff))
        state, _ = step(state, seen(reasons=(MOVED,)))

    assert [(), (), (BackOff("the run was lost 3 times"),)] == orders
    assert (Phase.TUNING, 4, 1) == (state.phase, state.attempt, state.failures)


def test_an_old_report_is_none():
    """What another attempt reported is not this one's end."""
    assert Phase.DUE is step(at(Phase.TUNING, attempt=2), seen(reasons=(MOVED,), work=WON))[0].phase


# --- adoption -------------------------------------------------------------------------------------------------------


def test_adoption():
    """Restart, healthy, compared, passed: the candidate is the incumbent, and the old one the way back."""
    switching, first = step(at(Phase.CANDIDATE), seen())
    waiting, _ = step(switching, seen(unit=Unit(Health.STARTING, "new")))
    canary, second = step(waiting, seen(unit=NEW))
    watched, _ = step(canary, seen(unit=NEW, canary=Canary(Verdict.RUNNING, 1)))
    done, third = step(watched, seen(unit=NEW, canary=Canary(Verdict.PASSED, 1, "+8 %")))

    assert (Restart("new", 1),) == told(first, Restart)
    assert (Phase.SWITCHING, Phase.CANARY, Phase.WATCHING) == (waiting.phase, canary.phase, done.phase)
    assert (Compare("new", "old", 1),) == told(second, Compare)
    assert (Adopt("new", "old"),) == told(third, Adopt)
    assert ("new", "old", "") == (done.incumbent, done.previous, done.candidate)


@pytest.mark.parametrize(
    "more",
    [
        {"window": NO},
        {"stopping": True},
        {"unit": Unit(Health.DOWN, "old")},
        {"unit": Unit(Health.HEALTHY, "else")},
        {"unit": Unit(Health.UNKNOWN)},
    ],
)
def test_a_candidate_waits(more):
    """Outside of the window, or while the unit is not what it should be, nothing is restarted."""
    state, actions = step(at(Phase.CANDIDATE), seen(**more))

    assert (Phase.CANDIDATE, ()) == (state.phase, told(actions, Restart, Rollback))


def test_newer_reasons_come_before_a_candidate():
    """A candidate was tuned for what was: a newer reason makes it worth nothing."""
    due, _ = step(at(Phase.CANDIDATE), seen(reasons=(MOVED, DRIVER)))
    tuning, _ = step(due, seen(reasons=(MOVED, DRIVER)))

    assert (Phase.DUE, Phase.TUNING, "") == (due.phase, tuning.phase, tuning.candidate)


@pytest.mark.parametrize("unit", [Unit(), OLD])
def test_what_is_not_managed_is_never_restarted(unit):
    """Without a managed unit, or in advise, a candidate is only kept."""
    mode = Mode.ADOPT if unit.health is Health.UNMANAGED else Mode.ADVISE
    state, actions = step(at(Phase.CANDIDATE), seen(mode=mode, unit=unit))

    assert (Phase.WATCHING, "new", ()) == (state.phase, state.candidate, told(actions, Restart))


@pytest.mark.parametrize(
    ("phase", "more", "why"),
    [
        (Phase.SWITCHING, {"unit": Unit(Health.DOWN, "new")}, "the candidate did not start"),
        (Phase.SWITCHING, {"unit": Unit(Health.STARTING, "new"), "elapsed_s": 1801.0}, "did not start within 1800 s"),
        (Phase.SWITCHING, {"unit": Unit(Health.UNKNOWN), "elapsed_s": 1801.0}, "did not start within 1800 s"),
        (Phase.SWITCHING, {"unit": Unit(Health.STARTING, "new"), "stopping": True}, "the service stops before"),
        (Phase.SWITCHING, {"unit": NEW, "mode": Mode.ADVISE}, "the mode is advise"),
        (Phase.SWITCHING, {"unit": NEW, "ask": Ask.ROLLBACK}, "an operator asked for it"),
        (Phase.CANARY, {"unit": Unit(Health.DOWN, "new")}, "did not keep running"),
        (Phase.CANARY, {"unit": Unit(Health.STARTING, "new")}, "did not keep running"),
        (Phase.CANARY, {"unit": OLD}, "did not keep running"),
        (Phase.CANARY, {"unit": NEW, "canary": Canary(Verdict.WORSE, 1, "-20 %")}, "worse on live traffic: -20 %"),
        (Phase.CANARY, {"unit": NEW, "elapsed_s": 3601.0}, "no proof on live traffic within 3600 s"),
        (Phase.CANARY, {"unit": Unit(Health.UNKNOWN, "new"), "canary": Canary(Verdict.PASSED, 1), "elapsed_s": 3601.0},
         "no proof"),
        (Phase.CANARY, {"unit": NEW, "stopping": True}, "the service stops before"),
        (Phase.CANARY, {"unit": NEW, "mode": Mode.OBSERVE}, "the mode is observe"),
        (Phase.CANARY, {"unit": NEW, "ask": Ask.ROLLBACK}, "an operator asked for it"),
    ],
)  # fmt: skip
def test_the_way_back(phase, more, why):
    """Whatever speaks against an unproven plan orders the proven one, with the cause."""
    state, actions = step(at(phase), seen(**more))

    assert Phase.ROLLING_BACK is state.phase
    assert ("old", True) == (told(actions, Rollback)[0].profile, why in told(actions, Rollback)[0].why)


def test_rolled_back():
    """Once the proven plan serves the candidate is refused for good, and the next attempt waits."""
    state, actions = step(at(Phase.ROLLING_BACK, waiting="worse"), seen())

    assert (Phase.WATCHING, ("new",), "") == (state.phase, state.refused, state.candidate)
    assert (BackOff("worse"), Adopt("old", None)) == told(actions, BackOff, Adopt)
    assert (Notify("rolled back", "profile old runs again, new does not: worse"),) == told(actions, Notify)


def test_refused_candidates_are_bounded():
    """The newest sixteen are kept."""
    state = at(Phase.ROLLING_BACK, refused=tuple(map(str, range(16))))

    assert (*map(str, range(1, 16)), "new") == step(state, seen())[0].refused


def test_rollback_never_gives_up():
    """The order is repeated at growing distances, up to ten minutes, as long as the proven plan does not serve."""
    state, ordered, now = at(Phase.ROLLING_BACK, tries=1, phase_s=0.0), [], 0.0
    while now < 7200:
        now += 15
        state, actions = step(state, seen(unit=Unit(Health.DOWN, "old")))
        ordered += [now] * len(told(actions, Rollback))

    assert [30, 90, 210, 450, 930, 1530] == ordered[:6]
    assert Phase.ROLLING_BACK is state.phase
    assert 600 == ordered[-1] - ordered[-2]


def test_rollback_lets_a_model_load():
    """While the proven plan is starting it is left alone for as long as a start may take."""
    state, ordered = at(Phase.ROLLING_BACK, tries=1, phase_s=0.0), 0
    for _ in range(119):
        state, actions = step(state, seen(unit=Unit(Health.STARTING, "old")))
        ordered += len(told(actions, Rollback))

    assert 0 == ordered


def test_rollback_of_a_unit_that_is_gone():
    """A unit that is not managed any more is told of, and not waited for."""
    state, actions = step(at(Phase.ROLLING_BACK), seen(unit=Unit()))

    assert (Phase.WATCHING, "gave up") == (state.phase, told(actions, Notify)[0].kind)


def test_a_restart_that_has_no_effect():
    """It is ordered once more, then the candidate is let go: the incumbent served all the time."""
    state, first = step(at(Phase.SWITCHING, tries=1), seen())
    state, second = step(state, seen())

    assert (Restart("new", 1),) == told(first, Restart)
    assert (Phase.WATCHING, ("new",), ()) == (state.phase, state.refused, told(second, Restart, Rollback))


# --- operators, leases, state ---------------------------------------------------------------------------------------


def test_asked_to_adopt():
    """In advise an operator may adopt the candidate: it goes through the same canary."""
    state = at(Phase.WATCHING, candidate="new")
    switching, actions = step(state, seen(mode=Mode.ADVISE, ask=Ask.ADOPT))
    canary, _ = step(switching, seen(mode=Mode.ADVISE, unit=NEW, ask=Ask.ADOPT))
    done, _ = step(canary, seen(mode=Mode.ADVISE, unit=NEW, canary=Canary(Verdict.PASSED, 1)))

    assert (Restart("new", 1),) == told(actions, Restart)
    assert (Phase.CANARY, "new", False) == (canary.phase, done.incumbent, done.asked)


def test_asked_to_roll_back():
    """After an adoption an operator may go back; what was adopted is refused from then on."""
    state, actions = step(State(incumbent="new", previous="old"), seen(unit=NEW, ask=Ask.ROLLBACK))
    done, more = step(state, seen(unit=OLD, ask=Ask.ROLLBACK))

    assert (Rollback("old", "an operator asked for it"),) == told(actions, Rollback)
    assert (Phase.WATCHING, "old", None, ("new",)) == (done.phase, done.incumbent, done.previous, done.refused)
    assert ((Adopt("old", None),), ()) == (told(more, Adopt), told(more, BackOff))


def test_back_to_the_command_that_it_came_with():
    """The first plan of a unit has no profile, and is a way back nevertheless."""
    state, actions = step(State(incumbent="new", previous=""), seen(unit=NEW, ask=Ask.ROLLBACK))

    assert (Rollback("", "an operator asked for it"),) == told(actions, Rollback)
    assert Phase.WATCHING is step(state, seen(unit=Unit(Health.HEALTHY, "")))[0].phase


@pytest.mark.parametrize(
    ("state", "more"),
    [
        (State(), {"ask": Ask.ROLLBACK}),
        (State(previous="old"), {"ask": Ask.ROLLBACK, "unit": Unit()}),
        (State(), {"ask": Ask.ADOPT}),
        (State(candidate="new"), {"ask": Ask.ADOPT, "unit": Unit()}),
        (at(Phase.DUE, candidate="new"), {"ask": Ask.ADOPT, "reasons": (MOVED,)}),
    ],
)
def test_refused_wishes(state, more):
    """What cannot be is said, and nothing is touched."""
    after, actions = step(state, seen(**more))

    assert "refused" == told(actions, Notify)[0].kind
    assert after.phase in (Phase.WATCHING, Phase.TUNING)
    assert () == told(actions, Restart, Rollback)


def test_a_wish_stops_nothing():
    """A wish that cannot be met, or is being met, leaves the rest of the tick as it is."""
    tuning, refused = step(at(Phase.TUNING), seen(ask=Ask.ADOPT, reasons=(MOVED,), work=WON))
    done, quiet = step(at(Phase.CANARY), seen(ask=Ask.ADOPT, unit=NEW, canary=Canary(Verdict.PASSED, 1)))

    assert (Phase.CANDIDATE, "refused") == (tuning.phase, told(refused, Notify)[0].kind)
    assert ("new", ["adopted"]) == (done.incumbent, [action.kind for action in told(quiet, Notify)])


@pytest.mark.parametrize("phase", list(Phase))
def test_without_the_lease(phase):
    """Another tuner has the node: the state is its, and only one's own run is stopped."""
    state = at(phase)
    after, actions = step(state, seen(leased=False, reasons=(DRIVER,), work=RUNNING))

    assert (Abort(1, "the lease of this node is lost"),) == actions
    assert state._replace(phase_s=15.0) == after
    assert () == step(state, seen(leased=False, reasons=(DRIVER,)))[1]


@pytest.mark.parametrize("phase", list(Phase))
def test_state_as_text(phase):
    """Every state is the same after a restart."""
    state = at(phase, handled=("a",), previous="", asked=True, tries=2, phase_s=1.5)

    assert state == loads(dumps(state))
    assert phase is loads(dumps(state)).phase


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{}", '{"version":1,"phase":"flying"}', '{"version":1,"tries":-1}', '{"version":1,"tries":"x"}',
     '{"version":1,"incumbent":3}', '{"version":1,"previous":3}', '{"version":1,"answering":[["x","y"]]}',
     '{"version":1,"answering":7}', '{"version":1,"unknown":7}', '{"version":2}', '{"version":1,"phase_s":"x"}'],
)  # fmt: skip
def test_garbage_state(text):
    """A text that is no state is a ValueError."""
    with pytest.raises(ValueError):  # noqa: PT011 - json's own, or ours
        loads(text)


def test_every_transition_is_recorded():
    """The event says from where to where."""
    assert Record("state", "watching → due", (("attempt", 0),)) == step(State(), seen(reasons=(MOVED,)))[1][-1]
