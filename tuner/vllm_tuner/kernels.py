"""The one lazy door to `vllm_mx_kernels`: nothing of it, and no torch, is imported before something is asked for.

Checkpoint files are read and written by the kernels' own reader, which needs no torch; quantizing needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vllm_advisor.errors import UsageError


if TYPE_CHECKING:
    from types import ModuleType

    import torch

PACKAGE = "vllm_mx_kernels"
FORMATS = ("mxfp4", "fp8")


def module(name: str) -> ModuleType:
    """`vllm_mx_kernels.NAME`. Raises UsageError when what it stands on (torch, Triton) is not installed."""
    return needed(f"{PACKAGE}.{name}")


def needed(name: str) -> ModuleType:
    """A module that only some commands need. Raises UsageError with the way to install it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed", "pip install 'vllm-advisor[tuner]'") from error


def largest(fmt: str) -> float:
    """The largest finite value of a format: E4M3FN (448), E4M3FNUZ (240), E5M2, E2M1. No torch."""
    return float(getattr(module("formats"), fmt).max)


def rounded(weight: torch.Tensor, fmt: str) -> torch.Tensor:
    """A matrix [N, K] as it comes back after quantization, in float32.

    `mxfp4`: blocks of 32 along K, OCP rule; K is padded with zeros to a multiple of 32. `fp8`: e4m3fn, one scale a row.
    Raises ValueError for another format.
    """
    if fmt == "mxfp4":
        return _mxfp4(weight)
    if fmt == "fp8":
        fp8: Any = module("fp8")
        return fp8.dequantize_fp8_torch(fp8.quantize_fp8(weight, "channel"))
    raise ValueError(f"no format {fmt!r}; one of {', '.join(FORMATS)}")


def _mxfp4(weight: torch.Tensor) -> torch.Tensor:
    mxfp4: Any = module("mxfp4")
    k = weight.shape[1]
    padded = needed("torch").nn.functional.pad(weight, (0, -k % int(module("formats").BLOCK)))
    return mxfp4.dequantize_mxfp4(mxfp4.quantize_mxfp4(padded.contiguous()), weight.dtype)[:, :k]
