"""Compare the speed model with public measurements: its median bias and error, over all and by maker of the device.

    python benchmarks/speed_anchor.py SERVING.jsonl MODELS_DIR [--predictions OUT.jsonl]

SERVING has one measurement a line (model, config, gpu, tp/pp/dp/ep, quantization, lengths, load, output_tok_s …),
MODELS_DIR the configs that it names. The global efficiencies in `vllm_advisor.throughput.rates` are set so that the
median bias is near 1; nothing is fitted to a row. A row whose device, config or load is unknown is counted as skipped.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import re
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any


sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "advisor"))

from vllm_advisor.catalog import gpus
from vllm_advisor.errors import AdvisorError
from vllm_advisor.memory.budget import budget
from vllm_advisor.model.config import read
from vllm_advisor.model.spec import ModelSpec, Quantization
from vllm_advisor.plan import Plan
from vllm_advisor.throughput.estimate import estimate
from vllm_advisor.vllm.defaults import serve_defaults
from vllm_advisor.vllm.surface import load
from vllm_advisor.workload import Workload


if TYPE_CHECKING:
    from vllm_advisor.hardware import Node

Row = dict[str, Any]
_DEVICE_WORDS = re.compile(r"\s*\(.*\)")
# A row's word for a format → our scheme, bits a weight with its scales, bits of its activations.
_SCHEMES = {
    "fp8": ("fp8_block", 8.03, 8),
    "nvfp4": ("nvfp4", 4.5, 4),
    "mxfp4": ("mxfp4", 4.25, 16),
    "fp4": ("mxfp4", 4.25, 4),
    "int4": ("int4", 4.16, 16),
    "int8": ("int8", 8.03, 8),
    "mxfp8": ("mxfp8", 8.25, 8),
}
_METRICS = ("output_tok_s", "mean_tpot_ms", "mean_ttft_ms")


def main() -> int:
    """Print bias and error; 0 always."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("serving", type=Path)
    parser.add_argument("models", type=Path)
    parser.add_argument("--predictions", type=Path)
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.serving.read_text().splitlines() if line.strip()]
    scored = [row for row in rows if row.get("scored", True)]
    answers = [(row, _answer(row, args.models)) for row in scored]
    if args.predictions:
        args.predictions.write_text("".join(json.dumps({"id": r["id"], **a}) + "\n" for r, a in answers))
    _report(answers)
    return 0


def _answer(row: Row, models: Path) -> Row:
    try:
        return _predict(row, models)
    except (AdvisorError, KeyError, TypeError, OSError) as e:
        return {"unsupported": f"{type(e).__name__}: {e}"[:200]}


def _predict(row: Row, models: Path) -> Row:
    model = _as_served(_model(models / row["config"]), str(row.get("quantization") or "").lower())
    sizes = [int(row.get(key) or 1) for key in ("tp", "pp", "dp")]
    world = sizes[0] * sizes[1] * sizes[2]
    node = _node(row["gpu"], max(world, int(row.get("gpu_count") or 1)))
    surface = load("0.24.0")
    workload = _workload(row)
    defaults = serve_defaults(surface, node)
    plan = Plan(
        model.name,
        kv_cache_dtype="fp8" if str(row.get("kv_cache_dtype")).startswith("fp8") else "auto",
        tensor_parallel_size=sizes[0],
        pipeline_parallel_size=sizes[1],
        data_parallel_size=sizes[2],
        enable_expert_parallel=bool(row.get("ep_on")) and model.is_moe,
        max_model_len=min(model.max_position or 8192, workload.input_tokens + workload.output_tokens + 256),
        max_num_seqs=defaults.max_num_seqs,
        max_num_batched_tokens=defaults.max_num_batched_tokens,
    )
    e = estimate(model, plan, budget(model, plan, node, surface), node, surface, workload)
    return {
        "output_tok_s": e.output_tok_s.mid,
        "output_tok_s_low": e.output_tok_s.low,
        "output_tok_s_high": e.output_tok_s.high,
        "total_tok_s": e.total_tok_s.mid,
        "mean_tpot_ms": e.tpot_ms.mid,
        "mean_ttft_ms": e.ttft_ms.mid,
        "bound": e.bound,
    }


def _workload(row: Row) -> Workload:
    """Nominal lengths where the real ones are not stated; an unlimited rate is all prompts at once."""
    rate = row.get("request_rate")
    limited = float(rate) if isinstance(rate, (int, float)) else None
    together = row.get("concurrency") or (row.get("num_prompts") if limited is None else 256)
    return Workload(
        input_tokens=int(row.get("mean_isl_actual") or row["isl"]),
        output_tokens=int(row.get("mean_osl_actual") or row["osl"]),
        concurrency=int(together),
        request_rate=None if row.get("concurrency") else limited,
    )


@functools.cache
def _model(path: Path) -> ModelSpec:
    return read(json.loads(path.read_text()), name=path.stem)


@functools.cache
def _as_served(model: ModelSpec, words: str) -> ModelSpec:
    """The checkpoint in the row's format, where the config is that of the unquantized base model."""
    known = next((value for key, value in _SCHEMES.items() if key in words), None)
    if known is None or model.quantization.scheme != "bf16":
        return model
    scheme, bits, activations = known
    groups = tuple(
        replace(g, bytes=int(g.params * bits / 8), bits=int(bits)) if g.quantizable else g for g in model.weights
    )
    quantization = Quantization(scheme, scheme, int(bits), activations)
    return replace(model, weights=groups, quantization=quantization)


@functools.cache
def _node(name: str, devices: int) -> Node:
    """The device in catalog words, its asides in brackets dropped; as many as one machine holds, more as machines."""
    bare = _DEVICE_WORDS.sub("", name).strip()
    try:
        return gpus.node(f"{devices}x{bare}")
    except AdvisorError:
        return gpus.node(f"{-(-devices // 8)}x8x{bare}")


def _report(answers: list[tuple[Row, Row]]) -> None:
    skipped = collections.Counter(a["unsupported"] for _, a in answers if "unsupported" in a)
    print(f"rows {len(answers)}, answered {len(answers) - skipped.total()}")
    for reason, n in skipped.most_common(8):
        print(f"  skipped {n}: {reason}")
    for metric in _METRICS:
        for label, wanted in (("all", ""), ("nvidia", "sm"), ("amd", "gfx")):
            _line(metric, label, [p for p in _pairs(answers, metric) if p[2].startswith(wanted)])


def _pairs(answers: list[tuple[Row, Row]], metric: str) -> list[tuple[float, float, str]]:
    """(measured, predicted, architecture) of the rows that have both."""
    return [
        (row[metric], a[metric], _node(row["gpu"], 1).gpu.arch) for row, a in answers if row.get(metric) and metric in a
    ]


def _line(metric: str, label: str, pairs: list[tuple[float, float, str]]) -> None:
    if not pairs:
        return
    bias = statistics.median(p / m for m, p, _ in pairs)
    error = statistics.median(abs(p / m - 1) * 100 for m, p, _ in pairs)
    within = statistics.fmean(0.5 <= p / m <= 2 for m, p, _ in pairs)
    print(
        f"{metric:13} {label:7} n {len(pairs):4}  bias {bias:5.2f}  median error {error:5.1f} %  within x2 {within:.2f}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
