"""Files of requests, by their ending: conversations, recorded lengths, access logs, pages of /metrics, saved loads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from vllm_advisor.errors import BadInput
from vllm_advisor.vllm.metrics import parse
from vllm_tuner import traces, traces_log
from vllm_tuner.workloads import Conversations, Shape


if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vllm_tuner.workloads import Source


def read(path: Path, shape: Shape, count: Callable[[str], int], lengths: Source | None = None) -> Source:
    """A file of requests, by its ending. Raises BadInput.

    `.json`: conversations as ShareGPT's, or a recorded load (traces.save); `.jsonl`, `.csv`: lengths, with times or
    without; `.log`: an access log, whose lengths are those of `lengths`; anything else: the text of /metrics.
    """
    try:
        if path.suffix == ".json":
            return _document(path, shape, count)
        if path.suffix in (".jsonl", ".csv", ".log"):
            return _log(path, shape, lengths)
        text = small_text(path)
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else error
        raise BadInput(f"{path} is no file of requests: {why}", _HINTS.get(path.suffix, _HINT)) from None
    return traces.of_metrics(path.name, parse(text)).source(shape)


_HINT = "ShareGPT .json, lengths as .jsonl or .csv, an access .log, or the text of /metrics"
_HINTS = {
    ".jsonl": '{"at": 0.0, "input_tokens": 374, "output_tokens": 44} a line',
    ".csv": "columns at,input_tokens,output_tokens (or TIMESTAMP,ContextTokens,GeneratedTokens)",
    ".log": "keep the server's whole log, or take it with times: docker logs --timestamps NAME > access.log",
}
_MOST_METRICS = 8 << 20


def _document(path: Path, shape: Shape, count: Callable[[str], int]) -> Source:
    with path.open(encoding="utf-8") as stream:
        begins = stream.read(4096).lstrip()[:1]
    if begins == "{":
        document = json.loads(small_text(path))
        if traces.is_load(document):
            return traces.load(document).source(shape)
        raise ValueError("it is neither conversations nor a recorded load")
    return Conversations(path.name, traces_log.conversations(path), count, shape)


def _log(path: Path, shape: Shape, lengths: Source | None) -> Source:
    if path.suffix != ".log":
        return traces_log.trace(path, shape)
    if lengths is None:
        raise ValueError("an access log has times alone, and no lengths are given")
    return traces_log.access_log(path, lengths)


def small_text(path: Path) -> str:
    """The text of a file that is small by its nature. Raises ValueError for a large one."""
    if path.stat().st_size > _MOST_METRICS:
        raise ValueError(f"{path.stat().st_size >> 20} MiB are more than a page of /metrics")
    return path.read_text(encoding="utf-8")


def recorded(path: Path) -> traces.Recorded | None:
    """The load that a file holds: one that `save` wrote, or a page of /metrics; None for requests of another kind.

    Raises BadInput for what should be one and is none.
    """
    if path.suffix in (".jsonl", ".csv", ".log"):
        return None
    if path.suffix != ".json":
        try:
            return traces.of_metrics(path.name, parse(small_text(path)))
        except (OSError, ValueError) as error:
            raise BadInput(f"{path} is no page of /metrics: {error}", traces.HINT) from None
    source = read(path, Shape(1, 2), len)
    return source.load if isinstance(source, traces.Drawn) else None
