"""Starts the Triton bodies that quantize and dequantize."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton

from vllm_mx_kernels import _quantize_triton as bodies
from vllm_mx_kernels.formats import BLOCK, E2M1
from vllm_mx_kernels.fp8 import scales_of
from vllm_mx_kernels.scales import SCALE_MODES, carry_from


if TYPE_CHECKING:
    from vllm_mx_kernels.formats import Format
    from vllm_mx_kernels.fp8 import Granularity
    from vllm_mx_kernels.scales import ScaleMode

_ROWS, _WIDTH = 8, 256
_ROW_WIDTH = 1024


def mxfp4(x: torch.Tensor, mode: ScaleMode) -> tuple[torch.Tensor, torch.Tensor]:
    """(codes, scales) of [..., K]; see `mxfp4.quantize_mxfp4`."""
    flat = _rows(x, mode)
    m, k = flat.shape
    codes = torch.empty(m, k // 2, dtype=torch.uint8, device=x.device)
    scales = torch.empty(m, k // BLOCK, dtype=torch.uint8, device=x.device)
    bodies.quantize_mxfp4_kernel[_grid(m, k)](
        flat, codes, scales, m, k, flat.stride(0),
        EMAX=E2M1.emax, CARRY_FROM=carry_from(E2M1, mode), ROWS=_ROWS, WIDTH=_WIDTH,
    )  # fmt: skip
    return codes.view(*x.shape[:-1], k // 2), scales.view(*x.shape[:-1], k // BLOCK)


def mxfp8(x: torch.Tensor, mode: ScaleMode, fmt: Format, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """(elements, scales) of [..., K]; see `mxfp8.quantize_mxfp8`."""
    flat = _rows(x, mode)
    m, k = flat.shape
    elements = torch.empty(m, k, dtype=dtype, device=x.device)
    scales = torch.empty(m, k // BLOCK, dtype=torch.uint8, device=x.device)
    bodies.quantize_mxfp8_kernel[_grid(m, k)](
        flat, elements, scales, m, k, flat.stride(0), LARGEST=fmt.max,
        EMAX=fmt.emax, CARRY_FROM=carry_from(fmt, mode), ROWS=_ROWS, WIDTH=_WIDTH,
    )  # fmt: skip
    return elements.view(x.shape), scales.view(*x.shape[:-1], k // BLOCK)


def fp8(
    x: torch.Tensor, granularity: Granularity, fmt: Format, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """(elements, scales) of [N, K]; see `fp8.quantize_fp8`."""
    x = x.contiguous()
    elements = torch.empty(x.shape, dtype=dtype, device=x.device)
    n, k = x.shape
    if granularity == "tensor":
        return elements, _whole(x, elements, fmt)
    if granularity in ("channel", "token"):
        scales = torch.empty(n, 1, dtype=torch.float32, device=x.device)
        bodies.quantize_fp8_rows_kernel[(n,)](
            x, elements, scales, k, x.stride(0), LARGEST=fmt.max, WIDTH=_ROW_WIDTH
        )  # fmt: skip
        return elements, scales
    rows = 128 if granularity == "block" else 1
    scales = torch.empty(triton.cdiv(n, rows), triton.cdiv(k, 128), dtype=torch.float32, device=x.device)
    bodies.quantize_fp8_tiles_kernel[tuple(scales.shape)](
        x, elements, scales, n, k, x.stride(0), scales.stride(0), LARGEST=fmt.max, ROWS=rows, WIDTH=128
    )  # fmt: skip
    return elements, scales


def _whole(x: torch.Tensor, elements: torch.Tensor, fmt: Format) -> torch.Tensor:
    """One scale for all takes two passes: the largest magnitude is torch's to find."""
    scale = scales_of(x.float().abs().amax(), fmt.max)
    n, k = x.shape
    bodies.scale_fp8_kernel[(n, triton.cdiv(k, _ROW_WIDTH))](
        x, elements, scale, k, x.stride(0), LARGEST=fmt.max, WIDTH=_ROW_WIDTH
    )  # fmt: skip
    return scale


def from_mxfp4(codes: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """See `mxfp4.dequantize_mxfp4`."""
    k = codes.shape[-1] * 2
    if k % BLOCK or scales.shape != (*codes.shape[:-1], k // BLOCK):
        raise ValueError(f"scales {tuple(scales.shape)} are not one for each {BLOCK} of codes {tuple(codes.shape)}")
    flat, flat_scales = codes.reshape(-1, k // 2).contiguous(), scales.reshape(-1, k // BLOCK).contiguous()
    y = torch.empty(flat.shape[0], k, dtype=dtype, device=codes.device)
    bodies.dequantize_mxfp4_kernel[_grid(*y.shape)](flat, flat_scales, y, *y.shape, ROWS=_ROWS, WIDTH=_WIDTH)
    return y.view(*codes.shape[:-1], k)


def _rows(x: torch.Tensor, mode: ScaleMode) -> torch.Tensor:
    if x.shape[-1] % BLOCK:
        raise ValueError(f"the last dimension, {x.shape[-1]}, is no multiple of the block of {BLOCK}")
    if mode not in SCALE_MODES:
        raise ValueError(f"no scale mode {mode!r}; one of {', '.join(SCALE_MODES)}")
    return x.reshape(-1, x.shape[-1]).contiguous()


def _grid(m: int, k: int) -> tuple[int, int]:
    return triton.cdiv(m, _ROWS), triton.cdiv(k, _WIDTH)
