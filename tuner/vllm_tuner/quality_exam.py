"""What the accuracy gate asks of a server: pieces of a text to score, and small tasks to solve, by level.

All of it is fixed by the level, the context and the reference's own tokenizer, so that both servers get the same.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.errors import EngineError, UsageError
from vllm_tuner.calibrate.prompts import bundled
from vllm_tuner.quality_servers import ANSWER_TOKENS, completions, take
from vllm_tuner.quality_tasks import arithmetic, needles, reading_code
from vllm_tuner.trial import BudgetSpent


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vllm_tuner.load import Target
    from vllm_tuner.quality_servers import Answers, Post
    from vllm_tuner.quality_tasks import Task

_TIMEOUT_S = 600.0
_OPENING = 24  # tokens of the text that a continuation of the model's own begins with


class Level(NamedTuple):
    """One row.

    `prompts` pieces of the bundled text and `own` continuations by the reference itself, of `tokens` each. Needles at
    every one of `shares` of the context (at most `longest` tokens) and every depth, `repeats` times. Sums and programs.
    """

    name: str
    prompts: int
    own: int
    tokens: int
    shares: tuple[float, ...]
    longest: int
    depths: tuple[float, ...]
    repeats: int
    arithmetic: int
    code: int

    @property
    def requests(self) -> int:
        """Requests that a server answers."""
        return (
            self.prompts + self.own + len(self.shares) * len(self.depths) * self.repeats + self.arithmetic + self.code
        )


# Choices of ours. The bundled text has some 3,300 tokens: a level that wants more lets the reference go on with it.
LEVELS = {
    row.name: row
    for row in (
        #     name     prompts own tokens shares       longest  depths                 repeats arithmetic code
        Level("quick", 24,      0,  96,   (0.8,),        2_048, (0.0, 0.5, 1.0),           2,      12,   12),
        Level("full",  24,     72, 128,   (0.25, 0.9), 131_072, (0.0, 0.25, 0.5, 0.75, 1.0), 3,    40,   40),
    )
}  # fmt: skip


def level(name: str) -> Level:
    """The row of a name. Raises UsageError."""
    if name not in LEVELS:
        raise UsageError(f"no level of quality {name!r}", f"one of {', '.join(LEVELS)}")
    return LEVELS[name]


class Exam(NamedTuple):
    """Prompts as token ids, and tasks as text."""

    prompts: tuple[tuple[int, ...], ...]
    tasks: tuple[Task, ...]


def timed(post: Post, end: float) -> Post:
    """The same, but nothing is asked after `end` (time.monotonic's clock): BudgetSpent is raised."""

    def ask(body: dict[str, Any]) -> Any:
        if time.monotonic() >= end:
            raise BudgetSpent
        try:
            return post(body)
        except EngineError:
            if time.monotonic() >= end:
                raise BudgetSpent from None
            raise

    return ask


def answers(target: Target, exam: Exam, end: float) -> Answers:
    """What a server says to all of it. Raises EngineError, BudgetSpent."""
    return take(_post(target, end), target.model, exam.prompts, exam.tasks)


def _post(target: Target, end: float) -> Post:
    return timed(completions(target.url, min(_TIMEOUT_S, max(1.0, end - time.monotonic()))), end)


def exam(target: Target, asked: Level, context: int, end: float) -> Exam:
    """The questions for a context of so many tokens, by the server's tokenizer. Raises EngineError, BudgetSpent."""
    encode = _encoder(target)
    longest = max(8, min(asked.tokens, context - ANSWER_TOKENS))
    pieces = _pieces(encode("\n".join(bundled().values())), asked.prompts, longest)
    own = _own(_post(target, end), target.model, encode, pieces, (asked.own, longest))
    return Exam((*pieces, *own), tuple(_tasks(asked, encode, context)))


def _encoder(target: Target) -> Callable[[str], list[int]]:
    """Text → token ids, by the server (POST /tokenize)."""
    import httpx

    def encode(text: str) -> list[int]:
        body = {"model": target.model, "prompt": text}
        try:
            answer = httpx.post(f"{target.url}/tokenize", json=body, timeout=60.0, trust_env=False).raise_for_status()
            return [int(token) for token in answer.json()["tokens"]]
        except (httpx.HTTPError, LookupError, ValueError, TypeError) as error:
            raise EngineError(f"the server's /tokenize can't be used: {error!r}") from error

    return encode


def _pieces(tokens: Sequence[int], count: int, length: int) -> tuple[tuple[int, ...], ...]:
    """At most `count` pieces that do not overlap, spread over the text."""
    count = min(count, len(tokens) // length)
    step = len(tokens) // count if count else 1
    return tuple(tuple(tokens[i * step : i * step + length]) for i in range(count))


def _own(
    post: Post, model: str, encode: Callable[[str], list[int]], pieces: Sequence[tuple[int, ...]], size: tuple[int, int]
) -> Iterator[tuple[int, ...]]:
    """What the reference itself writes after the openings of the pieces, drawn with a seed: text as it will serve."""
    count, length = size
    for number in range(count if pieces else 0):
        opening = list(pieces[number % len(pieces)][:_OPENING])
        body = {"model": model, "prompt": opening, "max_tokens": length, "temperature": 1.0, "seed": number}
        try:
            ids = encode(str(post(body)["choices"][0]["text"]))[:length]
        except (LookupError, TypeError) as error:
            raise EngineError(f"the server's completion can't be read: {error!r}") from error
        if len(ids) > 1:  # one token predicts nothing
            yield tuple(ids)


def _tasks(asked: Level, encode: Callable[[str], list[int]], context: int) -> Iterator[Task]:
    filler = bundled()["prose"]
    perhaps = len(filler) / max(1, len(encode(filler)))  # characters a token: counted once, not for every sentence

    def count(text: str) -> int:
        return round(len(text) / perhaps)

    room = context - 4 * ANSWER_TOKENS
    lengths = tuple(dict.fromkeys(min(asked.longest, int(share * room)) for share in asked.shares))
    yield from needles(filler, count, [n for n in lengths if n > 0], asked.depths, repeats=asked.repeats)
    yield from arithmetic(asked.arithmetic)
    yield from reading_code(asked.code)
