"""What must outlive the process, as texts in the store, one of each kind a node: policy, allowance, drift, and more.

A text that cannot be read (written by another release, cut off) is named and begun anew: the daemon runs on, what is
lost is habits and waits, never a profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_tuner.daemon import allowance, policy_state
from vllm_tuner.daemon.allowance import Allowance
from vllm_tuner.daemon.busiest import Busiest
from vllm_tuner.daemon.drift import Drift, Reference
from vllm_tuner.daemon.policy_state import Ask, Notify, Phase, State


if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from vllm_advisor.store.profile_store import ProfileStore
    from vllm_tuner.daemon.drift import DriftLimits
    from vllm_tuner.daemon.policy_state import Action

    T = TypeVar("T")

POLICY, ALLOWANCE, DRIFT, ASKED, BASELINE = "policy", "allowance", "drift", "asked", "baseline"
LOADS = "loads"  # the busiest times of the last day
AWAY = "away"  # the unit was stopped for a run, and must be started again
RUNS = "runs"  # the profile that an unmanaged server was taken to run, "" for none
_SPENT_EVERY_S = 60.0


class Loaded(NamedTuple):
    """What was kept; `broken` names what could not be read."""

    state: State
    allowance: Allowance
    drift: Drift
    busiest: Busiest
    broken: tuple[str, ...] = ()


def load(store: ProfileStore, node: str, limits: DriftLimits) -> Loaded:
    """Everything of a node. Raises StoreError."""
    broken: list[str] = []

    def read(kind: str, reader: Callable[[str], T], otherwise: Callable[[], T]) -> T:
        text = store.kept(kind, node)
        if text is None:
            return otherwise()
        try:
            return reader(text)
        except ValueError as error:
            broken.append(f"{kind}: {error}")
            return otherwise()

    nothing = Reference()
    state = read(POLICY, policy_state.loads, State)
    spent = read(ALLOWANCE, allowance.loads, Allowance)
    drift = read(DRIFT, lambda text: Drift.loads(text, nothing, limits), lambda: Drift(nothing, limits))
    busiest = read(LOADS, Busiest.loads, Busiest)
    return Loaded(state, spent, drift, busiest, tuple(broken))


class Saved:
    """What was written, so that nothing is written twice. `write_*` raise StoreError."""

    def __init__(self, store: ProfileStore, node: str) -> None:
        self._store, self._node = store, node
        self._texts: dict[str, str] = {}
        self._last: State | None = None
        self.blocks, self.unspent_s = -1, 0.0

    def write_state(self, state: State) -> None:
        """The policy's state, where it differs by more than the time that passes."""
        worth = _worth_saving(state)
        if worth != self._last:
            self._keep(POLICY, policy_state.dumps(state))
            self._last = worth

    def write_habits(self, drift: Drift, spent: Allowance, baseline: str, busiest: Busiest) -> None:
        """Drift, allowance, loads, and what the incumbent does: what is lost of them is a few hours' worth."""
        self._keep(BASELINE, baseline)
        self._keep(ALLOWANCE, allowance.dumps(spent))
        self._keep(DRIFT, drift.dumps())
        self._keep(LOADS, busiest.dumps())
        self.blocks, self.unspent_s = drift.blocks, 0.0

    def worth_writing(self, drift: Drift) -> bool:
        """Whether habits have changed by something."""
        return drift.blocks != self.blocks or self.unspent_s > _SPENT_EVERY_S

    def _keep(self, kind: str, text: str) -> None:
        if self._texts.get(kind) != text:
            self._store.keep(kind, self._node, text)
            self._texts[kind] = text


def _worth_saving(state: State) -> State:
    """The state without what changes at every tick: the time in a phase counts by minutes, where it matters."""
    minutes = 0.0 if state.phase in (Phase.WATCHING, Phase.DUE) else state.phase_s // 60
    return state._replace(phase_s=minutes)


def taken_up(ask: Ask, after: State, actions: tuple[Action, ...]) -> bool:
    """Whether an operator's wish has become an order, or was refused."""
    if any(isinstance(action, Notify) and action.kind == "refused" for action in actions):
        return True
    phases = {Ask.ADOPT: (Phase.SWITCHING, Phase.CANARY), Ask.ROLLBACK: (Phase.ROLLING_BACK,)}
    return after.phase in phases.get(ask, ())


def asked(store: ProfileStore, node: str) -> Ask:
    """What an operator wants; nothing where the text is none of ours. Raises StoreError."""
    text = store.kept(ASKED, node) or ""
    return Ask(text) if text in tuple(Ask) else Ask.NOTHING
