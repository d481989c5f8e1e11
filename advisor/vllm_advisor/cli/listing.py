"""The catalog's lists, as tables or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.cli import output
from vllm_advisor.units import GB, gib, significant


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.hardware import Gpu


def gpus(found: Sequence[Gpu], *, json: bool) -> None:
    """Memory as the driver reports it, dense rates; `~` marks a value whose source is weak."""
    if json:
        output.write_json({"schema": 1, "gpus": [_gpu(gpu) for gpu in found]})
        return
    header = ("GPU", "arch", "memory", "GB/s", "BF16", "FP8", "FP4 TFLOPS", "unverified")
    output.write(output.table([header, *(_row(gpu) for gpu in found)], indent=""))


def _row(gpu: Gpu) -> tuple[str, ...]:
    rates = (gpu.tflops_bf16, gpu.tflops_fp8, gpu.tflops_fp4)
    cells = tuple(significant(rate) if rate else "-" for rate in rates)
    bandwidth = significant(gpu.bandwidth / GB)
    return gpu.name, gpu.arch, gib(gpu.memory_bytes), bandwidth, *cells, ", ".join(gpu.unverified)


def _gpu(gpu: Gpu) -> dict[str, object]:
    return {
        "name": gpu.name,
        "arch": gpu.arch,
        "memory_bytes": gpu.memory_bytes,
        "bandwidth_bytes_per_s": gpu.bandwidth,
        "tflops": {"bf16": gpu.tflops_bf16, "fp8": gpu.tflops_fp8, "fp4": gpu.tflops_fp4},
        "unverified": list(gpu.unverified),
        "source": gpu.source,
    }


def models(names: Sequence[str], *, json: bool) -> None:
    """One name a line."""
    if json:
        output.write_json({"schema": 1, "models": list(names)})
    else:
        output.write(names)
