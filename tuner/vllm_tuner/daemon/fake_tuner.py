"""A search that ends as it is told: `tuner serve` and `tuner kernels` for tests, with a child as theirs, and no engine.

FAKE_TUNER: `better` (one of FAKE_TUNER_PROFILE is its winner), `none`, `fail`, `hang` (until it is stopped), `ignore`
(as hang, deaf to SIGTERM), `crash` (SIGKILL), `garbage`. It waits for FAKE_TUNER_S seconds first. Needs nothing but
the standard library, but for this: with FAKE_TUNER_JOURNAL the winner is a new profile that it puts in the store, as a
search does, of FAKE_TUNER_MODEL, and then in that file (its id and its limit); that is one of FAKE_TUNER_SEQS, 0: none,
by chance from FAKE_TUNER_SEED and the attempt. FAKE_TUNER_ALONE is a file that two searches at once write to.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path


def _say(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _server(folder: Path) -> subprocess.Popen[bytes]:
    """What a search starts: a process that leads a session of its own, in a run folder."""
    place = folder / "001"
    place.mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(["/bin/sleep", "600"], cwd=place, start_new_session=True)


def _attempt() -> int:
    """Its number, by the folder that it stands in."""
    number = Path.cwd().name.rpartition("-")[2]
    return int(number) if number.isdigit() else 0


def _winner(words: list[str]) -> str:
    """One of the profiles, in turn by the number of the attempt; with a journal a new one, "" for none."""
    if "FAKE_TUNER_JOURNAL" in os.environ:
        return _stored() if words[0] == "serve" else ""
    names = os.environ.get("FAKE_TUNER_PROFILE", "").split(",")
    return names[_attempt() % len(names)]


def _stored() -> str:
    """Put a profile in the store that no attempt before had."""
    chance = random.Random(f"{os.environ['FAKE_TUNER_SEED']}:{_attempt()}")  # noqa: S311 - a test's choices
    seqs = int(chance.choice(os.environ["FAKE_TUNER_SEQS"].split(",")))
    if not seqs:
        return ""
    from vllm_advisor.store.profile_store import ProfileStore
    from vllm_tuner.daemon.testing import profile

    with ProfileStore.open() as store:
        number = store.save_profile(profile(os.environ["FAKE_TUNER_MODEL"], seqs=seqs, length=256 + _attempt()))
    with Path(os.environ["FAKE_TUNER_JOURNAL"]).open("a", encoding="ascii") as journal:
        journal.write(f"{number} {seqs}\n")
    return number


def _alone() -> None:
    """Hold a lock until the end of the process; whoever does not get it says so in the file."""
    if "FAKE_TUNER_ALONE" not in os.environ:
        return
    file = os.open(os.environ["FAKE_TUNER_ALONE"], os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.write(file, f"{Path.cwd().name} was not alone\n".encode())


def main(words: list[str]) -> int:
    """One search."""
    how = os.environ.get("FAKE_TUNER", "better")
    if how == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _alone()
    folder = Path(words[words.index("--folder") + 1]) if "--folder" in words else Path.cwd() / "servers"
    Path("words.json").write_text(json.dumps(words), encoding="utf-8")
    child = _server(folder)
    _say({"event": "opened", "message": "searching"})
    time.sleep(float(os.environ.get("FAKE_TUNER_S", "0")))
    while how in ("hang", "ignore"):
        time.sleep(0.05)
    if how == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    child.kill()
    child.wait()
    if how == "fail":
        sys.stderr.write("error: no plan fits\nhint: another model\n")
        return 1
    if how == "garbage":
        sys.stdout.write("\x00\xff{not json\n[1,2]\n")
        return 0
    winner = _winner(words) if how == "better" else ""
    verdict = "better" if winner else "none better"
    _say({"event": "result", "verdict": verdict, "profile": winner or None, "says": f"{verdict} of 3 trials"})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
