"""What the daemon says of itself: GET /status, /metrics and /health on a Unix socket, and on loopback behind a token.

The loop publishes finished texts; a request reads the last ones and touches nothing else. There is no other method and
no other path, so nothing can be ordered here: that is what `tuner adopt` and `tuner rollback` do, through the store.
"""

from __future__ import annotations

import hmac
import os
import socket
import socketserver
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.errors import BadInput, UsageError


if TYPE_CHECKING:
    from collections.abc import Callable

_TIMEOUT_S = 5.0
_AT_ONCE = 16
_LONGEST_PATH = 100  # of a Unix socket: the kernel takes 107 bytes


class Pages(NamedTuple):
    """What is answered: a JSON document, Prometheus' text, and whether the last tick is recent."""

    status: bytes = b"{}\n"
    metrics: bytes = b""
    healthy: Callable[[], bool] = bool


_TYPES = {
    "/status": "application/json",
    "/metrics": "text/plain; version=0.0.4; charset=utf-8",
    "/health": "text/plain; charset=utf-8",
}


class Board:
    """The last pages, and the servers that show them."""

    def __init__(self) -> None:
        self.pages = Pages()
        self._servers: list[socketserver.BaseServer] = []
        self._paths: list[Path] = []

    def publish(self, pages: Pages) -> None:
        """Replace what is shown."""
        self.pages = pages

    def on_socket(self, path: Path) -> None:
        """Listen on a Unix socket that only this user may open. Raises BadInput or UsageError."""
        if len(os.fsencode(path)) > _LONGEST_PATH:
            raise BadInput(f"the socket's path is longer than {_LONGEST_PATH} bytes: {path}", "set [status] socket")
        _clear(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            before = os.umask(0o177)
            try:
                server = _Unix(str(path), _handler(self, None))
            finally:
                os.umask(before)
        except OSError as error:
            raise UsageError(f"{path} cannot be listened on: {error.strerror}", "set [status] socket") from None
        self._paths.append(path)
        self._serve(server)

    def on_loopback(self, port: int, token: Callable[[], str]) -> int:
        """Listen on 127.0.0.1 for whoever brings the token; the port. Raises UsageError."""
        try:
            server = _Tcp(("127.0.0.1", port), _handler(self, token))
        except OSError as error:
            raise UsageError(f"port {port} cannot be listened on: {error.strerror}", "set [status] tcp_port") from None
        self._serve(server)
        return int(server.server_address[1])

    def _serve(self, server: socketserver.BaseServer) -> None:
        self._servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.5,), name="status", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
        for path in self._paths:
            path.unlink(missing_ok=True)
        self._servers, self._paths = [], []


class _Bounded(socketserver.ThreadingMixIn):
    """At most so many requests at once: further ones are closed unanswered."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *arguments: Any) -> None:
        self._places = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)  # type: ignore[attr-defined]
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event."""


class _Unix(_Bounded, socketserver.UnixStreamServer):
    pass


class _Tcp(_Bounded, socketserver.TCPServer):
    allow_reuse_address = True


def _handler(board: Board, token: Callable[[], str] | None) -> type[BaseHTTPRequestHandler]:
    """Requests of one server; `token` None: whoever can open the socket may read."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _TIMEOUT_S
        server_version, sys_version = "tuner", ""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if token is not None and not _allowed(self.headers.get("Authorization", ""), token):
                self._answer(401, b"a token is asked for\n", "text/plain")
            elif path not in _TYPES:
                self._answer(404, b"/status, /metrics or /health\n", "text/plain")
            else:
                self._page(path, board.pages)

        def _page(self, path: str, pages: Pages) -> None:
            if path == "/health":
                self._answer(200 if pages.healthy() else 503, b"ok\n" if pages.healthy() else b"late\n", _TYPES[path])
            else:
                self._answer(200, pages.status if path == "/status" else pages.metrics, _TYPES[path])

        def _answer(self, code: int, body: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Reading is no event."""

        def address_string(self) -> str:
            return "local"

    return Handler


def _allowed(header: str, token: Callable[[], str]) -> bool:
    try:
        wanted = token()
    except BadInput:
        return False
    given = header.removeprefix("Bearer ").strip()
    return bool(wanted) and hmac.compare_digest(given.encode(), wanted.encode())


def _clear(path: Path) -> None:
    """A socket file that nobody listens on any more is removed. Raises UsageError for one that is in use."""
    if not path.is_socket():
        if path.exists():
            raise UsageError(f"{path} is no socket", "set [status] socket to another path")
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        with suppress(OSError):
            probe.connect(str(path))
            raise UsageError(f"another daemon listens on {path}", "tuner status, or set [status] socket")
    path.unlink(missing_ok=True)


def default_socket() -> Path:
    """In the runtime folder that systemd made, else in the user's, else beside the state."""
    folder = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if folder:
        return Path(folder) / "tuner.sock"
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "vllm-advisor/tuner.sock"
    import platformdirs

    return platformdirs.user_state_path("vllm-advisor") / "tuner.sock"


def ask(path: Path, page: str = "/status", timeout_s: float = 5.0) -> bytes | None:
    """One page of a daemon that listens there, None where nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as to:
        to.settimeout(timeout_s)
        try:
            to.connect(str(path))
            to.sendall(f"GET {page} HTTP/1.0\r\n\r\n".encode())
            text = b""
            while chunk := to.recv(65_536):
                text += chunk
        except OSError:
            return None
    head, _, body = text.partition(b"\r\n\r\n")
    return body if b" 200 " in head.partition(b"\r\n")[0] + b" " else None
