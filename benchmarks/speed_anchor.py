"""Compare speed models on public measurements: ours, out of sample; our first version; a roofline; aiconfigurator.

    python benchmarks/speed_anchor.py SCORER.py SERVING.jsonl GROUPS.jsonl ROOFLINE.jsonl NAME=PREDICTIONS.jsonl …

Each PREDICTIONS file is scored with the same scorer on the same rows, against the roofline's wrong pairs. Ours are from
`benchmarks/fit_speed.py --predictions` (each fold predicted without it). `--aiconfigurator OUT` also asks NVIDIA's one
where it is installed (0.12.0 of PyPI), for the rows that it answers: aggregated serving of a dense or MoE
model that it knows, on H100, H200, B200 or A100; what it does not answer counts as it does for everybody.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any


FIGURES = ("output_tok_s", "mean_tpot_ms", "mean_ttft_ms")
SYSTEMS = {"H100": "h100_sxm", "H200": "h200_sxm", "B200": "b200_sxm", "A100-80": "a100_sxm"}
FORMATS = {"fp8": "fp8", "nvfp4": "nvfp4"}  # linear layers; else as its own model list has them
Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("scorer", "serving", "groups", "roofline"):
        parser.add_argument(name, type=Path)
    parser.add_argument("predictions", nargs="*", metavar="NAME=FILE")
    parser.add_argument("--aiconfigurator", type=Path, metavar="OUT", help="ask it, and write what it says here")
    args = parser.parse_args()
    named = [("roofline", args.roofline), *((n, Path(f)) for n, _, f in (p.partition("=") for p in args.predictions))]
    if args.aiconfigurator:
        ask(args.serving, args.aiconfigurator)
        named.append(("aiconfigurator", args.aiconfigurator))
    print(f"{'':16} answered configurations hard(right/n) concurrency  output%  TPOT%  TTFT%  covers  factor")
    for name, file in named:
        print(line(name, scored(args, file)))
    return 0


def scored(args: argparse.Namespace, file: Path) -> Row:
    command = [sys.executable, args.scorer, args.serving, args.groups, file, "--json", "--against", args.roofline]
    found: Row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def line(name: str, found: Row) -> str:
    """One model's figures in one line."""
    settings, hard, interval = found["ranking_by_setting"], found["hard_pairs"], found["interval"]
    sizes = "  ".join(f"{_shown(found['size'].get(f, {}).get('median_ape')):>6}" for f in FIGURES)
    return (
        f"{name:16} {found['answered']:8} {found['ranking_of_configurations']['pairwise']:14} "
        f"{_shown(hard['right']):>9}/{hard['n']:<5} {settings.get('concurrency', {}).get('pairwise', 0):11}  {sizes}  "
        f"{_shown(interval['covers']):>6}  {_shown(interval['median_factor']):>6}"
    )


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def ask(serving: Path, out: Path) -> None:
    """Predictions of aiconfigurator's own command line, one row at a time; a row that it refuses is unsupported."""
    with out.open("w", encoding="utf-8") as file:
        for text in serving.read_text(encoding="utf-8").splitlines():
            row = json.loads(text)
            if row.get("scored", True):
                file.write(json.dumps({"id": row["id"], **_asked(row)}) + "\n")


def _asked(row: Row) -> Row:
    from aiconfigurator.cli.api import cli_estimate  # noqa: PLC0415  only where it is installed

    system = SYSTEMS.get(row.get("gpu_norm") or "")
    if not system or not (row.get("isl") and row.get("osl") and row.get("concurrency") and row.get("tp")):
        return {"unsupported": "no such system, or no lengths, load or TP"}
    try:
        found = cli_estimate(
            row["model"], system, backend_name="vllm", isl=int(row["isl"]), osl=int(row["osl"]),
            batch_size=max(1, int(row["concurrency"]) // int(row.get("dp") or 1)), tp_size=int(row["tp"]),
            pp_size=int(row.get("pp") or 1), attention_dp_size=int(row.get("dp") or 1),
            gemm_quant_mode=FORMATS.get(row.get("quant_norm") or ""),
        )  # fmt: skip
    except Exception as error:  # noqa: BLE001  whatever it refuses, the next row is asked
        return {"unsupported": f"{type(error).__name__}: {error}"[:200]}
    tpot, ttft = float(found.tpot), float(found.ttft)
    rate = 1000 * int(row["concurrency"]) * row["osl"] / (ttft + row["osl"] * tpot)
    return {"mean_tpot_ms": tpot, "mean_ttft_ms": ttft, "output_tok_s": rate}


if __name__ == "__main__":
    sys.exit(main())
