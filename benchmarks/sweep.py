"""Recommend every catalog model on every set-up and version, and print one digest a cell.

    python benchmarks/sweep.py [--models N] > cells.txt

A line: model, machine, version, verdict (`plan`, `no`, `error:`), plans, rejections, SHA-256 of the JSON answer.
Two runs must print the same bytes; nothing but AdvisorError may stop a cell.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time

from vllm_advisor.catalog import gpus, hub, models
from vllm_advisor.cli import document
from vllm_advisor.errors import AdvisorError
from vllm_advisor.facts import Facts
from vllm_advisor.recommend import recommend
from vllm_advisor.vllm import surface
from vllm_advisor.workload import PRESETS


MACHINES = ("1xL4", "1xH100", "8xH100", "8xB200", "8xMI300X", "8xMI355X")
VERSIONS = ("0.24.0", "0.33.0")


def cell(name: str, machine: str, version: str) -> str:
    """One answer, digested."""
    try:
        spec = hub.resolve(name, offline=True)
        facts = Facts(gpus.node(machine), spec, PRESETS["chat"], surface.load(version))
        answer = recommend(facts, models.siblings(spec))
    except AdvisorError as error:
        return f"error: {type(error).__name__} {error.message}"
    reasons = all(any(f.level == "veto" for f in r.findings) for r in answer.rejected)
    text = json.dumps(document.recommendation(answer, why_not=True), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    verdict = "plan" if answer.plans else "no"
    return f"{verdict} {len(answer.plans)} {len(answer.rejected)} {'reasons' if reasons else 'SILENT'} {digest}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=0, help="only the first N models")
    args = parser.parse_args()
    start, cells = time.perf_counter(), 0
    names = models.names()
    for name in names[: args.models or len(names)]:
        for machine in MACHINES:
            for version in VERSIONS:
                print(f"{name}\t{machine}\t{version}\t{cell(name, machine, version)}")
                cells += 1
    print(f"{cells} cells, {(time.perf_counter() - start) / max(1, cells) * 1e3:.0f} ms a cell", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
