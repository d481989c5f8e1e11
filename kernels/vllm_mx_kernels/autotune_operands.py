"""The tensors of one problem, how its op is called with them, and what the twin makes of them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from vllm_mx_kernels import cpu
from vllm_mx_kernels.device import fp8_format_of
from vllm_mx_kernels.formats import BLOCK
from vllm_mx_kernels.fp8 import Fp8, Granularity, matmul_fp8, matmul_fp8_torch, quantize_fp8
from vllm_mx_kernels.handoff import CPU_LINEAR
from vllm_mx_kernels.moe import Experts, Folds, Routing, moe, moe_torch, route
from vllm_mx_kernels.mxfp4 import Activation, Fold, Mxfp4, fold_mxfp4, matmul_mxfp4, matmul_mxfp4_torch


if TYPE_CHECKING:
    from typing import Any

    from vllm_mx_kernels.autotune_space import Problem
    from vllm_mx_kernels.tiles import CpuTile, Launch

_ACTIVATIONS: dict[str, Activation] = {"w4a16": "bf16", "w4a8": "fp8", "w4a4": "mxfp4", "w4a8mx": "mxfp8"}
_GRANULARITIES: dict[str, tuple[Granularity, Granularity]] = {
    "fp8.tensor": ("tensor", "tensor"), "fp8.channel": ("token", "channel"), "fp8.block": ("group", "block"),
}  # fmt: skip


class _Whole(Fold):
    """Known to lose nothing: asking the tensor would wait for the device at each call."""

    __slots__ = ()

    @property
    def whole(self) -> bool:
        return True


class Operands(NamedTuple):
    """`x` bf16 [m, k], a weight, and what else the op takes; `op` as in `launch.TABLE`."""

    op: str
    x: torch.Tensor
    weight: Mxfp4 | Fp8 | Experts
    routing: Routing | None = None
    folds: tuple[Fold, ...] = ()

    @property
    def nbytes(self) -> int:
        """Of x and the weight."""
        return sum(tensor.nbytes for tensor in _tensors((self.x, self.weight)))

    def copy(self) -> Operands:
        """The same numbers in memory of its own."""
        return self._replace(x=self.x.clone(), weight=_copied(self.weight))

    def run(self, launch: Launch | CpuTile | None) -> torch.Tensor:
        """One call of the op."""
        weight: Any = self.weight
        asked: Any = launch
        if self.op == CPU_LINEAR:
            return cpu.linear(self.x, weight.codes, weight.scales, None, asked)
        if self.routing is not None:
            folds = Folds(*self.folds) if self.folds else None
            return moe(self.x, weight, self.routing, "swiglu", folds=folds, launch=asked)
        if isinstance(weight, Fp8):
            return matmul_fp8(self._fp8_x(), weight, launch=asked)
        fold = self.folds[0] if self.folds else None
        return matmul_mxfp4(self.x, weight, None, self._activation, fold=fold, launch=asked)

    def twin(self) -> torch.Tensor:
        """What the op promises, by the twin."""
        weight: Any = self.weight
        if self.routing is not None:
            return moe_torch(self.x, weight, self.routing, "swiglu", fp8=bool(self.folds))
        if isinstance(weight, Fp8):
            return matmul_fp8_torch(self._fp8_x(), weight)
        return matmul_mxfp4_torch(self.x, weight, None, self._activation)

    @property
    def _activation(self) -> Activation:
        return _ACTIVATIONS.get(self.op.partition(".")[2], "bf16")

    def _fp8_x(self) -> Fp8:
        return quantize_fp8(self.x, _GRANULARITIES[self.op][0], fp8_format_of(self.x))


def _tensors(value: object) -> list[torch.Tensor]:
    if isinstance(value, tuple):
        return [tensor for part in value for tensor in _tensors(part)]
    return [value] if isinstance(value, torch.Tensor) else []


def _copied(value: Any) -> Any:
    """A named tuple of tensors, and of such tuples."""
    if isinstance(value, tuple):
        return type(value)(*map(_copied, value))
    return value.clone() if isinstance(value, torch.Tensor) else value


def made(problem: Problem, seed: int, device: str) -> Operands:
    """Random operands of a problem. Scales are such that sums have ordinary sizes, and all rows fold into FP8."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(problem.m, problem.k, generator=generator).bfloat16().to(device)
    if problem.experts:
        return _experts(problem, x, generator)
    shape = (problem.n, problem.k)
    if problem.op.startswith("fp8."):
        weight = torch.randn(shape, generator=generator).to(device)
        return Operands(problem.op, x, quantize_fp8(weight, _GRANULARITIES[problem.op][1], fp8_format_of(x)))
    packed = _mxfp4(shape, generator, device)
    return Operands(problem.op, x, packed, None, _folds(problem, packed))


def _experts(problem: Problem, x: torch.Tensor, generator: torch.Generator) -> Operands:
    e, n, k = problem.experts, problem.n, problem.k
    routing = route(torch.randn(problem.m, e, generator=generator), problem.top_k)
    routing = Routing(*(part.to(x.device) for part in routing))
    shapes = (e, n, k), (e, k, n // 2)
    if "fp8" in problem.op:
        weights = [_fp8_experts(problem, shape, generator, x) for shape in shapes]
        return Operands(problem.op, x, Experts(*weights), routing)
    packed = [_mxfp4(shape, generator, x.device) for shape in shapes]
    return Operands(problem.op, x, Experts(*packed), routing, _folds(problem, *packed))


def _mxfp4(shape: tuple[int, ...], generator: torch.Generator, device: Any) -> Mxfp4:
    *rows, k = shape
    codes = torch.randint(0, 256, (*rows, k // 2), dtype=torch.uint8, generator=generator)
    scales = torch.randint(115, 125, (*rows, k // BLOCK), dtype=torch.uint8, generator=generator)
    return Mxfp4(codes.to(device), scales.to(device))


def _fp8_experts(problem: Problem, shape: tuple[int, ...], generator: torch.Generator, x: torch.Tensor) -> Fp8:
    granularity: Granularity = "block" if problem.op.endswith("block") else "channel"
    wide = torch.randn(shape, generator=generator)
    parts = [quantize_fp8(one.to(x.device), granularity, fp8_format_of(x)) for one in wide]
    elements = torch.stack([part.elements.view(torch.uint8) for part in parts]).view(parts[0].elements.dtype)
    return Fp8(elements, torch.stack([part.scales for part in parts]))


def _folds(problem: Problem, *weights: Mxfp4) -> tuple[Fold, ...]:
    if not problem.op.endswith(".w4a8"):
        return ()
    folds = [fold_mxfp4(weight) for weight in weights]
    if not all(fold.whole for fold in folds):
        raise AssertionError("scales were drawn so that all rows fold")
    return tuple(_Whole(*fold) for fold in folds)


def cpu_caches() -> list[int]:
    """Bytes of each cache of the first processor."""
    found = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with suppress(OSError, ValueError):
            found.append(int(path.read_text().strip().rstrip("K")) << 10)
    return found
