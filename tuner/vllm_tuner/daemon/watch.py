"""From the machine and the server to what the policy is told: counters, devices, fingerprint, and the canary's pulse.

Nothing here judges and nothing here raises for what it sees: a reading that cannot be had is Unknown with its reason.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import AdvisorError
from vllm_advisor.hardware import Unknown
from vllm_advisor.probe import activity
from vllm_tuner.daemon.busiest import Busiest, Counted
from vllm_tuner.daemon.drift_reason import Sighting
from vllm_tuner.daemon.drift_sample import sample
from vllm_tuner.daemon.idle import Device
from vllm_tuner.daemon.idle import Reading as IdleReading
from vllm_tuner.daemon.look import Look, found
from vllm_tuner.daemon.metrics import Client, Reading
from vllm_tuner.daemon.orphans import Process, find


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm_advisor.profile import Fingerprint
    from vllm_advisor.vllm.metrics import Metrics
    from vllm_advisor.workload import Sla
    from vllm_tuner.daemon.drift_reason import Prior
    from vllm_tuner.daemon.drift_sample import Sample

_FINGERPRINT_EVERY = 60  # ticks: a quarter of an hour at the usual 15 s
_NO_DEVICES_EVERY = 40  # ticks until a machine without devices is asked again
_MISSES = 3  # readings without an answer until a server counts as silent


class Seen(NamedTuple):
    """One look. `healthy`: /health answered 200; `why` is what stood against a sample, "" for nothing."""

    sighting: Sighting
    idle: IdleReading
    healthy: bool
    silent: bool
    counters: Metrics | Unknown
    why: str


class Watch:
    """The eyes on one deployment. `now` is the wall clock, `steady` one that is never set."""

    def __init__(
        self,
        client: Client,
        now: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        devices: Callable[[], tuple[activity.Activity, ...]] = activity.read,
        look: Look | None = None,
    ) -> None:
        self.client, self._now, self._steady, self._devices = client, now, steady, devices
        self.look = look or Look()
        self._before: Counted | None = None
        self.busiest = Busiest()
        self._last, self._ticks, self._misses, self._without = steady(), 0, 0, 0
        self._look_at, self._wait = 0, 2
        self._host = HostLoad(steady)
        self.fingerprint: Fingerprint | None = None
        self.advice: Prior | None = None
        self.vllm = self.model = ""
        self.last_devices: tuple[Device, ...] = ()
        self._reader = Patient(self._read)

    def see(
        self, ours: Sequence[Process], beside: Sequence[Process], window_s: float, sla: Sla, offset_s: float
    ) -> Seen:
        """One tick. `ours`: processes of our own run; `beside`: others that may stay; `offset_s`: local minus UTC."""
        self._ticks += 1
        steady = self._steady()
        elapsed, self._last = steady - self._last, steady
        reading = self._reader.read()
        measured = self._sample(reading.counters, steady, window_s, sla)
        self._misses = 0 if reading.healthy else self._misses + 1
        sighting = Sighting(self._now(), max(elapsed, 1e-6), measured, self._identity(), offset_s=offset_s)
        why = measured.why if isinstance(measured, Unknown) else ""
        idle = self._idle(reading, ours, beside)
        return Seen(sighting, idle, reading.healthy, self._misses >= _MISSES, reading.counters, why)

    def _read(self) -> Reading:
        reading = self.client.read()
        if reading.healthy and not self.model:
            self.model = self.client.model()
        return reading

    def _sample(self, counters: Metrics | Unknown, steady: float, window_s: float, sla: Sla) -> Sample | Unknown:
        if isinstance(counters, Unknown):
            return counters
        before, self._before = self._before, Counted(steady, self._now(), counters)
        if before is None:
            self.busiest.anew(self._before)
            return Unknown("the first reading")
        made = sample(before.counters, counters, steady - before.steady, sla)
        if isinstance(made, Unknown):
            self.busiest.anew(self._before)
        else:
            self.busiest.see(self._before, window_s)
        return made

    def _identity(self) -> Fingerprint | None:
        """What the last question found, once; a new question every so often."""
        if not self.look.busy:
            return None
        answer = self.look.answer()
        if answer is None or isinstance(answer, Unknown):
            return None
        try:
            told = found(answer)
        except AdvisorError:
            return None
        self.fingerprint, self.vllm, self.advice = told.fingerprint, told.vllm, told.prior
        return told.fingerprint

    def ask(self, model: str, profile: str = "") -> None:
        """Have the fingerprint read where it is time: soon after the start, then every so often.

        `profile` is what runs, "" for unknown: the child says as well what the advisor has better than that.
        """
        if self.look.busy or self._ticks < self._look_at or not model:
            return
        self._wait = _FINGERPRINT_EVERY if self.fingerprint is not None else min(_FINGERPRINT_EVERY, 2 * self._wait)
        self._look_at = self._ticks + self._wait
        try:
            self.look.ask("fingerprint", model, profile)
        except OSError:  # no process or no file left: at another tick
            self.look.stop()

    def _idle(self, reading: Reading, ours: Sequence[Process], beside: Sequence[Process]) -> IdleReading:
        requests = in_flight(reading)
        devices = self._activities()
        numbers = {os.getpid(), *(p.number for p in ours), *(p.number for p in beside)}
        self.last_devices = tuple(device(found, numbers) for found in devices)
        if devices:
            return IdleReading(self.last_devices, requests)
        return IdleReading((), requests, self._host.others([*ours, *beside]))

    def _activities(self) -> tuple[activity.Activity, ...]:
        if self._without:
            self._without -= 1
            return ()
        seen = self._devices()
        self._without = 0 if seen else _NO_DEVICES_EVERY
        return seen


def in_flight(reading: Reading) -> float | Unknown:
    """Requests that run or wait; 0 where no server answers: nobody is served there."""
    counters = reading.counters
    if isinstance(counters, Unknown):
        return counters if reading.healthy else 0.0
    running, waiting = counters.total("num_requests_running"), counters.total("num_requests_waiting")
    if isinstance(running, Unknown) or isinstance(waiting, Unknown):
        return running if isinstance(running, Unknown) else waiting
    return running + waiting


def device(seen: activity.Activity, ours: set[int]) -> Device:
    """A device as idleness is judged: what is not ours on it. Memory that no listed process holds is somebody's too."""
    others, held = others_of(seen, ours)
    return Device(seen.number, seen.busy, others, held, seen.celsius, seen.watts, seen.cap_watts, seen.usual_cap_watts)


def others_of(seen: activity.Activity, ours: set[int]) -> tuple[int | Unknown, int | Unknown]:
    """(processes, bytes) of others; in a container the driver may list none, and then all that is used is theirs."""
    if isinstance(seen.processes, Unknown):
        return seen.processes, seen.used_bytes
    theirs = [(number, size) for number, size in seen.processes if number not in ours]
    own = sum(size for number, size in seen.processes if number in ours)
    listed = sum(size for _, size in theirs)
    if isinstance(seen.used_bytes, Unknown) or own:
        return len(theirs), listed
    return len(theirs), max(listed, seen.used_bytes)


class HostLoad:
    """Which share of the processors others keep busy, between two readings of /proc/stat."""

    def __init__(self, steady: Callable[[], float] = time.monotonic, root: Path = Path("/")) -> None:
        self._root, self._steady = root, steady
        self._before: tuple[float, float] | None = None
        self._ours: dict[tuple[int, int], int] = {}

    def others(self, ours: Sequence[Process]) -> float | Unknown:
        """The share; Unknown at the first reading, and where there is no /proc."""
        now = _processor_ticks(self._root)
        if isinstance(now, Unknown):
            return now
        spent = {(p.number, p.started): p.ticks for p in [*ours, *filter(None, (find(os.getpid()),))]}
        grown = sum(ticks - self._ours.get(key, ticks) for key, ticks in spent.items())
        before, self._before, self._ours = self._before, now, spent
        if before is None or now[1] <= before[1]:
            return Unknown("the first reading")
        return min(1.0, max(0.0, (now[0] - before[0] - grown) / (now[1] - before[1])))


def _processor_ticks(root: Path) -> tuple[float, float] | Unknown:
    """(busy, all) since boot, over all processors (proc(5), the first line of /proc/stat)."""
    try:
        with (root / "proc/stat").open(encoding="ascii") as file:
            fields = [int(word) for word in file.readline().split()[1:9]]
        idle = fields[3] + fields[4]
    except (OSError, ValueError, IndexError):
        return Unknown("/proc/stat cannot be read")
    return sum(fields) - idle, sum(fields)


class Patient:
    """A reader that may hang, in a thread of its own: whoever asks waits so long and no longer."""

    def __init__(self, read: Callable[[], Reading], longest_s: float = 7.0) -> None:
        self._ask, self._longest_s = read, longest_s
        self._thread: threading.Thread | None = None
        self._found: Reading | None = None

    def read(self) -> Reading:
        """The reading, or that it hangs; while it does, nobody asks again."""
        if self._thread is None:
            self._found = None
            self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
            self._thread.start()
            self._thread.join(self._longest_s)
        if self._thread.is_alive():
            return Reading(healthy=False, counters=Unknown(f"the server hangs: no answer for {self._longest_s:g} s"))
        self._thread = None
        return self._found or Reading(healthy=False, counters=Unknown("the reader failed"))

    def _run(self) -> None:
        try:
            self._found = self._ask()
        except Exception as error:  # noqa: BLE001 - whatever a server's answer broke, the daemon goes on
            self._found = Reading(healthy=False, counters=Unknown(f"its answer could not be read: {error!r}"[:300]))
