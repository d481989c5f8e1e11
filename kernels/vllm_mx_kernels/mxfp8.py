"""MXFP8: E4M3FN or E5M2 elements with one E8M0 scale for each 32 of them."""

from __future__ import annotations

from typing import NamedTuple

import torch

from vllm_mx_kernels.device import uses_triton
from vllm_mx_kernels.formats import BLOCK, E4M3FN, E8M0_BIAS, E8M0_NAN, Format
from vllm_mx_kernels.fp8 import TORCH_DTYPES
from vllm_mx_kernels.scales import ScaleMode, block_amax, scale_values, shared_scales


class Mxfp8(NamedTuple):
    """A quantized tensor [..., K]: `elements` in a torch FP8 dtype, `scales` uint8 [..., K / 32]."""

    elements: torch.Tensor
    scales: torch.Tensor


def quantize_mxfp8_torch(x: torch.Tensor, mode: ScaleMode = "floor", fmt: Format = E4M3FN) -> Mxfp8:
    """Quantize [..., K] (any float dtype, K a multiple of 32): nearest even, saturating.

    float64 is rounded to float32 first. A block with a NaN or an Inf gets scale 0xFF and elements 0.
    Raises ValueError for another K, mode or format.
    """
    if fmt not in TORCH_DTYPES:
        raise ValueError(f"{fmt.name} is no FP8 format")
    scales = shared_scales(block_amax(x), fmt, mode)
    scaled = torch.ldexp(x.float().double().unflatten(-1, (-1, BLOCK)), (E8M0_BIAS - scales.int()).unsqueeze(-1))
    # Every float32 is scaled by a power of two here; what float32 then rounds away lies far below the format's reach.
    fitting = torch.where((scales == E8M0_NAN).unsqueeze(-1), 0.0, scaled).clamp(-fmt.max, fmt.max).float()
    return Mxfp8(fitting.flatten(-2).to(TORCH_DTYPES[fmt]), scales)


def quantize_mxfp8(x: torch.Tensor, mode: ScaleMode = "floor", fmt: Format = E4M3FN) -> Mxfp8:
    """`quantize_mxfp8_torch` on whatever device x is, equal to it bit for bit."""
    if not uses_triton(x) or not x.numel():
        return quantize_mxfp8_torch(x, mode, fmt)
    from vllm_mx_kernels import _quantize_launch

    return Mxfp8(*_quantize_launch.mxfp8(x, mode, fmt, TORCH_DTYPES[fmt]))


def dequantize_mxfp8_torch(quantized: Mxfp8, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """[..., K] in `dtype`; NaN where the block's scale is 0xFF."""
    blocks = quantized.elements.double().unflatten(-1, (-1, BLOCK))
    return (blocks * scale_values(quantized.scales, torch.float64).unsqueeze(-1)).flatten(-2).to(dtype)
