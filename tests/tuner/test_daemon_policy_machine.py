"""Any order of events, kills and lies: no worse plan is adopted, no second run is started, the way back is open."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from vllm_tuner.daemon.drift_reason import Kind, Part, Reason
from vllm_tuner.daemon.permit import GRANTED, Permit
from vllm_tuner.daemon.policy import step
from vllm_tuner.daemon.policy_state import (
    Abort,
    Adopt,
    Ask,
    Canary,
    Compare,
    Health,
    Inputs,
    Mode,
    Phase,
    Restart,
    Rollback,
    Settle,
    State,
    Tune,
    Unit,
    Verdict,
    Work,
    WorkState,
    dumps,
    loads,
)  # fmt: skip


CLOSED = Permit(granted=False, by="window", why="closed")
UNPROVEN = (Phase.SWITCHING, Phase.CANARY, Phase.ROLLING_BACK)


def mostly(usual, *others):
    """One value in most draws."""
    return st.sampled_from([usual] * (2 + 2 * len(others)) + list(others))


class Site(RuleBasedStateMachine):
    """A node with a managed unit. Plans are numbers: a higher one is better, and only the site knows."""

    def __init__(self):
        super().__init__()
        self.state = State(incumbent="100")
        self.saved = dumps(self.state)
        self.unit = Unit(Health.HEALTHY, "100")
        self.work, self.canary = Work(), Canary()
        self.reasons, self.news = (), 0
        self.proven, self.plans = {"100"}, 0

    # --- what happens around it

    @precondition(lambda self: len(self.reasons) < 2)
    @rule(kind=st.sampled_from([Kind.WORKLOAD, Kind.FINGERPRINT, Kind.SLA]))
    def a_reason(self, kind):
        self.news += 1
        others = tuple(reason for reason in self.reasons if reason.kind is not kind)
        self.reasons = (*others, Reason(kind, f"{kind}:{self.news}", "so it is", (Part.SERVER,)))

    @precondition(lambda self: self.reasons)
    @rule()
    def reasons_go_away(self):
        self.reasons = ()

    @precondition(lambda self: self.work.state is WorkState.RUNNING)
    @rule(end=st.sampled_from([WorkState.KEPT, WorkState.FAILED, WorkState.ABORTED, WorkState.NONE]))
    def the_run_ends(self, end):
        self.work = self.work._replace(state=end, says="so it ended")

    @precondition(lambda self: self.work.state is WorkState.RUNNING)
    @rule(better=st.sampled_from([-3, -1, 0, 1, 2]), again=st.booleans())
    def the_run_wins_its_gate(self, better, again):
        """Also wrongly: the gate sees a benchmark, not the traffic."""
        self.plans += 1
        known = self.state.refused[-1] if again and self.state.refused else ""
        plan = known or f"{int(float(self.state.incumbent)) + better}.{self.plans}"
        self.work = self.work._replace(state=WorkState.WON, candidate=plan, says="it won")

    @rule(health=st.sampled_from([Health.DOWN, Health.STARTING, Health.UNKNOWN]))
    def the_unit_stumbles(self, health):
        self.unit = self.unit._replace(health=health)

    @rule(verdict=st.sampled_from(Verdict), attempt=st.integers(0, 3))
    def an_old_verdict_turns_up(self, verdict, attempt):
        """Of another attempt than the present one."""
        if attempt != self.state.attempt:
            self.canary = Canary(verdict, attempt)

    @rule(ticks=st.integers(1, 8), better=st.sampled_from([-3, -1, 1, 2]), decides=st.booleans())
    def things_go_well(self, ticks, better, decides):
        """Some ticks on which nothing is in the way: how chance alone would rarely come as far as a canary."""
        for _ in range(ticks):
            if not self.reasons and self.state.phase is Phase.WATCHING:
                self.a_reason(Kind.WORKLOAD)
            if self.work.state is WorkState.RUNNING:
                self.the_run_wins_its_gate(better, again=False)
            self.tick(
                15.0, 99, starts=True, decides=decides, mode=Mode.ADOPT, leased=True, stopping=False, window=GRANTED,
                ask=Ask.NOTHING,
            )  # fmt: skip

    # --- ticks and kills

    @rule(
        elapsed=mostly(15.0, 0.0, 2000.0, 4000.0), done=mostly(99, 0, 1, 2), mode=mostly(Mode.ADOPT, *Mode),
        leased=mostly(True, False), stopping=mostly(False, True), window=mostly(GRANTED, CLOSED),
        ask=mostly(Ask.NOTHING, *Ask), starts=mostly(True, False), decides=st.booleans(),
    )  # fmt: skip
    def tick(self, elapsed, done, starts, decides, **seen):
        """A tick that carries out the first `done` orders and is then killed: 99 stands for all of them."""
        if starts:
            self.unit = self.unit._replace(health=Health.HEALTHY)
        if decides and self.canary.verdict is Verdict.RUNNING:
            self.traffic_decides()
        inputs = Inputs(0.0, elapsed, reasons=self.reasons, work=self.work, unit=self.unit, canary=self.canary, **seen)
        before = self.state
        self.state, actions = step(before, inputs)
        self.saved = dumps(self.state)
        self.judge(before, inputs, actions)
        for action in actions[:done]:
            self.obey(action)
        if done < len(actions):
            self.kill()

    def traffic_decides(self):
        """It compares what was told to be compared, and never lies; whether it still matters is the policy's to see."""
        worse = float(self.state.candidate or 0) < float(self.state.incumbent)
        self.canary = self.canary._replace(verdict=Verdict.WORSE if worse else Verdict.PASSED)
        if not worse and self.canary.attempt == self.state.attempt and self.state.candidate:
            self.proven.add(self.state.candidate)

    @rule(orphan=st.booleans())
    def kill(self, orphan=False):
        """Nothing is left of the process but the saved state; its run dies with it, or lives on as an orphan."""
        self.state = loads(self.saved)
        self.work = self.work if orphan or self.work.state is not WorkState.RUNNING else Work()
        self.canary = Canary()

    @precondition(lambda self: self.state.phase in (Phase.WATCHING, Phase.DUE, Phase.TUNING))
    @rule()
    def the_state_is_lost(self):
        """What the store held was garbage: the daemon begins anew with the plan that runs."""
        self.state = State(incumbent=self.state.incumbent)
        self.saved = dumps(self.state)
        self.kill(orphan=True)

    def judge(self, before, inputs, actions):
        """What must never be ordered."""
        kinds = {type(action) for action in actions}
        assert inputs.leased or kinds <= {Abort}, "orders without the lease"
        assert not inputs.stopping or not kinds & {Tune, Restart}, "something begins while the service stops"
        if Tune in kinds:
            assert inputs.mode is not Mode.OBSERVE, "a run in observe"
            assert inputs.window.granted
            assert self.work.state is not WorkState.RUNNING, "a second run"
        if Restart in kinds:
            assert inputs.mode is Mode.ADOPT or self.state.asked, "a restart that nobody asked for"
            assert before.candidate not in before.refused, "a plan that was rolled back"
        for action in actions:
            if isinstance(action, Rollback | Adopt):
                assert action.profile in self.proven, "a worse plan"

    def obey(self, action):
        if isinstance(action, Tune):
            self.work = Work(WorkState.RUNNING, action.attempt)
        elif isinstance(action, Abort):
            self.work = Work(WorkState.ABORTED, action.attempt)
        elif isinstance(action, Restart | Rollback):
            self.unit = Unit(Health.STARTING, action.profile)
        elif isinstance(action, Compare):
            self.canary = Canary(Verdict.RUNNING, action.attempt)
        elif isinstance(action, Settle):
            self.reasons = tuple(reason for reason in self.reasons if reason.kind not in action.kinds)

    # --- what always holds

    @invariant()
    def the_incumbent_is_proven(self):
        assert self.state.incumbent in self.proven
        assert self.state.previous is None or self.state.previous in self.proven

    @invariant()
    def an_unproven_plan_runs_only_while_it_is_watched(self):
        watched = self.unit.profile == self.state.candidate and self.state.phase in UNPROVEN
        assert self.unit.profile in self.proven or watched

    @invariant()
    def state_is_bounded(self):
        assert len(self.state.refused) <= 16
        assert len(self.state.told) + len(self.state.handled) + len(self.state.answering) <= 9
        assert len(dumps(self.state)) < 2000

    @invariant()
    def the_way_back_is_open(self):
        """From here, with a unit that does as it is told, a proven plan serves within a few ticks of stopping."""
        state, unit = self.state, self.unit
        for _ in range(6):
            unit = unit._replace(health=Health.HEALTHY)
            patience = 2000.0 if state.phase is Phase.ROLLING_BACK else 15.0
            state, actions = step(state, Inputs(0.0, patience, Mode.ADOPT, unit=unit, stopping=True))
            for action in actions:
                unit = Unit(Health.STARTING, action.profile) if isinstance(action, Restart | Rollback) else unit
        assert state.phase not in UNPROVEN
        assert unit.profile in self.proven


Site.TestCase.settings = settings(
    max_examples=120, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestSite = Site.TestCase
