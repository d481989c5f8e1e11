"""The daemon's reading of /metrics and /health: bounded in size and time, one connection, and garbage is an answer.

What cannot be had is Unknown with its reason; nothing here raises for a server's sake. Redirects are not followed, no
proxy is asked, and a key goes to this server alone.
"""

from __future__ import annotations

import json
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx

from vllm_advisor.errors import UsageError
from vllm_advisor.hardware import Unknown
from vllm_advisor.vllm.live import address, shown
from vllm_advisor.vllm.metrics import Metrics, parse


if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_BYTES = 8 << 20


class Reading(NamedTuple):
    """One look at a server: whether /health answers, and its counters."""

    healthy: bool
    counters: Metrics | Unknown


class Client:
    """One server. `deadline_s` bounds each request as a whole, however slowly it drips."""

    def __init__(self, url: str, api_key: Callable[[], str] = str, deadline_s: float = 3.0) -> None:
        self.base = address(url)
        self._key, self._deadline_s = api_key, deadline_s
        self._client = httpx.Client(
            timeout=deadline_s, trust_env=False, verify=self.base.startswith("https:"), follow_redirects=False
        )

    def read(self) -> Reading:
        """Ask once."""
        status, _ = self._get("health")
        if isinstance(status, Unknown):
            return Reading(healthy=False, counters=status)
        return Reading(status == HTTPStatus.OK, self._counters())

    def _counters(self) -> Metrics | Unknown:
        status, text = self._get("metrics")
        if isinstance(status, Unknown):
            return status
        if status != HTTPStatus.OK:
            return Unknown(f"/metrics answers {status}")
        found = parse(text)
        return found or Unknown("/metrics has none of vLLM's series")

    def model(self) -> str:
        """What the server loaded, as /v1/models says (`root` of the first that is no adapter), "" where it does not."""
        status, text = self._get("v1/models")
        try:
            rows = json.loads(text)["data"] if status == HTTPStatus.OK else []
            base: dict[str, Any] = next((row for row in rows if not row.get("parent")), {})
            return str(base.get("root") or base.get("id") or "")[:500]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return ""

    def _get(self, path: str) -> tuple[int | Unknown, str]:
        end, held = time.monotonic() + self._deadline_s, bytearray()
        try:
            with self._client.stream("GET", self.base + path, headers=self._headers()) as answer:
                for chunk in answer.iter_bytes():
                    held += chunk
                    if len(held) > _MOST_BYTES:
                        return Unknown(f"/{path} is larger than {_MOST_BYTES >> 20} MiB"), ""
                    if time.monotonic() > end:
                        return Unknown(f"/{path} took longer than {self._deadline_s:g} s"), ""
                return answer.status_code, held.decode("utf-8", "replace")
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, UsageError) as error:
            return Unknown(f"{shown(self.base)} does not answer: {str(error)[:200] or type(error).__name__}"), ""

    def _headers(self) -> dict[str, str]:
        key = self._key()
        if key and not (key.isascii() and key.isprintable()):
            raise UsageError("the server's key is not one that a header can carry")
        return {"Authorization": f"Bearer {key}"} if key else {}

    def close(self) -> None:
        """Give the connection back."""
        self._client.close()
