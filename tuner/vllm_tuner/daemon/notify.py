"""News to a webhook: one JSON document each, signed, sent by a thread of its own, and tried again while it fails.

The signature is HMAC-SHA256 over `TIMESTAMP.BODY` with the shared key, in `X-Advisor-Signature: sha256=HEX` beside
`X-Advisor-Timestamp`; a receiver refuses old timestamps and ids that it has seen. A document says what happened where,
and holds no key, address of the server, prompt or path into a home. Plain http is refused, except to this machine.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import threading
import time
import uuid
from collections import deque
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from vllm_advisor.errors import AdvisorError, BadInput
from vllm_advisor.launch.log import scrub


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_tuner.daemon.logs import Log

SCHEMA = 1
_WAITING = 100  # news that are kept while the receiver is away; the oldest go first
_TRIES = 12
_TIMEOUT_S = 10.0
_LONGEST_WAIT_S = 600.0
_LEAST_KEY = 16
_GONE = (400, 401, 403, 404, 405, 410, 413, 422)  # said again, these would be answered the same


class Letter(NamedTuple):
    """One piece of news, ready to be sent."""

    id: str
    body: bytes
    tries: int = 0


class Webhook:
    """Where news go. `key` is asked at each sending, so that a new one needs no restart. `wait_s`: the first wait."""

    def __init__(self, url: str, key: Callable[[], str], node: str, log: Log, *, wait_s: float = 2.0) -> None:
        self.url = checked(url)
        self._key, self._node, self._log = key, node, log
        self._wait_s = wait_s
        self._letters: deque[Letter] = deque(maxlen=_WAITING)
        self._turn = threading.Condition()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def send(self, kind: str, text: str) -> None:
        """Put one piece of news in the queue; returns at once."""
        with self._turn:
            if len(self._letters) == _WAITING:
                self._log("warning", "webhook", "too many news wait: the oldest is dropped")
            self._letters.append(letter(kind, text, self._node))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="webhook", daemon=True)
                self._thread.start()
            self._turn.notify()

    def stop(self, within_s: float = 1.0) -> None:
        """Send what can be sent in so long, and no more."""
        with self._turn:
            self._stopped = True
            self._turn.notify()
        if self._thread is not None:
            self._thread.join(within_s)

    def _work(self) -> None:
        while (one := self._next()) is not None:
            failed = self._post(one)
            if not failed:
                continue
            again = one._replace(tries=one.tries + 1)
            with self._turn:
                if again.tries >= _TRIES or self._stopped:
                    self._log("error", "webhook", f"given up: {failed}", id=one.id, tries=again.tries)
                    continue
                self._letters.appendleft(again)
                self._log.once("warning", "webhook", failed)
                self._turn.wait(min(_LONGEST_WAIT_S, self._wait_s * 2**one.tries))

    def _next(self) -> Letter | None:
        with self._turn:
            while not self._letters and not self._stopped:
                self._turn.wait()
            return self._letters.popleft() if self._letters else None

    def _post(self, one: Letter) -> str:
        """Why it may go better later; "" for sent, and for refused for good."""
        import httpx

        try:
            headers = {"Content-Type": "application/json"} | signed(one.body, self._key(), time.time())
            answer = httpx.post(
                self.url, content=one.body, headers=headers, timeout=_TIMEOUT_S, follow_redirects=False, trust_env=False
            )
        except (httpx.HTTPError, httpx.InvalidURL, AdvisorError) as error:
            return f"the receiver does not answer: {scrub(str(error))[:200] or type(error).__name__}"
        if answer.is_success:
            self._log.once("warning", "webhook", "")
            return ""
        if answer.status_code in _GONE:
            self._log("error", "webhook", f"the receiver refuses with {answer.status_code}", id=one.id)
            return ""
        return f"the receiver answers {answer.status_code}"


def letter(kind: str, text: str, node: str) -> Letter:
    """The document of one piece of news."""
    number = uuid.uuid4().hex
    document = {"schema": SCHEMA, "id": number, "at": round(time.time(), 3), "node": node, "kind": kind}
    return Letter(number, json.dumps({**document, "text": scrub(text)[:2000]}, ensure_ascii=False).encode())


def signed(body: bytes, key: str, at: float) -> dict[str, str]:
    """The headers of a signature. Raises BadInput for a key that is shorter than 16 bytes."""
    if len(key.encode()) < _LEAST_KEY:
        raise BadInput(f"the webhook's key is shorter than {_LEAST_KEY} bytes", "head -c 32 /dev/urandom | base64")
    stamp = f"{at:.0f}"
    made = hmac.new(key.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {"X-Advisor-Timestamp": stamp, "X-Advisor-Signature": f"sha256={made}"}


def checked(url: str) -> str:
    """The address. Raises BadInput for one that is not https, this machine's own excepted, or that holds a password."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname or "")):
        raise BadInput("[webhook] url must begin with https://", "news are signed, not encrypted, by us")
    if parts.username or parts.password:
        raise BadInput("[webhook] url holds a password", "name its key with secret_env or secret_file")
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
