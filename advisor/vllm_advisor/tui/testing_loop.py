"""How long the wizard's event loop was held in a test, on a machine that others use, too."""

from __future__ import annotations

import asyncio
import functools
import gc
import statistics
import sys
import time
import traceback
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Event, Thread, get_ident
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from vllm_advisor.tui import tidying


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator


def must(holds: object, why: str) -> None:
    """An assertion that survives `python -O`."""
    if not holds:
        raise AssertionError(why)


class Block(NamedTuple):
    """What held the event loop: seconds, of the machine that the limit was chosen on, and where it was.

    `held`: as they were measured, on a machine that was slower just then; `calculating`: those of them without waits.
    """

    seconds: float
    held: float
    calculating: float
    where: str


class Watch:
    """What `watching` saw: the longest block of each kind of callback."""

    LIMIT: ClassVar[float] = 0.050

    def __init__(self) -> None:
        self.blocks: dict[str, Block] = {}
        self.calls = 0
        self.since = 0.0  # when the callback began that runs now; 0: none does
        self.stack = ""

    @property
    def longest(self) -> Block:
        """Of all kinds."""
        return max(self.blocks.values(), default=Block(0.0, 0.0, 0.0, ""))

    def saw(self, kind: str, seconds: float, calculating: float) -> None:
        """One callback."""
        self.calls += 1
        slower = slowness(3, statistics.fmean) if seconds > self.LIMIT else 1.0
        block = Block(seconds / slower, seconds, calculating, self.stack)
        self.blocks[kind] = max(block, self.blocks.get(kind, block))
        self.stack = ""

    def as_in(self, other: Watch) -> None:
        """Keep what another round over the same scenario saw, too, each as short as it was there."""
        self.blocks = {kind: min(self.blocks[kind], other.blocks[kind]) for kind in self.blocks.keys() & other.blocks}

    def check(self) -> None:
        """AssertionError where something held the loop for more than 50 ms, times `slowness` right after it."""
        must(self.calls, "the event loop did nothing while it was watched")
        longest = self.longest
        allowed = self.LIMIT * longest.held / max(longest.seconds, 1e-9)
        calculating = f"{longest.calculating * 1000:.0f} of them calculating"
        held = f"held for {longest.held * 1000:.0f} ms ({calculating}), {allowed * 1000:.0f} were allowed just then"
        must(longest.seconds <= self.LIMIT, f"the event loop was {held}, in\n{longest.where}")


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
            if not (kind := _kind(self)).startswith(tidying.NAME):  # which holds the loop when nobody feels it
                watch.saw(kind, spent, time.thread_time() - busy)

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


def _kind(handle: Any) -> str:
    """`message pump PlansScreen`, or the function: what a callback is about, the same in every round."""
    task = getattr(handle._callback, "__self__", None)  # noqa: SLF001 - as asyncio itself names slow ones
    if not isinstance(task, asyncio.Task):
        return getattr(handle._callback, "__qualname__", type(handle._callback).__name__)  # noqa: SLF001 - same
    name = task.get_name().partition("(")[0].rstrip("0123456789")
    return f"{name} {getattr(task.get_coro(), '__qualname__', '')}"


async def responsive(scenario: Callable[[], Awaitable[object]], rounds: int = 6) -> Watch:
    """Go through a scenario until nothing held the loop; AssertionError where the same kind of callback did each time.

    What the app does takes long in every round; what a busy machine does to it in some.
    """
    seen: Watch | None = None
    for left in reversed(range(rounds)):
        with watching() as watch:
            await asyncio.sleep(0)  # only callbacks that begin and end meanwhile are timed
            await scenario()
            await asyncio.sleep(0)
        if seen is not None:
            watch.as_in(seen)
        seen = watch
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


_STYLES = Path(__file__).with_name("wizard.tcss")
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


_SECONDS = 0.0129  # what `_typical` takes on a machine that counts as fast as the one that the limit was chosen on


def slowness(runs: int = 5, of: Callable[[list[float]], float] = statistics.median) -> float:
    """How much slower than that this machine is at present, at least 1."""
    spent = []
    for _ in range(runs):
        start = time.perf_counter() - _waited()
        _typical()
        spent.append(time.perf_counter() - _waited() - start)
    return max(1.0, of(spent) / _SECONDS)


def _typical() -> None:
    """Textual's own work, without an app: a loop that fits into a cache is no measure of a screen that is drawn."""
    from textual.css.stylesheet import Stylesheet
    from textual.widgets import DataTable, Footer, Input

    sheet = Stylesheet(variables=_colours())
    sources = {widget.__name__: widget.DEFAULT_CSS for widget in (DataTable, Footer, Input)}
    for name, text in {"wizard": _STYLES.read_text(encoding="utf-8"), **sources}.items():
        sheet.add_source(text, read_from=(name, ""))
    sheet.parse()


@functools.cache
def _colours() -> dict[str, str]:
    from textual.theme import BUILTIN_THEMES

    return BUILTIN_THEMES["textual-dark"].to_color_system().generate()
