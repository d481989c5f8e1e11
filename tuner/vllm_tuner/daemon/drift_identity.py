"""Whether what the plan was tuned on is still there: the strict fingerprint, the profile's age, and better priors.

A reading counts as changed once it was the same in several sightings in a row, and only where both sides are known:
a probe that fails for a minute is no new machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_advisor.hardware import Unknown
from vllm_tuner.daemon.drift_reason import Evidence, Kind, Part, Reason


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.profile import Fingerprint
    from vllm_tuner.daemon.drift_reason import DriftLimits, Prior, Reference

_KERNELS, _SERVER = (Part.KERNELS,), (Part.SERVER,)
# What a strict reading is behind: times of kernels, the server's best settings, or both. Names: fingerprint.py.
ASKS = {
    "gpus": (Part.KERNELS, Part.SERVER),
    "memory_bytes": _SERVER,
    "links": _SERVER,
    "driver": _KERNELS,
    "runtime": _KERNELS,
    "host": _SERVER,
    "vllm": _SERVER,
    "torch": _KERNELS,
    "triton": _KERNELS,
    "plugin": _KERNELS,
    "model": _SERVER,
    "revision": _SERVER,
    "config": _SERVER,
}
_PRIORS_KEPT = 16
_STEADY_S = 3600.0  # an age must stand for so long by a clock that is never set


class Identity:
    """What was answered already: the last fingerprint and the last priors that a re-tune has looked at."""

    def __init__(self, limits: DriftLimits) -> None:
        self.limits = limits
        self.changed: tuple[Evidence, ...] = ()
        self.seen = 0
        self.since = 0.0
        self.settled_fingerprint = ""
        self.settled_priors: tuple[str, ...] = ()
        self.prior: Prior | None = None
        self.settled_at = 0.0
        self.old_s = 0.0
        self.age_s = 0.0

    def see_fingerprint(self, at: float, now: Fingerprint, then: Fingerprint | None) -> None:
        """The machine and software as they are."""
        changed = differences(then, now) if then is not None else ()
        if changed != self.changed:
            self.changed, self.seen, self.since = changed, 0, at
        self.seen = min(self.seen + 1, self.limits.sightings)

    def forget(self) -> None:
        """Another profile runs: differences are seen anew."""
        self.changed, self.seen, self.old_s = (), 0, 0.0

    def see_age(self, at: float, elapsed_s: float, measured_at: float) -> None:
        """The profile's age, by the wall clock, counted only while it stays."""
        born = max(measured_at, self.settled_at)
        self.age_s = at - born if born else 0.0
        self.old_s = min(self.old_s + elapsed_s, _STEADY_S) if self.age_s > self.limits.age_s else 0.0

    def see_prior(self, prior: Prior | None) -> None:
        """The best news that there is; None: none."""
        self.prior = prior

    def reasons(self, reference: Reference) -> tuple[Reason, ...]:
        """Those that stand."""
        found = (self._fingerprint(), self._age(reference), self._prior())
        return tuple(reason for reason in found if reason)

    def _fingerprint(self) -> Reason | None:
        if not self.changed or self.seen < self.limits.sightings:
            return None
        key = _key(self.changed)
        if key == self.settled_fingerprint:
            return None
        says = "; ".join(f"{e.name} {e.then} → {e.now}" for e in self.changed)
        wanted = {part for e in self.changed for part in ASKS.get(e.name, (Part.KERNELS, Part.SERVER))}
        parts = tuple(part for part in Part if part in wanted)
        return Reason(Kind.FINGERPRINT, key, f"changed since it was measured: {says}", parts, self.changed, self.since)

    def _age(self, reference: Reference) -> Reason | None:
        if self.old_s < _STEADY_S:
            return None
        born = max(reference.at, self.settled_at)
        days, most = self.age_s / 86400, self.limits.age_s / 86400
        evidence = (Evidence("age", round(most, 1), round(days, 1), "days"),)
        says = f"the profile is {days:.0f} days old, {most:.0f} at most"
        return Reason(
            Kind.AGE, f"age:{reference.profile}:{born:.0f}", says, _SERVER, evidence, born + self.limits.age_s
        )

    def _prior(self) -> Reason | None:
        news = self.prior
        if news is None or news.id in self.settled_priors or news.gain < self.limits.prior_gain:
            return None
        evidence = (Evidence("expected gain", 0.0, round(news.gain, 4), "of the objective"),)
        return Reason(Kind.PRIOR, f"prior:{news.id}", f"{news.source} promises {news.gain:+.0%}", _SERVER, evidence)

    def settle(self, kinds: frozenset[Kind], at: float) -> None:
        """A re-tune has looked at these."""
        if Kind.FINGERPRINT in kinds:
            self.settled_fingerprint = _key(self.changed)
        if Kind.PRIOR in kinds and self.prior is not None:
            self.settled_priors = (*self.settled_priors, self.prior.id)[-_PRIORS_KEPT:]
        if Part.SERVER in {part for kind in kinds for part in _parts_of(kind)}:
            self.settled_at, self.old_s = at, 0.0

    def plain(self) -> dict[str, object]:
        """What must outlive a restart, for a JSON text: the rest is read again."""
        return {
            "fingerprint": self.settled_fingerprint,
            "priors": list(self.settled_priors),
            "settled_at": self.settled_at,
        }

    @classmethod
    def read(cls, plain: Mapping[str, Any], limits: DriftLimits) -> Identity:
        """From that. Raises ValueError, KeyError or TypeError for anything else."""
        found = cls(limits)
        found.settled_fingerprint = str(plain["fingerprint"])
        found.settled_priors = tuple(str(prior) for prior in plain["priors"])[-_PRIORS_KEPT:]
        found.settled_at = float(plain["settled_at"])
        return found


def _parts_of(kind: Kind) -> tuple[Part, ...]:
    return () if kind is Kind.FINGERPRINT else _SERVER


def differences(then: Fingerprint, now: Fingerprint) -> tuple[Evidence, ...]:
    """The strict readings that differ, in the order of the fingerprint; what either side does not know is left out."""
    before = dict(then.strict)
    return tuple(
        Evidence(name, str(before[name]), str(value))
        for name, value in now.strict
        if name in before
        and not isinstance(value, Unknown)
        and not isinstance(before[name], Unknown)
        and value != before[name]
    )


def _key(changed: tuple[Evidence, ...]) -> str:
    """Names and what they are now: 64 bits of a hash, since a reading may be long."""
    import hashlib

    text = "\n".join(f"{e.name}={e.now}" for e in changed)
    return f"fingerprint:{hashlib.sha256(text.encode()).hexdigest()[:16]}" if changed else ""
