"""How long the wizard's event loop was held in a test, on a machine that others use, too."""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
import traceback
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Event, Thread, get_ident
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator


def must(holds: object, why: str) -> None:
    """An assertion that survives `python -O`."""
    if not holds:
        raise AssertionError(why)


class Block(NamedTuple):
    """What held the event loop longest: seconds in all and those of them that it calculated, and where it was."""

    seconds: float
    calculating: float
    where: str


class Watch:
    """What `watching` saw."""

    LIMIT: ClassVar[float] = 0.050

    def __init__(self) -> None:
        self.longest = Block(0.0, 0.0, "")
        self.calls = 0
        self.slowness = slowness()
        self.since = 0.0  # when the callback began that runs now; 0: none does
        self.stack = ""

    def saw(self, seconds: float, calculating: float) -> None:
        """One callback."""
        self.calls += 1
        if seconds > self.longest.seconds:
            self.longest = Block(seconds, calculating, self.stack)
        self.stack = ""

    def check(self) -> None:
        """AssertionError where something held the loop for more than 50 ms, times `slowness`."""
        self.slowness = max(self.slowness, slowness())
        held, allowed = self.longest.seconds * 1000, self.LIMIT * self.slowness * 1000
        must(self.calls, "the event loop did nothing while it was watched")
        calculating = f"{self.longest.calculating * 1000:.0f} of them calculating"
        why = f"the event loop was held for {held:.0f} ms ({calculating}), {allowed:.0f} are allowed here, in\n"
        must(held <= allowed, why + self.longest.where)


@contextmanager
def watching() -> Iterator[Watch]:
    """Time every callback of this thread's event loop; `Watch.check()` says whether one was too long, and where.

    Time in which the machine ran other processes in its place is not counted (Linux tells it; elsewhere it counts).
    """
    handle: Any = asyncio.Handle
    run, watch, mine, over = handle._run, Watch(), get_ident(), Event()  # noqa: SLF001 - all callbacks go through it

    def timed(self: Any) -> Any:
        if get_ident() != mine:
            return run(self)
        _excuses[mine] = 0.0
        watch.since, waited, busy = time.perf_counter(), _waited(), time.thread_time()
        try:
            return run(self)
        finally:
            spent = time.perf_counter() - watch.since - (_waited() - waited) - _excuses.get(mine, 0.0)
            watch.since = 0.0
            watch.saw(spent, time.thread_time() - busy)

    sampler = Thread(target=_sample, args=(watch, mine, over), daemon=True)
    handle._run = timed  # noqa: SLF001 - same
    sampler.start()
    gc.collect()
    gc.freeze()  # what the test run has heaped up is no garbage of the app
    try:
        yield watch
    finally:
        handle._run = run  # noqa: SLF001 - same
        gc.unfreeze()
        over.set()
        sampler.join()


async def responsive(scenario: Callable[[], Awaitable[object]], rounds: int = 4) -> Watch:
    """Go through a scenario until nothing held the loop; AssertionError where something did each time.

    What the app does takes long in every round; what a busy machine does to it in some.
    """
    for left in reversed(range(rounds)):
        with watching() as watch:
            await asyncio.sleep(0)  # only callbacks that begin and end meanwhile are timed
            await scenario()
            await asyncio.sleep(0)
        with suppress(AssertionError) if left else nullcontext():
            watch.check()
            break
    return watch


def _sample(watch: Watch, thread: int, over: Event) -> None:
    """Now and then, where a callback is that runs for long: the first look is kept."""
    while not over.wait(Watch.LIMIT / 5):
        frame = sys._current_frames().get(thread)  # noqa: SLF001 - the documented way
        is_long = watch.since and time.perf_counter() - watch.since > Watch.LIMIT / 2
        if is_long and not watch.stack and frame is not None:
            calls = traceback.extract_stack(frame)[-12:]
            watch.stack = "".join(f"  {Path(call.filename).name}:{call.lineno} {call.name}\n" for call in calls)


_excuses = dict[int, float]()


@contextmanager
def excused() -> Iterator[None]:
    """The test's own work on the loop's thread is no fault of the app."""
    start = time.perf_counter() - _waited()
    try:
        yield
    finally:
        mine = get_ident()
        _excuses[mine] = _excuses.get(mine, 0.0) + time.perf_counter() - _waited() - start


def _waited() -> float:
    """Seconds that this thread was ready to run and the machine ran others; 0.0 where the system does not tell."""
    try:
        with Path("/proc/thread-self/schedstat").open(encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


_SECONDS = 0.0105  # what `_typical` takes on the machine that the limit was chosen on, left alone, in CPython 3.11


def slowness() -> float:
    """How much slower than that this machine is at present, at least 1."""
    spent = []
    for _ in range(5):
        start = time.perf_counter() - _waited()
        _typical()
        spent.append(time.perf_counter() - _waited() - start)
    return max(1.0, statistics.median(spent) / _SECONDS)


def _typical() -> None:
    """Half counting, half making small objects: a screen that is drawn does both."""
    total = 0
    for number in range(200_000):
        total += number
    made = {f"k{number}": (str(number), [number], (number, number + 1)) for number in range(9_000)}
    sorted(made, key=lambda name: made[name][0])
