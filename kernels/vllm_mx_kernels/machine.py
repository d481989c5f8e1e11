"""What a measurement holds for: the names of device, compiler, driver and runtime, as this machine gives them."""

from __future__ import annotations

import platform
import re
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def _on_cpu(op: str) -> bool:
    return op.startswith("cpu.")


@cache
def device(op: str) -> str:
    """The GPU that torch would use for an op, or the processor for an op of the CPU; "" where there is none."""
    if _on_cpu(op):
        return processor()
    import torch

    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else ""


@cache
def processor() -> str:
    """`AMD EPYC 9654 96-Core Processor`, as Linux names it; elsewhere the machine's architecture."""
    with suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine()


@cache
def triton_version(op: str) -> str:
    """Of the Triton that compiles an op; "" for an op of the CPU and where there is no Triton."""
    if _on_cpu(op):
        return ""
    for package in ("triton", "pytorch-triton-rocm", "triton-rocm"):
        with suppress(PackageNotFoundError):
            return version(package)
    return ""


@cache
def driver(op: str) -> str:
    """The kernel module's version, `575.57.08`; "" for the CPU."""
    if _on_cpu(op):
        return ""
    for path in ("/sys/module/nvidia/version", "/sys/module/amdgpu/version"):
        with suppress(OSError):
            return Path(path).read_text().strip()
    return ""


def runtime(op: str) -> str:
    """`CUDA 13.0`, `ROCm 7.1`, or for the CPU `torch 2.13.0, 2 threads`: what the product is linked with."""
    import torch

    if _on_cpu(op):
        return f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    return f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda or ''}".strip()
