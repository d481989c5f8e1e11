"""A running vLLM, asked and never touched: GET /health, /version, /v1/models and /metrics, nothing else.

Answers are bounded in size and time, redirects are not followed, and a key goes to this server alone and is never
printed. httpx is imported by the call.
"""

from __future__ import annotations

import json
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from vllm_advisor.errors import EngineError, UsageError
from vllm_advisor.hardware import Unknown
from vllm_advisor.vllm.metrics import Metrics, parse, printable


if TYPE_CHECKING:
    import httpx

_TIMEOUT_S, _DEADLINE_S = 5.0, 20.0
# An engine of 0.32 writes some 50 kB of /metrics: room for more than a hundred of them.
_MOST_BYTES, _MOST_JSON_BYTES = 8 << 20, 1 << 20
_MOST_MODELS = 100
_LONGEST_NAME = 500


class Served(NamedTuple):
    """One row of /v1/models. `root` is what was loaded (a repository or a folder), `id` the name in requests."""

    id: str
    root: str
    max_model_len: int | Unknown


class Live(NamedTuple):
    """What a server says of itself: two readings of its counters, `seconds` apart.

    `base` models come first in `models`, adapters after them. `notes` say what it kept to itself.
    """

    url: str
    healthy: bool | Unknown
    version: str | Unknown
    models: tuple[Served, ...]
    first: Metrics
    second: Metrics
    seconds: float
    notes: tuple[str, ...] = ()


class _Answer(NamedTuple):
    status: int
    text: str
    cut: bool


def read(url: str, *, interval_s: float = 5.0, api_key: str | None = None) -> Live:
    """Ask a server. `interval_s`: between the two readings of the counters.

    Raises UsageError for what is no http address, EngineError where nothing of vLLM answers.
    """
    import httpx  # noqa: PLC0415

    base = address(url)
    if api_key and not (api_key.isascii() and api_key.isprintable()):  # the library's own message would show it
        raise UsageError("the key is not one that a header can carry", "look at the variable that holds it")
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    # trust_env=False: a proxy set for the hub must not be asked for somebody's own server.
    with httpx.Client(base_url=base, timeout=_TIMEOUT_S, trust_env=False, headers=headers) as client:
        healthy = _get(client, "health").status == HTTPStatus.OK
        version, models, notes = _version(client), *_models(client)
        first, begun = _metrics(client), time.monotonic()
        time.sleep(interval_s)
        second, seconds = _metrics(client), time.monotonic() - begun
    return Live(shown(base), healthy, version, models, first, second, seconds, notes)


def reading(url: str) -> Metrics:
    """One reading of a server's counters. Raises as `read`."""
    import httpx  # noqa: PLC0415

    with httpx.Client(base_url=address(url), timeout=_TIMEOUT_S, trust_env=False) as client:
        return _metrics(client)


def address(url: str) -> str:
    """The server's root: `http://host:8000` of that, of `…/v1`, of `host:8000`. Raises UsageError for no address."""
    text = url.strip() if "://" in url else f"http://{url.strip()}"
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or any(c.isspace() or not c.isprintable() for c in text):
        raise UsageError(f"{_quoted(url)} is not the address of a server", "write it as http://127.0.0.1:8000")
    path = parts.path.rstrip("/").removesuffix("/v1").removesuffix("/metrics")
    return f"{parts.scheme}://{parts.netloc}{path}/"


def shown(base: str) -> str:
    """The address without user and password."""
    parts = urlsplit(base)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


def _quoted(url: str) -> str:
    """An address that cannot be read may hold a password before its @."""
    return repr(url.rpartition("@")[2][:100])


def _get(client: httpx.Client, path: str, most: int = _MOST_JSON_BYTES) -> _Answer:
    """Status and text, of at most that many bytes. Raises EngineError where the server does not answer in time."""
    import httpx  # noqa: PLC0415

    started, held, cut = time.monotonic(), bytearray(), False
    try:
        with client.stream("GET", path) as answer:
            for chunk in answer.iter_bytes():
                held += chunk
                cut = len(held) > most or time.monotonic() - started > _DEADLINE_S
                if cut:
                    break
            status = answer.status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise EngineError(
            f"{shown(str(client.base_url))} does not answer: {_reason(error)}",
            "is it running, and is this its address and port? `curl -s URL/health` tells",
        ) from None
    return _Answer(status, bytes(held[:most]).decode("utf-8", "replace"), cut)


def _reason(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__


def _version(client: httpx.Client) -> str | Unknown:
    said = _json(_get(client, "version"))
    version = said.get("version") if isinstance(said, dict) else None
    return printable(version[:60]) if isinstance(version, str) and version else Unknown("the server has no /version")


def _models(client: httpx.Client) -> tuple[tuple[Served, ...], tuple[str, ...]]:
    answer = _get(client, "v1/models")
    if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return (), ("/v1/models wants a key: name the variable that holds it with --api-key-env",)
    said = _json(answer)
    rows = said.get("data") if isinstance(said, dict) else None
    found = [_served(row) for row in (rows if isinstance(rows, list) else [])[:_MOST_MODELS] if isinstance(row, dict)]
    return tuple(served for served in found if served), ()


def _served(row: dict[str, Any]) -> Served | None:
    name, root, length = row.get("id"), row.get("root"), row.get("max_model_len")
    if not isinstance(name, str) or row.get("parent"):  # an adapter names its base model as its parent
        return None
    loaded = root if isinstance(root, str) and root else name
    known = type(length) is int and length > 0
    return Served(
        printable(name[:_LONGEST_NAME]),
        printable(loaded[:_LONGEST_NAME]),
        int(length) if known and length is not None else Unknown("/v1/models says no max_model_len"),
    )


def _json(answer: _Answer) -> object:
    if answer.status != HTTPStatus.OK or answer.cut:
        return None
    try:
        found: object = json.loads(answer.text)
    except (ValueError, RecursionError):
        return None
    return found


def _metrics(client: httpx.Client) -> Metrics:
    answer = _get(client, "metrics", _MOST_BYTES)
    found = parse(answer.text.rpartition("\n")[0] if answer.cut else answer.text)
    if answer.status != HTTPStatus.OK or not found:
        said = f"status {answer.status}" if answer.status != HTTPStatus.OK else "without one of vLLM's series"
        raise EngineError(
            f"{shown(str(client.base_url))} answers /metrics {said}",
            "give the address of vLLM's own API server; --disable-log-stats turns its counters off",
        )
    return found._replace(cut=found.cut or answer.cut)
