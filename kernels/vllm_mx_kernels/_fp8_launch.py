"""Starts the Triton body of FP8 products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton

from vllm_mx_kernels import _fp8_triton as bodies
from vllm_mx_kernels.fp8 import BLOCK_SHAPE
from vllm_mx_kernels.launch import tuned_launch


if TYPE_CHECKING:
    from vllm_mx_kernels.fp8 import Fp8
    from vllm_mx_kernels.launch import Launch


def matmul(
    x: Fp8, weight: Fp8, bias: torch.Tensor | None, dtype: torch.dtype, launch: Launch | None, arch: str, *,
    by_block: bool,
) -> torch.Tensor:  # fmt: skip
    """See `fp8.matmul_fp8`."""
    a, w = x.elements.contiguous(), weight.elements.contiguous()
    x_scales, w_scales = x.scales.contiguous(), weight.scales.contiguous()
    y = torch.empty(a.shape[0], w.shape[0], dtype=dtype, device=a.device)
    if not y.numel():
        return y
    kinds = ("block", "block") if by_block else (_kind(x.scales, "token"), _kind(weight.scales, "channel"))
    launch = launch or tuned_launch(f"fp8.{kinds[1]}", arch, y.shape[0], y.shape[1], a.shape[1])
    if by_block and launch.block_k != BLOCK_SHAPE[1]:
        raise ValueError(f"scales by blocks of {BLOCK_SHAPE[1]} take a block_k of as much, not {launch.block_k}")
    grid = (triton.cdiv(y.shape[0], launch.block_m) * triton.cdiv(y.shape[1], launch.block_n),)
    bodies.fp8_matmul_kernel[grid](
        a, w, x_scales, w_scales, y if bias is None else bias.contiguous(), y, y.shape[0], y.shape[1], a.shape[1],
        a.stride(0), w.stride(0), y.stride(0), _stride(x_scales), _stride(w_scales),
        X_SCALES=kinds[0], W_SCALES=kinds[1], HAS_BIAS=bias is not None,
        EVEN_K=a.shape[1] % launch.block_k == 0,
        **launch.constants(), num_warps=launch.num_warps, num_stages=launch.num_stages,
    )  # fmt: skip
    return y


def _kind(scales: torch.Tensor, rows: str) -> str:
    return "tensor" if scales.dim() == 0 else rows


def _stride(scales: torch.Tensor) -> int:
    return scales.stride(0) if scales.dim() else 0
