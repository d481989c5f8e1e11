"""How pipeline parallelism cuts the layers (distributed/utils.py get_pp_indices, the same in 0.24.0 and 0.33.0)."""

from __future__ import annotations

import functools


@functools.cache
def stages(num_layers: int, pipeline_parallel_size: int) -> tuple[range, ...]:
    """The decoder layers of each stage. The layers that are left over go to the stages before the last one."""
    sizes = [num_layers // pipeline_parallel_size] * pipeline_parallel_size
    for i in range(2, num_layers % pipeline_parallel_size + 2):
        sizes[-i] += 1
    ends = [sum(sizes[: i + 1]) for i in range(pipeline_parallel_size)]
    return tuple(range(end - size, end) for end, size in zip(ends, sizes, strict=True))
