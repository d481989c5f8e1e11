"""The search for better tiles of vLLM's fused experts, one batch size after the other, and what is made of it.

vLLM's default is never given up lightly: a candidate has to give the same result, be the fastest of a search, and then
win an interleaved A/B beyond noise and margin. What does not is a null result and is said to be one. And a table that
won kernel by kernel is still only kept if the server wins with it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from vllm_tuner import gate
from vllm_tuner.vllm_configs import space as spaces
from vllm_tuner.vllm_configs import table
from vllm_tuner.vllm_configs.asking import FOLDER
from vllm_tuner.vllm_configs.timing import Unfit


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from vllm_advisor.plan import Plan
    from vllm_tuner.gate import Decision
    from vllm_tuner.kernel_tuning.points import Point, Space
    from vllm_tuner.kernel_tuning.strategies import Strategy
    from vllm_tuner.vllm_configs.defaults import Config, Where
    from vllm_tuner.vllm_configs.names import ExpertsFile
    from vllm_tuner.vllm_configs.serverlog import LogVerdict
    from vllm_tuner.vllm_configs.shapes import Shape
    from vllm_tuner.vllm_configs.timing import Timer

    Make = Callable[[Space, int], Strategy]  # a strategy's class: the space and a seed

_MOST_ERROR = 2e-2  # of the largest result: sums in another order, rounded to bf16 between the two products; ours


class Effort(NamedTuple):
    """How much is spent on one batch size."""

    trials: int = 60
    repeats: int = 7
    warmup: int = 3
    rounds: int = 20


class BatchResult(NamedTuple):
    """One batch size. `best`: the search's fastest, None where nothing ran or the default was it.

    `decision`: the A/B against vLLM's default, None without one. `unfit` counts tiles that did not run or were wrong.
    """

    batch: int
    tried: int
    unfit: int
    default: Config
    best: Config | None
    decision: Decision | None
    says: str

    @property
    def won(self) -> bool:
        """Whether the default is replaced."""
        return self.decision is not None and self.decision.adopted


class Outcome(NamedTuple):
    """All batch sizes of one shape."""

    shape: Shape
    results: tuple[BatchResult, ...]

    @property
    def winners(self) -> tuple[BatchResult, ...]:
        """Those whose default is replaced; none is a null result."""
        return tuple(result for result in self.results if result.won)

    @property
    def says(self) -> str:
        """One line for people."""
        if not self.winners:
            return f"null result: vLLM's default stands for all {len(self.results)} batch sizes; nothing is written"
        shown = ", ".join(str(result.batch) for result in self.winners)
        return f"{len(self.winners)} of {len(self.results)} batch sizes have better tiles: {shown}"


class Job(NamedTuple):
    """What stays the same over the batch sizes of one shape.

    `make` builds a strategy with `ask() -> point | None` and `tell(point, µs | None)` from a space and a seed. `end`: a
    time of the monotonic clock after which nothing more is asked.
    """

    timer: Timer
    where: Where
    shape: Shape
    make: Make
    effort: Effort = Effort()
    end: float | None = None
    seed: int = 0

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.end is not None and time.monotonic() >= self.end


def tune(job: Job, batches: Iterable[int], tell: Callable[[BatchResult], None] | None = None) -> Outcome:
    """Search every batch size in turn, each `told` when it is done; those that the time does not reach are left out."""
    results = []
    for batch in batches:
        if job.is_over:
            break
        results.append(tune_batch(job, batch))
        if tell:
            tell(results[-1])
    return Outcome(job.shape, tuple(results))


def tune_batch(job: Job, batch: int) -> BatchResult:
    """One batch size: search, then the best against vLLM's default in turns."""
    default = job.timer.default(batch)
    room = spaces.space(job.where, job.shape, batch, default)
    times, tried = _searched(job, room, batch)
    best = _named(room, min(times, key=lambda point: times[point])) if times else None
    unfit = tried - len(times)
    if best is None or _same(best, default):
        why = "nothing that was tried runs" if best is None else "no tiles were faster"
        return BatchResult(batch, tried, unfit, default, None, None, f"vLLM's default stands: {why}")
    decision = _contest(job.timer, batch, default, best, job.effort.rounds)
    says = "replaces vLLM's default" if decision.adopted else "vLLM's default stands"
    return BatchResult(batch, tried, unfit, default, best, decision, f"{says}: {decision.reason}")


def _searched(job: Job, room: Space, batch: int) -> tuple[dict[Point, float], int]:
    """The median time of each point that runs and is right, and how many were asked for."""
    strategy = job.make(room, job.seed)
    times: dict[Point, float] = {}
    for asked in range(job.effort.trials):
        point = None if job.is_over else strategy.ask()
        if point is None:
            return times, asked
        us = _timed(job, batch, _named(room, point))
        strategy.tell(point, us)
        if us is not None:
            times[point] = us
    return times, job.effort.trials


def _timed(job: Job, batch: int, config: Config) -> float | None:
    """None for tiles that do not run, and for those that do not give what the default gives."""
    try:
        if not job.timer.error(batch, config) <= _MOST_ERROR:
            return None
        return median(job.timer.time(batch, config, job.effort.repeats, job.effort.warmup))
    except Unfit:
        return None


def _contest(timer: Timer, batch: int, default: Config, best: Config, most: int) -> Decision:
    """Rounds in turn until the gate is sure. A score is launches a second, so that more is better."""
    times: list[tuple[float, float]] = []
    decision = gate.decide(None, (), most_rounds=most)
    while decision.outcome is gate.Outcome.MEASURE_MORE:
        times += timer.pair(batch, default, best, min(4, most - len(times)))
        pairs = [gate.Pair(1e6 / theirs, 1e6 / ours) for theirs, ours in times]
        decision = gate.decide(None, pairs, most_rounds=most)
    return decision


def _named(room: Space, point: Point) -> Config:
    return {name: int(value) for name, value in room.settings(point) if isinstance(value, int)}


def _same(config: Config, default: Config) -> bool:
    """Equal as a launch: what a default leaves unsaid is said by the space in Triton's own words."""
    return all(config.get(name, value) == value for name, value in default.items() if name != "SPLIT_K") and all(
        config[name] == value for name, value in spaces.UNSAID.items() if name in config
    )


def tuned_table(outcome: Outcome, where: Where, *, triton: str = "") -> table.Table | None:
    """The table of the winners, with vLLM's default everywhere else; None for a null result.

    Each winner counts for its own batch size alone: that is what was measured.
    """
    winners = [table.Tuned(r.batch, r.batch, r.best) for r in outcome.winners if r.best]
    return table.complete(winners, where, outcome.shape, triton=triton) if winners else None


class Kept(NamedTuple):
    """What became of a table after the server's A/B."""

    kept: bool
    paths: tuple[Path, ...]
    says: str


def server_env(folder: Path) -> tuple[tuple[str, str], ...]:
    """What a server needs to find the folder: the candidate's side of the server-level contest."""
    return ((FOLDER, str(folder.absolute())),)


def with_files(plan: Plan, folder: Path) -> Plan:
    """The same plan with the folder named: the contest's candidate, the plan as it is being the incumbent."""
    others = tuple(pair for pair in plan.env if pair[0] != FOLDER)
    return replace(plan, env=tuple(sorted((*others, *server_env(folder)))))


def keep_if_server_wins(
    decision: Decision, folder: Path, files: Sequence[ExpertsFile], verdicts: Sequence[LogVerdict] = ()
) -> Kept:
    """Leave the files where they are if the server with them won; else take them away. `decision`: of that contest.

    A kernel that is faster alone can still lose in a server: other streams, other clocks, other batch sizes.
    `verdicts`: what that server's log says of the files (`serverlog.judge`); one that was not read has won nothing.
    """
    paths = tuple(folder / file.name for file in files)
    unread = next((verdict for verdict in verdicts if verdict.state != "read"), None)
    gain = f"{decision.gain.mid:+.1%}" if decision.gain else "not measured"
    if decision.adopted and unread is None:
        return Kept(kept=True, paths=paths, says=f"kept: the server with it is faster ({gain}), {decision.reason}")
    removed = tuple(path for path in paths if path.is_file())
    for path in removed:
        path.unlink()
    why = f"the server never read it: {unread.says}" if unread else f"{decision.reason} (median {gain})"
    return Kept(kept=False, paths=removed, says=f"null result: {why}; {len(removed)} files taken away")
