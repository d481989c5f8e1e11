"""Fit the speed model's parameters to public measurements, and score what it says of rows that it was not fitted to.

    python benchmarks/fit_speed.py SERVING.jsonl MODELS_DIR [--write] [--predictions OUT.jsonl] [--steps 20]

Needs numpy, which the product does not. Where each parameter starts and how far it may move stands in
`throughput/priors.py`; `--write` writes `fitted.py` beside it, and `spreads.py` from the residuals of the folds.

Least squares in the logarithm, with the prior as a penalty and weights that fall for outliers (a row may be mistyped).
Each campaign (one source, model and device) may be off by a factor of its own, which no prediction uses: two labs
differ on one configuration, and a lab with many rows shall not decide a parameter alone.

Folds: sources `inferencex-*` and `nvidia-aic-*` are one family, split by model; every other source is a fold. A fold is
predicted with parameters that were fitted without it.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "advisor"))

from vllm_advisor.errors import AdvisorError
from vllm_advisor.estimate.checkpoint import Shelf
from vllm_advisor.estimate.rows import server
from vllm_advisor.throughput import priors, spread
from vllm_advisor.throughput.load import serve
from vllm_advisor.throughput.parameters import Parameters
from vllm_advisor.throughput.step import machine


ROOM = Path(__file__).resolve().parents[1] / "advisor" / "vllm_advisor" / "throughput"
PRIOR = Parameters(*(row.value for row in priors.TABLE))
FREE = [row for row in priors.TABLE if row.sureness]
LOW, HIGH = (np.log([getattr(row, side) for row in FREE]) for side in ("low", "high"))
START = np.log([row.value for row in FREE])
PRECISION = np.array([1 / row.sureness**2 for row in FREE])
CAMPAIGN_SPREAD, ERROR, STEP = 0.1, 0.3, 0.02
# Truth's field, which of (output, total, ttft, tpot) it is, and its weight.
METRICS = (
    ("output_tok_s", 0, 1.0), ("total_tok_s", 1, 1.0), ("mean_tpot_ms", 3, 1.0), ("median_tpot_ms", 3, 0.5),
    ("tpot_ms_stat_unknown", 3, 1.0), ("mean_ttft_ms", 2, 0.6), ("median_ttft_ms", 2, 0.4),
    ("ttft_ms_stat_unknown", 2, 0.4),
)  # fmt: skip
SAME = {"total_tok_s": "output_tok_s", "median_tpot_ms": "mean_tpot_ms", "median_ttft_ms": "mean_ttft_ms"}
# Scored, but not learnt from: a nightly build that took 3 to 5 s to its first token at any length and load, ten times
# what the same family does elsewhere.
COLD = ("inferencex-slo", "Qwen--Qwen3.5-397B-A17B.json")
IMPOSSIBLE_TPOT_MS = 1.4  # below: mistyped, or seconds
MANY_GROUPS = 20
Row = dict[str, Any]
Array = Any


class Data(NamedTuple):
    """Rows that can be predicted, and what was observed of them: row, figure, logarithm, weight, campaign."""

    rows: list[Row]
    servers: list[Any]
    folds: list[str]
    row: Array
    figure: Array
    value: Array
    weight: Array
    campaigns: Array


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("serving", type=Path)
    parser.add_argument("models", type=Path)
    parser.add_argument("--write", action="store_true", help="write fitted.py and spreads.py")
    parser.add_argument("--predictions", type=Path, help="of all folds, for score_serving.py")
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    data = load(args.serving, args.models)
    whole = fit(data, START, args.steps)
    by_fold = cross_validated(data, whole)
    logs = np.array([predict(by_fold[fold], s) for fold, s in zip(data.folds, data.servers, strict=True)])
    report("in sample", data, predictions(parameters(whole), data))
    report("by fold", data, logs)
    widths = calibrated(data, logs)
    if args.write:
        write(parameters(whole), widths)
    if args.predictions:
        args.predictions.write_text("".join(lines(data, logs, widths)))
    return 0


def load(serving: Path, models: Path) -> Data:
    """Read the scored rows; those that name no known device are left out, and counted."""
    shelf, rows, servers, left = Shelf(models), [], [], collections.Counter()
    for line in serving.read_text().splitlines():
        row = json.loads(line)
        if row.get("scored", True):
            try:
                servers.append(server(row, shelf))
                rows.append(row)
            except AdvisorError as error:
                left[error.message[:60]] += 1
    print(f"{len(rows)} rows, left out: {dict(left)}")
    return Data(rows, servers, [fold_of(row) for row in rows], *observed(rows))


def fold_of(row: Row) -> str:
    """One family of sources by model, every other source by itself."""
    source = row["source_class"]
    return f"ix {row['config']}" if source.startswith(("inferencex", "nvidia-aic")) else source


def observed(rows: list[Row]) -> tuple[Array, ...]:
    """Observations of all rows; a group of rows weighs as one row, and a source with many groups less in each."""
    group = collections.Counter(row["group"] or row["id"] for row in rows)
    groups = collections.Counter(r["source_class"] for r in {r["group"] or r["id"]: r for r in rows}.values())
    found, camps = [], {}
    for i, row in enumerate(rows):
        cold = (row["source_class"], row["config"]) == COLD
        scale = (MANY_GROUPS / max(MANY_GROUPS, groups[row["source_class"]])) ** 0.25
        camp = camps.setdefault((row["source_class"], row["config"], row["gpu_norm"]), len(camps))
        for name, figure, weight in METRICS:
            value = row.get(name)
            if not value or value <= 0 or row.get(SAME.get(name, "")) or (figure == 3 and value < IMPOSSIBLE_TPOT_MS):
                continue
            found.append(
                (
                    i,
                    figure,
                    math.log(value),
                    0.0 if cold else weight * scale / math.sqrt(group[row["group"] or row["id"]]),
                    camp,
                )
            )
    row_, figure_, value_, weight_, camp_ = map(np.array, zip(*found, strict=True))
    campaigns = np.zeros((len(found), len(camps)))
    campaigns[np.arange(len(found)), camp_] = np.where(figure_ < 2, -1.0, 1.0)
    return row_, figure_, value_, weight_, campaigns


def parameters(at: Array) -> Parameters:
    return PRIOR._replace(**{row.name: float(np.exp(x)) for row, x in zip(FREE, at, strict=True)})


def predict(values: Parameters, asked: Any) -> list[float]:
    """Logarithms of output and total tokens a second, and of TTFT and TPOT in milliseconds."""
    read, load_, seats = asked
    found = serve(machine(read, values), load_, seats, values)
    total = found.output * (load_.input_tokens + load_.output_tokens) / max(1.0, load_.output_tokens)
    return [math.log(x) for x in (found.output, total, 1000 * found.ttft, 1000 * found.tpot)]


def predictions(values: Parameters, data: Data) -> Array:
    return np.array([predict(values, asked) for asked in data.servers])


def jacobian(at: Array, data: Data) -> Array:
    """Differences by each parameter, and the campaigns' own factors."""
    base = predictions(parameters(at), data)[data.row, data.figure]
    columns = []
    for j in range(len(at)):
        moved = at.copy()
        moved[j] += STEP
        columns.append((predictions(parameters(moved), data)[data.row, data.figure] - base) / STEP)
    return np.hstack([np.array(columns).T, data.campaigns])


def fit(data: Data, at: Array, steps: int, kept: Array | None = None, slopes: Array | None = None) -> Array:
    """Levenberg-Marquardt with Student weights. `kept`: which observations count. `slopes`: a Jacobian to stay with."""
    n, camps = len(at), data.campaigns.shape[1]
    precision = np.concatenate([PRECISION, np.full(camps, 1 / CAMPAIGN_SPREAD**2)])
    center = np.concatenate([START, np.zeros(camps)])
    weight = data.weight**2 * (1.0 if kept is None else kept)
    x, damping = np.concatenate([at, np.zeros(camps)]), 0.1
    residual = _residual(x, n, data)
    cost = _cost(residual, weight, x - center, precision)
    for _ in range(steps):
        slope = jacobian(x[:n], data) if slopes is None else slopes
        w = weight / (1 + (residual / (2 * ERROR)) ** 2) / ERROR**2
        normal = slope.T @ (slope * w[:, None]) + np.diag(precision)
        pull = -(slope.T @ (w * residual)) - precision * (x - center)
        for _ in range(6):
            move = np.clip(np.linalg.solve(normal + damping * np.diag(np.diag(normal)), pull), -0.5, 0.5)
            tried = x + move
            tried[:n] = np.clip(tried[:n], LOW, HIGH)
            left = _residual(tried, n, data)
            price = _cost(left, weight, tried - center, precision)
            if price < cost:
                break
            damping *= 4
        else:
            break
        gain, x, residual, cost, damping = cost - price, tried, left, price, max(damping / 4, 1e-3)
        if gain < 1e-3 * cost / 10:
            break
    return x[:n]


def _residual(x: Array, n: int, data: Data) -> Array:
    return predictions(parameters(x[:n]), data)[data.row, data.figure] - data.value + data.campaigns @ x[n:]


def _cost(residual: Array, weight: Array, off: Array, precision: Array) -> float:
    return float((weight * 4 * np.log1p((residual / (2 * ERROR)) ** 2)).sum() + (precision * off**2).sum())


def cross_validated(data: Data, whole: Array) -> dict[str, Parameters]:
    """Parameters by fold, each fitted to all other folds, from the common ones on with their slopes."""
    slopes = jacobian(whole, data)
    of = np.array(data.folds)[data.row]
    return {name: parameters(fit(data, whole, 4, of != name, slopes)) for name in sorted(set(data.folds))}


def report(title: str, data: Data, logs: Array) -> None:
    """Median absolute error by fold and figure, in per cent."""
    error = np.abs(np.expm1(logs[data.row, data.figure] - data.value)) * 100
    of = np.array(data.folds)[data.row]
    print(f"\n{title}: median error in % (rows) of output, total, TTFT, TPOT")
    for name in [*sorted(set(data.folds)), ""]:
        cells = []
        for figure in range(4):
            chosen = error[(data.figure == figure) & ((of == name) | (name == ""))]
            cells.append(f"{np.median(chosen):6.0f} ({len(chosen):4d})" if len(chosen) else " " * 13)
        print(f"  {name or 'all':44} {' '.join(cells)}")


def calibrated(data: Data, logs: Array) -> dict[tuple[int, str], tuple[float, int]]:
    """(factor either way that holds, campaigns) for each figure and kind of load, from rows that were not fitted."""
    sides: dict[tuple[int, str], list[tuple[float, int]]] = collections.defaultdict(list)
    camp = np.abs(data.campaigns).argmax(axis=1)
    off = np.abs(logs[data.row, data.figure] - data.value)
    for i, row in enumerate(data.row):
        read, load_, seats = data.servers[row]
        if data.figure[i] == 1:
            continue  # a total is judged by its output
        figure = {0: 0, 2: 1, 3: 2}[int(data.figure[i])]
        for cell in ("", spread.cell(read, load_, seats)):
            sides[figure, cell].append((float(off[i]), int(camp[i])))
    return {key: _factor(cell) for key, cell in sides.items()}


def _factor(cell: list[tuple[float, int]]) -> tuple[float, int]:
    quantile = float(np.quantile([off for off, _ in cell], spread.HOLDS))
    return math.exp(quantile), len({camp for _, camp in cell})


def lines(data: Data, logs: Array, widths: dict[tuple[int, str], tuple[float, int]]) -> list[str]:
    """Predictions of all folds as score_serving.py reads them, with the interval that would be said."""
    out = []
    for row, asked, at in zip(data.rows, data.servers, np.exp(logs), strict=True):
        factor = spread.factor(widths, 0, spread.cell(*asked))
        named = dict(zip(("output_tok_s", "total_tok_s", "mean_ttft_ms", "mean_tpot_ms"), map(float, at), strict=True))
        named |= {"output_tok_s_low": float(at[0] / factor), "output_tok_s_high": float(at[0] * factor)}
        out.append(json.dumps({"id": row["id"], **named}) + "\n")
    return out


def write(values: Parameters, widths: dict[tuple[int, str], tuple[float, int]]) -> None:
    """fitted.py and spreads.py."""
    rows = "".join(
        f'    ("{r.name}", {getattr(values, r.name):.4g}, "{r.unit}", {r.low:g}, {r.high:g}, "{r.meaning}"),\n'
        for r in priors.TABLE
    )
    (ROOM / "fitted.py").write_text(_FITTED.format(rows=rows))
    cells = "".join(f'    ({f}, "{c}"): ({w:.3g}, {n}),\n' for (f, c), (w, n) in sorted(widths.items()))
    (ROOM / "spreads.py").write_text(_SPREADS.format(rows=cells))


_FITTED = '''"""Values of the speed model's parameters, written by benchmarks/fit_speed.py. Do not edit."""

from __future__ import annotations

from vllm_advisor.throughput.parameters import Parameters


#  name, value, unit, bounds, meaning
TABLE = (
{rows})  # fmt: skip

FITTED = Parameters(*(row[1] for row in TABLE))
'''
_SPREADS = '''"""How far measurements lay from predictions without them, by benchmarks/fit_speed.py. Do not edit.

(0 rates, 1 time to first token, 2 time per output token; kind of load) → (factor either way, campaigns behind it).
"""

from __future__ import annotations


SPREADS = {{
{rows}}}
'''

if __name__ == "__main__":
    sys.exit(main())
