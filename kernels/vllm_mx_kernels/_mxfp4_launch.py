"""Starts the Triton bodies of MXFP4 products: picks the kernel and the launch, and lays out the arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton

from vllm_mx_kernels import _mxfp4_triton as bodies
from vllm_mx_kernels.formats import E4M3FN, E4M3FNUZ
from vllm_mx_kernels.fp8 import quantize_fp8
from vllm_mx_kernels.launch import tuned_launch
from vllm_mx_kernels.targets import FNUZ, NATIVE_FP8, NATIVE_MXFP4, NATIVE_MXFP8_BY_MXFP4


if TYPE_CHECKING:
    from vllm_mx_kernels.launch import Launch
    from vllm_mx_kernels.mxfp4 import Activation, Fold, Mxfp4


def matmul(
    x: torch.Tensor,
    weight: Mxfp4,
    bias: torch.Tensor | None,
    activation: Activation,
    fold: Fold | None,
    launch: Launch | None,
    arch: str,
) -> torch.Tensor:
    """See `mxfp4.matmul_mxfp4`."""
    x, weight = x.contiguous(), type(weight)(_dense(weight.codes), _dense(weight.scales))
    bias = None if bias is None else bias.contiguous()
    y = torch.empty(x.shape[0], weight.codes.shape[0], dtype=x.dtype, device=x.device)
    if not y.numel():
        return y
    if activation == "bf16":
        launch = launch or tuned_launch("mxfp4.w4a16", arch, *_shape(x, weight))
        _start(bodies.w4a16_kernel, launch, y, x.shape[1], (x, weight.codes, weight.scales), weight, bias, x)
    elif activation == "fp8":
        _folded(x, weight, bias, fold, launch, arch, y)
    else:
        _scaled(x, weight, bias, activation, launch, arch, y)
    return y


def _folded(
    x: torch.Tensor, weight: Mxfp4, bias: torch.Tensor | None, fold: Fold | None, launch: Launch | None, arch: str,
    y: torch.Tensor,
) -> None:  # fmt: skip
    if fold is None or not fold.whole:
        share = "unknown" if fold is None else f"{fold.share:.1%}"
        raise ValueError(f"these weights do not fold into FP8 without loss (rows that do: {share}); use bf16")
    if arch not in NATIVE_FP8:
        raise ValueError(f"{arch} has no FP8 matrix unit")
    fmt = E4M3FNUZ if arch in FNUZ else E4M3FN
    if fold.fmt != fmt:
        raise ValueError(f"folded for {fold.fmt.name}, but {arch} multiplies {fmt.name}")
    q = quantize_fp8(x, "token", fmt)
    launch = launch or tuned_launch("mxfp4.w4a8", arch, *_shape(x, weight))
    pointers = (q.elements, q.scales, weight.codes, weight.scales, fold.row_exponents.contiguous())
    _start(bodies.w4a8_kernel, launch, y, x.shape[1], pointers, weight, bias, q.elements)


def _scaled(
    x: torch.Tensor, weight: Mxfp4, bias: torch.Tensor | None, activation: Activation, launch: Launch | None,
    arch: str, y: torch.Tensor,
) -> None:  # fmt: skip
    native = NATIVE_MXFP4 if activation == "mxfp4" else NATIVE_MXFP8_BY_MXFP4
    if arch not in native:
        raise ValueError(f"{arch} has no matrix unit for {activation} activations with MXFP4 weights")
    op, quantized, scales, name = _block_scaled(x, activation)
    launch = launch or tuned_launch(op, arch, *_shape(x, weight))
    strides = (quantized.stride(0), scales.stride(0), weight.codes.stride(0), weight.scales.stride(0), y.stride(0))
    bodies.w4a4_kernel[_grid(y, launch)](
        quantized, scales, weight.codes, weight.scales, y if bias is None else bias, y,
        y.shape[0], y.shape[1], x.shape[1], *strides,
        X_FORMAT=name, HAS_BIAS=bias is not None, EVEN_K=x.shape[1] % launch.block_k == 0, **_options(launch),
    )  # fmt: skip


def _block_scaled(x: torch.Tensor, activation: Activation) -> tuple[str, torch.Tensor, torch.Tensor, str]:
    from vllm_mx_kernels.mxfp4 import quantize_mxfp4
    from vllm_mx_kernels.mxfp8 import quantize_mxfp8

    if activation == "mxfp4":
        return ("mxfp4.w4a4", *quantize_mxfp4(x), "e2m1")
    return ("mxfp4.w4a8mx", *quantize_mxfp8(x), "e4m3")


def _start(
    kernel: object, launch: Launch, y: torch.Tensor, k: int, pointers: tuple[torch.Tensor, ...], weight: Mxfp4,
    bias: torch.Tensor | None, x: torch.Tensor,
) -> None:  # fmt: skip
    strides = (x.stride(0), weight.codes.stride(0), weight.scales.stride(0), y.stride(0))
    kernel[_grid(y, launch)](  # type: ignore[index]
        *pointers, y if bias is None else bias, y, y.shape[0], y.shape[1], k, *strides,
        HAS_BIAS=bias is not None, EVEN_K=k % launch.block_k == 0, **_options(launch),
    )  # fmt: skip


def _shape(x: torch.Tensor, weight: Mxfp4) -> tuple[int, int, int]:
    """Tokens, rows of the weight, reduced dimension."""
    return x.shape[0], weight.codes.shape[0], x.shape[1]


def _dense(x: torch.Tensor) -> torch.Tensor:
    """With a last dimension that has no gaps; rows may have."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _grid(y: torch.Tensor, launch: Launch) -> tuple[int]:
    return (triton.cdiv(y.shape[0], launch.block_m) * triton.cdiv(y.shape[1], launch.block_n),)


def _options(launch: Launch) -> dict[str, int]:
    return {**launch.constants(), "num_warps": launch.num_warps, "num_stages": launch.num_stages}
