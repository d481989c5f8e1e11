"""Processes that outlive whoever started them: noted, found by their folder, stopped as a group."""

import os
import signal
import subprocess
import sys
import time

import pytest

from vllm_advisor.launch import left
from vllm_advisor.launch.left import SERVER, Left


# A leader with a child of its own. It says when both run; STUBBORN of them ignore SIGTERM.
CHILD = """
import signal, subprocess, sys
how = "import signal; "
if sys.argv[1] == "stubborn":
    how += "signal.signal(signal.SIGTERM, signal.SIG_IGN); "
exec(how)
subprocess.Popen([sys.executable, "-c", how + "print(1, flush=True); signal.pause()"])
signal.pause()
"""


@pytest.fixture
def start(tmp_path):
    """Starts one in a folder of its own; what is left of it is killed."""
    started = []

    def run(how="polite", folder="run"):
        place = tmp_path / folder
        place.mkdir()
        argv = [sys.executable, "-c", CHILD, how]
        process = subprocess.Popen(argv, cwd=place, stdout=subprocess.PIPE, start_new_session=True)
        started.append(process)
        process.stdout.readline()
        return Left(SERVER, str(place.resolve()), process.pid, "org/m", "http://127.0.0.1:1", ("vllm",)), process

    yield run
    for process in started:
        left.signal_group(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def test_a_note_is_found_while_its_process_runs(tmp_path, start):
    """All that was noted, readable by its owner only; nothing any more once it is forgotten."""
    made, _ = start()
    left.note(made, tmp_path / "notes")
    (file,) = (tmp_path / "notes").iterdir()
    assert 0o600 == file.stat().st_mode & 0o777
    assert (made,) == left.found(tmp_path / "notes")
    left.forget(made, tmp_path / "notes")
    assert () == left.found(tmp_path / "notes")


def test_the_newest_is_found_first(tmp_path, start):
    """Folders are named by their time."""
    old, new = start(folder="20260101-000000-1")[0], start(folder="20260102-000000-1")[0]
    for made in (new, old):
        left.note(made, tmp_path / "notes")
    assert (new, old) == left.found(tmp_path / "notes")


def test_a_note_from_before_the_start_finds_the_leader(tmp_path, start):
    """Whoever noted it was killed before he knew the number: the folder is enough."""
    made, process = start()
    left.note(made._replace(pid=0), tmp_path / "notes")
    assert (process.pid,) == tuple(found.pid for found in left.found(tmp_path / "notes"))


def test_notes_of_what_is_gone_and_what_is_no_note_are_taken_away(tmp_path, start):
    """A process that ended; a number that somebody else has now; files that are something else."""
    made, process = start()
    process.kill()
    left.signal_group(process.pid, signal.SIGKILL)
    process.wait()
    end = time.monotonic() + 30
    while left.is_alive(made) and time.monotonic() < end:  # its children die, too, each when it comes to run
        time.sleep(0.01)
    notes = tmp_path / "notes"
    left.note(made, notes)
    left.note(Left(SERVER, str(tmp_path / "other"), os.getpid()), notes)
    for name, text in (("a.json", "{"), ("b.json", "[]"), ("c.json", '{"kind": 1, "command": []}')):
        (notes / name).write_text(text)
    assert () == left.found(notes)
    assert [] == list(notes.iterdir())


def test_stopping_ends_all_of_it(start):
    """The leader and what it started; a second time there is nothing to do."""
    made, process = start()
    assert 2 == len(left.processes(made))
    left.stop(made)
    assert -signal.SIGTERM == process.wait()
    assert (False, ()) == (left.is_alive(made), left.processes(made))
    left.stop(made)


def test_whoever_ignores_the_signal_is_killed(start):
    """After the grace, the whole group."""
    made, process = start("stubborn")
    left.stop(made, grace_s=0.1)
    assert -signal.SIGKILL == process.wait()
    assert () == left.processes(made)


def test_workers_without_a_leader_are_still_alive_and_stopped(start):
    """kill -9 of the leader leaves processes that hold memory."""
    made, process = start()
    process.kill()
    process.wait()
    assert left.is_alive(made)
    left.stop(made)
    assert () == left.processes(made)
