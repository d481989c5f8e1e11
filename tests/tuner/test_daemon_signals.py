"""A daemon in a process of its own: signals, the watchdog, a full disk, and what is left when it is gone."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vllm_advisor.store.profile_store import ProfileStore
from vllm_tuner.daemon.tenure import lease_name
from vllm_tuner.daemon.testing import FAST, LATE, Exporter, Process


@pytest.fixture
def exporter():
    """A server whose requests are all late."""
    made = Exporter()
    made.serve(5, 100)
    yield made
    made.close()


@pytest.fixture
def service(tmp_path, exporter):
    """A daemon that is not started yet."""
    made = Process(tmp_path, exporter.url, FAKE_TUNER="hang")
    yield made
    made.close()


def run_begins(service, exporter):
    """Late requests, then none: a search runs, with a server of its own."""
    service.until(lambda seen: seen["ticks"] > 1)
    for _ in range(200):
        exporter.serve(60, 100)
        if service.status().get("work", {}).get("state") == "running" and len(service.left()) == 2:
            return
        time.sleep(0.05)
    raise AssertionError(f"{service.status()} {service.log.read_text()}")


def lease(service):
    """Who has the node."""
    with ProfileStore.open(service.folder / "advisor.db") as store:
        return store.holder(lease_name("box"))


def test_sigterm_stops_all_of_it(service, exporter):
    """A search that is deaf, its server, the lease: all gone within ten seconds, and the signal is told honestly."""
    service.env["FAKE_TUNER"] = "ignore"
    service.start()
    run_begins(service, exporter)
    begun = time.monotonic()
    service.signal(signal.SIGTERM)
    assert -signal.SIGTERM == service.wait()
    assert time.monotonic() - begun < 10
    assert ((), None, False) == (service.left(), lease(service), service.socket.exists())


def test_sighup_reads_the_configuration_again(service, exporter):
    """A broken one is one line and changes nothing; a good one counts from the next tick."""
    service.start()
    service.until(lambda seen: seen["ticks"] > 1)
    service.write(exporter.url, "mod = 'observe'\n")
    service.signal(signal.SIGHUP)
    for _ in range(400):
        if "old configuration stays" in service.log.read_text():
            break
        time.sleep(0.02)
    assert "advise" == service.status()["mode"]
    service.write(exporter.url, 'mode = "observe"\n' + FAST)
    service.signal(signal.SIGHUP)
    service.until(lambda seen: seen["mode"] == "observe")
    assert 1 == service.log.read_text().count("old configuration stays")


def test_a_second_ctrl_c_ends_at_once(service, exporter):
    """While the server hangs, the first one waits for the tick; the second does not, and leaves no child."""
    service.start()
    run_begins(service, exporter)
    exporter.release.clear()
    time.sleep(0.3)
    service.signal(signal.SIGINT)
    time.sleep(0.1)
    service.signal(signal.SIGINT)
    assert service.wait(5) in (130, -signal.SIGINT)
    assert () == service.left()


def test_systemd_is_told(service, tmp_path):
    """Ready, a sign of life each tick, and that it stops; children get no socket to speak for it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        service.env |= {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000"}
        service.start()
        told = [manager.recv(4096).decode() for _ in range(3)]
        service.signal(signal.SIGTERM)
        service.wait()
        manager.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                told.append(manager.recv(4096).decode())
    assert ["READY=1", "WATCHDOG=1"] == [text.splitlines()[0] for text in told[:2]]
    assert "STOPPING=1\nSTATUS=stopping" == told[-1]


def test_a_second_daemon_waits_and_takes_over(service, exporter, tmp_path):
    """One of a node works; when it is killed, the other takes over and stops what it left."""
    service.start()
    run_begins(service, exporter)
    (tmp_path / "second").mkdir()
    second = Process(tmp_path / "second", exporter.url, FAKE_TUNER="hang")
    second.env |= {"ADVISOR_DATABASE_URL": service.env["ADVISOR_DATABASE_URL"]}
    second.env |= {"STATE_DIRECTORY": service.env["STATE_DIRECTORY"]}
    second.start()
    try:
        for _ in range(1000):
            if second.log.exists() and "another daemon has box" in second.log.read_text():
                break
            time.sleep(0.02)
        assert False is second.until(lambda seen: seen["ticks"] > 1)["leased"]
        service.signal(signal.SIGKILL)
        service.wait()
        second.until(lambda seen: seen["leased"])
        assert "left behind by a daemon" in second.log.read_text()
    finally:
        second.close()


def test_a_full_disk_is_survived(service, exporter):
    """No file can grow: nothing is ordered and it is said; once there is room, work goes on."""
    service.write(exporter.url, LATE.replace("tick_seconds = 0.05", "tick_seconds = 0.1"))
    service.start()
    service.until(lambda seen: seen["ticks"] > 2)
    _, most = resource.prlimit(service.child.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(service.child.pid, resource.RLIMIT_FSIZE, (1, most))
    exporter.serve(50, 100)
    seen = service.until(lambda seen: seen["trouble"])
    assert ("advisor.db" in seen["trouble"][0], None) == (True, service.child.poll())
    resource.prlimit(service.child.pid, resource.RLIMIT_FSIZE, (most, most))
    exporter.serve(50, 100)
    service.until(lambda seen: not seen["trouble"] and seen["leased"])


@pytest.mark.slow
def test_what_it_costs_to_wait(tmp_path, exporter):
    """At a tick of 15 s: below half a per cent of a core, and below 80 MiB; beside it what two imports alone hold."""
    service = Process(tmp_path, exporter.url, FAST.replace("tick_seconds = 0.05", "tick_seconds = 0.5"))
    service.start()
    try:
        first = service.until(lambda seen: seen["ticks"] > 10)
        before = _processor_s(service.child.pid)
        last = service.until(lambda seen: seen["ticks"] >= first["ticks"] + 30, 120)
        each = (_processor_s(service.child.pid) - before) / (last["ticks"] - first["ticks"])
        held = _resident_mib(service.child.pid)
    finally:
        service.close()
    alone = _imports_mib()
    said = (
        f"{each * 1000:.1f} ms a tick = {each / 15:.2%} of a core at 15 s; {held:.0f} MiB, {alone:.0f} of them imports"
    )
    assert each / 15 < 0.005, said
    assert held < 80, said


def _imports_mib():
    """What `import sqlmodel, httpx` alone holds."""
    code = "import sqlmodel, httpx, os; print(open('/proc/self/statm').read().split()[1])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return int(told) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _processor_s(number):
    """Seconds of processor that a process has used, threads included."""
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mib(number):
    """What it holds in memory now."""
    pages = Path(f"/proc/{number}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20
