"""When a plan no longer fits: one sighting a tick in, the reasons that stand out, in constant memory.

    fingerprint   drift_identity   named strict readings that differ, the same several times in a row
    age, prior    drift_identity   the profile is old; something newer promises more
    workload      drift_workload   lengths, load and prefix hits against the same time of the week, added up
    sla … speed   drift_service    trouble that adds up to hours

A reason stands until what it says is over or until a re-tune has `settle`d it. All state is a small JSON text
(`dumps`, `loads`): a restart goes on where it was. Intervals that can't be trusted (the server began anew, the clock
was set, the machine slept) are counted and left out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from vllm_advisor.hardware import Unknown
from vllm_tuner.daemon.drift_identity import Identity
from vllm_tuner.daemon.drift_reason import (
    DriftLimits,
    Evidence,
    Kind,
    Part,
    Prior,
    Reason,
    Reference,
    Sighting,
)  # fmt: skip
from vllm_tuner.daemon.drift_service import Service
from vllm_tuner.daemon.drift_workload import Workloads


if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_tuner.daemon.drift_sample import Sample

__all__ = ["Drift", "DriftLimits", "Evidence", "Kind", "Part", "Prior", "Reason", "Reference", "Sighting"]
_VERSION = 1
# Both clocks must tell the same interval, up to this: a machine that slept or a clock that was set says nothing else.
_CLOCKS_S, _CLOCKS_SHARE = 5.0, 0.1
# A sample over a longer time is of another part of the day.
_LONGEST_S = 3600.0


class Drift:
    """Everything that is watched of one deployment. `reference` is what its plan was tuned on and for.

    `blocks` counts the comparisons of workloads: the time to `dumps` is when it, or what stands, has changed.
    """

    def __init__(self, reference: Reference, limits: DriftLimits | None = None) -> None:
        self.reference = reference
        self.limits = limits or DriftLimits()
        self.workloads = Workloads(self.limits)
        self.service = Service(self.limits)
        self.identity = Identity(self.limits)
        self.ticks = self.left_out = self.blocks = 0
        self.last_at = 0.0
        self._moved: Reason | None = None
        self._troubles: tuple[Reason, ...] = ()

    def see(self, sighting: Sighting) -> tuple[Reason, ...]:
        """One tick; the reasons that stand now, at most one of a kind."""
        trusted = self._trusted(sighting)
        self.ticks += 1
        if sighting.fingerprint is not None:
            self.identity.see_fingerprint(sighting.at, sighting.fingerprint, self.reference.fingerprint)
        self.identity.see_age(sighting.at, min(sighting.elapsed_s, _LONGEST_S), self.reference.at)
        self.identity.see_prior(sighting.prior)
        if isinstance(sighting.sample, Unknown) or not trusted:
            self.left_out += 1
        else:
            self._traffic(sighting, sighting.sample)
        return self.reasons()

    def _trusted(self, sighting: Sighting) -> bool:
        """Whether wall clock and steady clock tell the same interval, and not too long a one."""
        wall, steady = sighting.at - self.last_at, sighting.elapsed_s
        first, self.last_at = not self.last_at, sighting.at
        return first or (0 < steady <= _LONGEST_S and abs(wall - steady) <= _CLOCKS_S + _CLOCKS_SHARE * steady)

    def _traffic(self, sighting: Sighting, sample: Sample) -> None:
        if self.workloads.see(sighting, sample):
            self.blocks += 1
            self._moved = self.workloads.reason(self.reference.workload)
        if self.service.see(sighting.at, sample, self.reference):
            self._troubles = self.service.reasons()

    def reasons(self) -> tuple[Reason, ...]:
        """Those that stand, without a new sighting."""
        found = (*self.identity.reasons(self.reference), *self._troubles)
        return (*found, self._moved) if self._moved else found

    def settle(self, kinds: Iterable[Kind], at: float) -> None:
        """A re-tune has answered reasons of these kinds, whatever came of it: each must come anew to stand again."""
        answered = frozenset(kinds)
        self.identity.settle(answered, at)
        self.service.settle(answered)
        if Kind.WORKLOAD in answered:
            self.workloads.settle(self.reference.workload)
        self._refresh()

    def rebase(self, reference: Reference) -> None:
        """Another plan runs: what is compared from now on."""
        self.reference = reference
        self.identity.forget()
        self._refresh()

    def _refresh(self) -> None:
        self._moved = self.workloads.reason(self.reference.workload)
        self._troubles = self.service.reasons()

    def dumps(self) -> str:
        """All state as a JSON text: 18 kB for a full week, twice that while a reason stands for another one."""
        plain = {
            "version": _VERSION,
            "workloads": self.workloads.plain(),
            "service": self.service.plain(),
            "identity": self.identity.plain(),
        }
        return json.dumps(plain, separators=(",", ":"))

    @classmethod
    def loads(cls, text: str, reference: Reference, limits: DriftLimits | None = None) -> Drift:
        """From that text. Raises ValueError for anything else: begin anew, what is lost is a few weeks of habits."""
        drift = cls(reference, limits)
        try:
            plain: dict[str, Any] = json.loads(text)
            if plain["version"] != _VERSION:
                raise ValueError(f"version {plain['version']}, {_VERSION} is known")
            drift.workloads = Workloads.read(plain["workloads"], drift.limits)
            drift.service = Service.read(plain["service"], drift.limits)
            drift.identity = Identity.read(plain["identity"], drift.limits)
        except (KeyError, TypeError, AttributeError, IndexError, RecursionError, OverflowError) as error:
            raise ValueError(f"not the state of drift: {error!r}") from None
        drift._refresh()
        return drift
