"""How a product is divided: `Launch` for a Triton body, `CpuTile` for the C++ path."""

from __future__ import annotations

from typing import NamedTuple


class Launch(NamedTuple):
    """`block_m` counts tokens, `block_n` output rows, `block_k` the reduced dimension; `group` orders tiles."""

    block_m: int = 0
    block_n: int = 0
    block_k: int = 0
    num_warps: int = 4
    num_stages: int = 3
    group: int = 8

    def constants(self) -> dict[str, int]:
        """By the names of kernel arguments; a kernel takes those that it has."""
        return {"BLOCK_M": self.block_m, "BLOCK_N": self.block_n, "BLOCK_K": self.block_k, "GROUP": self.group}

    @property
    def tile(self) -> str:
        """`16x64x128`."""
        return "x".join(str(n) for n in (self.block_m, self.block_n, self.block_k) if n)


class CpuTile(NamedTuple):
    """How `cpu.linear` goes through x [M, K] and a weight [N, K]; the defaults are those of an untuned machine.

    Either path: `fused_tokens`: up to so many rows of x are multiplied by the codes as they are, more by a weight that
    is decoded piece by piece. `batch`: so many rows of x meet a piece of the weight at a time (0: all).
    By the codes: `rows` (1, 2, 4) of the weight against `tokens` (1, 2, 4, 8) of x in registers, fewer where the
    instruction set has not as many; `scaled_sums`: scales go on the sums in tiles of up to so many tokens (0, 1, 2), on
    the elements in wider ones; `prefetch`: how many times `rows` ahead codes are asked for; `task_rows`: rows of the
    weight that a thread takes at a time (0: an equal share each).
    Decoded: `decoded`: elements a piece; `own_tiles`: each thread decodes and multiplies pieces of its own (1), or all
    work on one (0); `float32`: multiply in float32 even where the processor has bfloat16 (1).
    """

    fused_tokens: int = 16
    rows: int = 2
    tokens: int = 8
    scaled_sums: int = 2
    prefetch: int = 1
    task_rows: int = 0
    decoded: int = 1 << 20
    batch: int = 0
    own_tiles: int = 0
    float32: int = 0

    @property
    def tile(self) -> str:
        """What differs from the default: `rows=4 task_rows=32`, or `default`."""
        usual = CpuTile()
        parts = [f"{name}={value}" for name, value in self._asdict().items() if value != getattr(usual, name)]
        return " ".join(parts) or "default"
