"""Processes by number and start, by group, and by the folder that they stand in: real ones."""

import os
import signal
import subprocess
import sys

from vllm_tuner.daemon import orphans
from vllm_tuner.daemon.orphans import Process


DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
# A leader whose child stays in its group and outlives it.
FORKS = "import os, time; os.fork() or time.sleep(600); print(flush=True); time.sleep(600)"


def started(folder, code):
    """A Python process that leads a session in a folder, once it has said a line."""
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", code], cwd=folder, stdout=subprocess.PIPE, start_new_session=True
    )
    child.stdout.readline()
    return child


def test_a_process_is_its_number_and_its_start():
    """Another process of the same number is another one, and an ended one is none, reaped or not."""
    me = orphans.find(os.getpid())
    child = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert (os.getpgrp(), True, False) == (me.group, me.runs, me._replace(started=1).runs)
    assert None is orphans.find(child.pid)
    child.wait()
    assert None is orphans.find(child.pid)


def test_found_by_the_folder(tmp_path):
    """Below the folder counts, a folder whose name only begins alike does not, and a removed one still does."""
    (tmp_path / "runs/1").mkdir(parents=True)
    (tmp_path / "runs-not").mkdir()
    inner, other = started(tmp_path / "runs/1", DEAF), started(tmp_path / "runs-not", DEAF)
    try:
        assert [inner.pid] == [process.number for process in orphans.inside(tmp_path / "runs")]
        (tmp_path / "runs/1").rmdir()
        assert [inner.pid] == [process.number for process in orphans.inside(tmp_path / "runs")]
    finally:
        for child in (inner, other):
            child.kill()
            child.wait()
            child.stdout.close()


def test_whole_groups_end(tmp_path):
    """The leader and what it forked; SIGKILL for what is deaf; other processes live on."""
    forking, deaf = started(tmp_path, FORKS), started(tmp_path, DEAF)
    assert 3 == len(orphans.inside(tmp_path))
    assert {forking.pid, deaf.pid} <= set(orphans.stop_inside(tmp_path, 0.3))
    assert () == orphans.inside(tmp_path)
    assert (-signal.SIGTERM, -signal.SIGKILL) == (forking.wait(), deaf.wait())
    forking.stdout.close()
    deaf.stdout.close()


def test_our_own_group_is_never_signalled():
    """Nor is a number that belongs to another process by now."""
    me = orphans.find(os.getpid())
    assert (False, False) == (
        orphans.signal_group(me, signal.SIGKILL),
        orphans.signal_group(Process(os.getppid(), 12345, 1), signal.SIGKILL),
    )
