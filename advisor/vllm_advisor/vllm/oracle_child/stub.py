"""A CUDA driver library that exports names and does nothing: vLLM's extensions load, every call says "no device".

Written as a shared object byte by byte, since the environment may have no compiler. One function returns 100
(CUDA_ERROR_NO_DEVICE); every symbol points at it. The linker takes an object that is loaded already for a wanted one
of the same name, so that loading this first is enough. Layout: System V ABI, chapters 4 and 5 (ELF-64).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import re
import struct
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NAME = "libcuda.so.1"
_WANTED = re.compile(rb"(?<=\0)cu[A-Z][A-Za-z0-9_]{2,60}(?=\0)")
# e_machine and the code of "return 100" in 32 bits.
_MACHINES = {
    "x86_64": (62, bytes.fromhex("b864000000c3")),
    "aarch64": (183, bytes.fromhex("800c8052c0035fd6")),
}
_PAGE = 0x1000
_HEADER, _SEGMENT, _SYMBOL, _ENTRY = 64, 56, 24, 16


def wanted(folder: Path) -> list[str]:
    """Names of driver functions in the string tables of that folder's extensions; a few too many do no harm."""
    found: set[bytes] = set()
    for library in sorted(folder.glob("*.so")):
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found.update(_WANTED.findall(content))
    return sorted(name.decode() for name in found)


def load(names: Iterable[str], folder: Path) -> None:
    """Write the library to the folder and load it for all that is loaded later.

    A file that is there already may be mapped, by this process even, and is replaced and never written into.
    """
    path = folder / NAME
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_bytes(library(list(names), platform.machine()))
    fresh.replace(path)
    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def library(names: list[str], machine: str) -> bytes:
    """The bytes of the shared object. Raises NotImplementedError for a processor whose code is not known here."""
    if machine not in _MACHINES:
        raise NotImplementedError(f"no stand-in of the CUDA driver for {machine}, only for {', '.join(_MACHINES)}")
    number, code = _MACHINES[machine]
    strings, offsets = _strings([NAME, *names])
    text = _HEADER + 3 * _SEGMENT
    symbols = _aligned(text + len(code))
    table = symbols + _SYMBOL * (len(names) + 1)
    hashes = _aligned(table + len(strings))
    dynamic = _aligned(hashes + 4 * (3 + len(names) + 1))
    rows = [(14, offsets[0]), (4, hashes), (5, table), (6, symbols), (10, len(strings)), (11, _SYMBOL), (0, 0)]
    size = dynamic + _ENTRY * len(rows)
    parts = (
        (0, _elf(number)),
        (_HEADER, _segments(size, dynamic, _ENTRY * len(rows))),
        (text, code),
        (symbols, bytes(_SYMBOL) + b"".join(_symbol(at, text, len(code)) for at in offsets[1:])),
        (table, strings),
        (hashes, _chain(len(names))),
        (dynamic, b"".join(struct.pack("<qQ", *row) for row in rows)),
    )
    image = bytearray(size)
    for at, part in parts:
        image[at : at + len(part)] = part
    return bytes(image)


def _aligned(offset: int) -> int:
    return (offset + 15) & ~15


def _strings(names: list[str]) -> tuple[bytes, list[int]]:
    """A string table and where each name begins in it."""
    table, offsets = bytearray(1), []
    for name in names:
        offsets.append(len(table))
        table += name.encode() + b"\0"
    return bytes(table), offsets


def _elf(machine: int) -> bytes:
    ident = b"\x7fELF" + bytes((2, 1, 1, 0)) + bytes(8)  # 64 bits, little-endian, version 1, System V
    return ident + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, _HEADER, 0, 0, _HEADER, _SEGMENT, 3, 0, 0, 0)


def _segments(size: int, dynamic: int, dynamic_size: int) -> bytes:
    """One segment for all (read, write, execute), the dynamic table in it, and a stack that is not executable."""
    row = struct.Struct("<IIQQQQQQ")
    whole = row.pack(1, 7, 0, 0, 0, size, size, 0x10000)
    table = row.pack(2, 6, dynamic, dynamic, dynamic, dynamic_size, dynamic_size, 8)
    return whole + table + row.pack(0x6474E551, 6, 0, 0, 0, 0, 0, 16)


def _symbol(name: int, value: int, size: int) -> bytes:
    return struct.pack("<IBBHQQ", name, 0x12, 0, 1, value, size)  # global function, defined


def _chain(count: int) -> bytes:
    """A hash table of one bucket: every symbol in one chain, which needs no hash function."""
    following = [0, *range(2, count + 1), 0] if count else [0]
    return struct.pack(f"<{3 + len(following)}I", 1, count + 1, 1 if count else 0, *following)
