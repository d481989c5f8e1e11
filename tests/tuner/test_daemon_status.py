"""What the daemon says of itself, over real sockets: read only, to those who may, and in Prometheus' own form."""

import http.client
import json
import os
import socket
import stat
import time

import pytest

from vllm_advisor.errors import BadInput, UsageError
from vllm_tuner.daemon import status
from vllm_tuner.daemon.drift_reason import Evidence, Kind, Part, Reason
from vllm_tuner.daemon.permit import Permit
from vllm_tuner.daemon.policy_state import Mode, State, Unit, Work, WorkState
from vllm_tuner.daemon.snapshot import Snapshot, document, pages, text


REASON = Reason(Kind.SLA, "sla:1", "late", (Part.SERVER,), (Evidence("late", 0.05, 0.1, "of requests"),), 1000.0)
SEEN = Snapshot(
    1_767_571_200.0, 'a"b', Mode.ADVISE, True, State(attempt=3, handled=("sla:1",)), (REASON,),
    (Permit(granted=False, by="window", why="opens at 2"), Permit(granted=True)), Work(WorkState.RUNNING, 3), Unit(),
    True, 7, 15.0, 2, 60.0, 1, 1000.0, ("the store is locked",),
)  # fmt: skip


@pytest.fixture
def board():
    """Pages of one tick."""
    made = status.Board()
    made.publish(pages(SEEN, 60.0))
    yield made
    made.close()


def test_the_socket_is_private_and_answers(board, tmp_path):
    """Mode 600; /status, /metrics and /health; everything else is not there."""
    path = tmp_path / "run/tuner.sock"
    board.on_socket(path)
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert 'a"b' == json.loads(status.ask(path))["node"]
    assert (b"ok\n", None) == (status.ask(path, "/health"), status.ask(path, "/exec"))
    assert status.ask(path, "/metrics").startswith(b"# HELP tuner_up")
    board.close()
    assert (False, None) == (path.exists(), status.ask(path))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_ordered(board, method):
    """There is no other method than GET."""
    port = board.on_loopback(0, lambda: "a" * 16)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request(method, "/status", headers={"Authorization": "Bearer " + "a" * 16})
    assert 501 == connection.getresponse().status
    connection.close()


@pytest.mark.parametrize(
    ("header", "code"), [("Bearer secret-token-1234", 200), ("Bearer wrong", 401), ("", 401), ("Bearer ", 401)]
)
def test_the_port_wants_the_token(board, header, code):
    """On loopback only, and an empty token is none."""
    port = board.on_loopback(0, lambda: "secret-token-1234")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/metrics", headers={"Authorization": header} if header else {})
    assert code == connection.getresponse().status
    connection.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", port), 1)


def test_a_token_that_cannot_be_read_opens_nothing(board):
    """The file of the token is gone: nobody is let in."""

    def gone():
        raise BadInput("gone")

    port = board.on_loopback(0, gone)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/status", headers={"Authorization": "Bearer x"})
    assert 401 == connection.getresponse().status
    connection.close()


def test_a_dead_daemons_socket_is_replaced_and_a_living_ones_is_not(board, tmp_path):
    """A file that is no socket is left alone, too."""
    path = tmp_path / "tuner.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    board.on_socket(path)
    with pytest.raises(UsageError, match="another daemon listens"):
        status.Board().on_socket(path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="is no socket"):
        status.Board().on_socket(tmp_path / "file")
    with pytest.raises(BadInput, match="longer than 100"):
        status.Board().on_socket(tmp_path / ("x" * 120))


def test_clients_that_say_nothing_do_not_shut_others_out(board, tmp_path):
    """More than may be served at once hang on; when they go, the next one is answered."""
    path = tmp_path / "tuner.sock"
    board.on_socket(path)
    silent = [socket.socket(socket.AF_UNIX) for _ in range(20)]
    for one in silent:
        one.connect(str(path))
    for one in silent:
        one.close()
    end = time.monotonic() + 30
    while status.ask(path, "/health") != b"ok\n":
        assert time.monotonic() < end


def test_metrics_are_prometheus_text():
    """Each series has its help and type once, labels are escaped, and every sample is a number."""
    lines = text(SEEN).splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    names = [line.partition("{")[0] for line in samples]
    assert all(f"# TYPE {name} " in text(SEEN) and f"# HELP {name} " in text(SEEN) for name in names)
    assert all(float(line.rpartition(" ")[2]) >= 0 for line in samples)
    assert 'tuner_phase{node="a\\"b",phase="watching"} 1' in lines
    assert 'tuner_reason{node="a\\"b",kind="sla"} 0' in lines
    assert 'tuner_attempts_total{node="a\\"b"} 3' in lines
    assert len(lines) == len(set(lines))


def test_the_document_says_why():
    """Reasons with evidence, what stands against a run, and trouble."""
    found = document(SEEN)
    assert [{"by": "window", "why": "opens at 2"}] == found["against"]
    assert (True, "late", ["the store is locked"]) == (
        found["reasons"][0]["answered"],
        found["reasons"][0]["evidence"][0]["name"],
        found["trouble"],
    )
    assert "2026-01-05T00:00:00Z" == found["at"]
    assert None is document(SEEN._replace(at=1e30))["at"]


def test_health_ends_with_the_ticks():
    """A loop that hangs is no healthy one."""
    assert (True, False) == (pages(SEEN, 60.0).healthy(), pages(SEEN, -1.0).healthy())


def test_where_the_socket_lies(monkeypatch, tmp_path):
    """systemd's folder first, then the user's runtime folder, then the state folder."""
    monkeypatch.setenv("RUNTIME_DIRECTORY", f"/run/a{os.pathsep}/run/b")
    assert "/run/a/tuner.sock" == str(status.default_socket())
    monkeypatch.delenv("RUNTIME_DIRECTORY")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert tmp_path / "vllm-advisor/tuner.sock" == status.default_socket()
