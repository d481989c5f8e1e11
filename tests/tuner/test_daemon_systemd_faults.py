"""What goes wrong with a systemd unit, under a real manager: deaths, cuts at every step, a full disk."""

import os
import sys

import pytest

from vllm_advisor.errors import EngineError
from vllm_advisor.plan import LaunchCommand
from vllm_tuner.daemon.units import systemd
from vllm_tuner.daemon.units.managed import FOREIGN, State


SLEEP = LaunchCommand(("/bin/sleep", "601"))
OTHER = LaunchCommand(("/bin/sleep", "602"))
DEAF = (
    "import signal, time, pathlib, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "code"), [(("/bin/sh", "-c", "exit 3"), 3), (("/no/such/program",), 203)])
def test_a_command_that_dies_at_once(manager, unit, words, code):
    """Down, with systemd's word for why and the exit code (203 is its EXEC); its own command comes back."""
    made = unit("ExecStart=/bin/sleep 600")
    made.start(LaunchCommand(words), "abc")
    manager.until(lambda: not made.running().up)
    assert State(up=False, profile="abc", why=f"failed (exit-code, exit code {code})") == made.running()
    made.restore()
    manager.until_runs(made, "")


@pytest.mark.slow
def test_a_unit_that_systemd_starts_again(manager, unit):
    """Restart=always: one that waits for its next try is down, and one that was given up can still be restored."""
    made = unit("ExecStart=/bin/sleep 600", "Restart=always", "RestartSec=600")
    made.start(LaunchCommand(("/bin/sh", "-c", "exit 3")), "abc")
    manager.until(lambda: not made.running().up)
    assert State(up=False, profile="abc", why="auto-restart (exit-code, exit code 3)") == made.running()
    made.restore()
    manager.until_runs(made, "")


@pytest.mark.slow
def test_a_unit_that_was_given_up(manager, unit):
    """StartLimitBurst= refuses orders too: ours makes systemd forget how often it died."""
    made = unit("ExecStart=/bin/sleep 600", "Restart=always", "RestartSec=10ms")
    made.start(LaunchCommand(("/bin/false",)), "abc")
    manager.until(lambda: manager.show(made.name, "ActiveState")["ActiveState"] == "failed")
    assert (False, "abc") == made.running()[:2]
    made.restore()
    manager.until_runs(made, "")


@pytest.mark.slow
def test_a_unit_that_systemd_started_again_keeps_its_profile(manager, unit):
    """A candidate that crashed and came back is still the candidate."""
    made = unit("ExecStart=/bin/sleep 600", "Restart=always", "RestartSec=10ms")
    made.start(SLEEP, "abc")
    manager.until_runs(made, "abc")
    before = manager.invocation(made.name)
    manager.call("kill", "--signal=KILL", made.name)
    manager.until(lambda: manager.invocation(made.name) != before)
    manager.until_runs(made, "abc")


@pytest.mark.slow
def test_a_server_that_takes_its_time_to_stop(manager, unit, tmp_path):
    """While the old one ends, the unit is on its way, not down, and what is left of it is no profile's."""
    made = unit(f"ExecStart={sys.executable} -S -c '{DEAF}' {tmp_path / 'deaf'}", "TimeoutStopSec=60")
    manager.until((tmp_path / "deaf").exists)
    made.start(SLEEP, "abc")
    manager.until(lambda: manager.show(made.name, "ActiveState")["ActiveState"] == "deactivating")
    assert State(up=True, profile=FOREIGN) == made.running()
    manager.call("kill", "--signal=KILL", made.name)
    manager.until_runs(made, "abc")


@pytest.mark.slow
def test_a_candidate_that_takes_its_time_to_go(manager, unit, tmp_path):
    """The drop-in is gone already, and the candidate still ends: that is not yet the operator's command."""
    made = unit("ExecStart=/bin/sleep 600", "TimeoutStopSec=60")
    made.start(LaunchCommand((sys.executable, "-S", "-c", DEAF, str(tmp_path / "deaf"))), "abc")
    manager.until((tmp_path / "deaf").exists)
    made.restore()
    manager.until(lambda: manager.show(made.name, "ActiveState")["ActiveState"] == "deactivating")
    assert (State(up=True, profile=FOREIGN), False) == (made.running(), made.drop_in.exists())
    manager.call("kill", "--signal=KILL", made.name)
    manager.until_runs(made, "")


@pytest.mark.slow
def test_killed_between_the_file_and_the_restart(manager, unit):
    """Written but not read by the manager, or read but not started from: what runs is not the candidate."""
    made = unit("ExecStart=/bin/sleep 600", "Restart=always", "RestartSec=10ms")
    made._write(systemd.text(SLEEP, "abc", manager.invocation(made.name), made._own()))
    assert FOREIGN == made.running().profile
    manager.call("daemon-reload")
    assert FOREIGN == made.running().profile
    made.start(OTHER, "def")
    manager.until_runs(made, "def")


@pytest.mark.slow
def test_started_again_from_what_was_loaded_before(manager, unit):
    """The file alone was written, then the unit crashed: systemd started the old command."""
    made = unit("ExecStart=/bin/sleep 600", "Restart=always", "RestartSec=10ms")
    before = manager.invocation(made.name)
    made._write(systemd.text(SLEEP, "abc", before, made._own()))
    manager.call("kill", "--signal=KILL", made.name)
    manager.until(lambda: manager.invocation(made.name) != before)
    assert State(up=True, profile=FOREIGN) == made.running()


@pytest.mark.slow
@pytest.mark.parametrize("last", ["_write", "_reload", "_restart"])
def test_killed_on_the_way_back(manager, unit, monkeypatch, last):
    """Cut off after any step: the candidate that still runs is not taken for the operator's command."""
    made = unit("ExecStart=/bin/sleep 600")
    made.start(SLEEP, "abc")
    manager.until_runs(made, "abc")

    real = getattr(made, last)

    def cut(*words):
        real(*words)
        raise KeyboardInterrupt

    monkeypatch.setattr(made, last, cut)
    with pytest.raises(KeyboardInterrupt):
        made.restore()
    monkeypatch.undo()
    if last != "_restart":
        assert (State(up=True, profile=FOREIGN), SLEEP.argv) == (made.running(), manager.argv(made.name))
    made.restore()
    manager.until_runs(made, "")
    assert (("/bin/sleep", "600"), False) == (manager.argv(made.name), made.drop_in.exists())


@pytest.mark.slow
def test_starts_within_one_second(manager, unit):
    """Each is told from the one before it, however close they are."""
    made = unit("ExecStart=/bin/sleep 600")
    for number in range(3):
        made._write(systemd.text(SLEEP, f"p{number}", manager.invocation(made.name), made._own()))
        manager.call("daemon-reload")
        assert FOREIGN == made.running().profile
        manager.call("restart", made.name)
        assert State(up=True, profile=f"p{number}") == made.running()


@pytest.mark.slow
def test_a_full_disk(manager, unit, monkeypatch):
    """Whole or not at all; and the way back needs no room."""
    made = unit("ExecStart=/bin/sleep 600")
    made.start(SLEEP, "abc")
    manager.until_runs(made, "abc")
    before = made.drop_in.read_text()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EngineError, match="No space left"):
        made.start(OTHER, "def")
    assert (before, 1) == (made.drop_in.read_text(), len(list(made.drop_in.parent.iterdir())))
    made.restore()
    manager.until_runs(made, "")
    assert ("/bin/sleep", "600") == manager.argv(made.name)
