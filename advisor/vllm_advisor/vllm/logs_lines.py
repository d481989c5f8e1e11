"""From bytes of any origin to lines of vLLM's own text: bounded memory, and no input that it cannot take.

A log reaches people through a terminal, Docker, Compose, Kubernetes, journald, Ray or a JSON formatter, each of which
puts something in front. What is left is who said it, how loud, and the message. Lines are cut at a bound, so that a
file without newlines costs no more than any other.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, NamedTuple, Protocol

from vllm_advisor.errors import BadInput


if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = 1 << 20
LONGEST = 1 << 16  # a configuration line of 0.33.0 is 6 KB, a list of supported architectures 12 KB
_MOST_PREFIXES = 12

_PACKED = (
    (b"\x1f\x8b", "gzip", "zcat"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
    (b"BZh", "bzip2", "bzcat"),
    (b"\xfd7zXZ\x00", "xz", "xzcat"),
    (b"PK\x03\x04", "zip", "unzip -p"),
)


class Readable(Protocol):
    """What a log is read from: a file, a pipe, or a counter around one."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; none at the end."""
        ...


class Line(NamedTuple):
    """One message. `process` is who wrote it (`Worker_TP0`, "" unknown), `level` its level ("": none is said)."""

    number: int
    process: str
    level: str
    text: str


class Cutter:
    """Blocks cut into lines; what follows the last newline waits for the next block, too long a line is cut."""

    def __init__(self) -> None:
        self._carry, self._skipping = b"", False

    def lines(self, block: bytes) -> list[bytes]:
        """The lines that end in this block, without their newline."""
        lines = block.split(b"\n")
        if self._skipping:  # the rest of a line that was cut
            if len(lines) == 1:
                return []
            del lines[0]
            self._skipping = False
        else:
            lines[0] = self._carry + lines[0]
        self._carry = lines.pop()
        if len(self._carry) > LONGEST:
            lines.append(self._carry)
            self._carry, self._skipping = b"", True
        return lines

    def rest(self) -> list[bytes]:
        """The last line, where no newline ends it."""
        return [self._carry] if self._carry else []


def batches(stream: Readable) -> Iterator[list[bytes]]:
    """The lines of a stream, as UTF-8 bytes without their newline, a block at a time.

    Raises BadInput for a compressed file, with the command that unpacks it.
    """
    cutter = Cutter()
    for block in _blocks(stream):
        if lines := cutter.lines(block):
            yield lines
    if lines := cutter.rest():
        yield lines


def _blocks(stream: Readable) -> Iterator[bytes]:
    first = stream.read(BLOCK)
    _refuse_packed(first)
    encoding = _encoding(first)
    if not encoding:
        first = first.removeprefix(codecs.BOM_UTF8)
        while first:
            yield first
            first = stream.read(BLOCK)
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    while first:
        yield decoder.decode(first).encode("utf-8", "replace")
        first = stream.read(BLOCK)


def _refuse_packed(first: bytes) -> None:
    for magic, name, unpack in _PACKED:
        if first.startswith(magic):
            raise BadInput(f"the log is packed with {name}", f"{unpack} LOG | advisor doctor -")


def _encoding(first: bytes) -> str:
    """`utf-16` where a shell redirected it so (PowerShell does), "" for what ASCII is part of."""
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    head = first[:4096]
    if len(head) >= 16 and head[1::2].count(0) > 0.8 * len(head[1::2]) and head[::2].count(0) < 0.1 * len(head):
        return "utf-16-le"
    return ""


_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
# What may stand in front of a message, in any order and number.
_PREFIX = re.compile(
    r"""\s*(?:
      \((?P<process>[A-Za-z][\w.\- ]*?)(?:\ rank=(?P<rank>\d+))?\ pid=(?P<pid>\d+)(?:,\ ip=(?P<ip>[\w.:]+))?\)
    | (?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\ \d\d-\d\d\ \d\d:\d\d:\d\d(?:[.,]\d+)?
      \ (?:\[[^\[\]]*\]|[\w./\\]+:\d+\])
    | (?P<plain>DEBUG|INFO|WARNING|ERROR|CRITICAL):(?=\s)
    | \[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|\ ?[+-]\d\d:?\d\d)?\]?(?=\s|$)
    | std(?:out|err)\ [FP](?=\s|$)
    | [A-Z][a-z]{2}\ [ \d]\d\ \d\d:\d\d:\d\d\ [\w.\-]+\ [\w.@\-/]+(?:\[\d+\])?:(?=\s|$)
    | \[(?:rank\d+|pod/[^\]]+|vllm)\]:?(?=\s|$)
    | [A-Za-z0-9][\w.\-/]{0,80}\ *\|(?=\s|$)
    )""",
    re.VERBOSE,
)
_REPEATED = re.compile(r" \[repeated \d+x across cluster\].*$")


def messages(number: int, raw: bytes) -> list[Line]:
    """What one raw line says: one message, or several where a formatter folded them into one JSON record."""
    text = raw[:LONGEST].decode("utf-8", "replace").rstrip()
    if "\r" in text:  # a progress bar rewrites its line
        text = text.rpartition("\r")[2]
    return _split(number, text, "", "", 2)


def _split(number: int, text: str, process: str, level: str, depth: int) -> list[Line]:
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    place = 0
    for _ in range(_MOST_PREFIXES):
        found = _PREFIX.match(text, place)
        if not found or found.end() == place:
            break
        process = _process(found) or process
        level = found["level"] or found["plain"] or level
        place = found.end()
    rest = text[place:]
    stripped = rest.lstrip()
    if depth and stripped.startswith("{") and stripped.endswith("}"):
        folded = _from_json(number, stripped, process, level, depth - 1)
        if folded:
            return folded
    rest = rest[1:] if place and rest.startswith(" ") else rest
    if "across cluster]" in rest:
        rest = _REPEATED.sub("", rest)
    return [Line(number, process, level, rest)]


def _process(found: re.Match[str]) -> str:
    name = found["process"]
    if not name:
        return ""
    if found["rank"]:
        return f"{name} rank {found['rank']}"
    has_rank = any(c.isdigit() for c in name)
    return name if has_rank or name in ("APIServer", "EngineCore") else f"{name} {found['ip'] or ''}:{found['pid']}"


_TEXT_KEYS = ("message", "msg", "log", "MESSAGE", "textPayload", "line")
_LEVEL_KEYS = ("levelname", "level", "severity", "log.level")


def _from_json(number: int, text: str, process: str, level: str, depth: int) -> list[Line]:
    """A JSON record's message and its traceback, each line of them."""
    import json  # noqa: PLC0415  few logs have records

    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return []
    said = next((record[k] for k in _TEXT_KEYS if isinstance(record.get(k), str)), None)
    if said is None:
        return []
    named = next((record[k] for k in _LEVEL_KEYS if isinstance(record.get(k), str)), "")
    who = record.get("processName")
    process = who if isinstance(who, str) and who != "MainProcess" else process
    trace = record.get("exc_info") or record.get("exc_text") or ""
    parts = [*said.split("\n"), *(trace.split("\n") if isinstance(trace, str) else ())]
    level = named.upper() or level
    return [line for part in parts if part.strip() for line in _split(number, part.rstrip(), process, level, depth)]
