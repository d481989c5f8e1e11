"""The daemon: acquire the node's lease, recover what a killed one left, then ticks, until a signal.

One tick: heartbeat; look; reasons to tune again; what the policy makes of them; save that; then act on it. What is not
saved is not done: with a full disk or a locked store the daemon goes on looking and orders nothing, but for the stop of
what it runs. All that must outlive the process lies in the store; what runs is looked at, not believed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import AdvisorError, StoreError
from vllm_advisor.hardware import Unknown
from vllm_advisor.workload import Sla
from vllm_tuner.daemon import allowance, canary, idle, kept, orphans, policy_state, priors
from vllm_tuner.daemon.actions import Hands, World, reference_of
from vllm_tuner.daemon.allowance import Allowance
from vllm_tuner.daemon.drift import Drift, Reference
from vllm_tuner.daemon.idle import Idle
from vllm_tuner.daemon.keeper import Keeper
from vllm_tuner.daemon.permits import idleness, window
from vllm_tuner.daemon.policy import step
from vllm_tuner.daemon.policy_state import Abort, Ask, Canary, Health, Inputs, Phase, Unit, WorkState
from vllm_tuner.daemon.snapshot import Snapshot, pages
from vllm_tuner.daemon.status import Board
from vllm_tuner.daemon.tenure import Tenure


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_tuner.daemon.config import Config
    from vllm_tuner.daemon.drift import Prior, Reason
    from vllm_tuner.daemon.policy_state import Action, State, Work
    from vllm_tuner.daemon.sd_notify import Supervisor
    from vllm_tuner.daemon.signals import Signals
    from vllm_tuner.daemon.watch import Seen

_STOP_GRACE_S = 3.0


class Clocks(NamedTuple):
    """`now`: UTC, may jump. `steady`: never set; stands still while the machine sleeps."""

    now: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


class Daemon:
    """One node's service; `world.store` is open. `trouble` is what stands against normal work, by what it is about."""

    def __init__(self, world: World, clocks: Clocks | None = None, board: Board | None = None) -> None:
        self.world, self.clocks = world, clocks or Clocks()
        self.board = board or Board()
        self.tenure = Tenure(world.store, world.node, world.log)
        self.keeper = Keeper(world.unit, world.config.tick_s)
        self.saved = kept.Saved(world.store, world.node)
        self.hands = Hands(world, Drift(Reference(), world.config.drift), Allowance())
        self.state: State = policy_state.State()
        self.trouble: dict[str, str] = {}
        self.ticks, self.calm, self.started = 0, 0, self.clocks.now()
        self._recovered = self._may_guess = False
        self._before = self.clocks.steady()
        self._idle = Idle()
        self._prior: Prior | None = None

    @property
    def leased(self) -> bool:
        """Whether this daemon has the node."""
        return self.tenure.held

    def run(self, signals: Signals, supervisor: Supervisor, reload: Callable[[], Config]) -> None:
        """Ticks until a signal stops them; then everything of ours is stopped and the lease given back."""
        supervisor.ready("started")
        try:
            while not signals.stop:
                if signals.reload:
                    signals.reload = False
                    supervisor.reloading()
                    self.reload(reload)
                    supervisor.ready("reloaded")
                begun = self.clocks.steady()
                self.tick()
                supervisor.alive(f"{self.state.phase}" if self.leased else "another daemon has this node")
                signals.wait(self.world.config.tick_s - (self.clocks.steady() - begun))
        finally:
            supervisor.stopping()
            self.stop()

    def tick(self) -> tuple[Action, ...]:
        """One look and what it leads to; never raises for what the world does."""
        self.ticks += 1
        steady, self.trouble = self.clocks.steady(), {}
        elapsed, self._before = steady - self._before, steady
        if self.tenure.hold(steady, self.world.config.tick_s) or not self.leased:
            self._recovered = False
        self._say("store", self.tenure.trouble)
        if self.leased and (self._recovered or self.recover()):
            return self._watched(elapsed)
        return self._waiting(elapsed)

    def _waiting(self, elapsed: float) -> tuple[Action, ...]:
        """Nothing is known of the node's state, and nothing is ours to do but to stop."""
        inputs = Inputs(self.clocks.now(), elapsed, self.world.config.mode, leased=False, work=self.hands.work())
        self.state, actions = step(self.state, inputs)
        for action in actions:
            self.hands.do(action)
        self._publish(inputs, answers=False)
        return actions

    def recover(self) -> bool:
        """Once after each time that the lease was taken: what a killed daemon left behind, and what it knew."""
        world = self.world
        try:
            for gone in orphans.stop_inside(world.folder):
                world.log("warning", "recovered", f"stopped process {gone}, left behind by a daemon that ended")
            for number in [one for name in world.names for one in world.store.recover_stale(name)]:
                world.log("warning", "recovered", f"trial {number} was running: failed")
            found = kept.load(world.store, world.node, world.config.drift)
            known = found.state.incumbent or world.config.deployment.profile
            runs, self._may_guess = priors.running(world.store, world.node, known, managed=world.unit is not None)
            reference = reference_of(world, runs)
        except StoreError as error:
            self._say("store", error.message)
            return False
        for text in found.broken:
            world.log("error", "state", f"begun anew: {text}")
        found.drift.rebase(reference)
        world.watch.busiest = found.busiest
        self.state, self.hands = found.state, Hands(world, found.drift, found.allowance)
        self.saved = kept.Saved(world.store, world.node)
        self.saved.blocks, self._recovered = found.drift.blocks, True
        return True

    def _watched(self, elapsed: float) -> tuple[Action, ...]:
        world = self.world
        world.watch.ask(world.config.deployment.model or world.watch.model, self.hands.drift.reference.profile)
        work, seen = self.hands.work(), self._see()
        self._identify(seen)
        reasons = self.hands.drift.see(seen.sighting._replace(prior=self._prior))
        unit = self._unit(seen)
        running = work.state is WorkState.RUNNING
        self._idle = idle.observe(self._idle, seen.idle, world.config.idle, ours_runs=running)
        if running:
            self.hands.spend(elapsed)
            self.saved.unspent_s += elapsed
        inputs = self._inputs(elapsed, reasons, work, unit)._replace(canary=self._canary(seen, unit))
        actions = self._step(inputs)
        self._publish(inputs, answers=seen.healthy)
        return actions

    def _inputs(self, elapsed: float, reasons: tuple[Reason, ...], work: Work, unit: Unit) -> Inputs:
        world, config, at = self.world, self.world.config, self.clocks.now()
        running = work.state is WorkState.RUNNING
        return Inputs(
            at, elapsed, config.mode, reasons,
            idle=idleness(world.store, world.names, self._idle, config.idle, running=running),
            window=window(config, at, self.state.phase, self.hands.baseline),
            allowance=allowance.permit(self.hands.allowance, config.allowance, at, config.windows.offset_s(at)),
            guard=idle.guard(self._idle), work=work, unit=unit, ask=self._asked(), timing=config.timing,
        )  # fmt: skip

    def _see(self) -> Seen:
        config, unit, run = self.world.config, self.world.unit, self.hands.run
        ours = run.processes() if run is not None else ()
        may_stay = config.tuning.beside_server or (config.tuning.stop_unit and run is None)
        beside = unit.processes() if unit is not None and may_stay else ()
        sla = self.hands.drift.reference.limits or Sla()
        offset = config.windows.offset_s(self.clocks.now())
        seen = self.world.watch.see(ours, beside, config.drift.block_s, sla, offset)
        silent = seen.silent and not self.hands.away
        self.world.log.once("warning", "server", seen.why if silent else "")
        if isinstance(seen.counters, Unknown) and not self.hands.away:
            self.trouble["server"] = seen.counters.why
        return seen

    def _identify(self, seen: Seen) -> None:
        """With a new fingerprint the store is asked what promises more than what runs, and at first what that is."""
        here, drift, world = seen.sighting.fingerprint, self.hands.drift, self.world
        if here is None:
            return
        try:
            number, news = priors.look(world.store, here, drift.reference.profile, guess=self._may_guess)
            self._prior = priors.better(news, world.watch.advice)
            if self._may_guess:
                world.store.keep(kept.RUNS, world.node, number)
                drift.rebase(reference_of(world, number))
            self._may_guess = False
        except StoreError as error:
            self._say("store", error.message)

    def _unit(self, seen: Seen) -> Unit:
        unit = self.keeper.look(seen, self.state.incumbent)
        self._say("unit", self.keeper.trouble)
        try:
            self.keeper.tend(unit, self.hands, self.state, self.clocks.steady())
        except StoreError as error:
            self._say("store", error.message)
        return unit

    def _canary(self, seen: Seen, unit: Unit) -> Canary:
        """A reading without an answer says nothing of the candidate."""
        if seen.healthy:
            proven = unit.profile == self.state.incumbent or unit.health is Health.UNMANAGED
            return self.hands.feel(seen.sighting.sample, steady=proven)
        return self.hands.trial.verdict() if self.hands.trial is not None else Canary()

    def _asked(self) -> Ask:
        try:
            return kept.asked(self.world.store, self.world.node)
        except StoreError as error:
            self._say("store", error.message)
            return Ask.NOTHING

    def _step(self, inputs: Inputs) -> tuple[Action, ...]:
        """Save, then act. What cannot be saved is not done, except to stop a run."""
        after, actions = step(self.state, inputs)
        if not self._save(after, inputs.ask, actions):
            for action in actions:
                if isinstance(action, Abort):
                    self.hands.do(action)
            return ()
        self.state = after
        for action in actions:
            self.hands.do(action)
        if actions or self.saved.worth_writing(self.hands.drift):
            self._save_habits()
        return actions

    def _save(self, after: State, ask: Ask, actions: tuple[Action, ...]) -> bool:
        """The policy's state, and that an operator's wish was taken up."""
        try:
            self.saved.write_state(after)
            if ask is not Ask.NOTHING and kept.taken_up(ask, after, actions):
                self.world.store.keep(kept.ASKED, self.world.node, None)
        except StoreError as error:
            self._say("store", error.message)
            return False
        return True

    def _save_habits(self) -> None:
        try:
            hands = self.hands
            baseline, busiest = canary.dumps(hands.baseline), self.world.watch.busiest
            self.saved.write_habits(hands.drift, hands.allowance, baseline, busiest)
        except StoreError as error:
            self._say("store", error.message)

    def _say(self, what: str, text: str) -> None:
        """Trouble is told once, and stands in the status until a tick is without it."""
        if text:
            self.trouble[what] = text
            self.world.log.once("error", what, text)

    def _publish(self, inputs: Inputs, *, answers: bool) -> None:
        for what in {"store", "unit"} - set(self.trouble):
            self.world.log.once("error", what, "")
        self.calm = 0 if self.trouble else self.calm + 1
        config, hands = self.world.config, self.hands
        permits = (inputs.window, inputs.guard, inputs.allowance, inputs.idle)
        spent = config.allowance.seconds_a_day - allowance.left_s(hands.allowance, config.allowance, inputs.at)
        found = Snapshot(
            inputs.at, self.world.node, config.mode, self.leased, self.state, inputs.reasons, permits,
            inputs.work, inputs.unit, answers, self.ticks, config.tick_s, hands.drift.left_out,
            spent, hands.allowance.failures, self.started, tuple(self.trouble.values()), self.calm, hands.away,
        )  # fmt: skip
        self.board.publish(pages(found, max(60.0, 4 * config.tick_s)))

    def reload(self, read: Callable[[], Config]) -> None:
        """A new configuration, or one line and the old one."""
        try:
            config = read()
        except AdvisorError as error:
            self.world.log("error", "reload", f"the old configuration stays: {error.message}")
            return
        self.world = self.hands.world = self.world._replace(config=config)
        drift = self.hands.drift
        drift.limits = drift.workloads.limits = drift.service.limits = drift.identity.limits = config.drift
        self.world.log("info", "reload", f"mode {config.mode}, a tick each {config.tick_s:g} s")

    def stop(self) -> None:
        """Stop the run, take an unproven plan back, leave the unit in order, give the lease back."""
        if self.leased and self._recovered:
            if self.state.phase in (Phase.SWITCHING, Phase.CANARY):  # nobody would watch it: it is taken back
                mode, unit = self.world.config.mode, self.keeper.last()
                self._step(Inputs(self.clocks.now(), 0.0, mode, unit=unit, stopping=True))
            self._save_habits()
        self.hands.stop(_STOP_GRACE_S)
        if self.hands.away and self.leased and self._recovered:
            self.hands.revive(self.state.incumbent)  # a unit that was to make way for a moment; a child ends with us
        if trouble := self.keeper.leave() if self.leased else "":
            self.world.log("error", "unit", trouble)
        self.tenure.give_back()
        self.world.log("info", "stopped", "the lease is given back" if self.leased else "it had no lease")

    def force(self) -> None:
        """No time is left: kill what runs because of us."""
        orphans.stop_inside(self.world.folder, 0.0)
        self.keeper.kill()
