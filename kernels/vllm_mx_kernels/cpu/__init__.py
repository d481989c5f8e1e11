"""MXFP4 on a CPU, in C++: quantize, dequantize, and multiply by packed weights without unpacking them in memory.

Compiled at first use for the instruction sets that the processor may have, and chosen at each call; ADVISOR_MX_ISA
(plain, neon, avx2 or avx512) forces one. Where there is no compiler, `available` says so once, and callers use the
twins. The operators are `torch.ops.vllm_mx.*`, with shapes for torch.compile.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import TYPE_CHECKING

import torch

from vllm_mx_kernels.formats import BLOCK, E2M1
from vllm_mx_kernels.handoff import CPU_LINEAR, configs
from vllm_mx_kernels.launch import tuned_tile
from vllm_mx_kernels.scales import SCALE_MODES, ScaleMode, carry_from


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm_mx_kernels.tiles import CpuTile

INPUTS = (torch.float32, torch.bfloat16, torch.float16)
OUTPUTS = (torch.float32, torch.bfloat16)
_CARRY = {mode: carry_from(E2M1, mode) for mode in SCALE_MODES}


def available() -> bool:
    """Whether the operators are there. The first call builds and loads them; a failure is logged, once, in a line."""
    return _loaded()


torch.compiler.assume_constant_result(available)  # marks it: torch.compile must not look inside


def takes(x: torch.Tensor, dtype: torch.dtype, dtypes: tuple[torch.dtype, ...]) -> bool:
    """Whether x lies on the CPU and is not empty, `dtype` is among `dtypes`, and the operators are there."""
    return x.device.type == "cpu" and dtype in dtypes and x.numel() > 0 and available()


@cache
def _loaded() -> bool:
    try:
        _load()
    except (ImportError, OSError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        logging.getLogger(__name__).warning("MXFP4 on this CPU runs in torch, slowly: %s", reason)
        return False
    return True


def _load() -> None:
    from vllm_mx_kernels.cpu import _build  # here, as fcntl is not everywhere

    torch.ops.load_library(str(_build.library()))
    _ask_for_tiles()
    for name, shape in _SHAPES.items():
        torch.library.register_fake(f"vllm_mx::{name}", shape)


def _ask_for_tiles() -> None:
    """Linux lets a process use AMX once it has asked to, which torch does before its first product in bf16.

    vLLM's attention (csrc/cpu/cpu_attn_amx.hpp in 0.32.0) relies on that: where our operators take the place of all
    such products, its first tile would end the worker with SIGILL.
    """
    ask = getattr(torch.cpu, "_init_amx", None)
    if ask is not None:
        ask()


def _fake_quantize(x: torch.Tensor, _: int) -> tuple[torch.Tensor, torch.Tensor]:
    *rows, k = x.shape
    return x.new_empty((*rows, k // 2), dtype=torch.uint8), x.new_empty((*rows, k // BLOCK), dtype=torch.uint8)


def _fake_dequantize(codes: torch.Tensor, _: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    *rows, half = codes.shape
    return codes.new_empty((*rows, half * 2), dtype=dtype)


def _fake_linear(
    x: torch.Tensor, codes: torch.Tensor, _: torch.Tensor, __: torch.Tensor | None, ___: Sequence[int] = ()
) -> torch.Tensor:
    return x.new_empty((x.shape[0], codes.shape[0]))


def _fake_into(codes: torch.Tensor, scales: torch.Tensor, out: torch.Tensor) -> None: ...


_SHAPES: dict[str, Callable[..., object]] = {
    "quantize_mxfp4": _fake_quantize,
    "dequantize_mxfp4": _fake_dequantize,
    "dequantize_mxfp4_into": _fake_into,
    "linear_mxfp4": _fake_linear,
}


def instruction_sets() -> Sequence[str]:
    """What ADVISOR_MX_ISA may be on this machine, the best first. Needs `available`."""
    return tuple(torch.ops.vllm_mx.instruction_sets())


def quantize(x: torch.Tensor, mode: ScaleMode = "floor") -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize x [..., K] of `INPUTS` to codes [..., K / 2] and scales [..., K / 32]: the twin's, bit for bit.

    Needs `available`. Raises ValueError for another dtype, K or mode.
    """
    if mode not in _CARRY:
        raise ValueError(f"no scale mode {mode!r}; one of {', '.join(SCALE_MODES)}")
    codes, scales = torch.ops.vllm_mx.quantize_mxfp4(x, _CARRY[mode])
    return codes, scales


def dequantize(codes: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Decode codes [..., K / 2] and scales [..., K / 32] to [..., K] in a dtype of `OUTPUTS`: the twin's, bit for bit.

    Needs `available`. Raises ValueError for another dtype or shapes that do not fit.
    """
    out: torch.Tensor = torch.ops.vllm_mx.dequantize_mxfp4(codes, scales, dtype)
    return out


def dequantize_into(codes: torch.Tensor, scales: torch.Tensor, out: torch.Tensor) -> None:
    """Decode into a contiguous `out` [..., K]: memory that is used again has no page faults, half of the time else."""
    torch.ops.vllm_mx.dequantize_mxfp4_into(codes, scales, out)


def instruction_set() -> str:
    """What products use on this machine: ADVISOR_MX_ISA, or the best. Needs `available`."""
    return os.environ.get("ADVISOR_MX_ISA") or _best()


@cache
def _best() -> str:
    return instruction_sets()[0]


def linear(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None = None,
    tile: CpuTile | None = None,
) -> torch.Tensor:  # fmt: skip
    """Multiply x [M, K] of `INPUTS`, as it is, by weight [N, K]ᵀ: + bias [N] → [M, N] in x's dtype, summed in float32.

    Up to M = 16 from the codes; beyond, pieces of the weight are decoded for torch to multiply. `tile` divides the work
    in another way; without it, what ADVISOR_KERNEL_CONFIGS has for this shape. Needs `available`.
    Raises ValueError for another dtype, shapes that do not fit or a tile that cannot be.
    """
    if tile is None and x.dim() == codes.dim() == 2:
        tile = _tuned(x.shape[0], *codes.shape)
    y: torch.Tensor = torch.ops.vllm_mx.linear_mxfp4(x, codes, scales, bias, tile or ())
    return y


def _tuned(m: int, n: int, half: int) -> CpuTile | None:
    if torch.compiler.is_compiling() or not configs().launches:  # a graph serves many numbers of tokens
        return None
    return tuned_tile(CPU_LINEAR, instruction_set(), m, n, half * 2)
