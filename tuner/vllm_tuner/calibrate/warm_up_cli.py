"""`tuner calibrate warm-up`: from what was typed to steps; then a script, somebody's server, or two servers of ours."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.cli import inputs, options
from vllm_advisor.cli.diagnostics import ExitCode, note
from vllm_advisor.errors import AdvisorError, EngineError, UsageError
from vllm_advisor.hardware import Unknown
from vllm_tuner.calibrate import warm_up
from vllm_tuner.calibrate import warm_up_show as show


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.check.configuration import Asked as Command
    from vllm_advisor.check.invocation import Invocation
    from vllm_advisor.hardware import Node
    from vllm_advisor.vllm.live import Live
    from vllm_advisor.vllm.surface import Surface
    from vllm_tuner.calibrate.warm_up import Limits, Step
    from vllm_tuner.calibrate.warm_up_run import Done

LOCAL = "http://127.0.0.1:8000"


class Asked(NamedTuple):
    """The question as typed. `words`: a `vllm serve` command."""

    words: tuple[str, ...]
    url: str | None
    vllm: str | None
    gpu: str | None
    node: Path | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    paths: str
    budget: str
    script: str | None
    force: bool
    api_key_env: str | None
    vllm_python: Path | None
    folder: Path | None
    allowance_s: float
    seed: int | None
    json: bool
    offline: bool


def run(asked: Asked) -> int:
    """Write the script, warm the server up, or compare two of our own. 0; 1 where every request was refused."""
    from vllm_tuner.effort import seconds

    budget, paths = seconds(asked.budget), _paths(asked.paths)
    if asked.script:
        return _script(asked, warm_up.steps(_bounds(asked, None), paths), budget)
    if asked.url:
        return _warm(asked, paths, budget)
    return _compare(asked, paths, budget)


def _paths(text: str) -> tuple[str, ...]:
    names = tuple(warm_up.PATHS) if text == "all" else tuple(filter(None, (part.strip() for part in text.split(","))))
    for name in names:
        if name not in warm_up.PATHS:
            raise UsageError(f"no sampling path {name!r}", f"one of {', '.join(warm_up.PATHS)}, or all")
    return names


def _bounds(asked: Asked, seen: Live | None) -> Limits:
    """From the command where there is one, else that version's defaults; the server's own words come first."""
    bounds = _of_command(asked) if asked.words else _of_defaults(asked, seen)
    told = seen.models[0].max_model_len if seen and seen.models else None
    return bounds._replace(
        max_model_len=told if isinstance(told, int) else bounds.max_model_len,
        max_num_seqs=asked.max_num_seqs or bounds.max_num_seqs,
        max_num_batched_tokens=asked.max_num_batched_tokens or bounds.max_num_batched_tokens,
    )


def _of_command(asked: Asked) -> Limits:
    from vllm_advisor.check.configuration import judged

    command = _command(asked)
    name = command.reading.model
    if not name:
        raise UsageError("the command names no model", "tuner calibrate warm-up -- vllm serve MODEL …")
    model = inputs.model(name, command.value("--revision"), offline=asked.offline)
    node = inputs.node(asked.gpu, asked.node)
    return warm_up.limits(judged(command, node, model).case.plan, node.gpu, _own_sizes(command))


def _command(asked: Asked) -> Command:
    from vllm_advisor.check import configuration
    from vllm_advisor.check.parse import parse

    surface = inputs.surface(asked.vllm or _installed(asked.vllm_python))
    return configuration.asked(parse(_invocation(asked), surface), surface)


def _invocation(asked: Asked) -> Invocation:
    from vllm_advisor.check import read

    return read.command_line(asked.words)


def _installed(python: Path | None) -> str:
    from vllm_advisor import fingerprint

    found = fingerprint.installed(python).vllm if python else Unknown("no Python was named")
    return options.DEFAULT_VLLM if isinstance(found, Unknown) else found


def _own_sizes(command: Command) -> tuple[int, ...] | None:
    """`--cudagraph-capture-sizes 1 2 4`, as far as it can be read; None: vLLM chooses."""
    setting = command.last("--cudagraph-capture-sizes")
    words = (setting.value or "").replace(",", " ").split() if setting else []
    sizes = tuple(int(word) for word in words if word.isdecimal() and int(word))
    return sizes or None


def _of_defaults(asked: Asked, seen: Live | None) -> Limits:
    from vllm_advisor.memory.graphs import capture_sizes, largest
    from vllm_advisor.vllm.defaults import serve_defaults

    if seen is None:
        hint = "tuner calibrate warm-up -- vllm serve MODEL …, or --url of a server"
        raise UsageError("there is nothing to derive a warm-up from", hint)
    node = inputs.node(asked.gpu, asked.node)
    usual = serve_defaults(_surface(asked, seen), node)
    seqs = asked.max_num_seqs or usual.max_num_seqs
    tokens = asked.max_num_batched_tokens or usual.max_num_batched_tokens
    if not (asked.max_num_seqs and asked.max_num_batched_tokens):
        note(f"taken as vLLM's defaults on {node.label}: {seqs} sequences, {tokens} tokens a step; give its command")
    graphs = () if asked.gpu == "cpu" or not _has_graphs(node) else capture_sizes(seqs, tokens, largest(node.gpu))
    return warm_up.Limits(4096, seqs, tokens, graphs, len(seen.second.engines()) or 1)


def _has_graphs(node: Node) -> bool:
    from vllm_advisor.hardware import Vendor

    return node.gpu.vendor is not Vendor.CPU


def _surface(asked: Asked, seen: Live) -> Surface:
    said = asked.vllm or (None if isinstance(seen.version, Unknown) else seen.version)
    try:
        return inputs.surface(said or options.DEFAULT_VLLM)
    except AdvisorError:
        if asked.vllm:
            raise
        return inputs.surface(options.DEFAULT_VLLM)


def _script(asked: Asked, steps: Sequence[Step], budget: float) -> int:
    from vllm_advisor.errors import BadInput
    from vllm_advisor.vllm import live
    from vllm_tuner.calibrate.warm_up_script import script

    text = script(steps, live.address(asked.url or LOCAL), budget)
    if asked.script == "-":
        sys.stdout.write(text)
        return ExitCode.OK
    path = Path(asked.script or "warm_up.py")
    try:
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    note(f"wrote {path}: {len(steps)} steps; docs/calibration.md says where to call it")
    return ExitCode.OK


def _warm(asked: Asked, paths: Sequence[str], budget: float) -> int:
    """A server that somebody started."""
    from vllm_advisor.vllm import live
    from vllm_tuner.calibrate.warm_up_run import check_idle, play
    from vllm_tuner.calibrate.warm_up_send import Door
    from vllm_tuner.trial import BudgetSpent

    key = _key(asked.api_key_env)
    seen = live.read(asked.url or "", interval_s=0.0, api_key=key)
    door = Door(live.address(asked.url or "").rstrip("/"), _served(seen), key)
    if not asked.force:
        check_idle(door)
    steps, done, why = warm_up.steps(_bounds(asked, seen), paths), [], ""
    end, chance = time.monotonic() + budget, _chance(asked.seed)
    try:
        for one in play(door, steps, end, chance, alone=not asked.force):
            done.append(one)
            show.progress(one, len(done), len(steps), end)
    except BudgetSpent:
        why = f"the time ({asked.budget}) was up"
    except UsageError as error:
        why = error.message
    except KeyboardInterrupt:
        why = "interrupted"
    show.steps(door, done, steps[len(done) :], why, json=asked.json)
    if why == "interrupted":
        return ExitCode.INTERRUPTED
    return _code(done)


def _code(done: Sequence[Done]) -> int:
    if done and all(one.error for one in done):
        raise EngineError(f"every request was refused: {done[0].error}", "is it a model that completes text?")
    return ExitCode.OK


def _chance(seed: int | None) -> Random:
    """Without a seed no two warm-ups send the same prompts: the second would find them in the prefix cache."""
    return SystemRandom() if seed is None else Random(seed)  # noqa: S311  repeatable


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise UsageError(f"the variable {variable} is not set", "--api-key-env takes a variable's name, not the key")
    return key


def _served(seen: Live) -> str:
    if not seen.models:
        raise EngineError("the server names no model", *seen.notes[:1])
    return seen.models[0].id


def _compare(asked: Asked, paths: Sequence[str], budget: float) -> int:
    """Two servers of ours, started with the command that was given."""
    from vllm_advisor.launch import borrowed_signals
    from vllm_advisor.plan import LaunchCommand
    from vllm_tuner.calibrate.warm_up_run import Bench, compare, probes
    from vllm_tuner.trial import BudgetSpent

    bounds = _bounds(asked, None)
    found = _invocation(asked)
    command = LaunchCommand(_serve(found), tuple(found.env))
    bench = Bench(command, asked.folder or _state_folder(), asked.vllm_python, asked.allowance_s)
    steps = warm_up.steps(bounds, paths)
    end = time.monotonic() + 2 * bench.allowance_s + 4 * budget
    seed = SystemRandom().randrange(1 << 30) if asked.seed is None else asked.seed
    try:
        with borrowed_signals():
            outcome = compare(bench, probes(bounds, paths), steps, end=end, warm_up_s=budget, seed=seed, tell=note)
    except BudgetSpent:
        raise EngineError("the two starts took longer than they may", f"their logs are in {bench.folder}") from None
    show.outcome(outcome, steps, json=asked.json)
    return _code(outcome.done)


def _serve(found: Invocation) -> tuple[str, ...]:
    """`vllm serve MODEL …`: what `Server` starts. Raises UsageError for a container or another entry point."""
    argv = tuple(found.argv)
    if argv[:2] != ("vllm", "serve"):
        raise UsageError("only a `vllm serve MODEL …` can be started here", "a running server: --url")
    return argv


def _state_folder() -> Path:
    from vllm_advisor.launch.child import new_run_folder

    return new_run_folder()
