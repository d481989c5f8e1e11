"""Break the re-tuning service a few hundred times at random, and see that it loses nothing and leaves nothing behind.

    python benchmarks/fault_campaign.py                    # 300 faults, some ten minutes
    python benchmarks/fault_campaign.py --faults 20 --seed 7

Everything is a process of its own: the daemon in mode adopt, the stand-in of vLLM that it manages, the search with a
server of its own, and the load. One fault after the other hits one of them; once its cause is gone, the daemon must be
in order within two ticks. After each fault: every profile is there, nothing runs that nobody knows, one search at most,
what was adopted is never worse than what ran before, by the stand-in's own law, and that is what the server runs.
The load follows the service through all of its phases, the searches' winners are better and worse ones by chance, and
an operator takes good ones back, so that the next adoption can come. It goes on until enough was adopted and refused.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fault_campaign_drive import Drive, law
from fault_campaign_faults import Faults
from fault_campaign_world import TICK_S, Broken

from vllm_advisor.errors import StoreError
from vllm_advisor.store.profile_store import ProfileStore
from vllm_tuner.daemon import kept, orphans, policy_state


AT_ONCE = 0.3  # of the faults, whatever the service does; the others wait for its next phase
LONGEST_WAIT_S = 1.0
MOST = 3  # times as many faults as wanted, until enough was adopted and refused
GOOD = 4.3  # by the law: what little is better than this is not better for certain


class Record(NamedTuple):
    """One fault, in which phase the service was, and what came of it."""

    number: int
    name: str
    phase: str
    seconds: float
    ticks: int


class Campaign(Faults):
    """One fault after the other, and what was promised after each."""

    def __init__(self, folder: Path, seed: int, *, stop_unit: bool = False) -> None:
        super().__init__(folder, seed, stop_unit=stop_unit)
        self.records: list[Record] = []
        self.drive = Drive(self)
        self._asked = 0

    def recovered(self) -> int:
        """Ticks until all is in order, since it ticks and the server answers again. Raises Broken for more than two.

        What was published before the fault says nothing: a whole tick must have passed.
        """
        old = self.until("an answer", bool)["ticks"]
        self.until("two more ticks", lambda seen: not old <= seen["ticks"] < old + 2)
        first = self.until("a tick", lambda seen: seen["leased"] and seen["server"]["answers"])
        if not first["trouble"]:
            return 0
        in_order = self.until("order", lambda seen: seen["leased"] and (not seen["trouble"] or _restarts(seen)))
        took = int(in_order["ticks"] - in_order["calm_ticks"] - first["ticks"])  # it counts, however late we look
        if took > 2 and in_order["started"] == first["started"]:
            raise Broken(f"recovery took {took} ticks from {first['ticks']}: {first['trouble']}")
        return max(0, took)

    def check(self) -> None:
        """Everything that was promised, now. Raises Broken."""
        self._no_profile_lost()
        self._no_orphan()
        self._runs_what_it_says()
        if self.drive.wrong:
            raise Broken("; ".join(self.drive.wrong))
        if self.alone.exists() and (said := self.alone.read_text(encoding="utf-8")):
            raise Broken(f"two searches at once: {said}")

    def _no_profile_lost(self) -> None:
        stored = set(self.profiles)
        with ProfileStore.open(self.folder / "advisor.db") as store:
            there = {found.id for found in store.profiles()}
            state = store.integrity()
        if stored - there or state != "ok":
            raise Broken(f"profiles are lost: {stored - there}, {state}")

    def _no_orphan(self) -> None:
        """Runs of an earlier attempt have no process; one search at most; one server at most, after a moment."""
        end = time.monotonic() + 15
        while (found := self._strays()) and time.monotonic() < end:
            time.sleep(TICK_S)
        if found:
            raise Broken(f"left behind: {found}")

    def _runs_what_it_says(self) -> None:
        """While nothing is tried, the server's own command is that of the incumbent."""
        before = self.status()
        found = {_batch_limit(process) for process in orphans.inside(self.folder / "state/daemon/box/unit")} - {0}
        after = self.status()
        same = all(before.get(name) == after.get(name) for name in ("phase", "incumbent", "started", "unit"))
        settled = after.get("phase") in ("watching", "due") and after["unit"]["health"] == "healthy"
        wanted = self.drive.seqs(after.get("incumbent") or "")
        if same and settled and found and found != {wanted}:
            raise Broken(f"the server runs {found} sequences, {wanted} are said to be the incumbent's")

    def _strays(self) -> list[str]:
        seen = self.status()
        root = self.folder / "state/daemon/box"
        runs = orphans.inside(root / "runs")
        places = [_place(process) for process in runs]
        current = f"attempt-{seen.get('attempt')}"
        running = seen.get("work", {}).get("state") == "running"
        stray = [place for place in places if not (running and f"/{current}" in place)]
        searches = [place for place in places if place.endswith(current)]
        servers = {process.group for process in orphans.inside(root / "unit")}
        return [*stray, *searches[1:], *(f"server {group}" for group in sorted(servers)[1:])]

    def _operator(self) -> None:
        """Where hardly anything better is left, an operator goes back to the plan before: so that there is again."""
        drive = self.drive
        good = law(drive.seqs(drive.incumbent)) <= GOOD and drive.previous is not None
        if good and drive.phase == "watching" and len(drive.refused) > self._asked:
            self._asked = len(drive.refused)
            with suppress(StoreError), ProfileStore.open(self.folder / "advisor.db") as store:
                store.keep(kept.ASKED, "box", kept.Ask.ROLLBACK)

    def _moment(self, name: str) -> None:
        """A random moment, or the next phase's beginning: the short ones would hardly ever be hit."""
        before = self.drive.phase
        if name != "kill_search" and self.random.random() < AT_ONCE:
            time.sleep(self.random.uniform(0, 4) * TICK_S)
            return
        end = time.monotonic() + LONGEST_WAIT_S * (4 if name == "kill_search" else 1)
        while time.monotonic() < end and not self._comes(name, before):
            time.sleep(TICK_S / 20)
        time.sleep(self.random.choice((0, self.random.uniform(0, 5))) * TICK_S)

    def _comes(self, name: str, before: str) -> bool:
        phase = self.drive.phase
        return phase == "tuning" if name == "kill_search" else phase != before

    def _saved_phase(self) -> str:
        """As it stands in the store: the status is published a tick later."""
        with suppress(StoreError), ProfileStore.open(self.folder / "advisor.db") as store:
            return str(policy_state.loads(store.kept(kept.POLICY, "box") or "").phase)
        return self.drive.phase

    def _fault(self, name: str) -> None:
        begun, number = time.monotonic(), len(self.records)
        phase = self._saved_phase()
        try:
            hit = getattr(self, name)() is not False
            ticks = self.recovered()
            self.check()
        except Broken as broken:
            raise Broken(f"fault {number}, {name} while {phase}: {broken}") from None
        if hit:
            self.records.append(Record(number, name, phase, time.monotonic() - begun, ticks))

    def run(self, faults: int, only: str = "") -> None:
        """All of it, and more faults where too little was adopted or refused yet. Raises Broken."""
        self.start_daemon()
        self.start_load()
        self.until("a server", lambda seen: seen["server"]["answers"])
        self.drive.start()
        while not self.drive.phase:
            time.sleep(TICK_S)
        names = [only] if only else self.names()
        while len(self.records) < faults or not self.enough(faults):
            if len(self.records) >= MOST * faults:
                raise Broken(f"{len(self.records)} faults, and hardly an adoption or a refusal: {self.drive.moved}")
            name = self.random.choice(names)
            self._moment(name)
            self._fault(name)
            self._operator()
            if not len(self.records) % 10:
                print(f"{len(self.records)} of {faults} faults", file=sys.stderr)
        self.word("fault", "")

    def enough(self, faults: int) -> bool:
        """Whether it was put to the test: adoptions, and refusals of what is clearly worse by the law."""
        wanted = max(1, round(faults / 36))
        return min(len(self.drive.adopted), self.drive.refused_worse) >= wanted

    @staticmethod
    def names() -> list[str]:
        """Every kind of fault; those that say most more often."""
        often = ["kill_daemon", "kill_server", "kill_search", "clock_jump", "metrics_garbage", "disk_full"]
        kinds = ["kill_load", "metrics_cut", "metrics_error", "store_locked", "gpu_lost"]
        return [*often * 3, *kinds * 2, "metrics_hang", "second_daemon"]

    def end(self) -> None:
        """The daemon stops by itself; nothing may be left. Raises Broken."""
        self.drive.stop()
        begun = time.monotonic()
        if self.daemon is not None:
            self.daemon.terminate()
            self.daemon.wait(15)
        took = time.monotonic() - begun
        left = orphans.inside(self.folder / "state")
        if left or took > 10:
            raise Broken(f"the stop took {took:.1f} s and left {len(left)} processes")

    def close(self) -> None:
        self.drive.stop()
        super().close()


def _restarts(seen: dict[str, Any]) -> bool:
    """Whether all that is wrong is a server that the service itself has just stopped for another plan."""
    ordered = seen["phase"] in ("switching", "rolling back")
    return ordered and not seen["server"]["answers"] and len(seen["trouble"]) == 1


def _place(process: orphans.Process) -> str:
    with suppress(OSError):
        return str(Path(f"/proc/{process.number}/cwd").readlink())
    return ""


def _batch_limit(process: orphans.Process) -> int:
    """By the command line; 0 for a process that has ended meanwhile."""
    with suppress(OSError, ValueError, IndexError):
        words = Path(f"/proc/{process.number}/cmdline").read_text("utf-8").split("\0")
        return int(words[words.index("--max-num-seqs") + 1])
    return 0


def _seconds(records: list[Record]) -> dict[str, float]:
    """How long each kind took, recovery and looks included."""
    spent: Counter[str] = Counter()
    for record in records:
        spent[record.name] += record.seconds
    counts = Counter(record.name for record in records)
    return {name: round(seconds / counts[name], 1) for name, seconds in sorted(spent.items())}


def report(campaign: Campaign, seed: int) -> dict[str, Any]:
    """What was done and seen."""
    records, drive = campaign.records, campaign.drive
    with ProfileStore.open(campaign.folder / "advisor.db") as store:
        events = Counter(event.kind for event in store.events(100_000))
    return {
        "seed": seed,
        "seconds_a_fault": _seconds(records),
        "faults": dict(sorted(Counter(record.name for record in records).items())),
        "phases": dict(sorted(Counter(record.phase for record in records).items())),
        "most_ticks": max((record.ticks for record in records), default=0),
        "attempts": campaign.status().get("attempt", 0),
        "adopted": [f"{change.before} to {change.after}" for change in drive.adopted],
        "refused": [f"{change.after} for {change.before}" for change in drive.refused],
        "refused_worse": drive.refused_worse,
        "undone": drive.undone,
        "profiles": len(campaign.profiles),
        "events": {kind: events[kind] for kind in ("lost", "failed", "aborted", "kept", "adopted", "rolled back")},
        "moved": {f"{before} to {after}": count for (before, after), count in sorted(drive.moved.items())},
        "seconds": {phase: round(seconds) for phase, seconds in sorted(drive.seconds.items())},
    }


def main() -> int:
    """Run it; 1 where a promise was broken, with the folder kept."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="one kind of fault, as kill_daemon")
    parser.add_argument("--stop-unit", action="store_true", help="the server makes way for each search")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="fault-campaign-"))
    folder.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(folder, asked.seed, stop_unit=asked.stop_unit)
    try:
        campaign.run(asked.faults, asked.only)
        said = report(campaign, asked.seed)
        campaign.end()
    except Broken as broken:
        print(f"BROKEN (seed {asked.seed}, logs in {folder}): {broken}", file=sys.stderr)
        return 1
    finally:
        campaign.close()
    print(json.dumps(said, indent=1))
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
