"""How a kernel is launched: tiles, warps, pipeline stages; and the default for each op, architecture and batch.

The defaults were chosen with what a compiler tells without a device (`docs/kernels.md`): no spills, shared memory that
fits, the matrix instruction that the format has, many resident warps. They are not measurements; the tuner replaces
them by what a machine measured, in one file for the server to read: ADVISOR_KERNEL_CONFIGS names it, `handoff.py` has
its schema and what makes an entry stale.
"""

from __future__ import annotations

from typing import NamedTuple

from vllm_mx_kernels.handoff import (
    CPU_LINEAR,
    ENVIRONMENT,
    Entry,
    HandoffError,
    Key,
    read_configs,
    source_hash,
    token_bucket,
    tuned,
    write_configs,
)
from vllm_mx_kernels.tiles import CpuTile, Launch


__all__ = [
    "CPU_LINEAR",
    "ENVIRONMENT",
    "TABLE",
    "CpuTile",
    "Entry",
    "HandoffError",
    "Key",
    "Launch",
    "Row",
    "default_launch",
    "read_configs",
    "source_hash",
    "token_bucket",
    "tuned_launch",
    "tuned_tile",
    "write_configs",
]  # fmt: skip


class Row(NamedTuple):
    """One line of the table: for these ops and architectures, up to `tokens` tokens (an expert's share, for MoE)."""

    ops: str
    archs: str
    tokens: int
    launch: Launch


_ANY = 1 << 30
_ALL = "sm75 sm80 sm86 sm87 sm89 sm90 sm100 sm103 sm110 sm120 sm121 gfx90a gfx942 gfx950 gfx1200 gfx1201"
_SMALL_SHARED = "sm75 sm86 sm87 sm89 sm120 sm121 gfx90a gfx942"
# The first row that fits is taken. Decode tiles are 16 tokens wide: a matrix unit's least.
TABLE = (
    #   ops                            architectures            tokens  tile, warps, stages
    Row("mxfp4.w4a4 mxfp4.w4a8mx",     "gfx950",                    32, Launch(16, 64, 128, 4, 3)),
    Row("mxfp4.w4a4 mxfp4.w4a8mx",     "sm100 sm103 sm120 sm121",   64, Launch(128, 64, 128, 4, 3)),
    Row("mxfp4.w4a4 mxfp4.w4a8mx",     _ALL,                      _ANY, Launch(128, 128, 128, 8, 3)),
    Row("mxfp4.w4a8 moe.w4a8",         "gfx1200 gfx1201",           32, Launch(16, 64, 64, 4, 2)),
    Row("mxfp4.w4a16 moe.w4a16",       "gfx1200 gfx1201",           32, Launch(16, 64, 64, 4, 2)),
    Row("mxfp4.w4a16 mxfp4.w4a8 moe.w4a16 moe.w4a8", _ALL,          32, Launch(16, 64, 128, 4, 3)),
    Row("moe.w4a16 moe.w4a8",          _ALL,                      _ANY, Launch(64, 128, 64, 8, 3)),
    Row("mxfp4.w4a16 mxfp4.w4a8",      "gfx1200 gfx1201",         _ANY, Launch(64, 128, 64, 8, 2)),
    Row("mxfp4.w4a16 mxfp4.w4a8",      _ALL,                      _ANY, Launch(128, 128, 64, 8, 3)),
    Row("fp8.tensor fp8.channel fp8.block moe.fp8 moe.fp8_block", _ALL, 32, Launch(16, 64, 128, 4, 3)),
    Row("fp8.block moe.fp8_block",     "sm100 sm103 gfx950",      _ANY, Launch(128, 128, 128, 8, 3)),
    Row("fp8.block moe.fp8_block",     "sm90",                    _ANY, Launch(64, 128, 128, 8, 3)),
    Row("fp8.block moe.fp8_block",     _ALL,                      _ANY, Launch(64, 128, 128, 8, 2)),
    Row("fp8.tensor fp8.channel moe.fp8", "gfx1200 gfx1201",      _ANY, Launch(64, 128, 128, 8, 2)),
    Row("fp8.tensor fp8.channel moe.fp8", _SMALL_SHARED,          _ANY, Launch(128, 128, 128, 8, 2)),
    Row("fp8.tensor fp8.channel moe.fp8", _ALL,                   _ANY, Launch(128, 128, 128, 8, 3)),
    Row("kv.decode",                   "gfx90a gfx942 gfx950 gfx1200 gfx1201", _ANY, Launch(0, 32, 0, 4, 1)),
    Row("kv.decode",                   _ALL,                      _ANY, Launch(0, 64, 0, 4, 2)),
)  # fmt: skip


def default_launch(op: str, arch: str, tokens: int) -> Launch:
    """The table's launch. Raises KeyError for an op or architecture that it does not have."""
    for row in TABLE:
        if tokens <= row.tokens and op in row.ops.split() and arch in row.archs.split():
            return row.launch
    raise KeyError(f"no launch of {op} on {arch}")


def tuned_launch(
    op: str, arch: str, tokens: int, n: int, k: int, experts: int = 0, top_k: int = 0
) -> Launch:  # fmt: skip
    """What was measured for this bucket on this machine, else the table's launch. Raises KeyError as `default_launch`.

    `n` and `k` of the weight; of a MoE those of gate_up [experts, n, k], and `tokens` of the whole batch.
    """
    found = tuned(Key(op, arch, token_bucket(tokens), n, k, experts, top_k))
    if isinstance(found, Launch):
        return found
    return default_launch(op, arch, -(-tokens * top_k // experts) if experts else tokens)


def tuned_tile(op: str, arch: str, tokens: int, n: int, k: int) -> CpuTile | None:
    """What was measured for this bucket on this machine with the instruction set `arch`, else None: the default."""
    found = tuned(Key(op, arch, token_bucket(tokens), n, k))
    return found if isinstance(found, CpuTile) else None
