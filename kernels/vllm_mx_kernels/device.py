"""Which path an op takes for a tensor: Triton on a GPU (or interpreted, in tests), C++ or torch on a CPU."""

from __future__ import annotations

import os
from functools import cache

import torch

from vllm_mx_kernels.formats import E4M3FN, E4M3FNUZ, Format
from vllm_mx_kernels.targets import FNUZ


def uses_triton(x: torch.Tensor) -> bool:
    """On a GPU; on the CPU only where TRITON_INTERPRET=1 asks for the interpreter."""
    return x.is_cuda or (os.environ.get("TRITON_INTERPRET") == "1" and x.device.type == "cpu")


def arch_of(x: torch.Tensor) -> str:
    """The architecture of a tensor's device by the names of `targets`: sm90, gfx942; the interpreter counts as sm90."""
    return _arch(x.device.index or 0) if x.is_cuda else "sm90"


def fp8_format_of(x: torch.Tensor) -> Format:
    """The E4M3 that the matrix unit of a tensor's device takes: fnuz on gfx942, fn everywhere else."""
    return E4M3FNUZ if arch_of(x) in FNUZ else E4M3FN


@cache
def _arch(index: int) -> str:
    properties = torch.cuda.get_device_properties(index)
    if torch.version.hip:
        return str(properties.gcnArchName).split(":")[0]
    return f"sm{properties.major}{properties.minor}"
