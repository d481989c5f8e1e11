"""How far a measured gain lies from the predicted one: pairs of public measurements that differ in one kind of setting.

    python benchmarks/gain_pairs.py SERVING.jsonl GROUPS.jsonl [--models FOLDER]

SERVING has one measurement a row (model, device, layout, formats, load, output rate), GROUPS the rows of one source
that may be compared. Printed, for each kind of setting: pairs, and the factors within which half, four fifths and nine
tenths of the measured gains lay. `vllm_advisor.doctor.live_gain.ERRORS` holds the four fifths.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_advisor.estimate.checkpoint import Shelf
from vllm_advisor.estimate.rows import answers


if TYPE_CHECKING:
    from collections.abc import Iterator

Row = dict[str, Any]
LOAD = ("isl", "osl", "request_rate", "model", "gpu_norm", "vllm_version_or_commit")
# A larger batch shows in public runs as more requests in flight, up to so many times.
MOST_TIMES = 8
METRICS = {
    "output": ("output_tok_s", "total_tok_s"),
    "first": ("mean_ttft_ms", "median_ttft_ms"),
    "token": ("mean_tpot_ms", "median_tpot_ms"),
}


def kind(a: Row, b: Row) -> str:
    """The one kind of setting in which two rows differ, "" for none or several."""
    found = []
    if a["concurrency"] != b["concurrency"]:
        known = a["concurrency"] and b["concurrency"]
        found.append(
            "batch" if known and 1 / MOST_TIMES <= a["concurrency"] / b["concurrency"] <= MOST_TIMES else "load"
        )
    elif a["num_prompts"] != b["num_prompts"]:
        found.append("load")
    if any(a[f] != b[f] for f in ("tp", "pp", "dp", "ep_on")):
        found.append("layout")
    if a["quant_norm"] != b["quant_norm"]:
        found.append("weights")
    flags = any((a[f] or "") != (b[f] or "") for f in ("other_flags", "env"))
    if a["kv_cache_dtype"] != b["kv_cache_dtype"] or (flags and not found):
        found.append("other")
    return found[0] if len(found) == 1 and found != ["load"] else ""


def pairs(rows: dict[str, Row], groups: list[Row]) -> Iterator[tuple[str, Row, Row]]:
    """Two rows of a group under one load, each pair once."""
    seen: set[tuple[str, str]] = set()
    for group in groups:
        members = [rows[i] for i in group["members"] if i in rows] if not group["workload_mismatch"] else []
        for a, b in itertools.combinations(members, 2):
            key = (a["id"], b["id"])
            if key not in seen and all(a.get(f) == b.get(f) for f in LOAD) and kind(a, b):
                seen.add(key)
                yield kind(a, b), a, b


def errors(
    found: list[tuple[str, Row, Row]], predicted: dict[str, Row], names: tuple[str, ...]
) -> dict[str, list[float]]:
    """|log(predicted gain / measured gain)| by kind; the first of `names` that both rows have is compared."""
    result: dict[str, list[float]] = {}
    for what, a, b in found:
        name = next((n for n in names if a.get(n) and b.get(n)), None)
        if name is None:
            continue
        ours = name.replace("median_", "mean_")
        gain = predicted[b["id"]][ours] / predicted[a["id"]][ours]
        result.setdefault(what, []).append(abs(math.log(gain / (b[name] / a[name]))))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("serving", type=Path)
    parser.add_argument("groups", type=Path)
    parser.add_argument("--models", type=Path, help="a folder of configs, publisher--name.json")
    args = parser.parse_args()
    with args.serving.open("rb") as lines:
        said = [json.loads(line) for line in answers(lines, Shelf(args.models))]
    predicted = {row["id"]: row for row in said if "output_tok_s" in row}
    measured = [json.loads(line) for line in args.serving.read_text().splitlines()]
    rows = {row["id"]: row for row in measured if row["scored"] and row["id"] in predicted}
    found = list(pairs(rows, [json.loads(line) for line in args.groups.read_text().splitlines()]))
    for metric, names in METRICS.items():
        for what, values in sorted(errors(found, predicted, names).items()):
            ranked = sorted(values)
            factors = [math.exp(ranked[min(len(ranked) - 1, int(q * len(ranked)))]) for q in (0.5, 0.8, 0.9)]
            print(f"{metric:<7}{what:<8}{len(ranked):>4} pairs  " + "  ".join(f"{f:.2f}" for f in factors))


if __name__ == "__main__":
    main()
