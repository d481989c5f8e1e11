"""The three calls that are made of a running server. httpx is imported by the call: planning must not pay for it."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from vllm_advisor.errors import EngineError
from vllm_advisor.launch.log import scrub


if TYPE_CHECKING:
    from pathlib import Path

_HEALTH_TIMEOUT_S = 5.0


class Answering(Protocol):
    """A server, whoever started it: its address, the name that its API knows the model by, and its log."""

    @property
    def url(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def log(self) -> Path: ...


def is_healthy(url: str) -> bool:
    """Whether GET /health answers 200: vLLM answers it only when the engine is up."""
    import httpx  # noqa: PLC0415

    try:
        # trust_env=False: a proxy set for the hub must not be asked for this machine's own server.
        return httpx.get(f"{url}/health", timeout=_HEALTH_TIMEOUT_S, trust_env=False).status_code == HTTPStatus.OK
    except httpx.HTTPError:
        return False


def complete(server: Answering, prompt: str, max_tokens: int, timeout_s: float = 120.0) -> str:
    """The greedy continuation of `prompt`, from /v1/completions. Raises EngineError when none comes back."""
    import httpx  # noqa: PLC0415

    body = {"model": server.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
    try:
        answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=timeout_s, trust_env=False)
        answer.raise_for_status()
        return str(answer.json()["choices"][0]["text"])
    except httpx.HTTPStatusError as error:
        said = scrub(error.response.text[:300])
        raise EngineError(f"vLLM refused the completion with {error.response.status_code}: {said}") from error
    except (httpx.HTTPError, ValueError, KeyError, IndexError) as error:
        raise EngineError(f"no completion came back: {error!r}", f"read {scrub(str(server.log))}") from error
