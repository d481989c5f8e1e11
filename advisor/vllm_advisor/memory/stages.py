"""How pipeline parallelism cuts the layers (distributed/utils.py get_pp_indices, the same in 0.24.0 and 0.33.0)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from vllm_advisor.plan import Plan


def partition(plan: Plan) -> tuple[int, ...]:
    """Layers of each stage where VLLM_PP_LAYER_PARTITION says so, else ()."""
    text = dict(plan.env).get("VLLM_PP_LAYER_PARTITION", "") if plan.env else ""
    parts = [p.strip() for p in text.split(",")] if text else []
    return tuple(int(p) for p in parts) if all(p.isdecimal() for p in parts) else ()


@functools.cache
def stages(num_layers: int, pipeline_parallel_size: int, parts: tuple[int, ...] = ()) -> tuple[range, ...]:
    """The decoder layers of each stage. The layers that are left over go to the stages before the last one.

    `parts` are taken as they are where they fit the model and the number of stages.
    """
    sizes = [num_layers // pipeline_parallel_size] * pipeline_parallel_size
    for i in range(2, num_layers % pipeline_parallel_size + 2):
        sizes[-i] += 1
    if len(parts) == pipeline_parallel_size and sum(parts) == num_layers:
        sizes = list(parts)
    ends = [sum(sizes[: i + 1]) for i in range(pipeline_parallel_size)]
    return tuple(range(end - size, end) for end, size in zip(ends, sizes, strict=True))
