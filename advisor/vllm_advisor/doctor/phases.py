"""How far a start has come, by what the log has printed: the phases of a server in their order.

Versions print different lines, so a phase is also over when a later one has begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.units import count, significant


if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_advisor.vllm.logs_facts import Facts


class Phase(NamedTuple):
    """One of them: whether it is over, and what the log said of it."""

    name: str
    done: bool
    says: str = ""


def phases(facts: Facts, *, answers: bool) -> tuple[Phase, ...]:
    """From the command to the first answer; `answers`: /health says yes, whatever the log prints."""
    read = (
        ("settings", bool(facts.version or facts.args or facts.config), _settings(facts)),
        ("weights", _any(rank.weights_gib for rank in facts.ranks.values()), _weights(facts)),
        ("KV cache", bool(facts.pools or facts.blocks), _cache(facts)),
        ("warm-up", facts.init_s is not None, _warm_up(facts)),
        ("serving", facts.ready or answers, facts.address or ""),
    )
    last = max((place for place, (_, over, _) in enumerate(read) if over), default=-1)
    return tuple(Phase(name, place <= last, says) for place, (name, _, says) in enumerate(read))


def _any(values: Iterable[float | None]) -> bool:
    return any(value is not None for value in values)


def _settings(facts: Facts) -> str:
    return f"vLLM {facts.version}" if facts.version else ""


def _weights(facts: Facts) -> str:
    sizes = [rank.weights_gib for rank in facts.ranks.values() if rank.weights_gib is not None]
    times = [rank.load_s for rank in facts.ranks.values() if rank.load_s is not None]
    if not sizes:
        return ""
    return f"{significant(max(sizes))} GiB a rank" + (f" in {significant(max(times))} s" if times else "")


def _cache(facts: Facts) -> str:
    pool = min(facts.pools.values(), key=lambda pool: pool.tokens, default=None)
    if pool is None:
        return f"{count(facts.blocks)} blocks" if facts.blocks else ""
    times = f", {significant(pool.concurrency)} × the longest request" if pool.concurrency else ""
    return f"{count(pool.tokens)} tokens{times}"


def _warm_up(facts: Facts) -> str:
    parts = [f"compiled in {significant(facts.compile_s)} s"] if facts.compile_s else []
    parts += [f"{significant(facts.init_s)} s from profiling on"] if facts.init_s is not None else []
    return ", ".join(parts)
