"""One measurement on a node at a time: two loads on one machine measure each other."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from vllm_advisor.errors import UsageError


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.store.profile_store import ProfileStore
    from vllm_tuner.budget import Budget

_LONGEST_END_S = 300.0  # servers and launches end, results are written; a killed search loses its lease at once


@contextmanager
def leased(store: ProfileStore, node: str, budget: Budget) -> Iterator[None]:
    """Nobody else measures on the node meanwhile; given back however the block ends. Raises UsageError.

    To be entered inside of `borrowed_signals`: a SIGTERM that is sent again ends the process before it is given back.
    """
    if not store.acquire(node, seconds=budget.left() + _LONGEST_END_S):
        holder = store.holder(node)
        raise UsageError(f"another search measures on {node} ({holder.owner if holder else '?'})", "wait for its end")
    try:
        yield
    finally:
        store.release(node)
