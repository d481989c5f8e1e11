"""The best candidate against what runs now, in turns: what drifts with the machine hits both sides alike.

Where both servers fit at once they stay up and are loaded in turn, else each turn starts its server anew. The order is
A B, B A, A B …: neither is always the second.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.hardware import Unknown, Vendor
from vllm_tuner.gate import Outcome, Pair, decide
from vllm_tuner.serving import combined, serving
from vllm_tuner.trial import worth


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.profile import Measurement
    from vllm_tuner.gate import Checked, Decision
    from vllm_tuner.serving import Bench
    from vllm_tuner.spaces import Space
    from vllm_tuner.trial import Candidate

_SPARE = 0.8  # of the free memory: two servers and whatever else the machine does; an estimate
_FIRST_SEED = 10_000  # other prompts than the search's: the winner was picked on those


class Contest(NamedTuple):
    """Both sides' figures from the same turns, and what the gate says of the pairs."""

    candidate: Measurement
    incumbent: Measurement
    decision: Decision

    @property
    def won(self) -> bool:
        """Better beyond noise and margin."""
        return self.decision.adopted


def contest(
    bench: Bench,
    ours: Candidate,
    theirs: Candidate,
    end: float,
    *,
    together: bool,
    told: Callable[[Decision], None] | None = None,
    quality: Checked | None = None,
) -> Contest:
    """Rounds until the gate is sure or the effort's are used up, each `told`.

    `quality` is the accuracy gate's verdict on ours, None where nothing can be lost.
    Raises BudgetSpent, Infeasible and EngineError, as a measurement does.
    """
    runs: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
    most = bench.effort.rounds
    with ExitStack() as stack:
        play = [_side(stack, bench, c, f"contest-{i}", end, together=together) for i, c in enumerate((ours, theirs))]
        for number in range(most):
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                runs[side].append(play[side](_FIRST_SEED + number))
            decision = decide(quality, _pairs(bench, (ours, theirs), runs), most_rounds=most)
            if told:
                told(decision)
            if decision.outcome is not Outcome.MEASURE_MORE:
                break
    made = [combined(own, bench.workload, 0.0, bench.tool_name) for own in runs]
    return Contest(made[0], made[1], decision)


def _pairs(
    bench: Bench, sides: tuple[Candidate, Candidate], runs: tuple[list[dict[str, float]], list[dict[str, float]]]
) -> list[Pair]:
    """What each round was worth on both sides."""
    ours, theirs = (
        [worth(bench.workload, run, side.plan.world_size) for run in own] for side, own in zip(sides, runs, strict=True)
    )
    return [Pair(b, a) for a, b in zip(ours, theirs, strict=True)]


def fit_together(space: Space, *sides: Candidate) -> bool:
    """Whether both servers can be up at once: on a processor with the memory; never on GPUs, which a server fills."""
    gpu = space.facts.node.gpu
    if gpu.vendor is not Vendor.CPU or any(side.plan.kv_cache_memory_bytes is None for side in sides):
        return False
    free = gpu.memory_bytes if isinstance(gpu.free_bytes, Unknown) else gpu.free_bytes
    need = sum(space.model(side).weight_bytes + (side.plan.kv_cache_memory_bytes or 0) for side in sides)
    return need < _SPARE * free


def _side(
    stack: ExitStack, bench: Bench, candidate: Candidate, name: str, end: float, *, together: bool
) -> Callable[[int], dict[str, float]]:
    """One turn of one side, as a function of its seed."""
    if together:
        return stack.enter_context(serving(bench, candidate, name, end)).run

    def alone(seed: int) -> dict[str, float]:
        with serving(bench, candidate, f"{name}-{seed}", end) as session:
            return session.run(seed)

    return alone
