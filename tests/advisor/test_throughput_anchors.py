"""The speed model against what people measured: one row of each source and device, drawn at random, figures only."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from vllm_advisor.estimate.checkpoint import Shelf
from vllm_advisor.estimate.rows import predict


ANCHORS = Path(__file__).parents[1] / "data" / "speed" / "anchors.json"
HELD = 0.7  # of 31 rows; 0.87 is meant, and the draw is small


def anchors() -> list[tuple[float, dict[str, Any]]]:
    """(output tokens a second as published, what we answer for the row)."""
    rows = json.loads(ANCHORS.read_text(encoding="utf-8"))
    hidden = ("source", "output_tok_s")
    return [
        (row["output_tok_s"], predict({k: v for k, v in row.items() if k not in hidden}, Shelf(None))) for row in rows
    ]


def test_most_public_measurements_lie_in_their_intervals():
    """Every row is answered, and at least seven in ten lie between low and high."""
    found = anchors()
    inside = [a["output_tok_s_low"] <= true <= a["output_tok_s_high"] for true, a in found]
    assert 31 == len(inside)
    assert sum(inside) >= HELD * len(inside)


def test_the_median_measurement_is_within_two_fifths():
    """Half of the draw is nearer than 40 %, and the median is unbiased within a quarter."""
    ratios = [a["output_tok_s"] / true for true, a in anchors()]
    assert statistics.median(abs(r - 1) for r in ratios) < 0.4
    assert 0.75 < statistics.median(ratios) < 1.33


def test_intervals_say_something():
    """The median interval is narrower than a factor of two and a half either way."""
    widths = [(a["output_tok_s_high"] / a["output_tok_s_low"]) ** 0.5 for _, a in anchors()]
    assert statistics.median(widths) < 2.5
