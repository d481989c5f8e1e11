"""The tiles worth trying for vLLM's fused experts, and why others are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_tuner.kernel_tuning import points


if TYPE_CHECKING:
    from vllm_tuner.kernel_tuning.points import Point, Space
    from vllm_tuner.vllm_configs.defaults import Config, Where
    from vllm_tuner.vllm_configs.shapes import Shape


class Axis(NamedTuple):
    """One key of a configuration and the values that are tried, in order."""

    name: str
    values: tuple[int, ...]


# The values that vLLM's own shipped tables hold, those that stand in less than one in a hundred entries left out.
_COMMON = (
    Axis("BLOCK_SIZE_M", (16, 32, 64, 128)),
    Axis("BLOCK_SIZE_N", (32, 64, 128, 256)),
    Axis("BLOCK_SIZE_K", (64, 128, 256)),
    Axis("GROUP_SIZE_M", (1, 16, 32, 64)),
)
_NVIDIA = (Axis("num_warps", (4, 8)), Axis("num_stages", (2, 3, 4, 5)))
_AMD = (
    Axis("num_warps", (1, 2, 4, 8)),
    Axis("num_stages", (2,)),
    Axis("waves_per_eu", (0, 1, 2, 4)),
    Axis("matrix_instr_nonkdim", (0, 16, 32)),
    Axis("kpack", (1, 2)),
)
UNSAID = {"waves_per_eu": 0, "matrix_instr_nonkdim": 0, "kpack": 1}  # Triton's defaults (backends/amd/compiler.py)
# Shared memory that one block may take, bytes: CUDA C++ programming guide, table "technical specifications per compute
# capability"; LDS of a compute unit on CDNA3 and CDNA4 (AMD's ISA guides).
_SHARED = {
    "sm75": 64 << 10, "sm80": 163 << 10, "sm86": 99 << 10, "sm89": 99 << 10, "sm90": 227 << 10, "sm100": 227 << 10,
    "sm103": 227 << 10, "sm120": 99 << 10, "sm121": 99 << 10, "gfx90a": 64 << 10, "gfx942": 64 << 10,
    "gfx950": 160 << 10,
}  # fmt: skip
_ELEMENT = {"fp8_w8a8": (1, 1), "int8_w8a16": (2, 1), "int4_w4a16": (2, 1), "float32": (4, 4)}  # activation, weight


def axes(where: Where, shape: Shape) -> tuple[Axis, ...]:
    """What is varied; the default's own values are added where the table above does not have them."""
    from vllm_tuner.vllm_configs.defaults import default_config

    default = default_config(where, shape, 1)
    common = _COMMON if "BLOCK_SIZE_N" in default else (_COMMON[0], _COMMON[3])
    return (*common, *(_AMD if where.is_rocm else _NVIDIA))


def objection(where: Where, shape: Shape, batch: int, config: Config) -> str:
    """Why tiles are not tried for a batch, "" for those that are."""
    m, n, k = (config.get(name, 64) for name in ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"))
    if m > max(16, 1 << (batch - 1).bit_length()):
        return "the M tile is larger than all tokens together"
    if shape.block and shape.block[0] and (k > min(shape.block) or min(shape.block) % k):
        return "the K tile does not fit the block of the scales"
    if config.get("kpack", 1) == 2 and where.arch == "gfx950":
        return "kpack 2 is deprecated on gfx950, Triton sets it to 1"
    limit = _SHARED.get(where.arch)
    if limit is not None and _shared_bytes(shape, m, n, k, config.get("num_stages", 1)) > limit:
        return f"its stages need more than the {limit >> 10} KiB of shared memory"
    return ""


def _shared_bytes(shape: Shape, m: int, n: int, k: int, stages: int) -> int:
    """Both operands' tiles of every stage that is in flight; an estimate, the compiler has the last word."""
    a, b = _ELEMENT.get(shape.dtype or "", (2, 2))
    return (m * k * a + k * n * b) * max(stages - 1, 1)


def waste(shape: Shape, batch: int, config: Config) -> float:
    """Rows that are multiplied for nothing, as a factor of those that are needed: tiles are padded for each expert.

    Experts that see any token, for evenly drawn experts; each pads its share to whole tiles.
    """
    slots = batch * shape.top_k
    busy = shape.experts * (1 - (1 - 1 / shape.experts) ** slots)
    rows = slots / busy
    tile = config.get("BLOCK_SIZE_M", 16)
    return -(-rows // tile) * tile / rows


def space(where: Where, shape: Shape, batch: int, default: Config) -> Space:
    """Every legal point for one batch size; vLLM's default is the first start where the axes hold it."""
    varied = axes(where, shape)

    def config(point: Point) -> Config:
        return dict(zip((axis.name for axis in varied), point, strict=True))

    start = points.point_of(varied, tuple((UNSAID | default).items()))
    return points.space(
        varied,
        [start] if start else [],
        lambda point: objection(where, shape, batch, config(point)),
        lambda point: waste(shape, batch, config(point)),
    )
