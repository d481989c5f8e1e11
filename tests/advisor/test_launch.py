"""The life of a server, with a stand-in `vllm` that is run for real: ready, dead, stuck, stubborn, interrupted."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_advisor.errors import EngineError, UsageError
from vllm_advisor.launch import Server, complete
from vllm_advisor.launch.session import serve
from vllm_advisor.plan import LaunchCommand
from vllm_advisor.testing import install_vllm


COMMAND = LaunchCommand(
    ("vllm", "serve", "org/model", "--served-model-name", "served", "--port", "1"), (("FAKE", "ready"),)
)
PARENT = """
import sys
from pathlib import Path
from vllm_advisor.launch.session import serve
from vllm_advisor.plan import LaunchCommand

command = LaunchCommand(("vllm", "serve", "org/model"), (("FAKE", sys.argv[1]),))
try:
    sys.exit(serve(command, run_folder=Path(sys.argv[2])))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture(autouse=True)
def fake_vllm(tmp_path, monkeypatch):
    """`vllm` on the PATH is the stand-in."""
    folder = install_vllm(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FIFO", str(tmp_path / "fifo"))
    os.mkfifo(tmp_path / "fifo")


def server(tmp_path, mode="ready", **kwargs):
    command = LaunchCommand(COMMAND.argv, (("FAKE", mode),))
    return Server(command, run_folder=tmp_path / "run", **kwargs)


def running(group):
    """The processes of a group that still run; a zombie has ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(pgrp) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


def interrupted(tmp_path, mode, numbers, monkeypatch):
    """Start a program that serves, send it signals, the second when the first had its effect; (exit code, group)."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    argv = [sys.executable, "-c", PARENT, mode, str(tmp_path / "run")]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as program:
        group = int(program.stderr.readline().partition("process ")[2].partition(";")[0])
        assert program.stderr.readline().startswith("ready after")
        program.send_signal(numbers[0])
        for number in numbers[1:]:
            assert "ignored" == (tmp_path / "fifo").read_text()
            program.send_signal(number)
        return program.wait(timeout=20), group  # less than the grace of 30 s


def test_server_becomes_ready_and_answers(tmp_path):
    """1. start, 2. /health answers 200 at the second try, 3. a completion. Result: its text, and nothing runs on."""
    with server(tmp_path) as started:
        assert 0 < started.wait_until_ready() < 60
        assert "Paris!!!" == complete(started, "Paris", 3)
        assert 2 == len(running(started.pid))
    assert [] == running(started.pid)


def test_child_gets_our_address_instead_of_the_commands(tmp_path):
    """Host and port of the command give way to those that were chosen; the rest of the argv is untouched."""
    with server(tmp_path) as started:
        started.wait_until_ready()
        argv = ["serve", "org/model", "--served-model-name", "served", "--host", "127.0.0.1", "--port"]
        seen = started.log.read_text().splitlines()[0].replace('"', "'")
    assert f"argv {[*argv, str(started.port)]}" == seen


def test_child_runs_in_its_own_folder_with_a_safe_path(tmp_path):
    """No folder of the caller's is on its import path: not even the run folder that it stands in counts."""
    with server(tmp_path) as started:
        started.wait_until_ready()
        assert f"cwd {tmp_path / 'run'} safe 1" in started.log.read_text()


def test_log_is_kept_and_private(tmp_path):
    """After the stop the log is still there, readable by its owner only."""
    with server(tmp_path) as started:
        started.wait_until_ready()
    assert 0o600 == started.log.stat().st_mode & 0o777
    assert started.log.read_text().startswith("argv")


def test_child_that_dies_tells_why(tmp_path):
    """The error is the root cause of the log, not the line that points at it, and holds no token."""
    with pytest.raises(EngineError) as caught, server(tmp_path, "dies") as started:
        started.wait_until_ready()
    assert "vLLM stopped before it was ready (exit code 1): ValueError: no room for hf_***" == caught.value.message
    assert caught.value.hint.endswith("server.log")
    assert [] == running(started.pid)


def test_child_that_is_never_ready_is_given_up(tmp_path):
    """When the allowance ends, the error says how long it was, and the child is stopped."""
    with pytest.raises(EngineError, match=r"not ready after 0\.5 s; its last words: cwd") as caught:  # noqa: SIM117
        with server(tmp_path, "hangs", allowance_s=0.5) as started:
            started.wait_until_ready()
    assert caught.value.hint.endswith("server.log")
    assert [] == running(started.pid)


def test_child_that_ignores_sigterm_is_killed(tmp_path):
    """SIGTERM is asked first; after the grace the whole group is killed."""
    stubborn = server(tmp_path, "stubborn", grace_s=0.3)
    fifo = os.open(tmp_path / "fifo", os.O_RDWR)
    with stubborn as started:
        started.wait_until_ready()
    assert b"ignored" == os.read(fifo, 100)
    os.close(fifo)
    assert -signal.SIGKILL == started.wait()
    assert [] == running(started.pid)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)],
)
def test_signal_stops_all_of_it_and_is_raised_again(tmp_path, monkeypatch, number, code):
    """1. serving, 2. a signal. Result: no process is left; SIGINT is a KeyboardInterrupt again, others kill."""
    ended, group = interrupted(tmp_path, "ready", [number], monkeypatch)
    assert code == ended
    assert [] == running(group)


def test_server_that_dies_while_serving_is_an_engine_error(tmp_path, capsys):
    """1. serving, 2. the server kills itself. Result: an error with the signal, after two lines of narration."""
    with pytest.raises(EngineError, match=r"vLLM died \(SIGKILL\)"):
        serve(LaunchCommand(COMMAND.argv, (("FAKE", "suicidal"),)), run_folder=tmp_path / "run")
    assert ["starting", "ready"] == [line.split()[0] for line in capsys.readouterr().err.splitlines()]


def test_server_that_ends_well_ends_well(tmp_path):
    """A server that stops by itself without an error is no failure."""
    assert 0 == serve(LaunchCommand(COMMAND.argv, (("FAKE", "brief"),)), run_folder=tmp_path / "run")


def test_second_signal_does_not_wait_for_the_grace(tmp_path, monkeypatch):
    """1. a server that ignores SIGTERM, 2. Ctrl-C, 3. Ctrl-C again. Result: killed at once, not after 60 s."""
    code, group = interrupted(tmp_path, "stubborn", [signal.SIGINT, signal.SIGINT], monkeypatch)
    assert 130 == code
    assert [] == running(group)


def test_port_in_use_is_said_before_anything_starts(tmp_path):
    """A port that somebody listens on is a usage error that names it; no child was started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        wanted = server(tmp_path, port=port)
        with pytest.raises(UsageError, match=f"port {port} on 127.0.0.1 cannot be used: Address already in use"):
            wanted.start()
    assert (0, False) == (wanted.pid, wanted.log.exists())


def test_missing_vllm_is_explained(tmp_path, monkeypatch):
    """Without a vllm on the PATH the error names it and the hint the option that finds another."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="vllm cannot be started: No such file or directory") as caught:
        server(tmp_path).start()
    assert "--vllm-python" in caught.value.hint


def test_refused_completion_is_an_engine_error(tmp_path):
    """An answer other than 200 becomes one line with the status."""
    command = LaunchCommand(("vllm", "serve", "org/model"))
    with Server(command, run_folder=tmp_path / "run") as started:
        started.wait_until_ready()
        with pytest.raises(EngineError, match="vLLM refused the completion with 404"):
            complete(started, "x", 1)


def test_completion_of_a_stopped_server_is_an_engine_error(tmp_path):
    """Nobody listens any more: one line, and where the log is."""
    with server(tmp_path) as started:
        started.wait_until_ready()
    with pytest.raises(EngineError, match="no completion came back: ConnectError"):
        complete(started, "x", 1)


def launched(tmp_path, *flags):
    """`advisor launch` of a small model with the stand-in, which ends by itself; the argv that it got, and the exit."""
    argv = [sys.executable, "-m", "vllm_advisor", "launch", "Qwen/Qwen3-8B", "--gpu", "2xL40S", "--offline"]
    where = ["--run-folder", str(tmp_path / "run"), "--port", "8391", *flags]
    env = {**os.environ, "FAKE": "brief", "ADVISOR_DATABASE_URL": f"sqlite:///{tmp_path}/none.db"}
    done = subprocess.run([*argv, *where], capture_output=True, text=True, env=env, check=False)
    log = next((tmp_path / "run").rglob("*.log"), None)
    said = next(line for line in log.read_text().splitlines() if line.startswith("argv")) if log else ""
    return said, done


def test_the_launched_plan_is_the_restricted_one_of_that_number(tmp_path):
    """`advisor launch --plan 2 --kv-cache-dtype fp8` starts what `recommend` numbers 2 under the same limits."""
    asked = ["Qwen/Qwen3-8B", "--gpu", "2xL40S", "--kv-cache-dtype", "fp8", "--tp", "1", "--offline", "--json"]
    done = subprocess.run([sys.executable, "-m", "vllm_advisor", "recommend", *asked], capture_output=True, check=True)
    wanted = json.loads(done.stdout)["plans"][1]["command"]["argv"]

    said, _ = launched(tmp_path, "--kv-cache-dtype", "fp8", "--tp", "1", "--plan", "2")

    assert wanted[1:] == json.loads(said.partition(" ")[2])[: len(wanted) - 1]


def test_a_plan_that_does_not_stand_is_not_launched(tmp_path):
    """A number too high is one line and exit 2; nothing is started."""
    said, done = launched(tmp_path, "--kv-cache-dtype", "fp8", "--tp", "1", "--plan", "50")

    assert ("", 2) == (said, done.returncode)
    assert "there is no plan 50" in done.stderr
