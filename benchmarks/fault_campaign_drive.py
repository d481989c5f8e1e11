"""The load follows the service, so that it comes through all of its phases again and again; and it is watched closely.

A thread looks many times a tick. What it sees of the incumbent is judged: each change must be an adoption of what is
not worse by the stand-in's own law, or the way back that an operator asked for.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any, NamedTuple

from fault_campaign_world import CLIENTS, OWN_SEQS, World

from vllm_tuner.stand_in import KNEE


# What may differ by the stand-in's law before a plan counts as worse: a machine under load measures by some per cent.
WORSE = 1.25
CLEARLY = 1.4  # worse than what measurements may hide
_LOOK_S = 0.03
# Trouble that was answered must go before it can come anew: the calm lasts four times as long as it adds up at most.
_CALM_S, _BUSY_S = 2.0, 3.0
# A search waits for an idle server; until then the incumbent is seen under load, for the canary to compare with.
_DUE_S = 0.7
QUIET = ("due", "tuning")


def law(seqs: int) -> float:
    """How long a request takes with so many in a batch, in the stand-in's steps a token, all clients at work."""
    running = min(seqs, CLIENTS)
    return CLIENTS / running * (1 + (running / KNEE) ** 4)


class Change(NamedTuple):
    """One plan in the place of another, or refused in its favour; `times`: how much slower by the law."""

    before: int
    after: int

    @property
    def times(self) -> float:
        return law(self.after) / law(self.before)


class Drive:
    """Looks and drives until `stop`. `wrong` is what must not be; `moved` the changes of phase, by both names."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.phase = ""
        self.wrong: list[str] = []
        self.adopted: list[Change] = []
        self.refused: list[Change] = []
        self.undone = 0
        self.moved: Counter[tuple[str, str]] = Counter()
        self.seconds: Counter[str] = Counter()
        self.incumbent, self.previous = "", None  # type: tuple[str, str | None]
        self._known: set[str] = set()
        self._since = self._at = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def refused_worse(self) -> int:
        """Of those refused, how many are clearly worse by the law."""
        return sum(change.times >= CLEARLY for change in self.refused)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def seqs(self, profile: str) -> int:
        """The batch limit of a profile, "" for the command that the unit came with."""
        return self.world.profiles[profile] if profile else OWN_SEQS

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_S):
            try:
                if seen := self.world.status():
                    self._look(seen)
            except Exception as error:  # noqa: BLE001 - the campaign must hear of it
                self.wrong.append(f"the drive: {error!r}")

    def _look(self, seen: dict[str, Any]) -> None:
        if not seen.get("leased"):
            return
        phase, now = seen["phase"], time.monotonic()
        self.seconds[phase] += now - self._at
        self._at = now
        if phase != self.phase:
            self.moved[self.phase, phase] += 1
            self.phase, self._since = phase, now
        self.world.clients(self._wanted(phase, now - self._since))
        self._judge(seen)

    @staticmethod
    def _wanted(phase: str, seconds: float) -> int:
        if phase == "watching":
            return 1 if seconds % (_CALM_S + _BUSY_S) < _CALM_S else CLIENTS
        return 0 if phase == "tuning" or (phase == "due" and seconds > _DUE_S) else CLIENTS

    def _judge(self, seen: dict[str, Any]) -> None:
        incumbent, previous = seen["incumbent"] or "", seen["previous"]
        if incumbent != self.incumbent:
            self._changed(incumbent, previous)
        for one in set(seen["refused"]) - self._known:
            self._known.add(one)
            self.refused.append(Change(self.seqs(incumbent), self.seqs(one)))
        self.incumbent, self.previous = incumbent, previous

    def _changed(self, incumbent: str, previous: str | None) -> None:
        if previous != self.incumbent:
            if incumbent == self.previous:
                self.undone += 1
                self._known.add(self.incumbent)  # refused from now on, but by an operator
            else:
                self.wrong.append(f"{incumbent!r} runs in the place of {self.incumbent!r}, and nobody adopted it")
            return
        change = Change(self.seqs(self.incumbent), self.seqs(incumbent))
        self.adopted.append(change)
        if change.times > WORSE:
            self.wrong.append(f"{change.after} sequences were adopted in the place of {change.before}")
