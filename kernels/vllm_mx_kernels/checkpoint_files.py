"""Safetensors files, read and written a piece at a time: a whole shard is never in memory. No torch here.

The format is a length (8 bytes, little endian), a JSON header and the tensors' bytes; headers are data, and nothing in
a file is ever executed. Source: huggingface/safetensors, README, "Format".
"""

from __future__ import annotations

import json
import math
import os
import struct
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NamedTuple


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

ELEMENT_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip
# The reference reader refuses longer headers (safetensors/src/tensor.rs: MAX_HEADER_SIZE).
_LONGEST_HEADER = 100_000_000
_LFS = b"version https://git-lfs.github.com/spec/"
_ALIGNMENT = 8


class BadFileError(ValueError):
    """A file is not what it should be; the message names it and says what it is instead."""


class Entry(NamedTuple):
    """A tensor of a file: `begin` counts from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * ELEMENT_BYTES[self.dtype]


def read_header(path: Path) -> tuple[Entry, ...]:
    """What a file holds, in the order of its bytes. Raises BadFileError, OSError."""
    with path.open("rb") as file:
        start = file.read(len(_LFS))
        if start.startswith(_LFS):
            raise BadFileError(f"{path.name} is a Git LFS pointer, not the weights: run `git lfs pull` there")
        length = struct.unpack("<Q", start[:8])[0] if len(start) >= 8 else 0
        if not 2 <= length <= _LONGEST_HEADER:
            raise BadFileError(f"{path.name} is no safetensors file")
        file.seek(8)
        header = _parsed(path, file.read(length))
    entries = [_entry(path, name, value, 8 + length) for name, value in header.items() if name != "__metadata__"]
    _check_end(path, entries)
    return tuple(sorted(entries, key=lambda entry: entry.begin))


def _parsed(path: Path, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except ValueError as error:
        raise BadFileError(f"{path.name} is no safetensors file: its header is no JSON") from error
    if not isinstance(header, dict):
        raise BadFileError(f"{path.name} is no safetensors file: its header is no table")
    return header


def _entry(path: Path, name: str, value: Any, base: int) -> Entry:
    try:
        begin, end = value["data_offsets"]
        entry = Entry(name, value["dtype"], tuple(map(int, value["shape"])), base + begin)
        fits = entry.size == end - begin and min(begin, *entry.shape, 0) == 0
    except (KeyError, TypeError, ValueError) as error:
        raise BadFileError(f"{path.name}: the header's entry {name} cannot be read ({error!r})") from error
    if not fits:
        raise BadFileError(f"{path.name}: {name} claims {end - begin} bytes, its shape needs {entry.size}")
    return entry


def _check_end(path: Path, entries: list[Entry]) -> None:
    end = max((entry.begin + entry.size for entry in entries), default=0)
    if end > path.stat().st_size:
        raise BadFileError(f"{path.name} is cut off: {path.stat().st_size} of {end} bytes")


def read_bytes(file: IO[bytes], begin: int, size: int) -> bytearray:
    """Exactly that many bytes, writable. Raises BadFileError at the end of the file."""
    data = bytearray(size)
    file.seek(begin)
    if file.readinto(data) != size:  # type: ignore[attr-defined]
        raise BadFileError("a file ended while it was read")
    return data


def layout(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> tuple[bytes, tuple[Entry, ...]]:
    """The header of a file with these tensors (name → dtype, shape), and where each will lie."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    entries, begin = [], 0
    for name, (dtype, shape) in tensors.items():
        entry = Entry(name, dtype, shape, begin)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": (begin, begin + entry.size)}
        entries.append(entry)
        begin += entry.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    base = 8 + len(text)
    return struct.pack("<Q", len(text)) + text, tuple(e._replace(begin=base + e.begin) for e in entries)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` in one step at the end, and is removed after an error."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Indented, in one step."""
    with replacing(path) as file:
        file.write(json.dumps(value, indent=2).encode() + b"\n")
