"""How long `advisor estimate --batch` takes for 10,000 rows on one core.

    python benchmarks/estimate_speed.py [--rows 10000] [--check]

The rows are catalog models on catalog devices, with versions, lengths and layouts that differ from row to row, so
that caches help no more than they do in use. `--check` exits 1 above 10 seconds of processor time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from vllm_advisor.catalog import models
from vllm_advisor.estimate.checkpoint import Shelf
from vllm_advisor.estimate.rows import answers


if TYPE_CHECKING:
    from collections.abc import Iterator

BAR_SECONDS = 10.0
GPUS = ("H100", "H200", "L40S", "A100-80", "RTX 4090", "MI300X", "B200")
VERSIONS = ("0.6.3", "0.8.5", "0.11.0", "0.12.0", "0.20.0", "0.24.0", "0.28.0", "0.33.0")
LENGTHS = (4096, 16384, 32768, None)
TPS = (1, 2, 4, 8)


def rows(count: int) -> Iterator[bytes]:
    """Rows whose fields run through their values at different speeds."""
    names = models.names()
    for i in range(count):
        row = {
            "id": f"s{i}",
            "model": names[i % len(names)],
            "gpu": GPUS[i // 3 % len(GPUS)],
            "gpu_count": 8,
            "tp": TPS[i // 5 % len(TPS)],
            "max_model_len": LENGTHS[i // 7 % len(LENGTHS)],
            "max_num_seqs": 64 + i % 97,
            "vllm_version": VERSIONS[i // 11 % len(VERSIONS)],
        }
        yield json.dumps(row).encode()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--check", action="store_true", help="exit 1 when the bar is missed")
    args = parser.parse_args()
    lines = list(rows(args.rows))
    start = time.process_time()
    kinds = {"figures": 0, "unsupported": 0, "error": 0}
    for answer in map(json.loads, answers(lines, Shelf(None))):
        kinds[next((k for k in ("error", "unsupported") if k in answer), "figures")] += 1
    seconds = time.process_time() - start
    print(f"{args.rows} rows: {seconds:.2f} s ({seconds / max(1, args.rows) * 1e6:.0f} us a row), {kinds}")
    return int(args.check and seconds > BAR_SECONDS * args.rows / 10_000)


if __name__ == "__main__":
    sys.exit(main())
