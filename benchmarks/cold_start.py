"""Whole-command start-up against `python -c "import typer, rich.table"`: medians of interleaved runs, as ratios.

    python benchmarks/cold_start.py [--runs 10] [--check]

Only ratios of one run mean anything on a shared machine; `--check` exits 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path


BASELINE = [sys.executable, "-c", "import typer, rich.table"]
ADVISOR = [sys.executable, "-m", "vllm_advisor"]
SERVE = ["vllm", "serve", "openai/gpt-oss-120b", "--tensor-parallel-size", "8"]
LOG = Path(__file__).parents[1] / "tests/data/logs/healthy-0.33.log"
COMMANDS = {
    # name: (arguments, the bar as a multiple of the baseline)
    "--help": (["--help"], 1.2),
    "recommend gpt-oss-120b 8xH100": (["recommend", "openai/gpt-oss-120b", "--gpu", "8xH100"], 2.0),
    "estimate gpt-oss-120b 8xH100": (["estimate", "openai/gpt-oss-120b", "--gpu", "8xH100", "--tp", "8"], 2.0),
    "check gpt-oss-120b 8xH100": (["check", "--gpu", "8xH100", "--", *SERVE], 2.0),
    "compare Qwen3-8B H100": (["compare", "Qwen/Qwen3-8B", "--gpu", "H100"], 2.0),
    "migrate 0.24.0 to 0.33.0": (
        ["migrate", "--from", "0.24.0", "--to", "0.33.0", "--gpu", "8xH100", "--", *SERVE],
        2.0,
    ),
    "doctor healthy-0.33.log": (["doctor", str(LOG), "--gpu", "8xH100"], 2.0),
}


# An installed package has its bytecode; without this, a checkout would be compiled again at each start.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def seconds(argv: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    return time.perf_counter() - start


def measure(runs: int) -> dict[str, float]:
    """Median seconds by name; the commands take turns, so that noise meets all of them."""
    argvs = {"baseline": BASELINE, **{name: ADVISOR + args for name, (args, _) in COMMANDS.items()}}
    for argv in argvs.values():
        seconds(argv)
    times: dict[str, list[float]] = {name: [] for name in argvs}
    for _ in range(runs):
        for name, argv in argvs.items():
            times[name].append(seconds(argv))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    args = parser.parse_args()
    medians = measure(args.runs)
    print(f"{'baseline':32} {medians['baseline'] * 1e3:6.0f} ms")
    missed = 0
    for name, (_, bar) in COMMANDS.items():
        ratio = medians[name] / medians["baseline"]
        missed += ratio > bar
        print(f"{name:32} {medians[name] * 1e3:6.0f} ms  {ratio:.2f} x  (bar {bar} x)")
    return int(args.check and missed > 0)


if __name__ == "__main__":
    sys.exit(main())
