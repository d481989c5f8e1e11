"""One candidate measured on a real child: started, warmed up, loaded again and again until the figures are known.

The warm-up is a whole wave of the same lengths and is thrown away: compilation, graph capture and the first page of
everything belong to the start. Repeat number i has the same requests for every candidate, whichever tool sends them.
"""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import EngineError
from vllm_advisor.launch import Server
from vllm_advisor.profile import Measurement
from vllm_tuner import bench_tool, cost, intervals, load, metrics, report
from vllm_tuner.trial import BudgetSpent, Infeasible, worth


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from vllm_advisor.profile import Settings
    from vllm_advisor.workload import Workload
    from vllm_tuner.effort import Effort
    from vllm_tuner.spaces import Space
    from vllm_tuner.trial import Candidate
    from vllm_tuner.workloads import Source

TOOL = bench_tool.NAMES[bench_tool.OWN]
_WARM_UP_SEED = 1_000_000  # no repeat has it
_PID = "tuner.pid"
_LEAST_SURE = 3  # repeats that may end a measurement early


class Bench(NamedTuple):
    """What every measurement of a search has in common. `folder` takes the run folders, with the children's logs.

    `source` makes requests for a server (texts are counted by the server itself). `allowance_s`: how long a start may
    take. `tool` measures (None: our own client). `price_hour`: what a device costs an hour, None: not known.
    """

    space: Space
    source: Callable[[load.Target], Source]
    effort: Effort
    folder: Path
    vllm_python: Path | None = None
    allowance_s: float = 1800.0
    tool: bench_tool.Tool | None = None
    price_hour: float | None = None

    @property
    def workload(self) -> Workload:
        """What is asked of the servers."""
        return self.space.facts.workload

    @property
    def tool_name(self) -> str:
        """What measures now, as a Measurement says it."""
        return self.tool.name if self.tool else TOOL


class Session(NamedTuple):
    """A server that is ready and warm. `folder` takes a document of each repeat, as `vllm bench serve` writes it.

    `checkpoint` is what the server loaded, `devices` how many it uses.
    """

    bench: Bench
    target: load.Target
    source: Source
    end: float
    folder: Path
    checkpoint: str = ""
    devices: int = 1

    @property
    def concurrency(self) -> int | None:
        """Requests in flight together, None where they come at their own times."""
        return None if self.source.timed else self.bench.workload.concurrency

    def run(self, seed: int) -> dict[str, float]:
        """One repeat's figures. Raises BudgetSpent when the time is up first, EngineError for failed requests."""
        played, made = self._measured(self._requests(seed), seed)
        (self.folder / f"bench-{seed}.json").write_text(json.dumps(made), encoding="utf-8")
        found = report.figures(played, self.bench.workload.sla)
        if self.source.timed and self.bench.tool_name == TOOL:
            found["late_ms"] = report.lateness_ms(played)
        return found | cost.figures(found, self.devices, self.bench.price_hour)

    def played(self, seed: int) -> load.Played:
        """One repeat's answers."""
        return self._measured(self._requests(seed), seed)[0]

    def _requests(self, seed: int) -> tuple[load.Request, ...]:
        return self.source.requests(self.bench.workload.concurrency * self.bench.effort.waves, seed)

    def _measured(self, requests: tuple[load.Request, ...], seed: int) -> tuple[load.Played, dict[str, Any]]:
        """By vLLM's tool where it is asked for and works, else by our own client; the answers and their document."""
        bench, tool = self.bench, self.bench.tool
        if tool and tool.using == bench_tool.VLLM:
            job = bench_tool.Job(bench.vllm_python, self.target, self.checkpoint, self.folder, seed)
            try:
                return job.play(requests, concurrency=self.concurrency, sla=bench.workload.sla, end=self.end)
            except bench_tool.ToolFailed as why:
                tool.fall_back(why)
        played = load.play(self.target, requests, concurrency=self.concurrency, end=self.end)
        asked = bench.workload
        return played, report.document(
            played, self.target, asked.sla, rate=asked.request_rate, concurrency=self.concurrency
        )

    def warm_up(self) -> None:
        """One wave, thrown away."""
        requests = self.source.requests(self.bench.workload.concurrency, _WARM_UP_SEED)
        load.play(self.target, requests, concurrency=self.bench.workload.concurrency, end=self.end)


@contextmanager
def serving(bench: Bench, candidate: Candidate, name: str, end: float) -> Iterator[Session]:
    """The candidate's server, warm, as long as the block lasts; `end` is on time.monotonic's clock.

    Raises Infeasible with the diagnosis of its log, EngineError where nobody knows why, BudgetSpent.
    """
    command = bench.space.command(candidate)
    allowance = min(bench.allowance_s, max(0.0, end - time.monotonic()))
    server = Server(command, run_folder=bench.folder / name, vllm_python=bench.vllm_python, allowance_s=allowance)
    with server:
        (server.run_folder / _PID).write_text(str(server.pid), encoding="ascii")
        try:
            server.wait_until_ready()
        except EngineError as error:
            raise _why(error, server, end) from error
        target = load.Target(server.url, server.model)
        plan = candidate.plan
        session = Session(bench, target, bench.source(target), end, server.run_folder, plan.checkpoint, plan.world_size)
        session.warm_up()
        yield session


def _why(error: EngineError, server: Server, end: float) -> Exception:
    """A start that failed: the time was up, the log says why, or nobody knows."""
    if time.monotonic() >= end:
        return BudgetSpent()
    reason = diagnosis(server.log)
    return Infeasible(reason) if reason else error


def diagnosis(log: Path) -> str:
    """`ID: cause` as `advisor doctor` reads a log, "" where it knows no cause."""
    from vllm_advisor.doctor.diagnosis import read

    with log.open("rb") as stream:
        cause = read(stream).cause
    return f"{cause.failure.id}: {cause.cause}" if cause else ""


class Measured(NamedTuple):
    """Repeats of one candidate with what the server counted meanwhile."""

    measurement: Measurement
    counted: Settings = ()


def measure(bench: Bench, candidate: Candidate, name: str, end: float, beat: float | None) -> Measured:
    """Repeats until the figures are known, the most are done, or the candidate cannot reach `beat` (worth) any more."""
    with serving(bench, candidate, name, end) as session:
        before, begun = metrics.read(session.target.url), time.monotonic()
        runs: list[dict[str, float]] = []
        seeds = count()
        while not _enough(bench, candidate, runs, beat):
            using = bench.tool_name
            found = session.run(next(seeds))
            runs = [*(runs if bench.tool_name == using else []), found]  # two tools' figures are not averaged
        seconds = time.monotonic() - begun
        counted = metrics.between(before, metrics.read(session.target.url))
    return Measured(combined(runs, bench.workload, seconds, bench.tool_name), counted)


def _enough(bench: Bench, candidate: Candidate, runs: Sequence[dict[str, float]], beat: float | None) -> bool:
    values = [worth(bench.workload, run, candidate.plan.world_size) for run in runs]
    return enough(values, bench.effort, beat)


def enough(values: Sequence[float], effort: Effort, beat: float | None) -> bool:
    """Whether to stop repeating: the most are done, or three or more show it tightly, or that `beat` is out of reach.

    Never early with two, whatever the effort says: two that happen to lie close look certain. Since it is asked after
    each repeat, the 95 % intervals hold what they promise a little less often: 91 to 95 % where noise is normal.
    """
    if len(values) < max(effort.least, _LEAST_SURE):
        return len(values) >= effort.most
    hopeless = beat is not None and intervals.mean(values).high < beat
    return len(values) >= effort.most or hopeless or intervals.is_tight(values, effort.tight)


def combined(runs: Sequence[dict[str, float]], workload: Workload, seconds: float, tool: str = TOOL) -> Measurement:
    """Each figure's mean over the repeats with its interval."""
    figures = tuple((name, intervals.mean([run[name] for run in runs])) for name in sorted(runs[0]))
    return Measurement(figures, workload, len(runs), seconds, tool, time.time())


def sweep(folder: Path) -> tuple[int, ...]:
    """Stop what a tuner left behind that was killed: children that still stand in a run folder below; their numbers.

    A number alone could be somebody else's by now: the process must have that very folder as its working directory.
    """
    stopped = []
    for note in sorted(folder.glob(f"*/{_PID}")):
        with suppress(OSError, ValueError):
            number = int(note.read_text(encoding="ascii"))
            if Path(f"/proc/{number}/cwd").readlink() == note.parent.resolve():
                os.killpg(number, signal.SIGKILL)
                stopped.append(number)
        note.unlink(missing_ok=True)
    return tuple(stopped)
