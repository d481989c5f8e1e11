"""News over real HTTP: signed, tried again, never more than once delivered by us, and without a secret inside."""

import hashlib
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from vllm_advisor.errors import BadInput
from vllm_tuner.daemon.logs import Log
from vllm_tuner.daemon.notify import Webhook, checked, letter, signed


KEY = "k" * 32


class Receiver:
    """A receiver that answers with the given codes, then 204; `got` are (headers, body)."""

    def __init__(self, *codes):
        self.codes, self.got, self.news = list(codes), [], threading.Semaphore(0)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((dict(self.headers), body))
                self.send_response(receiver.codes.pop(0) if receiver.codes else 204)
                self.send_header("Content-Length", "0")
                self.end_headers()
                receiver.news.release()

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self):
        """Where it listens."""
        return f"http://127.0.0.1:{self.server.server_address[1]}/hook"

    def wait(self, number):
        """Until so many came."""
        for _ in range(number):
            assert self.news.acquire(timeout=20)

    def close(self):
        """Nobody listens any more."""
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver(request):
    """One with the codes of the test."""
    made = Receiver(*getattr(request, "param", ()))
    yield made
    made.close()


def test_a_document_is_signed(receiver):
    """The signature is HMAC-SHA256 of timestamp, a dot and the body; a receiver can check it with the key alone."""
    hook = Webhook(receiver.url, lambda: KEY, "box", Log([].append))
    hook.send("drift", "prompts are twice as long")
    receiver.wait(1)
    hook.stop()
    headers, body = receiver.got[0]
    stamp = headers["X-Advisor-Timestamp"]
    made = hmac.new(KEY.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    assert f"sha256={made}" == headers["X-Advisor-Signature"]
    found = json.loads(body)
    assert ("drift", "box", "prompts are twice as long", 1) == (
        found["kind"], found["node"], found["text"], found["schema"],
    )  # fmt: skip


@pytest.mark.parametrize("receiver", [(500, 503, 429)], indirect=True)
def test_it_is_tried_again_in_order(receiver):
    """The same document with the same id until it is taken; the next one waits behind it."""
    lines = []
    hook = Webhook(receiver.url, lambda: KEY, "box", Log(lines.append), wait_s=0.001)
    hook.send("drift", "one")
    hook.send("adopted", "two")
    receiver.wait(5)
    hook.stop()
    bodies = [json.loads(body) for _, body in receiver.got]
    assert ["one"] * 4 + ["two"] == [body["text"] for body in bodies]
    assert 2 == len({body["id"] for body in bodies})
    assert "answers 500" in lines[0]


@pytest.mark.parametrize("receiver", [(403,)], indirect=True)
def test_a_refusal_is_not_repeated(receiver):
    """403 will not become better: it is logged, and the next one is sent."""
    lines = []
    hook = Webhook(receiver.url, lambda: KEY, "box", Log(lines.append), wait_s=0.001)
    hook.send("drift", "one")
    hook.send("drift", "two")
    receiver.wait(2)
    hook.stop()
    assert (["one", "two"], True) == (
        [json.loads(body)["text"] for _, body in receiver.got],
        "refuses with 403" in lines[0],
    )


def test_nobody_listens():
    """The daemon is not held up, and the stop does not wait for the receiver."""
    gone = Receiver()
    gone.close()
    lines = []
    hook = Webhook(gone.url, lambda: KEY, "box", Log(lines.append), wait_s=600)
    hook.send("drift", "one")
    hook.stop(5.0)
    assert 1 == len([line for line in lines if "webhook" in line])


def test_a_bounded_queue():
    """The oldest news go first."""
    hook = Webhook("https://news.example/hook", lambda: KEY, "box", Log([].append))
    hook._thread = threading.current_thread()  # nothing is sent
    for number in range(150):
        hook.send("drift", str(number))
    assert (100, "50") == (len(hook._letters), json.loads(hook._letters[0].body)["text"])


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://news.example/hook", "must begin with https"),
        ("ftp://127.0.0.1/", "must begin with https"),
        ("http://localhost.evil.example/", "must begin with https"),
        ("https://user:word@news.example/", "holds a password"),
    ],
)
def test_addresses_that_are_refused(url, says):
    """Plain http leaves this machine never, and a password stands in no address."""
    with pytest.raises(BadInput, match=says):
        checked(url)


def test_this_machine_may_be_plain():
    """For tests and for a relay beside the daemon."""
    assert ["http://127.0.0.1:9/a", "http://[::1]:9/", "https://news.example/"] == [
        checked(url) for url in ("http://127.0.0.1:9/a", "http://[::1]:9/", "https://news.example/")
    ]


def test_no_secret_leaves(monkeypatch):
    """Tokens in a text and values of secret variables are masked; a short key signs nothing."""
    monkeypatch.setenv("MY_TOKEN", "very-secret-value")
    body = letter("drift", "failed with hf_abcdefghijklmnop and very-secret-value", "box").body
    assert b"very-secret" not in body
    assert b"hf_abcdef" not in body
    with pytest.raises(BadInput, match="shorter than 16"):
        signed(b"x", "short", 0.0)
