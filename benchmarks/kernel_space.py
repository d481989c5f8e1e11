"""Measure every legal point of the CPU product's space, for searches to be held against: tests/data/kernel_spaces/.

    python benchmarks/kernel_space.py [--threads 1] [--problem M N K]... [--calls 9] [--seconds 240] [--out FOLDER]

Points are measured in passes, each in an order of its own, on operands that no cache holds. With one thread times are
its CPU time: other processes take turns, not seconds. With more they are of the wall, and a call that another process
interrupted takes milliseconds more: calls of more than 1.5 × the point's fastest are left out. A point is done when
enough are left. `median_us` is their median, `spread` the distance of their quartiles in parts of it. The file says how
many calls a point had at least; it is written after each pass, so that a run can be stopped.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import random
import statistics
import sys
import time
from pathlib import Path

import torch

from vllm_mx_kernels import autotune, cpu, machine
from vllm_mx_kernels.handoff import CPU_LINEAR


OUT = Path(__file__).parents[1] / "tests/data/kernel_spaces"
# Decode of few sequences, batches where both paths may win, prefill.
PROBLEMS = ((1, 2048, 2048), (4, 2048, 2048), (8, 2048, 2048), (16, 2048, 2048), (32, 1024, 1024), (256, 1024, 1024))
MOST_CALLS, INTERRUPTED = 6, 1.5  # in a pass; times the fastest of a point
REST_S = 0.002  # who has slept is given a processor at once, and keeps it for longer than a call takes


def undisturbed(times: list[float]) -> list[float]:
    """The calls that nobody interrupted, as far as one can tell."""
    return [t for t in times if t <= INTERRUPTED * min(times)]


def one_thread() -> bool:
    """Whether CPU time is the time of a call."""
    return torch.get_num_threads() == 1


def one_pass(
    timer: autotune.Timer, times: dict[tuple[int, ...], list[float]], order: random.Random, enough: int
) -> None:
    """Some calls more of every point that has not enough of them; the default's, always."""
    default = autotune.default_point(timer.problem)
    points = [p for p, t in times.items() if p == default or not t or len(undisturbed(t)) < enough]
    order.shuffle(points)
    for point in points:
        for _ in range(MOST_CALLS):
            if not one_thread():
                time.sleep(REST_S)
            times[point] += timer.time(point, repeats=1, warmup=1)
            if times[point][-1] <= INTERRUPTED * min(times[point]):
                break


def document(problem: autotune.Problem, times: dict[tuple[int, ...], list[float]], passes: int) -> dict[str, object]:
    """What the file holds."""
    kept = {point: sorted(undisturbed(t)) for point, t in times.items()}
    rows = []
    for point, good in sorted(kept.items()):
        middle, quarter = statistics.median(good), len(good) // 4
        spread = (good[-1 - quarter] - good[quarter]) / middle
        rows.append({"point": list(point), "median_us": round(middle, 2), "spread": round(spread, 4)})
    isa = cpu.instruction_set()
    return {
        "op": problem.op, "arch": isa, "instruction_set": isa, "m": problem.m, "n": problem.n, "k": problem.k,
        "bucket": autotune.bucket(problem), "machine": f"{os.cpu_count()}-core {isa.upper()} x86-64",
        "threads": torch.get_num_threads(), "clock": "thread CPU time" if one_thread() else "wall",
        "torch": torch.__version__, "source": autotune.source_hash(CPU_LINEAR),
        "date": dt.datetime.now(dt.UTC).date().isoformat(), "passes": passes,
        "calls_at_least": min(map(len, kept.values())),
        "axes": [{"name": axis.name, "values": list(axis.values)} for axis in autotune.axes(problem)],
        "default": list(autotune.default_point(problem)), "points": rows,
    }  # fmt: skip


def as_text(space: dict[str, object]) -> str:
    """JSON with a line a point."""
    points = ",\n".join(f"  {json.dumps(row)}" for row in space["points"])
    head = json.dumps({**space, "points": []}, indent=1)
    return head.replace('"points": []', f'"points": [\n{points}\n ]') + "\n"


def measure(problem: autotune.Problem, seconds: float, enough: int, path: Path) -> None:
    """Passes until every point is done or time is up; at least two."""
    clock = time.thread_time_ns if one_thread() else time.perf_counter_ns
    timer, order = autotune.Timer(problem, clock=clock), random.Random(0)  # noqa: S311  an order
    times: dict[tuple[int, ...], list[float]] = {point: [] for point in autotune.points(problem)}
    end, passes = time.monotonic() + seconds, 0
    while passes < 2 or (time.monotonic() < end and min(len(undisturbed(t)) for t in times.values()) < enough):
        one_pass(timer, times, order, enough)
        passes += 1
        path.write_text(as_text(document(problem, times, passes)))
        done = sum(len(undisturbed(t)) >= enough for t in times.values())
        sys.stderr.write(f"{path.stem}: pass {passes}, {done} of {len(times)} points done\n")


def main(arguments: list[str]) -> int:
    """One file a problem. 1 where the C++ path cannot be built."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--problem", nargs=3, type=int, action="append", metavar=("M", "N", "K"))
    parser.add_argument("--seconds", type=float, default=240.0, help="a problem, passes that have begun end")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--calls", type=int, default=9, help="that nobody interrupted, of each point")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(asked.threads)
    if not cpu.available():
        return 1
    asked.out.mkdir(parents=True, exist_ok=True)
    for m, n, k in asked.problem or PROBLEMS:
        problem = autotune.Problem(CPU_LINEAR, "cpu", m, n, k, device=machine.processor())
        measure(
            problem,
            asked.seconds,
            asked.calls,
            asked.out / f"cpu_{cpu.instruction_set()}_m{m}_n{n}_k{k}_t{asked.threads}.json",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
