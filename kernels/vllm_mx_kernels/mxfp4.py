"""MXFP4: E2M1 codes, two a byte, and one E8M0 scale for each 32 of them; 4.25 bits a weight.

The twins below (`*_torch`) are the definition: float64 where it matters, exact at every input. The fast paths must
equal them, bit for bit where they quantize and within stated bounds where they multiply.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from vllm_mx_kernels import cpu
from vllm_mx_kernels.device import arch_of, fp8_format_of, uses_triton
from vllm_mx_kernels.formats import BLOCK, E2M1, E4M3FN, E4M3FNUZ, E8M0_BIAS, E8M0_NAN, Format, values
from vllm_mx_kernels.fp8 import TORCH_DTYPES, dequantize_fp8_torch, quantize_fp8_torch
from vllm_mx_kernels.mxfp8 import dequantize_mxfp8_torch, quantize_mxfp8_torch
from vllm_mx_kernels.packing import pack_nibbles, unpack_nibbles
from vllm_mx_kernels.scales import ScaleMode, block_amax, scale_values, shared_scales


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_mx_kernels.launch import Launch


class Mxfp4(NamedTuple):
    """A quantized tensor [..., K]: `codes` uint8 [..., K / 2], low nibble first; `scales` uint8 [..., K / 32]."""

    codes: torch.Tensor
    scales: torch.Tensor


def quantize_mxfp4_torch(x: torch.Tensor, mode: ScaleMode = "floor") -> Mxfp4:
    """Quantize [..., K] (any float dtype, K a multiple of 32): nearest even, saturating, −0 kept.

    float64 is rounded to float32 first. A block with a NaN or an Inf gets scale 0xFF and codes 0.
    Raises ValueError for another K or an unknown mode.
    """
    scales = shared_scales(block_amax(x), E2M1, mode)
    scaled = torch.ldexp(x.float().double().unflatten(-1, (-1, BLOCK)), (E8M0_BIAS - scales.int()).unsqueeze(-1))
    codes = torch.where((scales == E8M0_NAN).unsqueeze(-1), 0, round_to_e2m1(scaled)).to(torch.uint8)
    return Mxfp4(pack_nibbles(codes.flatten(-2)), scales)


def quantize_mxfp4(x: torch.Tensor, mode: ScaleMode = "floor") -> Mxfp4:
    """`quantize_mxfp4_torch` on whatever device x is, equal to it bit for bit."""
    if not uses_triton(x) or not x.numel():
        return Mxfp4(*cpu.quantize(x, mode)) if cpu.takes(x, x.dtype, cpu.INPUTS) else quantize_mxfp4_torch(x, mode)
    from vllm_mx_kernels import _quantize_launch

    return Mxfp4(*_quantize_launch.mxfp4(x, mode))


def round_to_e2m1(x: torch.Tensor) -> torch.Tensor:
    """The E2M1 code (uint8) nearest to each value, ties to the even code, beyond 6 saturated; NaN gives 0.

    Each of the seven boundaries is a tie between two neighbours; it belongs to the one whose code is even.
    """
    size = x.abs()
    codes = torch.zeros(x.shape, dtype=torch.uint8, device=x.device)
    for code in range(7):
        boundary = (_E2M1[code] + _E2M1[code + 1]) / 2
        codes += size > boundary if code % 2 == 0 else size >= boundary
    return codes | (torch.signbit(x).to(torch.uint8) << 3)


_E2M1 = values(E2M1)


def dequantize_mxfp4_torch(weight: Mxfp4, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """[..., K] in `dtype`; NaN where the block's scale is 0xFF. Exact in float64 and above float32's subnormals."""
    elements = e2m1_values(unpack_nibbles(weight.codes)).unflatten(-1, (-1, BLOCK))
    return (elements * scale_values(weight.scales, torch.float64).unsqueeze(-1)).flatten(-2).to(dtype)


def dequantize_mxfp4(weight: Mxfp4, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """[..., K] in `dtype` on whatever device the codes are; equal to the twin (but for subnormals of the dtype)."""
    if not uses_triton(weight.codes) or not weight.codes.numel():
        in_cpp = cpu.takes(weight.codes, dtype, cpu.OUTPUTS)
        return cpu.dequantize(*weight, dtype) if in_cpp else dequantize_mxfp4_torch(weight, dtype)
    from vllm_mx_kernels import _quantize_launch

    return _quantize_launch.from_mxfp4(weight.codes, weight.scales, dtype)


def e2m1_values(codes: torch.Tensor) -> torch.Tensor:
    """What codes 0…15 stand for, as float64 of the same shape."""
    return _table(codes.device)[codes.int()]


@cache
def _table(device: torch.device) -> torch.Tensor:
    return torch.tensor(_E2M1, dtype=torch.float64, device=device)


class Fold(NamedTuple):
    """What it takes to multiply MXFP4 weights as FP8 without loss, row by row.

    `row_exponents` int32 [..., N]: an element is e2m1 × 2^(block code − row exponent), which FP8 holds exactly, and the
    row is scaled back by 2^(row exponent − 127). `exact` bool [..., N]: whether that holds for the row. `fmt`: the E4M3
    that it was found for.
    """

    row_exponents: torch.Tensor
    exact: torch.Tensor
    fmt: Format = E4M3FN

    @property
    def share(self) -> float:
        """The share of rows that fold without loss; 1.0 lets the whole tensor run in FP8."""
        return float(self.exact.double().mean())

    @property
    def whole(self) -> bool:
        """Whether every row does."""
        return bool(self.exact.all())


# Exponents s at which every E2M1 value × 2^s is an FP8 value: found by trying all of them in `test_fold`.
FOLD_SHIFTS = {E4M3FN: (-8, 6), E4M3FNUZ: (-9, 5)}


def fold_mxfp4(weight: Mxfp4, fmt: Format | None = None) -> Fold:
    """Whether and how each row of [..., N, K] folds into FP8. Blocks of zeros do not count, NaN blocks never fold.

    `fmt`: E4M3FN or E4M3FNUZ, by default what the weight's device multiplies. Raises ValueError for another.
    """
    fmt = fmt or fp8_format_of(weight.codes)
    if fmt not in FOLD_SHIFTS:
        raise ValueError(f"weights fold into e4m3, not {fmt.name}")
    lowest, highest = FOLD_SHIFTS[fmt]
    used = ((weight.codes & 0x77) != 0).unflatten(-1, (-1, BLOCK // 2)).any(-1)
    scales = weight.scales.int()
    most = torch.where(used, scales, -1).amax(-1)
    least = torch.where(used, scales, E8M0_NAN).amin(-1)
    exact = (most - least <= highest - lowest) & ~(weight.scales == E8M0_NAN).any(-1)
    return Fold(torch.where(most < 0, E8M0_BIAS, most - highest).int(), exact, fmt)


def fold_to_fp8_torch(weight: Mxfp4, fold: Fold) -> torch.Tensor:
    """The folded elements as a torch FP8 tensor [..., N, K]; where a row does not fold, its elements are rounded."""
    fmt = fold.fmt
    shifts = (weight.scales.int() - fold.row_exponents.unsqueeze(-1)).clamp(-126, 127)
    elements = e2m1_values(unpack_nibbles(weight.codes)).unflatten(-1, (-1, BLOCK))
    shifted = torch.ldexp(elements, shifts.unsqueeze(-1)).flatten(-2).clamp(-fmt.max, fmt.max)
    return shifted.float().to(TORCH_DTYPES[fmt])


Activation = Literal["bf16", "fp8", "mxfp4", "mxfp8"]


def matmul_mxfp4_torch(
    x: torch.Tensor, weight: Mxfp4, bias: torch.Tensor | None = None, activation: Activation = "bf16"
) -> torch.Tensor:
    """X [M, K] · weight [N, K]ᵀ + bias in float64, rounded to x's dtype; x is first rounded to `activation`."""
    rounded = _ROUNDED[activation](x).double()
    product = rounded @ dequantize_mxfp4_torch(weight, torch.float64).T
    return (product if bias is None else product + bias.double()).to(x.dtype)


_ROUNDED: dict[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
    "bf16": lambda x: x.bfloat16(),
    "fp8": lambda x: dequantize_fp8_torch(quantize_fp8_torch(x, "token", fp8_format_of(x)), torch.float64),
    "mxfp4": lambda x: dequantize_mxfp4_torch(quantize_mxfp4_torch(x), torch.float64),
    "mxfp8": lambda x: dequantize_mxfp8_torch(quantize_mxfp8_torch(x), torch.float64),
}


def matmul_mxfp4(
    x: torch.Tensor,
    weight: Mxfp4,
    bias: torch.Tensor | None = None,
    activation: Activation = "bf16",
    *,
    fold: Fold | None = None,
    launch: Launch | None = None,
) -> torch.Tensor:
    """X [M, K] · weight [N, K]ᵀ + bias → [M, N] in x's dtype, on whatever device x is.

    `activation` is what x is rounded to before it is multiplied: "bf16"; "fp8" (a scale a token; needs a `fold` that is
    whole); "mxfp4" or "mxfp8" where the matrix unit takes block scales. `launch` replaces the table's.
    Raises ValueError for shapes that do not fit, a fold that loses, or a format without an instruction on this device.
    """
    _check_product(x, weight, bias)
    if activation not in _ROUNDED:
        raise ValueError(f"no activation {activation!r}; one of {', '.join(_ROUNDED)}")
    if not uses_triton(x):
        return _on_cpu(x, weight, bias, activation)
    from vllm_mx_kernels import _mxfp4_launch

    return _mxfp4_launch.matmul(x, weight, bias, activation, fold, launch, arch_of(x))


def _check_product(x: torch.Tensor, weight: Mxfp4, bias: torch.Tensor | None) -> None:
    k = weight.codes.shape[-1] * 2
    if x.dim() != 2 or weight.codes.dim() != 2 or x.shape[1] != k:
        raise ValueError(f"x {tuple(x.shape)} does not multiply a weight of {weight.codes.shape[0]} rows of {k}")
    if k % BLOCK or weight.scales.shape != (weight.codes.shape[0], k // BLOCK):
        raise ValueError(f"scales {tuple(weight.scales.shape)} are not one for each {BLOCK} of codes")
    if bias is not None and bias.shape != weight.codes.shape[:1]:
        raise ValueError(f"a bias of {tuple(bias.shape)} for {weight.codes.shape[0]} rows")


def _on_cpu(x: torch.Tensor, weight: Mxfp4, bias: torch.Tensor | None, activation: Activation) -> torch.Tensor:
    if not cpu.takes(x, x.dtype, cpu.INPUTS):
        return matmul_mxfp4_torch(x, weight, bias, activation)
    rounded = _ROUNDED[activation](x)  # bf16 where that was asked for, else float64
    factors = rounded if rounded.dtype == x.dtype else rounded.float()
    return cpu.linear(factors, *weight, bias).to(x.dtype)
