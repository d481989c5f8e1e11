"""A start-up log read once, in constant memory: what vLLM found, and the lines that may say why it failed.

A log holds few lines that matter among many alike. Lines that differ only in digits are judged once; what is left goes
through one expression on bytes before any text is made of it. 50 MB of an ordinary log take a fraction of a second.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from vllm_advisor.vllm import logs_facts
from vllm_advisor.vllm.logs_lines import Cutter, batches, messages


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from vllm_advisor.vllm.logs_facts import Facts, Form
    from vllm_advisor.vllm.logs_lines import Line

# Digits go and what is no letter becomes a space: lines of one template become equal, and their words can be looked up.
_DIGITS = b"0123456789"
_LETTERS = bytes(b if (chr(b).isalpha() and b < 128) or b in (10, 95) else 32 for b in range(256))
_ASKED = re.compile(rb"Received request [\w-]+: [^\n]+")  # what a client sent says nothing of the server
_ANSI = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")
_PREFIX, _HEAD = 160, 400  # an INFO line says at its beginning what it is; a logged prompt follows
_MOST_TEMPLATES, _LONGEST_TEMPLATE = 1 << 17, 1 << 9
_MOST_ALIKE = 1 << 10  # lines that differ only in digits: as many as there may be ranks
_MOST_EVIDENCE, _MOST_TOLD, _MOST_BYTES = 2000, 20_000, 8 << 20
_MOST_ERRORS, _TAIL = 256, 8

# What only a vLLM log, or the traceback of one, has.
_OURS = re.compile(
    rb"\((?:APIServer|EngineCore\w*|Worker\w*|VllmWorker\w*|RayWorker\w*)(?: rank=\d+)? pid=\d+"
    rb"|(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d (?:\[[\w./]+:\d+\]|[\w.]+:\d+\])"
    rb"|[/\\]vllm[/\\][\w/\\.]+\.py\"?, line \d|\bvllm(?: serve)?: error: |api_server\.py: error: "
    rb"|vLLM (?:API )?server version"
    rb"|vllm/logger\.py"
)


class Start(NamedTuple):
    """One start of a server: its figures, the lines that matched a mark, and the last lines that name an error."""

    facts: Facts
    evidence: tuple[Line, ...]
    errors: tuple[Line, ...]
    line: int


class Log(NamedTuple):
    """A whole log. `starts`: the last ones, at most two, oldest first, never none.

    `begun` counts the starts; `last` is the last line that is not empty. `is_vllm`: something in it can only be vLLM's.
    """

    starts: tuple[Start, ...]
    begun: int
    lines: int
    size: int
    is_vllm: bool
    last: str


def read(stream: BinaryIO, marks: Sequence[str] = (), progress: Callable[[int], None] | None = None) -> Log:
    """Read a log to its end; takes any bytes, and raises BadInput only for a compressed file.

    `marks`: literals to keep lines for, whole words without digits. `progress` is told the bytes read so far.
    """
    reader, counted = _Reader(marks), _Counted(stream)
    for lines in batches(counted):
        reader.take(lines)
        if progress:
            progress(counted.size)
    return reader.log(counted.size)


class Growing:
    """A log that is still written: fed what is new, and asked at any time. A last line without its newline waits."""

    def __init__(self, marks: Sequence[str] = ()) -> None:
        self._reader, self._cutter = _Reader(marks), Cutter()
        self.size = 0

    def feed(self, block: bytes) -> None:
        """The next bytes."""
        self.size += len(block)
        if lines := self._cutter.lines(block):
            self._reader.take(lines)

    def log(self) -> Log:
        """What was read so far."""
        return self._reader.log(self.size)


class _Counted:
    """A stream that knows how much was read of it: lines that are cut count too."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self.size = stream, 0

    def read(self, size: int) -> bytes:
        """The next bytes, at most `size`."""
        block = self._stream.read(size)
        self.size += len(block)
        return block


class _Kept(NamedTuple):
    """A raw line that holds a literal: the forms it may have, and whether a mark of the caller's is in it."""

    number: int
    raw: bytes
    forms: tuple[Form, ...]
    marked: bool


class _Reader:
    """The state between blocks: templates known to say nothing, and what is kept of the start that is being read.

    Lines are kept raw and understood at the end, since of a container that restarted a thousand times two starts count.
    """

    def __init__(self, marks: Sequence[str]) -> None:
        self._by_word = _by_word(logs_facts.FORMS, marks)
        self._words = frozenset(self._by_word)
        self._marks = tuple(marks)
        self._dull: set[bytes] = set()
        self._alike: Counter[bytes] = Counter()
        self._spent: set[bytes] = set()
        self._kept = _Keep(1)
        self._before: _Keep | None = None
        self.begun, self.lines, self.is_vllm = 0, 0, False
        self._last = b""

    def take(self, lines: list[bytes]) -> None:
        """One block of lines."""
        dull, spent = self._dull, self._spent
        for at, (line, key) in enumerate(zip(lines, _templates(lines), strict=True), self.lines + 1):
            if key not in dull and key not in spent:
                self._judge(at, line, key)
        self.lines += len(lines)
        self._last = next((line for line in reversed(lines) if line.strip()), self._last)

    def _judge(self, number: int, raw: bytes, key: bytes) -> None:
        words = (key if b"INFO" not in raw[:_PREFIX] else key[:_HEAD]).split()
        if not self.is_vllm and not _SIGNS.isdisjoint(words) and _OURS.search(raw):
            self.is_vllm = True
        hits = self._words.intersection(words)
        held = [(forms, marked) for word in hits for mark, forms, marked in self._by_word[word] if mark in raw]
        error = b"rror" in key
        if error:
            self._kept.errors.append((number, raw))
        if held:
            self._keep(number, raw, key, held)
        elif not error and len(key) <= _LONGEST_TEMPLATE and len(self._dull) < _MOST_TEMPLATES:
            self._dull.add(key)

    def _keep(self, number: int, raw: bytes, key: bytes, held: list[tuple[tuple[Form, ...], bool]]) -> None:
        self._alike[key] += 1
        if self._alike[key] >= _MOST_ALIKE:
            self._spent.add(key)
        line = _Kept(number, raw, tuple(f for forms, _ in held for f in forms), any(marked for _, marked in held))
        self._maybe_begin(line)
        self._kept.add(line)

    def _maybe_begin(self, line: _Kept) -> None:
        """A banner after anything else of a start is the next start: a container that is restarted appends."""
        if not _BANNER.search(line.raw) or not any(form.mark in logs_facts.BANNERS for form in line.forms):
            return
        if self.begun and not self._kept.went_on:
            return
        if self.begun:
            self._before, self._kept = self._kept, _Keep(line.number)
            self._alike.clear()
            self._spent.clear()
        self.begun += 1

    def log(self, size: int) -> Log:
        """What was read."""
        kept = (self._before, self._kept) if self._before else (self._kept,)
        starts = tuple(keep.start(self._marks) for keep in kept)
        told = messages(self.lines, self._last)
        known = self.is_vllm or any(s.facts.version or s.facts.went_on for s in starts)
        return Log(starts, max(1, self.begun), self.lines, size, known, told[-1].text if told else "")


class _Keep:
    """The raw lines of one start, within bounds: forms first come, marks the first and the last, errors the last."""

    def __init__(self, line: int) -> None:
        self.line, self.went_on, self._bytes = line, False, 0
        self._told: list[_Kept] = []
        self._first: list[_Kept] = []
        self._latest: deque[_Kept] = deque(maxlen=_MOST_EVIDENCE)
        self.errors: deque[tuple[int, bytes]] = deque(maxlen=_MOST_ERRORS)

    def add(self, line: _Kept) -> None:
        """One line more, where there is room."""
        if line.marked:
            (self._first if len(self._first) < _MOST_EVIDENCE else self._latest).append(line)
        if line.forms and len(self._told) < _MOST_TOLD and self._bytes < _MOST_BYTES:
            self._told.append(line)
            self._bytes += len(line.raw)
        self.went_on = self.went_on or line.marked or any(form.mark in logs_facts.LATER for form in line.forms)

    def start(self, marks: tuple[str, ...]) -> Start:
        """The lines understood."""
        facts = logs_facts.Facts()
        for kept in self._told:
            for line in messages(kept.number, kept.raw):
                logs_facts.read(facts, line, kept.forms)
        marked = (line for kept in (*self._first, *self._latest) for line in messages(kept.number, kept.raw))
        evidence = tuple(line for line in marked if any(mark in line.text for mark in marks))
        told = [line for number, raw in self.errors for line in messages(number, raw) if _is_error(line)]
        return Start(facts, evidence, tuple(told[-_TAIL:]), self.line)


_BANNER = re.compile(rb"(?:\s{2}|server )version \d")
_SIGNS = frozenset(
    b"APIServer EngineCore EngineCore_DP Worker Worker_TP VllmWorker VllmWorkerProcess RayWorkerWrapper "
    b"INFO WARNING ERROR vllm vLLM api_server".split()
)


def keyword(mark: str) -> bytes:
    """The longest word of a literal: what a line must hold for the literal to be in it."""
    words = mark.encode().translate(_LETTERS, _DIGITS).split()
    return max(words, key=len)


def _by_word(
    forms: Iterable[Form], marks: Iterable[str]
) -> dict[bytes, tuple[tuple[bytes, tuple[Form, ...], bool], ...]]:
    """The literals by their longest word, each with its forms and whether it is a mark."""
    by_mark: dict[str, tuple[Form, ...]] = {}
    for form in forms:
        by_mark[form.mark] = (*by_mark.get(form.mark, ()), form)
    wanted = dict.fromkeys(marks)
    found: dict[bytes, tuple[tuple[bytes, tuple[Form, ...], bool], ...]] = {}
    for mark in (*by_mark, *(mark for mark in wanted if mark not in by_mark)):
        word = keyword(mark)
        found[word] = (*found.get(word, ()), (mark.encode(), by_mark.get(mark, ()), mark in wanted))
    return found


def _templates(lines: list[bytes]) -> list[bytes]:
    """Each line without its digits, its punctuation and a client's prompt. A JSON record's escaped newline is no n."""
    block = b"\n".join(lines)
    if b"Received request " in block:
        block = _ASKED.sub(b"Received request", block)
    if b"\x1b" in block:
        block = _ANSI.sub(b"", block)
    if b"\\n" in block:
        block = block.replace(b"\\n", b"  ")
    return block.translate(_LETTERS, _DIGITS).split(b"\n")


_ERROR = re.compile(
    r"^\s*(?:[A-Za-z_][\w.]*)?(?:Error|Exception|Exit|Interrupt)\b(?::| \()|^[\w.\- /]+: error: |^FATAL"
)


def _is_error(line: Line) -> bool:
    """A line that names an error: the last of a traceback, or argparse's; not a frame, not a warning about one."""
    return line.level in ("", "ERROR", "CRITICAL") and bool(_ERROR.search(line.text))
