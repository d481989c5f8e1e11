"""Compare what we read out of model configs with known parameter counts and checkpoint sizes, as tables.

    python benchmarks/check_models.py MODELS_DIR

MODELS_DIR holds config files and an INDEX.tsv: model_id, file, provenance_class, params_b,
params_source, safetensors_total_size (`~` is rounded), total_size_source ("computed" says nothing and is skipped).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple


sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "advisor"))

from vllm_advisor.errors import AdvisorError
from vllm_advisor.model.config import read


if TYPE_CHECKING:
    from vllm_advisor.model.spec import ModelSpec


GIB = 1 << 30
PARAMS_TOLERANCE = 0.005
BYTES_TOLERANCE = 0.01


class Row(NamedTuple):
    """One line of INDEX.tsv."""

    model_id: str
    file: str
    provenance: str
    params_b: str
    params_source: str
    size: str
    size_source: str


def main(folder: Path) -> int:
    """Print the tables; 0 when at least 95 % of the parameter counts agree."""
    lines = (folder / "INDEX.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [Row(*line.split("\t")) for line in lines]
    specs: dict[str, ModelSpec] = {}
    times: list[float] = []
    for row in rows:
        config = json.loads((folder / row.file).read_text(encoding="utf-8"))
        start = time.perf_counter()
        try:
            specs[row.model_id] = read(config, name=row.model_id, provenance=row.provenance)
        except AdvisorError as refused:
            print(f"refused  {row.model_id:55} {refused.message}")
            continue
        times.append(time.perf_counter() - start)
    _unknowns(specs)
    share = _params(rows, specs)
    _bytes(rows, specs)
    times.sort()
    print(f"read(): median {1e3 * times[len(times) // 2]:.2f} ms, slowest {1e3 * times[-1]:.1f} ms (the first imports)")
    return 0 if share >= 0.95 else 1


def _unknowns(specs: dict[str, ModelSpec]) -> None:
    for name, spec in specs.items():
        for unknown in spec.unknowns:
            print(f"unknown  {name:55} {unknown}")


def _params(rows: list[Row], specs: dict[str, ModelSpec]) -> float:
    judged = [(r, specs[r.model_id]) for r in rows if r.params_b and r.model_id in specs]
    misses = [(r, s) for r, s in judged if abs(s.params / 1e9 / float(r.params_b) - 1) > PARAMS_TOLERANCE]
    for row, spec in misses:
        print(f"params   {row.model_id:55} {row.params_b} B known, {spec.params / 1e9:.4f} B ours")
    print(f"parameter counts within {PARAMS_TOLERANCE:.1%}: {len(judged) - len(misses)} of {len(judged)}")
    return 1 - len(misses) / max(1, len(judged))


def _bytes(rows: list[Row], specs: dict[str, ModelSpec]) -> None:
    judged = [
        (r, specs[r.model_id]) for r in rows if r.size and "computed" not in r.size_source and r.model_id in specs
    ]
    within = 0
    for row, spec in judged:
        known = int(row.size.lstrip("~"))
        draft = sum(g.bytes for g in spec.weights if g.role == "mtp")
        errors = [(spec.weight_bytes + extra) / known - 1 for extra in (0, draft)]
        best = min(errors, key=abs)
        ok = abs(best) <= BYTES_TOLERANCE
        within += ok
        mark = "        " if ok else "MISS    "
        print(
            f"{mark} {row.model_id:55} {known / GIB:8.2f} GiB known, {spec.weight_bytes / GIB:8.2f} ours"
            f" ({errors[0]:+.2%}), with drafts {errors[1]:+.2%}"
        )
    print(f"checkpoint sizes within {BYTES_TOLERANCE:.0%}: {within} of {len(judged)}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
