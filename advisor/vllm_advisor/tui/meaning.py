"""What a number of the workload means, in words that need no knowledge of tokens. All of it is rough and says so.

A token of English is about three quarters of a word (OpenAI, "What are tokens and how to count them?"). A page is
500 words, a usual single-spaced one. People read 238 words a minute silently (Brysbaert 2019, a review of 190 studies).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.units import count, significant


if TYPE_CHECKING:
    from vllm_advisor.workload import Workload

_WORDS_A_TOKEN = 0.75
_WORDS_A_PAGE = 500
_READ_WORDS_A_MINUTE = 238
_BOOK = 150  # pages

PRESETS = {
    "chat": "people talk to it",
    "code": "it writes and completes programs",
    "maths": "short questions, long reasoning",
    "agent": "it calls tools, and its prompts begin alike",
    "rag": "it answers from documents that were found",
    "retrieval": "it finds a detail in a very long text",
    "summarize": "long texts in, short ones out",
    "batch": "a pile of requests, and nobody waits",
}
OBJECTIVES = {
    "balanced": "fast, for one and all",
    "throughput": "most tokens in all",
    "latency": "fastest for one user",
    "cost": "most tokens a GPU",
}
SENSITIVITIES = {
    "tolerant": "losses go unnoticed",
    "normal": "a small loss is ok",
    "sensitive": "little may be lost",
    "retrieval": "no detail may go",
}


def tokens(n: float) -> str:
    """`about 60 words`, `about 1.5 pages`, `about 200 pages, a book`."""
    words = n * _WORDS_A_TOKEN
    pages = words / _WORDS_A_PAGE
    if n <= 0:
        return "nothing"
    if words < 1.5:
        return "about a word"
    if pages < 0.5:
        return f"about {_round(words)} words"
    if pages < 1.25:
        return "about a page"
    return f"about {_round(pages)} pages" + (", a book" if pages >= _BOOK else "")


def concurrency(n: int) -> str:
    """How many requests are being answered at the same moment."""
    return "one request at a time" if n == 1 else f"{count(n)} answers written at once"


def context(n: int) -> str:
    """The longest request; 0: nobody asked."""
    return f"the longest: {tokens(n).removeprefix('about ')}" if n else "what model and memory allow"


def rate(per_second: float | None) -> str:
    """Arrivals, where they are given."""
    if not per_second:
        return "no rate is given"
    return f"about {_round(per_second * 3600)} an hour"


def shared(prefix: int, prompt: int) -> str:
    """How much of the prompts is equal."""
    if not prefix:
        return "prompts begin differently"
    return f"{min(100, prefix * 100 // max(1, prompt))} % of a prompt is always the same"


def first_token(ms: float | None) -> str:
    """How long a person may look at nothing."""
    return f"an answer begins within {significant(ms / 1000, 2)} s" if ms else "any wait will do"


def each_token(ms: float | None) -> str:
    """How fast text must appear, beside how fast people read."""
    if not ms:
        return "any speed will do"
    reading = _READ_WORDS_A_MINUTE / 60 / _WORDS_A_TOKEN
    return f"{_round(1000 / ms)} tokens a s, {significant(1000 / ms / reading, 2)} × reading"


def summary(load: Workload) -> str:
    """The whole load in one sentence or two."""
    asks = f"{load.request_rate:g} requests a second" if load.request_rate else concurrency(load.concurrency)
    longest = f" Up to {count(load.context)} tokens must fit." if load.context else ""
    return (
        f"{asks[0].upper()}{asks[1:]}; each sends {tokens(load.input_tokens)} "
        f"and reads {tokens(load.output_tokens)}.{longest} "
        f"Better means: {OBJECTIVES[load.objective]}."
    )


def _round(x: float) -> str:
    return significant(x, 2).removesuffix(".0")
