"""Stored winners against the default once more, under the versions of today: who no longer wins is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_tuner.budget import Budget
from vllm_tuner.kernel_tuning import handoff
from vllm_tuner.kernel_tuning.attempt import Desk
from vllm_tuner.kernel_tuning.run import finished


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.profile import KernelConfig
    from vllm_tuner.kernel_tuning.contract import Problem
    from vllm_tuner.kernel_tuning.run import Result, Run


def stored(run: Run, make: Callable[..., Problem], op: str = "") -> tuple[tuple[KernelConfig, Problem], ...]:
    """The newest winner of each kernel, bucket and architecture that belongs to this device, with its problem now."""
    newest: dict[tuple[str, str, str], KernelConfig] = {}
    for config in sorted(run.store.kernels(op or None), key=lambda c: c.at):
        any_size = make(op=config.key.kernel, arch=config.key.arch, m=1, n=1, k=1)
        if config.key.device == run.machine(any_size).device:
            newest[config.key[:3]] = config
    found = [(c, handoff.problem_of(run.store, c, make)) for c in newest.values() if c.kept]
    return tuple((config, problem) for config, problem in found if problem is not None)


def retime(run: Run, winners: tuple[tuple[KernelConfig, Problem], ...]) -> tuple[Result, ...]:
    """Each against the default, with its share of the time left."""
    run.store.recover_stale(run.bench.node)
    results = []
    for number, (config, problem) in enumerate(winners):
        share = Budget(run.budget.left() / (len(winners) - number), run.budget.now)
        desk = Desk(run.bench, run.subject(problem, config), share, run.budget, fresh=True)
        desk.say("problem", f"{number + 1} of {len(winners)}: {desk.about.label}")
        result = finished(desk, run.again(desk, config))
        desk.say("result", result.says)
        results.append(result)
    return tuple(results)
