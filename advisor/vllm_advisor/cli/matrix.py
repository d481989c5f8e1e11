"""`advisor matrix` as text or JSON: our rows for the GPU, then the seed's six rows with where we differ and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.cli import output
from vllm_advisor.rules.seed import SEED_ROWS


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.hardware import Gpu
    from vllm_advisor.rules.matrix import MatrixRow
    from vllm_advisor.vllm.surface import Surface


def show(gpu: Gpu, surface: Surface, rows: Sequence[MatrixRow], *, json: bool) -> None:
    """Print both."""
    if json:
        output.write_json(_document(gpu, surface, rows))
    else:
        output.write([*_ours(gpu, surface, rows), "", *_seed(surface)])


def _ours(gpu: Gpu, surface: Surface, rows: Sequence[MatrixRow]) -> list[str]:
    lines = [output.bold(f"{gpu.name} ({gpu.arch}), vLLM {surface.version}")]
    for row in rows:
        lines.append(f"  {row.situation}: {row.quantization}, KV {row.kv_cache}")
        lines += output.wrapped("      ", f"{row.why} [{row.source}]")
    return lines


def _seed(surface: Surface) -> list[str]:
    lines = [output.bold("The seed text's matrix, and our answer")]
    for row in SEED_ROWS:
        ours = row.answer(surface)
        lines.append(f"  {row.situation}: it says {row.quantization}, KV {row.kv_cache}; we {ours.verdict}")
        lines += output.wrapped("      ", f"{ours.advice} {ours.why} [{ours.source}]")
    return lines


def _document(gpu: Gpu, surface: Surface, rows: Sequence[MatrixRow]) -> dict[str, object]:
    return {
        "schema": 1,
        "vllm": surface.version,
        "gpu": gpu.name,
        "arch": gpu.arch,
        "matrix": [
            {
                "situation": r.situation,
                "quantization": r.quantization,
                "kv_cache": r.kv_cache,
                "why": r.why,
                "source": r.source,
            }
            for r in rows
        ],
        "seed": [
            {
                "situation": r.situation,
                "says": {"quantization": r.quantization, "kv_cache": r.kv_cache},
                "verdict": r.answer(surface).verdict,
                "advice": r.answer(surface).advice,
                "why": r.answer(surface).why,
                "source": r.answer(surface).source,
            }
            for r in SEED_ROWS
        ],
    }
