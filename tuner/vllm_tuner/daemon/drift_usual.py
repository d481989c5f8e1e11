"""What traffic is usual at which time of the week, learnt: 56 mixtures of three hours each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_tuner.daemon.drift_mix import Mix


if TYPE_CHECKING:
    from collections.abc import Mapping

SLOT_S = 3 * 3600.0
SLOTS, A_DAY = 56, 8
_THURSDAY_S = 3 * 86400.0  # 1970-01-01 was a Thursday; weeks start on Monday


class Usual:
    """What is known of this deployment's weeks, in `generation`s: a re-tune begins a new one and keeps the old.

    `least_s`: less of a time of the week than this says nothing about it.
    """

    __slots__ = ("generation", "generations", "learnt_s", "least_s", "regime", "slots")

    def __init__(self, least_s: float) -> None:
        self.least_s = least_s
        self.slots: dict[int, Mix] = {}
        self.generations: dict[int, int] = {}
        self.generation = 0
        self.learnt_s = 0.0
        self.regime = Mix()

    def known(self, slot: int) -> bool:
        """Whether this time of the week was seen since the last re-tune."""
        return self.generations.get(slot, -1) == self.generation

    def choices(self, slot: int) -> list[Mix]:
        """What traffic of this time may look like: as it did, or as the same hours of some other day do now."""
        own = [self.slots[slot]] if slot in self.slots else []
        if self.known(slot):
            return own
        days = [self.slots[other] for other in self._same_hours(slot)]
        return [*own, *(days or [self.regime])]

    def _same_hours(self, slot: int) -> list[int]:
        return [other for other in range(slot % A_DAY, SLOTS, A_DAY) if self.known(other)]

    def day_before(self, slot: int) -> Mix | None:
        """The same hours of the last day before that was seen since the last re-tune."""
        earlier = ((slot - back) % SLOTS for back in range(A_DAY, SLOTS, A_DAY))
        return next((self.slots[other] for other in earlier if self.known(other)), None)

    def same_hours(self, slot: int) -> bool:
        """Whether the same hours of any day were seen since the last re-tune."""
        return bool(self._same_hours(slot))

    def learn(self, slot: int, seen: Mix) -> None:
        """Traffic that is usual."""
        if not self.known(slot):
            if seen.time < self.least_s:
                return
            self.slots[slot], self.generations[slot] = Mix(), self.generation
        self.slots[slot].join(seen)
        self.regime.join(seen)
        self.learnt_s += seen.time

    def renew(self, seen: Mapping[int, Mix]) -> None:
        """A new generation, for which the traffic of these times is usual; what was usual before stays beside it."""
        self.generation += 1
        self.regime, self.learnt_s = Mix(), 0.0
        for slot, mix in seen.items():
            self.learn(slot, mix)

    def plain(self) -> dict[str, object]:
        """All of it, for a JSON text."""
        return {
            "slots": [[slot, self.generations[slot], *mix.plain()] for slot, mix in sorted(self.slots.items())],
            "generation": self.generation,
            "learnt_s": round(self.learnt_s),
            "regime": self.regime.plain(),
        }

    @classmethod
    def read(cls, plain: Mapping[str, Any], least_s: float) -> Usual:
        """From that. Raises ValueError, KeyError or TypeError for anything else."""
        usual = cls(least_s)
        for slot, generation, *sums in plain["slots"]:
            usual.slots[int(slot) % SLOTS] = Mix.read(sums)
            usual.generations[int(slot) % SLOTS] = int(generation)
        usual.generation, usual.learnt_s = int(plain["generation"]), float(plain["learnt_s"])
        usual.regime = Mix.read(plain["regime"])
        return usual


def slot_of(local: float) -> int:
    """Which three hours of the week a local time lies in, Monday 00:00 first."""
    return int((local + _THURSDAY_S) // SLOT_S) % SLOTS
