"""Predict a file of real vLLM start-ups and score the predictions, by version and given the KV cache.

    python benchmarks/score_memory.py TRUTH.jsonl MODELS [--scorer score_startups.py] [--worst 12] [--out FOLDER]

TRUTH holds one start-up a line, MODELS a config of each model. The scorer is a script that takes both files and
`--since`, `--before` and `--json`; by default the one that lies beside TRUTH. `--worst` lists the rows that are
furthest off, for a look at the mechanism: no constant is fitted to a row.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from vllm_advisor.estimate.checkpoint import Shelf
from vllm_advisor.estimate.rows import answers


VIEWS = (("all rows", ()), ("0.24 and newer", ("--since", "0.24")), ("before 0.24", ("--before", "0.24")))
GIVEN = (("kv_tokens", "tokens"), ("concurrency", "concurrency"))
FIGURES = (("weights_gib", "weights_gib"), ("kv_mem_gib", "kv_cache_gib"), ("max_concurrency", "max_concurrency"))


def predicted(truth: Path, models: Path, out: Path, *, given_kv: bool) -> float:
    """Write the answers to `out`; seconds that it took."""
    start = time.perf_counter()
    with truth.open("rb") as lines, out.open("w", encoding="utf-8") as sink:
        sink.writelines(line + "\n" for line in answers(lines, Shelf(models), given_kv=given_kv))
    return time.perf_counter() - start


def score(scorer: Path, truth: Path, out: Path, view: tuple[str, ...]) -> dict[str, Any]:
    """What the scorer says of one view."""
    argv = [sys.executable, str(scorer), str(truth), str(out), "--json", *view]
    found: dict[str, Any] = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    return found


def table(title: str, found: dict[str, Any]) -> list[str]:
    """One line a figure: groups, median and p90 of the absolute error in percent."""
    lines = [f"{title}: {found['answered']} of {found['rows']} rows answered ({found['coverage']})"]
    for name in ("weights", "kv_gib", "kv_tokens", "concurrency", "graphs", "activation"):
        row = found[name]
        lines.append(f"  {name:12} {row['groups']:3} groups   median {row['median_ape']} %   p90 {row['p90_ape']} %")
    spread, verdict = found["interval"], found["verdict"]
    lines.append(f"  interval     {spread['n']:3} rows     covers {spread['covers']}   "
                 f"half-width {spread['median_half_width_pct']} %")  # fmt: skip
    ok, fail = verdict["ok"], verdict["memory_fail"]
    return [*lines, f"  verdicts     ok {ok[1]} of {ok[0]}   memory failures {fail[1]} of {fail[0]}"]


def worst(truth: Path, out: Path, count: int) -> list[str]:
    """The rows furthest off in any figure, and the verdicts that are wrong."""
    rows = {row["id"]: row for row in map(json.loads, truth.read_text(encoding="utf-8").splitlines())}
    errors = []
    for answer in map(json.loads, out.read_text(encoding="utf-8").splitlines()):
        row = rows.get(answer.get("id"), {})
        for printed, ours in FIGURES:
            if row.get("scored") and row.get(printed) and ours in answer:
                off = (answer[ours] - row[printed]) / abs(row[printed]) * 100
                name = f"{row['model'][:40]} on {row['gpu'][:24]}"
                errors.append((abs(off), (f"  {row['id']:6} {printed:16} {row[printed]:>10} -> {answer[ours]:>10} "
                                         f"({off:+.0f} %)  {name}")))  # fmt: skip
    return [text for _, text in sorted(errors, reverse=True)[:count]]


def report(args: argparse.Namespace, folder: Path) -> None:
    """All tables, the KV cache predicted and then given."""
    scorer = args.scorer or args.truth.with_name("score_startups.py")
    out, given = folder / "predicted.jsonl", folder / "given-kv.jsonl"
    seconds = predicted(args.truth, args.models, out, given_kv=False)
    for title, view in VIEWS:
        print("\n".join(table(title, score(scorer, args.truth, out, view))))
    predicted(args.truth, args.models, given, given_kv=True)
    found = score(scorer, args.truth, given, ())
    print("given the KV cache that vLLM printed")
    for name, label in GIVEN:
        print(f"  {label:12} {found[name]['groups']:3} groups   median {found[name]['median_ape']} %   "
              f"p90 {found[name]['p90_ape']} %")  # fmt: skip
    print(f"{seconds:.2f} s for the batch")
    print("\n".join(worst(args.truth, out, args.worst)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("truth", type=Path)
    parser.add_argument("models", type=Path)
    parser.add_argument("--scorer", type=Path)
    parser.add_argument("--worst", type=int, default=12)
    parser.add_argument("--out", type=Path, help="keep the answers in this folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        report(args, args.out or Path(scratch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
