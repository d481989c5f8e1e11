"""What the managed unit does: its processes and /health taken together, and one that nobody else starts, started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.errors import AdvisorError
from vllm_tuner.daemon import orphans
from vllm_tuner.daemon.policy_state import Health, Unit
from vllm_tuner.daemon.policy_switch import SWITCHES


if TYPE_CHECKING:
    from vllm_tuner.daemon.actions import Hands
    from vllm_tuner.daemon.policy_state import State
    from vllm_tuner.daemon.units.managed import Managed
    from vllm_tuner.daemon.watch import Seen

_LONGEST_WAIT_S = 300.0


class Keeper:
    """One unit, None: nothing is managed. `trouble` is what stood against the last look."""

    def __init__(self, managed: Managed | None, tick_s: float) -> None:
        self.managed, self._tick_s = managed, tick_s
        self.trouble = ""
        self._served = False
        self._at, self._wait_s = 0.0, tick_s

    def look(self, seen: Seen, incumbent: str) -> Unit:
        """One missed answer of a server that served is no death."""
        self.trouble = ""
        if self.managed is None:
            return Unit()
        try:
            found = self.managed.running()
        except AdvisorError as error:
            self.trouble = error.message
            return Unit(Health.UNKNOWN, incumbent)
        if not found.up:
            self._served = False
            return Unit(Health.DOWN, found.profile)
        if seen.healthy:
            self._served = True
            return Unit(Health.HEALTHY, found.profile)
        wait = self._served and not seen.silent
        return Unit(Health.UNKNOWN if wait else Health.STARTING, found.profile)

    def tend(self, unit: Unit, hands: Hands, state: State, steady: float) -> None:
        """Start what nobody else starts, and let it be known that what made way is back. Raises StoreError."""
        away, runs = hands.away, hands.run is not None
        free = state.phase not in SWITCHES and not (away and runs)
        if free and self.must_start(unit, steady, stopped=away):
            why = "the run is over" if away else "it does not run"
            hands.world.log("warning", "unit", f"{why}: started again")
            hands.revive(state.incumbent)
        if away and not runs and unit.health in (Health.STARTING, Health.HEALTHY):
            hands.returned()

    def must_start(self, unit: Unit, steady: float, *, stopped: bool = False) -> bool:
        """Whether a child that died, or what we `stopped`, is to be started now: at once, then less and less often."""
        if self.managed is None or not (self.managed.supervised or stopped):
            return False
        if unit.health is Health.HEALTHY:
            self._at, self._wait_s = 0.0, self._tick_s
        if unit.health is not Health.DOWN or steady < self._at:
            return False
        self._wait_s = min(_LONGEST_WAIT_S, 2 * self._wait_s)
        self._at = steady + self._wait_s
        return True

    def last(self) -> Unit:
        """The unit when there is no time to ask for its health."""
        try:
            return Unit(Health.UNKNOWN, self.managed.running().profile) if self.managed is not None else Unit()
        except AdvisorError:
            return Unit()

    def kill(self) -> None:
        """No time is left: a child that nobody would watch ends with the daemon."""
        if self.managed is not None and self.managed.supervised:
            orphans.stop(self.managed.processes, 0.0)

    def leave(self) -> str:
        """The daemon ends; what went wrong, "" for nothing."""
        try:
            if self.managed is not None:
                self.managed.leave()
        except AdvisorError as error:
            return error.message
        return ""
