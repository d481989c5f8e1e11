"""Who has the node: a lease of the daemon's own, renewed at every tick, and taken over from one that is gone.

`tuner serve`, the daemon's child, takes the node's lease while it measures; so does a person's. The daemon's is another
one: two daemons never work on a node, and a daemon never keeps its own search out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.errors import StoreError


if TYPE_CHECKING:
    from vllm_advisor.store.profile_store import ProfileStore
    from vllm_tuner.daemon.logs import Log

_TICKS, _LEAST_S = 4, 60.0


def lease_name(node: str) -> str:
    """The daemon's lease of a node."""
    return f"daemon:{node}"


class Tenure:
    """`held`, and what went wrong with the store at the last tick (`trouble`, "" for nothing)."""

    def __init__(self, store: ProfileStore, node: str, log: Log) -> None:
        self._store, self._node, self._log = store, node, log
        self.held, self.trouble = False, ""
        self._until, self._asked = 0.0, False

    def hold(self, steady: float, tick_s: float) -> bool:
        """Hold the lease, or try to get it; True where it was taken just now.

        A store that cannot be asked leaves it until it would have expired.
        """
        seconds, name, before = max(_LEAST_S, _TICKS * tick_s), lease_name(self._node), self.held
        self.trouble = ""
        try:
            held = before and self._store.heartbeat(name, seconds=seconds)
            self.held = held or self._store.acquire(name, seconds=seconds)
        except StoreError as error:
            self.trouble, self.held = error.message, before and steady < self._until
            return False
        if self.held:
            self._until = steady + seconds
        elif before or not self._asked:
            self._log("warning", "lease", f"another daemon has {self._node}: {self._holder()}")
        self._asked = True
        return self.held and not held

    def _holder(self) -> str:
        try:
            found = self._store.holder(lease_name(self._node))
        except StoreError:
            return "?"
        return found.owner if found else "?"

    def give_back(self) -> None:
        """Another daemon may have the node at once."""
        if not self.held:
            return
        try:
            self._store.release(lease_name(self._node))
        except StoreError as error:
            self._log("error", "store", error.message)
