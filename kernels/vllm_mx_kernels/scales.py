"""The shared exponent of an MX block: four ways to choose it, each exact at every float32, subnormals included.

`floor` is the OCP rule, floor(log2 amax) − emax: it may saturate the largest elements. `ceil` rounds log2 amax up.
`even` first rounds amax to the element's mantissa bits, so that it saturates only what would round beyond the largest
value. `rceil` is the smallest exponent at which nothing saturates. Blocks that hold a NaN or an Inf get 0xFF, which
makes every element of the block NaN (OCP MX v1.0, section 6.3 leaves the choice; losing the fault would be worse).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import torch

from vllm_mx_kernels.formats import BLOCK, E8M0_BIAS, E8M0_NAN


if TYPE_CHECKING:
    from vllm_mx_kernels.formats import Format

ScaleMode = Literal["floor", "ceil", "even", "rceil"]
SCALE_MODES: tuple[ScaleMode, ...] = get_args(ScaleMode)


def shared_scales(amax: torch.Tensor, fmt: Format, mode: ScaleMode = "floor") -> torch.Tensor:
    """E8M0 codes (uint8) of blocks whose largest magnitudes are `amax` (any float dtype and shape, same shape out).

    0x00 for a block of zeros. Raises ValueError for a mode that does not exist.
    """
    if mode not in SCALE_MODES:
        raise ValueError(f"no scale mode {mode!r}; one of {', '.join(SCALE_MODES)}")
    significand, exponent = torch.frexp(amax.double())  # float64 has no subnormal that float32 could give
    significand, exponent = significand * 2, exponent - 1
    shared = (exponent + _carry(significand, fmt, mode) - fmt.emax).clamp(-E8M0_BIAS, E8M0_BIAS) + E8M0_BIAS
    shared = torch.where(amax == 0, 0, shared)
    return torch.where(torch.isfinite(amax), shared, E8M0_NAN).to(torch.uint8)


def _carry(significand: torch.Tensor, fmt: Format, mode: ScaleMode) -> torch.Tensor:
    """1 where the mode takes the next exponent, for significands in [1, 2)."""
    if mode == "floor":
        return torch.zeros_like(significand, dtype=torch.int32)
    if mode == "ceil":
        return (significand > 1).int()
    if mode == "even":  # rounding to mantissa bits reaches 2 from here on
        return (significand >= 2 - 2.0 ** -(fmt.mantissa + 1)).int()
    return (significand > fmt.top_significand).int()


def carry_from(fmt: Format, mode: ScaleMode) -> int:
    """The fraction bits of a float32 from which the mode takes the next exponent; what the Triton bodies are told."""
    significand = {
        "floor": 2.0,
        "ceil": 1 + 2.0**-23,
        "even": 2 - 2.0 ** -(fmt.mantissa + 1),
        "rceil": fmt.top_significand + 2.0**-23,
    }[mode]
    return round((significand - 1) * (1 << 23))


def block_amax(x: torch.Tensor, block: int = BLOCK) -> torch.Tensor:
    """The largest magnitude of each `block` elements of the last dimension: [..., K] → [..., K / block], float32.

    NaN and Inf come through. Raises ValueError where the last dimension is no multiple of `block`.
    """
    if x.shape[-1] % block:
        raise ValueError(f"the last dimension, {x.shape[-1]}, is no multiple of the block of {block}")
    return x.float().abs().unflatten(-1, (-1, block)).amax(-1)


def scale_values(scales: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """What E8M0 codes stand for: 2^(code − 127), NaN for 0xFF; the same shape. Exact in float32 and float64."""
    exact = torch.ldexp(torch.ones_like(scales, dtype=torch.float64), scales.int() - E8M0_BIAS)
    return torch.where(scales == E8M0_NAN, torch.nan, exact).to(dtype)
