"""Warm-up requests over HTTP: a step's requests together, each with a prompt that no cache has seen.

Nothing is in flight when a call returns or raises: at the end of its time, or at Ctrl-C, requests are cancelled, and
vLLM aborts a request whose client is gone.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx

from vllm_tuner.calibrate.warm_up import FIRST_ID, LAST_ID, PATHS
from vllm_tuner.trial import BudgetSpent


if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from vllm_tuner.calibrate.warm_up import Ask

_CONNECT_S = 30.0
_SAID = 300


class Door(NamedTuple):
    """Where requests go: the server's root without a slash at its end, the name that it serves, and its key."""

    url: str
    model: str
    key: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """With the key, if there is one."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


class Sent(NamedTuple):
    """One request's outcome: seconds to its first token and to its end, `error` "" for a good one."""

    ttft_s: float = 0.0
    seconds: float = 0.0
    error: str = ""


def body(ask: Ask, model: str, chance: Random) -> tuple[str, dict[str, Any]]:
    """The path below the root, and the JSON. Prompts are random token ids: their length is exact, no cache has them."""
    ids = [chance.randint(FIRST_ID, LAST_ID) for _ in range(ask.input_tokens)]
    common = {"model": model, "max_tokens": ask.output_tokens, "ignore_eos": True, "stream": True}
    if ask.path == "chat":
        words = " ".join(str(number) for number in ids[: ask.input_tokens // 4])
        return "/v1/chat/completions", common | PATHS["chat"] | {"messages": [{"role": "user", "content": words}]}
    return "/v1/completions", common | {"prompt": ids, "n": ask.answers} | PATHS[ask.path]


def send(door: Door, asks: Sequence[Ask], chance: Random, end: float) -> tuple[Sent, ...]:
    """All of them at once, in their order. `end`: on time.monotonic's clock. Raises BudgetSpent when it comes first."""
    bodies = [body(ask, door.model, chance) for ask in asks]
    outcome: Future[tuple[Sent, ...]] = Future()
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    def thread() -> None:
        try:
            outcome.set_result(asyncio.run(_all(door, bodies, end, running)))
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            outcome.set_exception(error)

    worker = threading.Thread(target=thread, name="warm-up", daemon=True)
    worker.start()
    try:
        return outcome.result()
    finally:
        _stop(outcome, running)
        worker.join()


def _stop(outcome: Future[Any], running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]]) -> None:
    """A signal came while the thread was waited for: cancel what it does."""
    if not outcome.done():
        loop, task = running.result()
        with suppress(RuntimeError):  # the loop has just closed
            loop.call_soon_threadsafe(task.cancel)


async def _all(
    door: Door, bodies: Sequence[tuple[str, dict[str, Any]]], end: float,
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]],
) -> tuple[Sent, ...]:  # fmt: skip
    task = asyncio.current_task()
    if task is not None:
        running.set_result((asyncio.get_running_loop(), task))
    limits = httpx.Limits(max_connections=None)
    timeout = httpx.Timeout(None, connect=_CONNECT_S)
    # trust_env=False: a proxy set for the hub must not be asked for somebody's own server.
    async with httpx.AsyncClient(
        base_url=door.url, limits=limits, timeout=timeout, trust_env=False, headers=door.headers
    ) as client:
        try:
            async with asyncio.timeout(max(0.0, end - time.monotonic())), asyncio.TaskGroup() as group:
                tasks = [group.create_task(_one(client, path, content)) for path, content in bodies]
        except TimeoutError:
            raise BudgetSpent from None
        return tuple(task.result() for task in tasks)


async def _one(client: httpx.AsyncClient, path: str, content: dict[str, Any]) -> Sent:
    begun = time.perf_counter()
    try:
        async with client.stream("POST", path, json=content) as response:
            if response.status_code != HTTPStatus.OK:
                said = (await response.aread()).decode("utf-8", "replace")[:_SAID]
                return Sent(error=f"status {response.status_code}: {said}")
            return await _read(response, begun)
    except httpx.HTTPError as error:
        return Sent(error=f"{type(error).__name__}: {error}"[:_SAID])


async def _read(response: httpx.Response, begun: float) -> Sent:
    first = 0.0
    async for line in response.aiter_lines():
        if not line.startswith("data:") or line.endswith("[DONE]"):
            continue
        if error := _error(line):
            return Sent(error=error)
        first = first or time.perf_counter() - begun
    return Sent(first, time.perf_counter() - begun) if first else Sent(error="the stream ended without a token")


def _error(line: str) -> str:
    """An event that is an error, "" for a token: only such an event is worth parsing."""
    if '"error"' not in line:
        return ""
    with suppress(ValueError, AttributeError):
        return str(json.loads(line.removeprefix("data:")).get("error") or "")[:_SAID]
    return ""
