"""Our own load: requests sent to an OpenAI-compatible server as they would come, each token's time taken.

Closed loop: `concurrency` are in flight, the next one starts when one ends. Open loop: each starts at its own time,
whatever the server does, so that a queue can grow (no coordinated omission); how late this client itself was is kept.
Times are seconds; what is counted follows `vllm bench serve` (benchmarks/lib/endpoint_request_func.py:207-320, 0.33.0):
every streamed chunk that carries a choice is one arrival, latency ends with the last of them, usage tells the tokens.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import Future, wait
from contextlib import suppress
from http import HTTPStatus
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx

from vllm_tuner.trial import BudgetSpent


if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence

_CONNECT_S = 30.0
# Below the 5 s after which the server closes an idle connection (VLLM_HTTP_TIMEOUT_KEEP_ALIVE): never send into that.
_KEEP_ALIVE_S = 2.0
_ERROR_CHARACTERS = 300


class Request(NamedTuple):
    """One request: token numbers or text, the answer's length, and (open loop) its seconds after the beginning."""

    prompt: tuple[int, ...] | str
    input_tokens: int
    output_tokens: int
    at: float = 0.0


class Answer(NamedTuple):
    """What came back. `start` on the client's clock; `itls` between chunks; `error` is "" for a good one.

    `late`: seconds (open loop) that it was sent after its own time, because the client had no time for it.
    """

    start: float
    ttft: float = 0.0
    itls: tuple[float, ...] = ()
    latency: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    text: str = ""
    error: str = ""
    late: float = 0.0

    @property
    def good(self) -> bool:
        """Whether a token came and no error."""
        return not self.error

    @property
    def tpot(self) -> float:
        """Seconds a token after the first; 0 for an answer of one."""
        return (self.latency - self.ttft) / (self.output_tokens - 1) if self.output_tokens > 1 else 0.0


class Target(NamedTuple):
    """Where the requests go: the server's root and the name that it serves."""

    url: str
    model: str


class Played(NamedTuple):
    """All answers, in the order of the requests, and the seconds from the first start to the last end."""

    answers: tuple[Answer, ...]
    seconds: float


def play(
    target: Target, requests: Sequence[Request], *, concurrency: int | None = None, end: float | None = None
) -> Played:
    """Send them all and wait for all. `concurrency` None: open loop. `end`: on time.monotonic's clock.

    Raises BudgetSpent when `end` comes first; nothing is in flight afterwards, then or at a signal.
    """
    return _in_thread(lambda: _play(target, requests, concurrency, end))


async def _play(target: Target, requests: Sequence[Request], concurrency: int | None, end: float | None) -> Played:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=_KEEP_ALIVE_S)
    timeout = httpx.Timeout(None, connect=_CONNECT_S)
    # trust_env=False: a proxy set for the hub must not be asked for this machine's own server.
    async with httpx.AsyncClient(base_url=target.url, limits=limits, timeout=timeout, trust_env=False) as client:
        begun = time.perf_counter()
        sending = _closed(client, target, requests, concurrency) if concurrency else _open(client, target, requests)
        try:
            answers = await asyncio.wait_for(sending, None if end is None else max(0.0, end - time.monotonic()))
        except TimeoutError:
            raise BudgetSpent from None
        return Played(tuple(answers), time.perf_counter() - begun)


async def _closed(
    client: httpx.AsyncClient, target: Target, requests: Sequence[Request], concurrency: int
) -> list[Answer]:
    """As many workers as may be in flight, each takes the next request."""
    answers: list[Answer | None] = [None] * len(requests)
    waiting = iter(enumerate(requests))

    async def work() -> None:
        for place, request in waiting:
            answers[place] = await _send(client, target, request)

    await _together([work() for _ in range(min(concurrency, len(requests)))])
    return [answer for answer in answers if answer is not None]


async def _open(client: httpx.AsyncClient, target: Target, requests: Sequence[Request]) -> list[Answer]:
    begun = time.perf_counter()

    async def later(request: Request) -> Answer:
        await asyncio.sleep(max(0.0, request.at - (time.perf_counter() - begun)))
        answer = await _send(client, target, request)
        return answer._replace(late=max(0.0, answer.start - begun - request.at))

    return await _together([later(request) for request in requests])


async def _together(coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """All results in order; one failure, or a cancellation, ends the others."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(coroutine) for coroutine in coroutines]
    return [task.result() for task in tasks]


async def _send(client: httpx.AsyncClient, target: Target, request: Request) -> Answer:
    body = {
        "model": target.model,
        "prompt": list(request.prompt) if isinstance(request.prompt, tuple) else request.prompt,
        "max_tokens": request.output_tokens,
        "ignore_eos": True,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    begun = time.perf_counter()
    try:
        async with client.stream("POST", "/v1/completions", json=body) as response:
            if response.status_code != HTTPStatus.OK:
                said = (await response.aread()).decode("utf-8", "replace")[:_ERROR_CHARACTERS]
                return Answer(begun, error=f"status {response.status_code}: {said}")
            return await _read(response, begun, request)
    except (httpx.HTTPError, ValueError) as error:
        return Answer(begun, error=f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS])


async def _read(response: httpx.Response, begun: float, request: Request) -> Answer:
    arrived: list[float] = []
    words: list[str] = []
    usage: dict[str, int] = {}
    async for line in _lines(response):
        for data in _event(line):
            if choices := data.get("choices"):
                arrived.append(time.perf_counter() - begun)
                words.append(choices[0].get("text") or "")
            elif data.get("error"):
                return Answer(begun, error=str(data["error"])[:_ERROR_CHARACTERS])
            usage = data.get("usage") or usage
    if not arrived:
        return Answer(begun, error="the stream ended without a token")
    itls = tuple(b - a for a, b in pairwise(arrived))
    taken, given = usage.get("prompt_tokens", request.input_tokens), usage.get("completion_tokens", len(arrived))
    return Answer(begun, arrived[0], itls, arrived[-1], taken, given, "".join(words))


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """The lines of a stream. Only a line feed ends one: a token may hold U+2028, at which str.splitlines splits."""
    rest = b""
    async for chunk in response.aiter_bytes():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


def _event(line: str) -> Iterator[dict[str, Any]]:
    """The JSON of one server-sent event; comments, blank lines and the end mark carry none. Raises ValueError."""
    payload = line.removeprefix("data:").strip()
    if line.startswith("data:") and payload != "[DONE]":
        yield json.loads(payload)


def token_count(target: Target, text: str) -> int:
    """Tokens of a text, counted by the server itself (POST /tokenize). Raises httpx.HTTPError, ValueError, KeyError."""
    body = {"model": target.model, "prompt": text}
    answer = httpx.post(f"{target.url}/tokenize", json=body, timeout=60.0, trust_env=False).raise_for_status()
    return int(answer.json()["count"])


def _in_thread(main: Callable[[], Coroutine[Any, Any, Played]]) -> Played:
    """Run a coroutine on a thread of its own: a signal's exception in this one then cancels it in order.

    Inside the loop such an exception could land in any callback, and asyncio only logs it there. What is waited for is
    a Future: Thread.join, interrupted, takes a running thread for a stopped one in 3.11 (bpo-45274).
    """
    outcome: Future[Played] = Future()
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = Future()

    async def watched() -> Played:
        started.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await main()

    def body() -> None:
        try:
            outcome.set_result(asyncio.run(watched()))
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            outcome.set_exception(error)

    thread = threading.Thread(target=body, name="load", daemon=True)
    thread.start()
    try:
        return outcome.result()
    finally:
        _end(outcome, started)
        thread.join()


def _end(outcome: Future[Played], started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]]) -> None:
    """Cancel what still runs, and wait for it."""
    if outcome.done():
        return
    loop, task = started.result()
    if task is not None:
        with suppress(RuntimeError):  # the loop has just closed
            loop.call_soon_threadsafe(task.cancel)
    wait([outcome])
