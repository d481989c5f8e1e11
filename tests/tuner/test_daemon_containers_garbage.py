"""The container unit on an engine that is none: not there, silent, dripping, or answering nonsense."""

import contextlib
import socket
import socketserver
import threading
import time

import pytest

from vllm_advisor.errors import EngineError, UsageError
from vllm_tuner.daemon.units import engine_api
from vllm_tuner.daemon.units.container import Container


def test_a_container_engine_that_is_not_there(tmp_path):
    """One line, with what to look at."""
    with pytest.raises(EngineError, match="does not answer"):
        Container("vllm", tmp_path / "none.sock").running()


def test_where_an_engine_listens(tmp_path, monkeypatch):
    """DOCKER_HOST first, then this user's Podman; none says what to set."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/d.sock")
    (tmp_path / "podman").mkdir()
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
        one.bind(f"{tmp_path}/d.sock")
        other.bind(f"{tmp_path}/podman/podman.sock")
        assert tmp_path / "d.sock" == engine_api.engine_socket()
    monkeypatch.setattr(type(tmp_path), "is_socket", lambda _: False)
    with pytest.raises(UsageError, match="no container engine"):
        engine_api.engine_socket()


@contextlib.contextmanager
def says(path, answer):
    """Something that takes every connection, and answers so."""
    ended = threading.Event()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            with contextlib.suppress(OSError):
                answer(self.request, ended)

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True
        block_on_close = False

    with Server(str(path), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield
        ended.set()
        server.shutdown()


GARBAGE = [b"", b"\0\xff" * 50, b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
           b"HTTP/1.1 200 OK\r\n\r\nnot json", b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 9000, b"HTTP/1.1 200 OK\r\n\r\n[]",
           b'HTTP/1.1 200 OK\r\n\r\n{"State": [], "Config": {}}', b'HTTP/1.1 200 OK\r\n\r\n{"State": {}, "Config": 1}',
    b'HTTP/1.1 200 OK\r\n\r\n{"State": {}, "Config": {}, "HostConfig": []}',
           b'HTTP/1.1 200 OK\r\n\r\n{"State": {"Pid": "x"}, "Config": {}}', b"HTTP/1.1 500 X\r\n\r\n[1]",
           b'HTTP/1.1 200 OK\r\n\r\n{"State": {}, "Config": {"Labels": []}}',
           b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]  # fmt: skip


@pytest.mark.parametrize("text", GARBAGE)
def test_garbage_is_one_line(tmp_path, text):
    """Never a container that is not there, and never another error than ours."""
    with says(tmp_path / "g.sock", lambda client, _: (client.recv(9999), client.sendall(text))):
        for order in ("running", "processes", "restore", "command"):
            with pytest.raises(EngineError):
                getattr(Container("vllm", tmp_path / "g.sock"), order)()


@pytest.mark.parametrize("drips", [False, True])
def test_an_engine_that_hangs(tmp_path, monkeypatch, drips):
    """Silence and one byte at a time both end at the limit."""
    monkeypatch.setattr(engine_api, "LOOK_S", 0.3)

    def hang(client, ended):
        while drips and not ended.wait(0.05):
            client.sendall(b"HTTP/1.1 200 OK\r\nX: "[:1])
        ended.wait(30)

    with says(tmp_path / "h.sock", hang):
        begun = time.monotonic()
        with pytest.raises(EngineError, match=r"does not answer: nothing within 0\.3 s"):
            Container("vllm", tmp_path / "h.sock").running()
        assert time.monotonic() - begun < 20
