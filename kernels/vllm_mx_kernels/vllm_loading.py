"""What happens to a weight once vLLM has loaded it: quantized in pieces, folded where the device gains, and counted."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from vllm_mx_kernels.checkpoint_rules import NAME
from vllm_mx_kernels.device import arch_of
from vllm_mx_kernels.formats import BLOCK
from vllm_mx_kernels.mxfp4 import Mxfp4, fold_mxfp4, quantize_mxfp4
from vllm_mx_kernels.targets import NATIVE_FP8


if TYPE_CHECKING:
    from vllm_mx_kernels.scales import ScaleMode

LOGGER = logging.getLogger("vllm.advisor_mxfp4")
# Elements that are quantized at a time: a bound for the wide intermediates, and enough work for any device.
PIECE = 1 << 24
_BF16_BYTES = 2


@dataclass(slots=True)
class Tally:
    """What became of the layers of a model, said in one line of the log when the last is done."""

    created: int = 0
    done: int = 0
    folded: int = 0
    packed_bytes: int = 0
    plain_bytes: int = 0

    def add(self, weights: list[Mxfp4], *, folded: bool) -> None:
        """Count a layer that is ready."""
        self.done += 1
        self.folded += folded
        self.packed_bytes += sum(w.codes.numel() + w.scales.numel() for w in weights)
        self.plain_bytes += sum(w.codes.numel() * 2 * _BF16_BYTES for w in weights)
        if self.done == self.created:
            LOGGER.info("%s", self.text())

    def text(self) -> str:
        """The line."""
        share = self.packed_bytes / max(self.plain_bytes, 1)
        return (
            f"{NAME}: {self.done} layers hold {self.packed_bytes} bytes of weights in place of {self.plain_bytes} in"
            f" bf16 ({share:.1%}); {self.folded} of {self.done} multiply in FP8, folded without loss"
        )


def quantize_rows(weight: torch.Tensor, mode: ScaleMode) -> Mxfp4:
    """`quantize_mxfp4` of [..., N, K], a bounded number of rows at a time."""
    rows = weight.reshape(-1, weight.shape[-1])
    step = max(PIECE // weight.shape[-1], 1)
    codes = torch.empty((len(rows), weight.shape[-1] // 2), dtype=torch.uint8, device=weight.device)
    scales = torch.empty((len(rows), weight.shape[-1] // BLOCK), dtype=torch.uint8, device=weight.device)
    for start in range(0, len(rows), step):
        piece = quantize_mxfp4(rows[start : start + step].contiguous(), mode)
        codes[start : start + step], scales[start : start + step] = piece
    return Mxfp4(codes.unflatten(0, weight.shape[:-1]), scales.unflatten(0, weight.shape[:-1]))


def multiplies_fp8(weight: torch.Tensor) -> bool:
    """Whether the weight's device has an FP8 matrix unit."""
    return weight.is_cuda and arch_of(weight) in NATIVE_FP8


def folded_exponents(weights: list[Mxfp4]) -> list[torch.Tensor]:
    """The row exponents of each weight, or nothing where the device has no FP8 or a row would lose."""
    if not all(multiplies_fp8(weight.codes) for weight in weights):
        return []
    folds = [fold_mxfp4(weight) for weight in weights]
    return [fold.row_exponents for fold in folds] if all(fold.whole for fold in folds) else []
