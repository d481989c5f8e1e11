"""Whether the devices are nobody's: judged over several readings in a row; and whether they are too hot to be used.

What can't be read is not taken for idle, unless the rest proves it: a partition without a utilization counter is idle
when no other process is on it. During a run of our own only the others count.
"""

from __future__ import annotations

from typing import NamedTuple

from vllm_advisor.hardware import Unknown
from vllm_advisor.units import GIB, gib
from vllm_tuner.daemon.permit import GRANTED, Permit


_NOT_READ = Unknown("not read")


class Device(NamedTuple):
    """One device now. `utilization`: share of time; `others`: processes that are not ours, with their bytes.

    `cap_watts` is the limit that is in force, `usual_cap_watts` the one that the device comes with.
    """

    number: int
    utilization: float | Unknown = _NOT_READ
    others: int | Unknown = _NOT_READ
    others_bytes: int | Unknown = _NOT_READ
    celsius: float | Unknown = _NOT_READ
    watts: float | Unknown = _NOT_READ
    cap_watts: float | Unknown = _NOT_READ
    usual_cap_watts: float | Unknown = _NOT_READ


class Reading(NamedTuple):
    """A tick. `requests`: running and waiting at the server that is watched, 0 where there is none.

    `host_load`: share of the processors that others keep busy; judged only where there are no devices.
    """

    devices: tuple[Device, ...] = ()
    requests: float | Unknown = 0.0
    host_load: float | Unknown = _NOT_READ


class IdleLimits(NamedTuple):
    """All ours. `samples` in a row must be idle; `cooler_by` degrees below `celsius` end a refusal.

    `cap_share`: a cap below this part of the usual one makes measurements that do not hold later.
    """

    utilization: float = 0.05
    others_bytes: int = GIB // 2
    requests: float = 0.0
    host_load: float = 0.2
    samples: int = 4
    celsius: float = 85.0
    cooler_by: float = 8.0
    cap_share: float = 0.9


class Idle(NamedTuple):
    """What the readings so far say: idle ones in a row, what spoke against the last one, and whether it was hot."""

    streak: int = 0
    why: str = "no reading yet"
    hot: str = ""


def observe(idle: Idle, reading: Reading, limits: IdleLimits, *, ours_runs: bool = False) -> Idle:
    """One more reading. `ours_runs`: the devices are busy with our own run, so only others speak against it.

    A reading that could not be had is no traffic: hours of a run are not lost to it, only to as many as began it.
    """
    why = busy(reading, limits, ours_runs=ours_runs)
    streak = 0 if why else min(idle.streak + 1, limits.samples)
    if ours_runs and not why:
        streak = limits.samples
    elif ours_runs and isinstance(reading.requests, Unknown):
        streak = max(0, idle.streak - 1)
    return Idle(streak, why, _hot(idle, reading, limits))


def permit(idle: Idle, limits: IdleLimits, *, ours_runs: bool = False) -> Permit:
    """Leave once all of the last readings were idle; for a run that goes on, until all of them were not."""
    if idle.streak >= (1 if ours_runs else limits.samples):
        return GRANTED
    why = idle.why or f"idle for {idle.streak} of {limits.samples} readings"
    return Permit(granted=False, by="idle", why=why)


def guard(idle: Idle) -> Permit:
    """Leave while nothing is too hot or held back."""
    return Permit(granted=False, by="guard", why=idle.hot) if idle.hot else GRANTED


def busy(reading: Reading, limits: IdleLimits, *, ours_runs: bool = False) -> str:
    """What speaks against idleness, "" for nothing."""
    if isinstance(reading.requests, Unknown):
        return f"the server's requests are not known: {reading.requests.why}"
    if reading.requests > limits.requests:
        return f"the server has {reading.requests:g} requests"
    if not reading.devices:
        return _busy_host(reading.host_load, limits, ours_runs=ours_runs)
    found = (_busy_device(device, limits, ours_runs=ours_runs) for device in reading.devices)
    return next((f"GPU {device.number}: {why}" for device, why in zip(reading.devices, found, strict=True) if why), "")


def _busy_host(load: float | Unknown, limits: IdleLimits, *, ours_runs: bool) -> str:
    if isinstance(load, Unknown):
        return "" if ours_runs else f"the host's load is not known: {load.why}"
    return f"others keep {load:.0%} of the processors busy" if load > limits.host_load else ""


def _busy_device(device: Device, limits: IdleLimits, *, ours_runs: bool) -> str:
    others, held, used = device.others, device.others_bytes, device.utilization
    if not isinstance(held, Unknown) and held > limits.others_bytes:
        return f"other processes hold {gib(held)}"
    if ours_runs:
        return ""
    if not isinstance(used, Unknown):
        return f"{used:.0%} utilized" if used > limits.utilization else ""
    if isinstance(others, Unknown):
        return "neither its utilization nor its processes are known"
    return f"{others} other processes, and its utilization is not known" if others else ""


def _hot(idle: Idle, reading: Reading, limits: IdleLimits) -> str:
    """The first device that is too hot, or held back by a lowered power cap; once hot, until well below."""
    limit = limits.celsius - (limits.cooler_by if idle.hot else 0.0)
    for device in reading.devices:
        if not isinstance(device.celsius, Unknown) and device.celsius >= limit:
            return f"GPU {device.number} has {device.celsius:g} °C, {limits.celsius:g} °C is the limit"
        cap, usual = device.cap_watts, device.usual_cap_watts
        if isinstance(cap, Unknown) or isinstance(usual, Unknown):
            continue
        if cap < limits.cap_share * usual:
            return f"GPU {device.number} is capped at {cap:g} W instead of {usual:g} W"
    return ""
