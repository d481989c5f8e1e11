"""Winners as the file that the kernels read: ADVISOR_KERNEL_CONFIGS names it in the server's environment.

The file holds every winner of the store that stands on this machine now, not only those of one run, and is replaced in
one step. Without a winner there is no file: the kernels then take their defaults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_tuner.kernel_tuning import points
from vllm_tuner.kernel_tuning.contract import CONTEST
from vllm_tuner.kernel_tuning.subject import key, sizes_of, study_name


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from vllm_advisor.profile import KernelConfig
    from vllm_advisor.store.profile_store import ProfileStore
    from vllm_tuner.kernel_tuning.contract import Kernels, Machine, Problem
    from vllm_tuner.kernel_tuning.points import Point


class Winner(NamedTuple):
    """A stored launch, its problem and its point."""

    config: KernelConfig
    problem: Problem
    point: Point


def problem_of(store: ProfileStore, config: KernelConfig, make: Callable[..., Problem]) -> Problem | None:
    """The problem that a stored launch was tuned for, from the trial of its comparison; None where that is lost."""
    fought = [trial for trial in store.trials(study_name(config.key)) if trial.kind == CONTEST]
    found = sizes_of(fought[-1]) if fought else {}
    if not found.get("n") or not found.get("k"):
        return None
    return make(op=config.key.kernel, arch=config.key.arch, device=config.key.device, **found)


def winners(
    store: ProfileStore, kernels: Kernels, machine: Callable[[Problem], Machine], make: Callable[..., Problem]
) -> tuple[Winner, ...]:
    """Those that hold now: kept, of this device, with these kernels and versions."""
    found = []
    for config in store.kernels():
        problem = problem_of(store, config, make) if config.kept else None
        if problem is None or key(kernels, problem, machine(problem)) != config.key:
            continue
        point = points.point_of(tuple(kernels.axes(problem)), config.settings)
        if point is not None:
            found.append(Winner(config, problem, point))
    return tuple(found)


def write(path: Path, won: Sequence[Winner], kernels: Kernels, files: Any) -> bool:
    """Replace the file; without a winner, remove it. Whether it stands. `files` is `vllm_mx_kernels.handoff`."""
    if not won:
        path.unlink(missing_ok=True)
        return False
    files.write_configs(path, [kernels.entry(winner.problem, winner.point) for winner in won])
    return True
