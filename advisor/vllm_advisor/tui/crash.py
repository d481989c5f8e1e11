"""What is kept of an error that nobody expected: a short text without values, keys or folders of a person."""

from __future__ import annotations

import platform
import sys
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from vllm_advisor.redact import clean


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_KEPT = 5  # reports


def write(error: BaseException, folder: Path, where: str = "") -> Path:
    """Write a report into the folder, the oldest ones go. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    file = folder / f"wizard-crash-{now:%Y%m%d-%H%M%S-%f}.txt"
    file.write_text(text(error, now, where), encoding="utf-8")
    for old in sorted(folder.glob("wizard-crash-*.txt"))[:-_KEPT]:
        old.unlink(missing_ok=True)
    return file


def text(error: BaseException, at: datetime, where: str = "") -> str:
    """The report: versions, then every error in the chain with the functions that it came through."""
    from importlib.metadata import version

    from vllm_advisor import __version__

    head = [
        f"vllm-advisor {__version__}, textual {version('textual')}, Python {platform.python_version()}, {sys.platform}",
        f"at {at:%Y-%m-%d %H:%M:%S} UTC{f', in {where}' if where else ''}",
    ]
    return clean("\n".join([*head, *_chain(error)]) + "\n")


def _chain(error: BaseException) -> Iterator[str]:
    """From the first cause to the error itself. Modules stand for files: a path may name a person."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        yield from _chain(cause)
        yield "\nwhich led to"
    yield f"\n{one_line(error)}"
    frames = [(frame.f_globals.get("__name__", "?"), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    summary = traceback.extract_tb(error.__traceback__)
    for (module, line), frame in zip(frames, summary, strict=True):
        yield f"  {module}:{line} {frame.name}: {frame.line}"


def one_line(error: BaseException) -> str:
    """`ValueError: what it says`, in a line, without keys and folders."""
    return clean(" ".join(f"{type(error).__name__}: {error}".split()))
