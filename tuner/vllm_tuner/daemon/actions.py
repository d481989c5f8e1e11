"""The hands: each action of the policy carried out, and what came of it told at the next tick.

An action that fails is logged and leaves the world as it is; the policy looks at what is there and orders again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import AdvisorError, EngineError, StoreError
from vllm_advisor.hardware import Unknown
from vllm_advisor.profile import Event
from vllm_advisor.workload import Sla
from vllm_tuner.daemon import allowance, canary, kept
from vllm_tuner.daemon.drift import Reference
from vllm_tuner.daemon.look import plan_of
from vllm_tuner.daemon.plans import commands, jobs
from vllm_tuner.daemon.policy_state import (
    Abort,
    Adopt,
    BackOff,
    Canary,
    Compare,
    Notify,
    Record,
    Recover,
    Restart,
    Rollback,
    Settle,
    StoreCandidate,
    Tune,
    Work,
    WorkState,
)  # fmt: skip
from vllm_tuner.daemon.run import TUNER, Run
from vllm_tuner.daemon.units.managed import FOREIGN


if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from vllm_advisor.plan import LaunchCommand
    from vllm_advisor.store.profile_store import ProfileStore
    from vllm_tuner.daemon.allowance import Allowance
    from vllm_tuner.daemon.config import Config
    from vllm_tuner.daemon.drift import Drift
    from vllm_tuner.daemon.drift_sample import Sample
    from vllm_tuner.daemon.logs import Log
    from vllm_tuner.daemon.notify import Webhook
    from vllm_tuner.daemon.policy_state import Action
    from vllm_tuner.daemon.units.managed import Managed
    from vllm_tuner.daemon.watch import Watch

_RUNS_KEPT = 5
_TOLD = ("drift", "candidate", "adopted", "rolled back")  # records that come with news, which are logged


class World(NamedTuple):
    """What the hands may reach. `tuner`: the command of a run; `plan`: the command of a profile on a vLLM.

    `host` is the name that a search signs with, where `node` is another one.
    """

    config: Config
    node: str
    store: ProfileStore
    folder: Path
    watch: Watch
    unit: Managed | None
    log: Log
    webhook: Webhook | None
    environment: Mapping[str, str]
    now: Callable[[], float]
    tuner: tuple[str, ...] = TUNER
    plan: Callable[[str, str, Mapping[str, str]], LaunchCommand] = plan_of
    host: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Under which searches of this machine are known."""
        return tuple(dict.fromkeys((self.node, self.host or self.node)))


class Hands:
    """What runs because of us, and what was spent."""

    def __init__(self, world: World, drift: Drift, spent: Allowance) -> None:
        self.world, self.drift, self.allowance = world, drift, spent
        self.run: Run | None = None
        self.ended = Work()
        self.baseline = canary.loads(_kept(world, kept.BASELINE))
        self.trial: canary.Trial | None = None
        self.away = bool(_kept(world, kept.AWAY))
        self._do: dict[type, Callable[..., None]] = {
            Tune: self._tune, Abort: self._abort, StoreCandidate: self._candidate, Restart: self._restart,
            Compare: self._compare, Adopt: self._adopt, Rollback: self._rollback, Settle: self._settle,
            BackOff: self._back_off, Recover: self._recover, Notify: self._notify, Record: self._record,
        }  # fmt: skip

    def do(self, action: Action) -> None:
        """Carry out one action; what goes wrong is one line, and the policy sees what is there."""
        try:
            self._do[type(action)](action)
        except (AdvisorError, OSError) as error:
            said = error.message if isinstance(error, AdvisorError) else f"{error.strerror or error}"
            self.world.log("error", "action", f"{type(action).__name__.lower()}: {said}")

    def work(self) -> Work:
        """The tuning run, as the policy is told of it."""
        if self.run is None:
            return self.ended
        try:
            found = self.run.poll()
        except OSError as error:
            self.run.stop(1.0)
            found = Work(WorkState.FAILED, self.run.attempt, says=f"its files: {error.strerror}")
        if found.state is WorkState.WON and self._runs_already(found.candidate):
            found = found._replace(state=WorkState.KEPT, candidate="", says=f"the winner is what runs: {found.says}")
        if found.state is not WorkState.RUNNING:
            self.run, self.ended = None, found
        return found

    def _runs_already(self, winner: str) -> bool:
        """Whether a winner is the running plan under another id: it was measured anew."""
        number = self.drift.reference.profile
        try:
            now, won = (self.world.store.profile(one) for one in (number, winner)) if number else (None, None)
        except StoreError:
            return False
        return now is not None and won is not None and (now.plan, now.flags) == (won.plan, won.flags)

    def feel(self, seen: Sample | Unknown, *, steady: bool) -> Canary:
        """One reading of live traffic: of the canary where there is one, else of what is proven (`steady`)."""
        if self.trial is not None:
            self.trial = self.trial.with_(seen, self.baseline)
            return self.trial.verdict()
        if steady:
            self.baseline = self.baseline.with_(canary.pulse(seen))
        return Canary()

    def spend(self, elapsed: float) -> None:
        """Time and energy of a run that goes on."""
        at, devices = self.world.now(), self.world.watch.last_devices
        watts = sum(device.watts for device in devices if not isinstance(device.watts, Unknown))
        offset = self.world.config.windows.offset_s(at)
        self.allowance = allowance.spend(self.allowance, at, elapsed, watts * elapsed / 3600, offset)

    def stop(self, grace_s: float) -> None:
        """Stop what would be nobody's."""
        if self.run is not None:
            self.run.stop(grace_s)
            self.run = None
        self.world.watch.look.stop()

    def _tune(self, action: Tune) -> None:
        world = self.world
        folder = world.folder / f"attempt-{action.attempt}"
        _drop_old(world.folder, _RUNS_KEPT - 1)
        now, config = world.now(), world.config
        left = allowance.left_s(self.allowance, config.allowance, now, config.windows.offset_s(now))
        wanted = jobs(action, world, folder, left, self.drift.reference)
        if not wanted:
            self.ended = Work(WorkState.KEPT, action.attempt, says="kernels are not timed again: [tuning] kernels")
            return
        try:
            self._make_room()
            self.run = Run(action.attempt, wanted, folder, world.environment, tuner=world.tuner)
            self.run.start()
        except (AdvisorError, OSError) as error:
            said = error.message if isinstance(error, AdvisorError) else f"no start: {error.strerror}"
            self.run, self.ended = None, Work(WorkState.FAILED, action.attempt, says=said)
            raise

    def _make_room(self) -> None:
        """Where the operator said so the unit makes way; that it must come back is kept before it goes.

        One that is down already is left alone: somebody else stopped it, and it is not ours to start.
        """
        unit = self.world.unit if self.world.config.tuning.stop_unit else None
        found = unit.running() if unit is not None else None
        if unit is None or found is None or not found.up:
            return
        if found.profile == FOREIGN:
            raise EngineError("the unit runs what nobody told this service of: it is not stopped")
        self.world.store.keep(kept.AWAY, self.world.node, "yes")
        self.away = True
        self.world.log("info", "unit", "stopped for a run: [tuning] stop_unit")
        unit.stop()

    def returned(self) -> None:
        """The unit that made way is up again."""
        self.world.store.keep(kept.AWAY, self.world.node, None)
        self.away = False

    def _abort(self, action: Abort) -> None:
        if self.run is not None and self.run.attempt == action.attempt:
            self.world.log("info", "abort", action.why, attempt=action.attempt)
            self.run.abort()

    def _candidate(self, action: StoreCandidate) -> None:
        """The run has stored the profile; that it may be adopted stands in the policy's state."""
        self.world.store.profile(action.profile)
        self.ended = Work()

    def _restart(self, action: Restart) -> None:
        self.trial = None
        self.world.store.keep(kept.BASELINE, self.world.node, canary.dumps(self.baseline))
        self._start(action.profile)

    def revive(self, profile: str) -> None:
        """Start a unit again that is down and that nobody else starts."""
        self.do(Rollback(profile, "it is down"))

    def _rollback(self, action: Rollback) -> None:
        self.trial = None
        if action.profile:
            self._start(action.profile)
        elif self.world.unit is not None:
            self.world.unit.restore()

    def _start(self, profile: str) -> None:
        unit = self.world.unit
        if unit is None:
            return
        plan = self.world.plan(profile, self.world.watch.vllm, self.world.environment)
        unit.start(commands(unit, plan), profile)

    def _compare(self, action: Compare) -> None:
        if self.trial is None or self.trial.attempt != action.attempt:
            self.trial = canary.Trial(action.attempt)

    def _adopt(self, action: Adopt) -> None:
        self.trial = None
        self.baseline = canary.Baseline()
        self.world.store.keep(kept.BASELINE, self.world.node, None)
        self.drift.rebase(reference_of(self.world, action.profile))

    def _settle(self, action: Settle) -> None:
        self.drift.settle(action.kinds, self.world.now())

    def _back_off(self, _action: BackOff) -> None:
        self.allowance = allowance.failed(self.allowance, self.world.config.allowance, self.world.now())

    def _recover(self, _action: Recover) -> None:
        self.allowance = allowance.succeeded(self.allowance)

    def _notify(self, action: Notify) -> None:
        level = "warning" if action.kind in ("drift", "gave up", "rolled back", "refused") else "info"
        self.world.log(level, action.kind, action.text)
        if self.world.webhook is not None:
            self.world.webhook.send(action.kind, action.text)

    def _record(self, action: Record) -> None:
        if action.kind not in _TOLD:
            self.world.log("info", action.kind, action.text, **dict(action.details))
        self.world.store.record(Event(action.kind, action.text, self.world.node, action.details, self.world.now()))


def reference_of(world: World, profile: str) -> Reference:
    """What is compared: the profile, and the limits that the configuration sets beside its own. Raises StoreError."""
    limits = world.config.deployment.sla
    found = Reference()
    if profile:
        try:
            found = Reference.of(world.store.profile(profile))
        except StoreError as error:
            if "there is no profile" not in error.message:
                raise
            world.log("warning", "profile", error.message)
    own = found.limits
    ttft, tpot = (getattr(limits, name) or (getattr(own, name) if own else None) for name in ("ttft_ms", "tpot_ms"))
    return found._replace(sla=Sla(ttft, tpot)) if limits != Sla() else found


def _kept(world: World, kind: str) -> str:
    try:
        return world.store.kept(kind, world.node) or ""
    except StoreError:
        return ""


def _drop_old(folder: Path, most: int) -> None:
    """Logs of the newest runs stay."""
    import shutil

    runs = sorted(folder.glob("attempt-*"), key=lambda path: path.stat().st_mtime)
    for old in runs[: max(0, len(runs) - most)]:
        shutil.rmtree(old, ignore_errors=True)
