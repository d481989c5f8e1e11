"""What a tuning run is asked for, from what was seen; what a unit is started with, from a plan and its own command."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_advisor.errors import AdvisorError, UsageError
from vllm_advisor.workload import Objective, Sla, Workload
from vllm_tuner.daemon.drift_reason import Kind, Part
from vllm_tuner.daemon.run import Job
from vllm_tuner.daemon.units.managed import State
from vllm_tuner.daemon.units.rewrite import parse, rewrite, stripped
from vllm_tuner.effort import effort


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.plan import LaunchCommand
    from vllm_tuner.daemon.actions import World
    from vllm_tuner.daemon.config import Config
    from vllm_tuner.daemon.drift_reason import Reference
    from vllm_tuner.daemon.policy_state import Tune
    from vllm_tuner.daemon.units.managed import Managed

_LEAST_S = 60.0  # a run shorter than this decides nothing
_RECORDED = "load.json"
_SECRETS = ("--api-key", "--hf-token")


def jobs(action: Tune, world: World, folder: Path, left_s: float, runs: Reference) -> tuple[Job, ...]:
    """The children of a run, in order. `left_s`: what may be spent; `runs`: the plan that has to be beaten.

    Where that is no profile, it is the command of the unit; without a unit the search compares with vLLM's defaults.

    Raises UsageError where the model is not known, OSError where the recorded load cannot be written.
    """
    config, limit = world.config, budget_s(world.config, left_s, world.now())
    common = ("--json-lines", "--effort", config.tuning.effort, "--budget", f"{limit:.0f}s")
    trials = ("--trials", str(config.tuning.trials)) if config.tuning.trials else ()
    made = []
    if Part.KERNELS in action.parts and config.tuning.kernels:
        made.append(Job(Part.KERNELS, ("kernels", "--retime", *common)))
    if Part.SERVER in action.parts:
        load = _load(action, world, folder, _wanted(world.config, runs))
        running = runs.profile or _own(world)
        against = ("--against", running) if running else ()
        words = ("serve", model(world), *common, *trials, *against, *config.tuning.options)
        words = (*words, "--folder", str(folder / "servers"), *load)
        made.append(Job(Part.SERVER, words))
    return tuple(made)


def _own(world: World) -> str:
    """The unit's own command in one text, where that is what runs; without what only its API server must know.

    "" where it cannot be taken as it stands: it says another name for the model, or systemd replaces words of it.
    """
    if world.unit is None or world.unit.running() != State(up=True):
        return ""
    try:
        own = stripped(world.unit.command(), *_SECRETS)
        served = parse(own.argv).model
    except UsageError:
        return ""
    if Path(served).name != Path(model(world)).name or any("$" in word or "%" in word for word in own.argv):
        return ""
    variables = (f"{name}={value}" for name, value in own.env if name.startswith("VLLM_") and "KEY" not in name)
    return shlex.join((*variables, *own.argv))


def budget_s(config: Config, left_s: float, at: float) -> float:
    """Seconds for a run: the effort's, what is left of the day's allowance, and until the window closes.

    A unit that was stopped for it starts again inside the window.
    """
    closes = config.windows.closes_at(at)
    most = config.tuning.most_s or effort(config.tuning.effort).budget_s
    start = config.timing.start_s if config.tuning.stop_unit else 0.0
    return max(_LEAST_S, min(most, left_s, closes - at - start if closes is not None else most))


def model(world: World) -> str:
    """The model that is tuned: as configured, else what the server says that it loaded."""
    named = world.config.deployment.model or world.watch.model
    if not named:
        raise UsageError("which model is served is not known", "set [deployment] model")
    return named


def _wanted(config: Config, runs: Reference) -> Workload:
    """What the profile was tuned for, with the objective and the limits that the configuration sets beside its own."""
    base, asked = runs.workload or Workload(), config.tuning.objective
    return replace(base, objective=Objective(asked) if asked else base.objective, sla=runs.limits or Sla())


def _load(action: Tune, world: World, folder: Path, base: Workload) -> tuple[str, ...]:
    """The live load at its busiest, as a file for `--requests` and as figures to plan with.

    Where the workload moved, since it did. Only figures where nothing was served yet.
    """
    from vllm_tuner import traces

    moved = max((reason.since for reason in action.reasons if reason.kind is Kind.WORKLOAD), default=0.0)
    seen = world.watch.busiest.load(moved)
    if seen is None:
        return _figures(base)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    traces.save(seen, folder / _RECORDED)
    return (*_figures(seen.workload(base)), "--requests", str(folder / _RECORDED))


def _figures(load: Workload) -> tuple[str, ...]:
    return tuple(word for name, value in _flags(load) for word in (name, str(value)))


def _flags(load: Workload) -> Iterator[tuple[str, str | int | float]]:
    yield "--input-tokens", load.input_tokens
    yield "--output-tokens", load.output_tokens
    yield "--concurrency", load.concurrency
    yield "--objective", str(load.objective)
    if load.context:
        yield "--context", max(load.context, load.input_tokens + load.output_tokens)
    if load.sla.ttft_ms:
        yield "--ttft-ms", load.sla.ttft_ms
    if load.sla.tpot_ms:
        yield "--tpot-ms", load.sla.tpot_ms


def commands(unit: Managed, plan: LaunchCommand) -> LaunchCommand:
    """The plan in the unit's own command, or alone where the unit came with none."""
    try:
        own = unit.command()
    except UsageError:
        return plan
    return rewrite(own, plan)


def reason(error: Exception) -> str:
    """One line of any expected failure."""
    return error.message if isinstance(error, AdvisorError) else str(error) or type(error).__name__
