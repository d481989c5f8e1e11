"""A tuned table: batch size → tiles, read strictly and written so that nothing untuned changes.

vLLM snaps a batch to the nearest key of the file (fused_moe.py:1446), so a table with four tuned batch sizes changes
every other one too; a public report lost 2 % that way. The table written here therefore has vLLM's own default on both
sides of each tuned range, and at both ends of each stretch of batch sizes that shares a default: the nearest key of
any untuned batch then holds exactly what vLLM would have used without a file.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import BadInput
from vllm_tuner.vllm_configs.defaults import Config, segments


if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vllm_tuner.vllm_configs.defaults import Segment, Where
    from vllm_tuner.vllm_configs.names import ExpertsFile
    from vllm_tuner.vllm_configs.shapes import Shape

TRITON_VERSION = "triton_version"  # the one key that is no batch size; the loader drops it unread
_LARGEST_FILE = 1 << 20
# Batch sizes that vLLM captures graphs for by default (config/vllm.py, `_set_cudagraph_sizes`): those a decoding server
# runs at.
GRAPH_SIZES = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))


class Tuned(NamedTuple):
    """Tiles for the batch sizes `first` … `last`: those that were measured better than the default."""

    first: int
    last: int
    config: Config


class Table(NamedTuple):
    """What a file holds: (batch size, tiles) in the file's order, and the Triton that it names, "" for none."""

    entries: tuple[tuple[int, Config], ...]
    triton: str = ""

    def nearest(self, batch: int) -> Config:
        """What vLLM takes for a batch: the nearest key, of two equally near the one that stands first."""
        return min(self.entries, key=lambda entry: abs(entry[0] - batch))[1]


def complete(tuned: Iterable[Tuned], where: Where, shape: Shape, *, triton: str = "") -> Table:
    """A table that uses `tuned` where it says and vLLM's default for every other batch size, however large.

    A range holds a key for each batch size of a graph in it: what is no key is not meant to be tuned.
    Raises ValueError for ranges that overlap or are empty.
    """
    ranges = _sorted(tuned)
    entries: dict[int, Config] = {}
    for segment in segments(where, shape):
        for first, last in _uncovered(segment, ranges):
            entries[first] = segment.config
            if last is not None:
                entries[last] = segment.config
    for one in ranges:
        inside = (batch for batch in GRAPH_SIZES if one.first < batch < one.last)
        entries.update(dict.fromkeys((one.first, *inside, one.last), one.config))
    return Table(tuple(sorted(entries.items())), triton)


def _sorted(tuned: Iterable[Tuned]) -> list[Tuned]:
    ranges = sorted(tuned, key=lambda one: one.first)
    for one in ranges:
        if not 1 <= one.first <= one.last:
            raise ValueError(f"batch sizes {one.first} to {one.last} are no range")
    for one, other in pairwise(ranges):
        if other.first <= one.last:
            raise ValueError(f"batch size {other.first} is tuned twice")
    return ranges


def _uncovered(segment: Segment, ranges: Sequence[Tuned]) -> list[tuple[int, int | None]]:
    """The parts of a segment that no tuned range takes, as (first, last)."""
    parts: list[tuple[int, int | None]] = []
    start = segment.first
    for one in ranges:
        if one.last < start or (segment.last is not None and one.first > segment.last):
            continue
        if one.first > start:
            parts.append((start, one.first - 1))
        start = one.last + 1
    if segment.last is None or start <= segment.last:
        parts.append((start, segment.last))
    return parts


def strayed(table: Table, where: Where, shape: Shape, batches: Iterable[int]) -> tuple[int, ...]:
    """The batch sizes that are no key of the table and yet would not get vLLM's default."""
    from vllm_tuner.vllm_configs.defaults import default_config

    keys = {batch for batch, _ in table.entries}
    return tuple(b for b in batches if b not in keys and table.nearest(b) != default_config(where, shape, b))


def text(table: Table) -> str:
    """The file's text: batch sizes in rising order."""
    head: dict[str, object] = {TRITON_VERSION: table.triton} if table.triton else {}
    return json.dumps(head | {str(batch): config for batch, config in table.entries}, indent=4) + "\n"


def write(folder: Path, file: ExpertsFile, table: Table) -> Path:
    """Put the table in the folder under vLLM's name, whole or not at all. Raises BadInput when that cannot be."""
    path = folder / file.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".tuned-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text(table))
            Path(temporary).chmod(0o644)  # a server of another user reads it
            Path(temporary).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(temporary).unlink()
            raise
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from error
    return path


def read(path: Path) -> Table:
    """A file as vLLM would read it; what would stop a server is a BadInput of one line."""
    pairs = _pairs(path)
    entries = tuple((_batch(path, key), _config(path, key, value)) for key, value in pairs if key != TRITON_VERSION)
    if not entries:
        raise BadInput(f"{path.name}: no batch size in it", 'keys are batch sizes: "1", "16", …')
    batches = [batch for batch, _ in entries]
    twice = next((batch for batch in batches if batches.count(batch) > 1), None)
    if twice is not None:
        raise BadInput(f"{path.name}: batch size {twice} stands there twice", "vLLM would use the last one")
    return Table(entries, next((str(value) for key, value in pairs if key == TRITON_VERSION), ""))


def _pairs(path: Path) -> list[tuple[str, object]]:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise BadInput(f"{path.name}: larger than 1 MiB, no tuned table is")
        found = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=list)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path.name}: no JSON ({error})", "vLLM would fail at its first batch") from error
    if not isinstance(found, list) or not all(isinstance(pair, tuple) for pair in found):
        raise BadInput(f"{path.name}: no JSON object of batch sizes")
    return found


def _batch(path: Path, key: str) -> int:
    if not key.isascii() or not key.isdigit() or int(key) < 1:
        raise BadInput(
            f"{path.name}: key {key!r} is no batch size", "vLLM turns every key into a number, and would fail"
        )
    return int(key)


def _config(path: Path, key: str, value: object) -> Config:
    """One entry: whole numbers only, as everything that the kernel takes."""
    if not isinstance(value, list) or not all(isinstance(pair, tuple) for pair in value):
        raise BadInput(f"{path.name}: batch size {key} has no object of tiles")
    for name, number in value:
        if type(number) is not int:
            raise BadInput(f"{path.name}: batch size {key}: {name} is {number!r}, a whole number is expected")
    return dict(value)
