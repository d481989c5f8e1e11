"""How often a simulated shift of the workload is caught within a day, and how often nothing is taken for one.

    python benchmarks/drift_shifts.py                # 320 shifts by two, 45 quiet months; some two minutes

Each shift makes prompts or outputs twice or half as long from one hour of the first two weeks on: by day, by night, on
the first weekend and once weeks are known. The traffic is that of `vllm_tuner.daemon.simulate`.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product

from vllm_tuner.daemon.simulate import DAY, HOUR, MONDAY, Scene, Service


ONSETS = (26.0, 28.5, 53.0, 126.5, 128.0, 140.0, 150.0, 333.0)  # hours since a Monday's midnight
KINDS = (("prompts", 2.0), ("prompts", 0.5), ("outputs", 2.0), ("outputs", 0.5))
QUIET = (({}, 30), ({"weekend_lengths": 1.5}, 15))  # what is usual there, and for how many months
MONTH = 30.0


def tunes(scene: Scene, days: float) -> list[float]:
    """When runs were started, in seconds since the beginning."""
    service = Service(scene)
    while service.deployment.at < MONDAY + days * DAY:
        service.tick()
    return [fact.at - MONDAY for fact in service.tunes()]


def scene(seed: int, **more: float) -> Scene:
    """Ticks of ten minutes, at which 30 days take a quarter of a second."""
    return Scene(seed, tick_s=600, rate=0.3, **more)


def shifted(seed: int, onset: float, kind: tuple[str, float]) -> list[float]:
    """Hours from a shift to each run, two days long."""
    found = tunes(scene(seed, shift_at=onset * HOUR, **dict([kind])), onset / 24 + 2)
    return [round(at / HOUR - onset, 1) for at in found]


def main() -> int:
    """Print the count, and each that was missed, late, early or run for twice."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=300)
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.seeds)
    cases = list(product(seeds, ONSETS, KINDS))
    wrong = []
    for number, (seed, onset, kind) in enumerate(cases, 1):
        hours = shifted(seed, onset, kind)
        if len(hours) != 1 or not 0 < hours[0] <= 24:
            wrong.append({"seed": seed, "onset": onset, "kind": kind, "hours": hours})
        if not number % 40:
            print(f"{number} of {len(cases)} shifts", file=sys.stderr)
    false = [
        len(tunes(scene(seed, **usual), MONTH))
        for usual, months in QUIET
        for seed in range(asked.first, asked.first + months)
    ]
    said = {"shifts": len(cases), "within_a_day": len(cases) - len(wrong), "others": wrong}
    print(json.dumps(said | {"quiet_months": len(false), "runs_in_them": sum(false)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
