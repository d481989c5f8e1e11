"""`tuner files tune`: every shape that a plan's ranks hold, timed on this machine's GPU, and the tables of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from vllm_advisor.errors import UsageError
from vllm_tuner.vllm_configs import names, table
from vllm_tuner.vllm_configs.timing import Session, Timer
from vllm_tuner.vllm_configs.tune import Effort, Job, tune, tuned_table


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from vllm_tuner.kernel_tuning.points import Space
    from vllm_tuner.kernel_tuning.strategies import Strategy
    from vllm_tuner.vllm_configs.listing import Listing
    from vllm_tuner.vllm_configs.shapes import Shape
    from vllm_tuner.vllm_configs.tune import BatchResult, Outcome


class Wanted(NamedTuple):
    """What to spend. `strategy` is a name of `kernel_tuning.strategies`; `seconds` for all shapes together."""

    batches: tuple[int, ...]
    strategy: str = "pattern"
    trials: int = 60
    seconds: float = 3600.0


class Written(NamedTuple):
    """One shape's outcome, and the file that was written: None for a null result."""

    outcome: Outcome
    path: Path | None


class Answering(Timer, Protocol):
    """A timer that says who answers: the release of vLLM, the device as its driver calls it, and Triton's version."""

    vllm: str
    device: str
    triton: str


def numbers(text: str) -> tuple[int, ...]:
    """`1,8,64` in rising order, each once. Raises UsageError for what is no batch size."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise UsageError(f"{text!r} are no batch sizes", "write whole numbers with commas: 1,8,64")
    return tuple(sorted({int(word) for word in words}))


def run(
    python: Path,
    found: Listing,
    folder: Path,
    wanted: Wanted,
    tell: Callable[[str], None],
    *,
    opened: Callable[[Path, Shape, str], AbstractContextManager[Answering]] = Session,
) -> tuple[Written, ...]:
    """Tune each shape and write the tables that won. Raises UsageError where nobody would read them.

    The table is named for the device and the vLLM that answered; a release other than the one asked about is refused.
    """
    if not found.reader.is_read:
        raise UsageError(f"no tuning: nobody would read the file; {found.reader.why}", "another --moe-backend may")
    _check_strategy(wanted.strategy)
    end = time.monotonic() + wanted.seconds
    written = []
    for shape in found.shapes:
        with opened(python, shape, found.scheme) as session:
            _same_release(session.vllm, found.version)
            job = Job(session, found.where, shape, _maker(wanted), Effort(trials=wanted.trials), end)
            outcome = tune(job, wanted.batches, lambda result: tell(_line(result)))
            file = shape.file(names.device_part(session.device, found.where.release))
            done = tuned_table(outcome, found.where, triton=session.triton)
            written.append(Written(outcome, table.write(folder, file, done) if done else None))
    return tuple(written)


def _same_release(answered: str, asked: str) -> None:
    """Defaults belong to a release: those of another would be written as this one's."""
    if answered.partition("+")[0] != asked:
        raise UsageError(f"vLLM {asked} is asked about, the environment has {answered}", f"--vllm {answered}")


def _check_strategy(name: str) -> None:
    from vllm_tuner.kernel_tuning import strategies

    strategies.check(name)


def _maker(wanted: Wanted) -> Callable[[Space, int], Strategy]:
    from vllm_tuner.kernel_tuning import strategies

    return lambda space, seed: strategies.strategy(wanted.strategy, space, wanted.trials, seed)


def _line(result: BatchResult) -> str:
    gain = result.decision.gain if result.decision else None
    said = f" ({gain.mid:+.1%})" if gain else ""
    return f"batch size {result.batch}: {result.tried} tried, {result.unfit} unfit; {result.says}{said}"


def show(results: Sequence[Written], folder: Path, *, json: bool) -> None:
    """The result on stdout."""
    from vllm_advisor.cli import output

    if json:
        output.write_json({"schema": 1, "folder": str(folder), "shapes": [_record(result) for result in results]})
    else:
        output.write(line for result in results for line in _lines(result))


def _lines(result: Written) -> list[str]:
    if result.path is None:
        return [result.outcome.says]
    hint = "it counts only if the server wins with it: `tuner files keep` plays both in turns (docs/tuned-files.md)"
    return [result.outcome.says, f"written: {result.path}", hint]


def _record(result: Written) -> dict[str, Any]:
    return {
        "shape": result.outcome.shape._asdict(),
        "says": result.outcome.says,
        "file": str(result.path) if result.path else None,
        "batches": [_batch(one) for one in result.outcome.results],
    }


def _batch(one: BatchResult) -> dict[str, Any]:
    gain = one.decision.gain if one.decision else None
    return {
        "batch": one.batch,
        "won": one.won,
        "tried": one.tried,
        "unfit": one.unfit,
        "default": one.default,
        "best": one.best,
        "gain": gain.mid if gain else None,
        "says": one.says,
    }
