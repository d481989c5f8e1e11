"""Leave for a run or a switch that the store and the canary have a say in, beside windows, idleness and allowance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.errors import StoreError
from vllm_tuner.daemon import canary, idle
from vllm_tuner.daemon.permit import GRANTED, Permit
from vllm_tuner.daemon.policy_state import Phase


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.store.profile_store import ProfileStore
    from vllm_tuner.daemon.canary import Baseline
    from vllm_tuner.daemon.config import Config
    from vllm_tuner.daemon.idle import Idle, IdleLimits


_LEAST_RUN_S = 600.0  # for which a unit is stopped; a choice of ours


def window(config: Config, at: float, phase: Phase, baseline: Baseline) -> Permit:
    """A window; a candidate waits besides until what it will be compared with was seen under load.

    A unit that is stopped for a run has to be up again before the window closes.
    """
    closes = config.windows.closes_at(at)
    if phase is Phase.DUE and config.tuning.stop_unit and closes is not None:
        left, need = closes - at, config.timing.start_s + _LEAST_RUN_S
        if left < need:
            why = f"it closes in {left / 60:.0f} min: a run without the unit, and its start, need {need / 60:.0f}"
            return Permit(granted=False, by="window", why=why)
    if phase is Phase.CANDIDATE and not baseline.enough:
        seen = f"{len(baseline.pulses)} of {canary.LEAST} times"
        return Permit(granted=False, by="canary", why=f"what runs was seen under load {seen}")
    return config.windows.permit(at)


def idleness(store: ProfileStore, names: Sequence[str], found: Idle, limits: IdleLimits, *, running: bool) -> Permit:
    """Idle devices, and nobody else who measures; our own run holds the node's lease itself."""
    others = GRANTED if running else nobody_else(store, names)
    return idle.permit(found, limits, ours_runs=running) if others.granted else others


def nobody_else(store: ProfileStore, names: Sequence[str]) -> Permit:
    """No other search measures on this machine, a person's included."""
    try:
        holder = next((found for name in names if (found := store.holder(name))), None)
    except StoreError as error:
        return Permit(granted=False, by="lease", why=error.message)
    if holder is None:
        return GRANTED
    return Permit(granted=False, by="lease", why=f"another search measures here ({holder.owner})")
