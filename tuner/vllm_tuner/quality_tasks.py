"""Small tasks with one right answer: a needle in a haystack by depth and length, arithmetic, and reading code.

A quantized cache can leave every log-probability almost as it was and still lose one sentence in a hundred thousand
tokens; so long retrieval is asked for directly. Nothing that a model writes is executed: answers are compared.
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
_CITIES = ("Lisbon", "Oslo", "Quito", "Hanoi", "Nairobi", "Perth", "Riga", "Lima", "Turin", "Kyoto")
_NUMBER = re.compile(r"-?\d+")


class Task(NamedTuple):
    """A prompt, the answer that counts as right, and where it stands: (length in tokens, depth) for a needle."""

    name: str
    prompt: str
    answer: str
    length: int = 0
    depth: float = 0.0


class Kept(NamedTuple):
    """Whether each of the two models solved one task."""

    task: Task
    reference: bool
    candidate: bool


class Cell(NamedTuple):
    """Needles of one length and depth: how many were asked, found by the reference, and by the candidate."""

    length: int
    depth: float
    asked: int
    reference: int
    candidate: int


def needles(
    filler: str, count: Callable[[str], int], lengths: Sequence[int], depths: Sequence[float] = DEPTHS, *,
    repeats: int = 2, seed: int = 0,
) -> tuple[Task, ...]:  # fmt: skip
    """Prompts of about `lengths` tokens (as `count` counts them), a needle at each depth, 0 the start.

    `filler` is repeated, sentence by sentence. Raises ValueError for an empty one.
    """
    sentences = [s.strip() for s in re.split(r"(?<=[.!?])\s+", filler) if s.strip()]
    if not sentences:
        raise ValueError("no filler")
    chance = random.Random(seed)  # noqa: S311  repeatable
    return tuple(
        _needle(sentences, count, length, depth, chance)
        for length in lengths
        for depth in depths
        for _ in range(repeats)
    )


def _needle(
    sentences: Sequence[str], count: Callable[[str], int], length: int, depth: float, chance: random.Random
) -> Task:
    city, code = chance.choice(_CITIES), str(chance.randrange(10_000, 100_000))
    needle = f"The secret code of the office in {city} is {code}."
    asked = f"the secret code of the office in {city} is"
    question = f"\n\nQuestion: what is the secret code of the office in {city}?\nAnswer: {asked}"
    hay = _hay(sentences, count, length - count(needle + question), chance.randrange(len(sentences)))
    place = round(depth * len(hay))
    text = " ".join((*hay[:place], needle, *hay[place:]))
    return Task("needle", text + question, code, length, depth)


def _hay(sentences: Sequence[str], count: Callable[[str], int], length: int, start: int) -> list[str]:
    """Sentences of the filler from `start` on, over and over, until the length is reached."""
    sizes = [max(count(f" {sentence}"), 1) for sentence in sentences]
    hay: list[str] = []
    place = start
    while (length := length - sizes[place % len(sentences)]) >= 0:
        hay.append(sentences[place % len(sentences)])
        place += 1
    return hay


def found(task: Task, answer: str) -> bool:
    """Whether the first number of what the model wrote is the right one."""
    number = _NUMBER.search(answer.replace(",", ""))
    return number is not None and number.group() == task.answer


def arithmetic(count: int, seed: int = 0) -> tuple[Task, ...]:
    """Sums, differences and products of small numbers, after three solved ones."""
    chance = random.Random(seed)  # noqa: S311  repeatable
    return tuple(_sum(chance) for _ in range(count))


def _sum(chance: random.Random) -> Task:
    lines = [_exercise(chance) for _ in range(4)]
    solved = "".join(f"{question} {answer}\n" for question, answer in lines[:3])
    return Task("arithmetic", f"{solved}{lines[3][0]}", str(lines[3][1]))


def _exercise(chance: random.Random) -> tuple[str, int]:
    a, b = chance.randrange(2, 60), chance.randrange(2, 60)
    sign = chance.choice("+-*")
    if sign == "*":
        a, b = a % 12 + 2, b % 12 + 2
    return f"{a} {sign} {b} =", {"+": a + b, "-": a - b, "*": a * b}[sign]


def reading_code(count: int, seed: int = 0) -> tuple[Task, ...]:
    """What does this program print? Loops and lists whose result is computed here, by hand."""
    chance = random.Random(seed)  # noqa: S311  repeatable
    kinds = (_loop, _index, _length)
    return tuple(kinds[n % len(kinds)](chance) for n in range(count))


def _loop(chance: random.Random) -> Task:
    step, times = chance.randrange(2, 9), chance.randrange(3, 7)
    return _program(f"total = 0\nfor _ in range({times}):\n    total += {step}\nprint(total)", step * times)


def _index(chance: random.Random) -> Task:
    values, place = [chance.randrange(10, 99) for _ in range(5)], chance.randrange(5)
    return _program(f"values = {values}\nprint(values[{place}])", values[place])


def _length(chance: random.Random) -> Task:
    word = chance.choice(_CITIES) * chance.randrange(1, 4)
    return _program(f'word = "{word}"\nprint(len(word))', len(word))


def _program(code: str, result: int) -> Task:
    example = "values = [4, 8, 15]\nprint(values[1])\n# Output: 8\n\n"
    return Task("code", f"{example}{code}\n# Output:", str(result))


def kept(tasks: Sequence[Task], reference: Sequence[str], candidate: Sequence[str]) -> tuple[Kept, ...]:
    """Both models' answers to the same tasks. Raises ValueError when some are missing."""
    rows = zip(tasks, reference, candidate, strict=True)
    return tuple(Kept(task, found(task, first), found(task, second)) for task, first, second in rows)


def by_depth(results: Iterable[Kept]) -> tuple[Cell, ...]:
    """Needles by length, then depth."""
    cells: dict[tuple[int, float], list[Kept]] = {}
    for result in results:
        cells.setdefault((result.task.length, result.task.depth), []).append(result)
    return tuple(
        Cell(length, depth, len(rows), sum(r.reference for r in rows), sum(r.candidate for r in rows))
        for (length, depth), rows in sorted(cells.items())
    )


def lost(results: Iterable[Kept]) -> str:
    """`lost at 1,638 tokens, depth 0.5: 1 of 2`, each place where the reference found more; "" for none."""
    needles_only = [result for result in results if result.task.length]
    places = [cell for cell in by_depth(needles_only) if cell.candidate < cell.reference]
    return "; ".join(
        f"lost at {c.length:,} tokens, depth {c.depth:g}: {c.reference - c.candidate} of {c.reference}" for c in places
    )
