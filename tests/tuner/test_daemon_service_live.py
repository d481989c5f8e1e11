"""The service as a real unit, as `tuner install-service` writes it: ready, reloaded, stopped, and started again."""

import time
from pathlib import Path

import pytest

from vllm_tuner.daemon import orphans, service
from vllm_tuner.daemon.testing import Exporter
from vllm_tuner.daemon.testing_service import UNIT, Installed
from vllm_tuner.daemon.units import exec_line


@pytest.fixture
def exporter():
    """A server's counters."""
    made = Exporter()
    yield made
    made.close()


@pytest.fixture
def installed(manager, exporter, tmp_path):
    """The service in mode observe; not started yet."""
    made = Installed(manager, tmp_path, exporter.url)
    made.configure('mode = "observe"\n')
    made.install()
    made.adapt()
    yield made
    made.end()


@pytest.fixture
def hardened(manager, exporter, tmp_path):
    """The same for the system's manager."""
    made = Installed(manager, tmp_path, exporter.url, of_system=True)
    made.configure('mode = "observe"\n')
    made.install()
    made.adapt()
    yield made
    made.end()


@pytest.mark.slow
def test_it_is_active_when_it_is_ready(manager, installed, tmp_path):
    """Before READY=1 it is activating; then its socket answers, and systemctl shows what it does."""
    gate = tmp_path / "gate"
    words = ("/bin/sh", "-c", 'until [ -e "$0" ]; do sleep 0.02; done; exec "$@"', str(gate))
    line = exec_line.ExecLine(()).written((*words, *service.command(installed.config)))
    installed.adapt("ExecStart=", f"ExecStart={line}")
    manager.call("start", "--no-block", UNIT)
    manager.until(lambda: installed.seen()["MainPID"] != "0")
    assert "activating" == installed.seen()["ActiveState"]
    gate.touch()
    manager.until(lambda: installed.seen()["ActiveState"] != "activating")
    assert ("active", True) == (installed.seen()["ActiveState"], (tmp_path / "run/tuner.sock").exists())
    manager.until(lambda: installed.seen()["StatusText"] == "watching")


@pytest.mark.slow
def test_reload_takes_a_changed_configuration(manager, installed):
    """`systemctl reload` is over when it counts; a broken one changes nothing, and the unit stays active."""
    manager.call("start", UNIT)
    main = installed.seen()["MainPID"]
    installed.configure('mode = "advise"\n')
    manager.call("reload", UNIT)
    manager.until(lambda: installed.status().get("mode") == "advise")
    installed.configure("mod = 1\n")
    manager.call("reload", UNIT)
    manager.until(lambda: "old configuration stays" in installed.said())
    manager.until(lambda: installed.seen()["StatusText"] == "watching")
    seen = installed.seen()
    assert ("active", main, "advise") == (seen["ActiveState"], seen["MainPID"], installed.status()["mode"])


@pytest.mark.slow
def test_stop(manager, installed):
    """Within ten seconds, as a success, and nothing of it is left."""
    manager.call("start", UNIT)
    manager.until(lambda: installed.status().get("ticks", 0) > 1)
    begun = time.monotonic()
    manager.call("stop", UNIT)
    assert time.monotonic() - begun < 10
    assert ("inactive", "success") == tuple(installed.seen()[name] for name in ("ActiveState", "Result"))
    assert ((), {}) == (orphans.inside(installed.folder), installed.status())


@pytest.mark.slow
def test_the_watchdog_starts_one_that_hangs(manager, installed, tmp_path):
    """Stopped in the middle of its work, it misses WatchdogSec=; the next one has the node."""
    installed.adapt("WatchdogSec=2", "RestartSec=50ms")
    manager.call("start", UNIT)
    manager.until(lambda: installed.status().get("leased"))
    main = installed.seen()["MainPID"]
    manager.call("kill", "--signal=STOP", "--kill-who=main", UNIT)
    manager.until(lambda: installed.seen()["NRestarts"] == "1" and installed.seen()["ActiveState"] == "active")
    assert ["watchdog"] == (tmp_path / "results").read_text().split()
    manager.until(lambda: installed.status().get("leased"))
    assert installed.seen()["MainPID"] not in ("0", main)


@pytest.mark.slow
def test_one_that_was_killed_is_started_again(manager, installed):
    """Restart=on-failure: kill -9, and the next one takes the node over."""
    installed.adapt("RestartSec=50ms")
    manager.call("start", UNIT)
    manager.until(lambda: installed.status().get("leased"))
    manager.call("kill", "--signal=KILL", "--kill-who=main", UNIT)
    manager.until(lambda: installed.seen()["NRestarts"] == "1" and installed.seen()["ActiveState"] == "active")
    manager.until(lambda: installed.status().get("leased"))


@pytest.mark.slow
def test_a_broken_configuration_at_the_start(manager, installed):
    """It fails, says why in one line, and is not tried for ever."""
    installed.adapt("RestartSec=10ms", "StartLimitBurst=2")
    installed.configure("mod = 1\n")
    assert manager.call("start", UNIT, check=False).returncode
    manager.until(lambda: installed.seen()["ActiveState"] == "failed")
    assert "no key" in installed.said()


@pytest.mark.slow
def test_it_works_within_its_confinement(manager, hardened):
    """The unit of the system: no capability, no new privileges, filters, a file system that it can only read."""
    manager.call("start", UNIT)
    manager.until(lambda: hardened.status().get("leased"))
    place = Path(f"/proc/{hardened.seen()['MainPID']}")
    told = dict(line.split(":\t", 1) for line in (place / "status").read_text().splitlines())
    assert ("0" * 16, "0" * 16, "1", "2") == tuple(told[name] for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp"))
    (root,) = (line.split() for line in (place / "mountinfo").read_text().splitlines() if line.split()[4] == "/")
    assert "ro" in root[5].split(",")
    manager.call("stop", UNIT)
    assert "success" == hardened.seen()["Result"]
