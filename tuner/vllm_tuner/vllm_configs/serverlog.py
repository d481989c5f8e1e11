"""Whether a server that was started read the tuned files, from its own log.

vLLM says it once for each name, when the first batch reaches the experts: which file it uses, or that it found none and
where it looked. A server whose experts run on another kernel says neither.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import BadInput
from vllm_tuner.vllm_configs import names, shipped


if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# fused_moe/fused_moe.py:1153 and :1166 of 0.33.0, the same words from 0.24.0 on; several places are joined by commas,
# which names hold too, so a place ends where a `.json` does.
_USED = re.compile(r"Using configuration from (.+?\.json) for MoE layer")
_MISSED = re.compile(r"Using default MoE config\b.*? not found at (.+)$")
_PLACE = re.compile(r"(/.*?\.json)(?:, |\W*$)")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class Reading(NamedTuple):
    """What a log tells of tuned files: paths that were used, and paths that were looked for in vain."""

    used: tuple[str, ...]
    missed: tuple[str, ...]
    backends: tuple[str, ...] = ()


class LogVerdict(NamedTuple):
    """One file: read, packaged, missing or silent, in words that say what to do."""

    name: str
    state: str
    says: str


def read(path: Path) -> Reading:
    """A server's log. Raises BadInput when it cannot be read."""
    from vllm_advisor.vllm import logs

    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            used, missed = _lines(stream)
        with path.open("rb") as raw:
            backends = logs.read(raw).starts[-1].facts.backends.values()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    return Reading(used, missed, tuple(b.name for b in backends if b.part.startswith("MoE")))


def _lines(stream: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    used: dict[str, None] = {}
    missed: dict[str, None] = {}
    for raw in stream:
        if "MoE" not in raw:
            continue
        line = _ANSI.sub("", raw).rstrip()
        used.update(dict.fromkeys(_USED.findall(line)))
        for places in _MISSED.findall(line):
            missed.update(dict.fromkeys(_PLACE.findall(places)))
    return tuple(used), tuple(missed)


def judge(reading: Reading, wanted: Sequence[str], folder: Path | None = None) -> tuple[LogVerdict, ...]:
    """For each name of a file that was written, whether the server took it. `folder`: where it was written."""
    return tuple(_judged(reading, name, folder) for name in wanted)


def _judged(reading: Reading, name: str, folder: Path | None) -> LogVerdict:
    path = next((p for p in reading.used if PurePosixPath(p).name == name), "")
    if path and PurePosixPath(path).parent.match(f"*/{shipped.FOLDER}"):
        return LogVerdict(name, "packaged", f"vLLM used its own file: it did not see {name} in its tuned folder")
    if path:
        elsewhere = folder is not None and Path(path).parent != folder.absolute()
        return LogVerdict(name, "read", f"vLLM used {path}" + (", its name for that folder" if elsewhere else ""))
    missed = [p for p in reading.missed if PurePosixPath(p).name == name]
    if missed:
        return LogVerdict(name, "missing", f"vLLM found no {name} at {' or '.join(missed)} and used its default")
    return LogVerdict(name, "silent", _silence(reading))


def _silence(reading: Reading) -> str:
    others = [PurePosixPath(p).name for p in (*reading.missed, *reading.used)]
    asked = [name for name in others if names.kind(name) == "experts"]
    if asked:
        return f"vLLM asked for {', '.join(dict.fromkeys(asked))} instead: another split, device or dtype"
    if reading.backends:
        return f"vLLM never looked: the experts run on {', '.join(reading.backends)}"
    return "vLLM has not looked yet: no batch reached the experts, or their kernel reads no file"
