"""A warm-up played to a server, and what it is worth: the first request of each kind, without and with it.

A server that somebody else uses is left alone: it is asked before every step. The two servers of a comparison start
with empty compilation caches, since a cache from yesterday would hide what a new machine pays.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from random import Random
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import httpx

from vllm_advisor.errors import EngineError, UsageError
from vllm_advisor.hardware import Unknown
from vllm_advisor.vllm.metrics import parse
from vllm_tuner.calibrate.warm_up import ANSWER, SHORT, Ask, buckets
from vllm_tuner.calibrate.warm_up_send import Door, send
from vllm_tuner.trial import BudgetSpent


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from vllm_advisor.plan import LaunchCommand
    from vllm_tuner.calibrate.warm_up import Limits, Step
    from vllm_tuner.calibrate.warm_up_send import Sent

    Tell = Callable[[str], None]

_TIMEOUT_S = 20.0
_SETTLE_S, _POLL_S = 3.0, 0.1  # how long the counters may lag behind our own last request
_REPEATS = 3
# Where vLLM, Inductor and Triton keep what they compiled (vllm/envs.py; torch and Triton's own documentation).
_CACHES = ("VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


class Done(NamedTuple):
    """One step as it went: all its seconds, the slowest first token among its requests, and the first error."""

    step: Step
    seconds: float
    ttft_s: float
    error: str


class First(NamedTuple):
    """The first request of a kind: seconds to its first token, and to that of later ones (median)."""

    name: str
    first_s: float
    later_s: float


class Compared(NamedTuple):
    """First tokens of one kind of request on a server that was not warmed up, and on one that was, in seconds.

    `…_later_s` is what later requests of that kind take on the same server: minutes lie between the two servers, and a
    machine that others use is not equally fast in both.
    """

    name: str
    without_s: float
    without_later_s: float
    with_s: float
    with_later_s: float


def others(door: Door) -> float | Unknown:
    """Requests that a server runs or has waiting, of anybody; Unknown where it does not count them.

    Raises EngineError where nobody answers.
    """
    try:
        answer = httpx.get(f"{door.url}/metrics", timeout=_TIMEOUT_S, trust_env=False, headers=door.headers)
        found = parse(answer.raise_for_status().text)
    except httpx.TransportError as error:
        raise EngineError(
            f"{door.url} does not answer: {str(error)[:200]}", "is it running? its log says why"
        ) from None
    except httpx.HTTPError as error:
        return Unknown(str(error)[:200])
    running, waiting = found.total("num_requests_running"), found.total("num_requests_waiting")
    if isinstance(running, Unknown) or isinstance(waiting, Unknown):
        return running if isinstance(running, Unknown) else waiting
    return running + waiting


def check_idle(door: Door) -> None:
    """Raises UsageError where somebody's requests are there, or where that can't be known."""
    found = others(door)
    if isinstance(found, Unknown):
        raise UsageError(f"{door.url} does not tell whether it is busy: {found.why}", "--force, if it is not")
    if found:
        raise UsageError(f"{door.url} is busy: {found:g} requests run or wait", "warm up before users come, or --force")


def play(
    door: Door, todo: Sequence[Step], end: float, chance: Random, *, alone: bool = True
) -> Iterator[Done]:  # fmt: skip
    """Each step as it ends; the caller sees by what is missing that it stopped early.

    `end`: on time.monotonic's clock. `alone`: stop as soon as another's requests are there.
    Raises BudgetSpent when the time is up, UsageError when somebody came, EngineError when the server is gone.
    """
    for step in todo:
        if alone:
            _wait_until_idle(door)
        begun = time.monotonic()
        sent = send(door, step.asks, chance, end)
        yield _done(step, sent, time.monotonic() - begun, door)


def _wait_until_idle(door: Door) -> None:
    """Our own last request may still be counted for a moment."""
    last = time.monotonic() + _SETTLE_S
    while others(door) and time.monotonic() < last:
        time.sleep(_POLL_S)
    check_idle(door)


def _done(step: Step, sent: Sequence[Sent], seconds: float, door: Door) -> Done:
    error = next((one.error for one in sent if one.error), "")
    if error and not error.startswith("status"):
        raise EngineError(f"{door.url} broke off at {step.kind} {step.name}: {error}", "its log says why")
    return Done(step, seconds, max(one.ttft_s for one in sent), error)


def probes(bounds: Limits, paths: Sequence[str]) -> tuple[tuple[str, Ask], ...]:
    """A request for each length bucket, then for each sampling path but the plain one.

    Lengths are four fifths of the bucket's end: such as the warm-up did not send.
    """
    lengths = [max(1, upto * 4 // 5) for upto in buckets(bounds)]
    named = [(f"{tokens} tokens", Ask(tokens, ANSWER)) for tokens in lengths]
    return (*named, *((name, Ask(SHORT - 1, ANSWER, path=name)) for name in paths if name != "greedy"))


def first_requests(door: Door, asks: Sequence[tuple[str, Ask]], end: float, chance: Random) -> tuple[First, ...]:
    """One request of each kind in their order, then `_REPEATS` more of each. Raises BudgetSpent, EngineError.

    What the server refuses (a chat where there is no template) is left out.
    """
    first = {name: _ttft(door, ask, end, chance) for name, ask in asks}
    later = {name: [_ttft(door, ask, end, chance) for _ in range(_REPEATS)] for name, ask in asks if first[name]}
    return tuple(First(name, first[name], median(rest)) for name, rest in later.items())


def _ttft(door: Door, ask: Ask, end: float, chance: Random) -> float:
    """0 where the server refuses it."""
    (sent,) = send(door, [ask], chance, end)
    if sent.error and not (sent.error.startswith("status 4") and ask.path != "greedy"):
        raise EngineError(f"a prompt of {ask.input_tokens} tokens failed: {sent.error}", "the server's log says why")
    return sent.ttft_s


class Bench(NamedTuple):
    """Two starts of one command. `folder` takes the run folders; `allowance_s`: how long each start may take."""

    command: LaunchCommand
    folder: Path
    vllm_python: Path | None = None
    allowance_s: float = 1800.0


@contextmanager
def cold(bench: Bench, name: str, end: float, tell: Tell) -> Iterator[Door]:
    """A server of ours whose compilation caches were empty when it started. Raises EngineError, BudgetSpent."""
    from vllm_advisor.launch import Server
    from vllm_advisor.plan import LaunchCommand

    run = bench.folder / name
    caches = tuple((variable, str(run / "caches" / variable.lower())) for variable in _CACHES)
    command = LaunchCommand(bench.command.argv, tuple(dict(bench.command.env + caches).items()))
    allowance = min(bench.allowance_s, max(1.0, end - time.monotonic()))
    with Server(command, run_folder=run, vllm_python=bench.vllm_python, allowance_s=allowance) as server:
        tell(f"starting a server {name.replace('-', ' ')}")
        try:
            seconds = server.wait_until_ready()
        except EngineError as error:
            raise (BudgetSpent() if time.monotonic() >= end else error) from error
        tell(f"ready after {seconds:.0f} s")
        yield Door(server.url, server.model)


class Outcome(NamedTuple):
    """What two starts showed: first requests, and the warm-up's own steps."""

    firsts: tuple[Compared, ...]
    done: tuple[Done, ...]


def compare(
    bench: Bench, asks: Sequence[tuple[str, Ask]], todo: Sequence[Step], *, end: float, warm_up_s: float, seed: int,
    tell: Tell,
) -> Outcome:  # fmt: skip
    """First tokens on a server without and on one with the warm-up, which has `warm_up_s` at most.

    Raises EngineError for a start that fails, BudgetSpent when `end` comes first.
    """
    with cold(bench, "without-warm-up", end, tell) as door:
        without = first_requests(door, asks, end, Random(seed))  # noqa: S311  repeatable
    done: list[Done] = []
    with cold(bench, "with-warm-up", end, tell) as door:
        steps = play(door, todo, min(end, time.monotonic() + warm_up_s), Random(seed + 1), alone=False)  # noqa: S311
        _fill(done, steps, len(todo), tell)
        warm = first_requests(door, asks, end, Random(seed + 2))  # noqa: S311
    rows = ((a, b) for a in without for b in warm if a.name == b.name)
    return Outcome(tuple(Compared(a.name, a.first_s, a.later_s, b.first_s, b.later_s) for a, b in rows), tuple(done))


def _fill(done: list[Done], steps: Iterator[Done], every: int, tell: Tell) -> None:
    """Play what the time allows."""
    try:
        for one in steps:
            done.append(one)
            tell(f"{len(done)} of {every}: {one.step.kind} {one.step.name}, {one.seconds:.2f} s {one.error}".rstrip())
    except BudgetSpent:
        tell(f"the time for the warm-up is up: {every - len(done)} steps are left out")
