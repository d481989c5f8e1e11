"""FP8 in four granularities: one scale a tensor, a channel (row of a weight), a token (row of activations) or a block.

Blocks are 128 × 128 of a weight; the activations beside them have one scale for each token and 128 columns ("group").

The twins below (`*_torch`) are the definition. A scale is what an element is multiplied by to get the value back,
amax / max of the format in float32; where that is 0 (a group of zeros) it is 1, so that nothing divides by zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch

from vllm_mx_kernels.device import arch_of, uses_triton
from vllm_mx_kernels.formats import E4M3FN, E4M3FNUZ, E5M2, Format


if TYPE_CHECKING:
    from vllm_mx_kernels.launch import Launch

Granularity = Literal["tensor", "channel", "token", "group", "block"]
GRANULARITIES: tuple[Granularity, ...] = get_args(Granularity)
BLOCK_SHAPE = (128, 128)
TORCH_DTYPES = {E4M3FN: torch.float8_e4m3fn, E4M3FNUZ: torch.float8_e4m3fnuz, E5M2: torch.float8_e5m2}


class Fp8(NamedTuple):
    """A quantized matrix [N, K]: `elements` in a torch FP8 dtype and `scales` float32.

    Shapes of `scales`: tensor [], channel and token [N, 1], group [N, ceil(K / 128)],
    block [ceil(N / 128), ceil(K / 128)].
    """

    elements: torch.Tensor
    scales: torch.Tensor


def quantize_fp8_torch(x: torch.Tensor, granularity: Granularity, fmt: Format = E4M3FN) -> Fp8:
    """Quantize [N, K] of any float dtype: nearest even, saturating at the format's largest value.

    A group with a NaN or an Inf takes a NaN scale, which makes the whole group NaN instead of quietly finite.
    Raises ValueError for another rank, granularity or format.
    """
    _check(x, granularity, fmt)
    amax = _group_amax(x.float().abs(), granularity)
    scales = scales_of(amax, fmt.max)
    scaled = (x.float() / spread_scales(scales, x.shape)).clamp(-fmt.max, fmt.max)
    return Fp8(scaled.to(TORCH_DTYPES[fmt]), scales)


def scales_of(amax: torch.Tensor, largest: float) -> torch.Tensor:
    """Amax / largest in float32: 1 where that is 0 (zeros, the least subnormals), NaN for Inf and NaN."""
    scales = amax / largest
    return torch.where(scales == 0, 1.0, torch.where(torch.isinf(amax), torch.nan, scales))


def quantize_fp8(x: torch.Tensor, granularity: Granularity, fmt: Format = E4M3FN) -> Fp8:
    """`quantize_fp8_torch` on whatever device x is, equal to it bit for bit."""
    _check(x, granularity, fmt)
    if not uses_triton(x) or not x.numel():
        return quantize_fp8_torch(x, granularity, fmt)
    from vllm_mx_kernels import _quantize_launch

    return Fp8(*_quantize_launch.fp8(x, granularity, fmt, TORCH_DTYPES[fmt]))


def _check(x: torch.Tensor, granularity: Granularity, fmt: Format) -> None:
    if x.dim() != 2:
        raise ValueError(f"a matrix is expected, not {x.dim()} dimensions")
    if granularity not in GRANULARITIES:
        raise ValueError(f"no granularity {granularity!r}; one of {', '.join(GRANULARITIES)}")
    if fmt not in TORCH_DTYPES:
        raise ValueError(f"{fmt.name} is no FP8 format")


def _group_amax(size: torch.Tensor, granularity: Granularity) -> torch.Tensor:
    if granularity == "tensor":
        return size.amax()
    if granularity in ("channel", "token"):
        return size.amax(-1, keepdim=True)
    rows, columns = BLOCK_SHAPE if granularity == "block" else (1, BLOCK_SHAPE[1])
    padded = torch.nn.functional.pad(size, (0, -size.shape[1] % columns, 0, -size.shape[0] % rows))
    return padded.unflatten(1, (-1, columns)).unflatten(0, (-1, rows)).amax((1, 3))


def spread_scales(scales: torch.Tensor, shape: torch.Size | tuple[int, int]) -> torch.Tensor:
    """Scales of any granularity, repeated or broadcastable to a matrix of `shape` [N, K]."""
    if scales.dim() < 2 or scales.shape == (shape[0], 1):
        return scales
    rows, columns = BLOCK_SHAPE
    tall = scales if scales.shape[0] == shape[0] else scales.repeat_interleave(rows, 0)[: shape[0]]
    return tall.repeat_interleave(columns, 1)[:, : shape[1]]


def dequantize_fp8_torch(quantized: Fp8, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """[N, K] in `dtype`: element × scale, computed in float32."""
    return (quantized.elements.float() * spread_scales(quantized.scales, quantized.elements.shape)).to(dtype)


def matmul_fp8_torch(
    x: Fp8, weight: Fp8, bias: torch.Tensor | None = None, dtype: torch.dtype = torch.bfloat16
) -> torch.Tensor:
    """X [M, K] · weight [N, K]ᵀ + bias in float64, rounded to `dtype` [M, N]; any granularities."""
    product = dequantize_fp8_torch(x, torch.float64) @ dequantize_fp8_torch(weight, torch.float64).T
    return (product if bias is None else product + bias.double()).to(dtype)


def matmul_fp8(
    x: Fp8,
    weight: Fp8,
    bias: torch.Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
    *,
    launch: Launch | None = None,
) -> torch.Tensor:
    """X [M, K] · weight [N, K]ᵀ + bias → `dtype` [M, N], with float32 sums.

    Scales: x by tensor or token with a weight by tensor or channel; x by group with a weight by block.
    Raises ValueError for shapes or granularities that do not go together.
    """
    if x.elements.shape[1] != weight.elements.shape[1]:
        raise ValueError(f"x {tuple(x.elements.shape)} does not multiply {tuple(weight.elements.shape)}")
    by_block = _by_block(x, weight)
    if bias is not None and bias.shape != weight.elements.shape[:1]:
        raise ValueError(f"a bias of {tuple(bias.shape)} for {weight.elements.shape[0]} rows")
    if not uses_triton(x.elements):
        return matmul_fp8_torch(x, weight, bias, dtype)
    from vllm_mx_kernels import _fp8_launch

    return _fp8_launch.matmul(x, weight, bias, dtype, launch, arch_of(x.elements), by_block=by_block)


def _by_block(x: Fp8, weight: Fp8) -> bool:
    """Whether scales follow blocks of 128; raises ValueError where only one side does."""
    (m, k), n = x.elements.shape, weight.elements.shape[0]
    columns = -(-k // BLOCK_SHAPE[1])
    simple = (x.scales.dim() == 0 or x.scales.shape == (m, 1)) and (
        weight.scales.dim() == 0 or weight.scales.shape == (n, 1)
    )
    blocks = x.scales.shape == (m, columns) and weight.scales.shape == (-(-n // BLOCK_SHAPE[0]), columns)
    if not (simple or blocks):
        raise ValueError(f"scales {tuple(x.scales.shape)} and {tuple(weight.scales.shape)} do not go together")
    return not simple
