"""Starts the Triton bodies of a mixture of experts, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton

from vllm_mx_kernels import _moe_triton as bodies
from vllm_mx_kernels.formats import E4M3FN, E4M3FNUZ
from vllm_mx_kernels.fp8 import Fp8, quantize_fp8
from vllm_mx_kernels.launch import tuned_launch
from vllm_mx_kernels.moe import OAI_ALPHA, OAI_LIMIT, Experts, by_block, shape_of, sort_by_expert
from vllm_mx_kernels.targets import FNUZ


if TYPE_CHECKING:
    from vllm_mx_kernels.launch import Launch
    from vllm_mx_kernels.moe import Folds, Gating, Routing, Sorted
    from vllm_mx_kernels.mxfp4 import Fold, Mxfp4

_WIDTH = 512


def moe(
    x: torch.Tensor, experts: Experts, routing: Routing, gating: Gating, folds: Folds | None, arch: str,
    launch: Launch | None = None,
) -> torch.Tensor:  # fmt: skip
    """See `moe.moe`."""
    tokens, top_k = routing.experts.shape
    count, wide, hidden = shape_of(experts.gate_up)
    if not tokens:
        return torch.empty_like(x)
    experts = Experts(_dense(experts.gate_up), _dense(experts.down), experts.gate_up_bias, experts.down_bias)
    launch = launch or tuned_launch(_op(experts, folds), arch, tokens, wide, hidden, count, top_k)
    order = sort_by_expert(routing.experts, count, launch.block_m)
    fmt = E4M3FNUZ if arch in FNUZ else E4M3FN
    if folds and (folds.gate_up.fmt, folds.down.fmt) != (fmt, fmt):
        raise ValueError(f"folded for {folds.gate_up.fmt.name}, but {arch} multiplies {fmt.name}")
    first = _Call(order, launch, top_k, None, experts.gate_up_bias, folds.gate_up if folds else None, fmt)
    up = first.run(x.contiguous(), experts.gate_up, torch.empty(tokens * top_k, wide, dtype=x.dtype, device=x.device))
    gated = _gated(up, gating)
    second = _Call(
        order, launch, 1, routing.weights.float().contiguous(), experts.down_bias, folds.down if folds else None, fmt
    )  # fmt: skip
    out = torch.zeros(tokens * top_k, hidden, dtype=x.dtype, device=x.device)  # slots of other ranks add nothing
    return _combined(second.run(gated, experts.down, out), tokens, top_k)


def _dense(weight: Mxfp4 | Fp8) -> Mxfp4 | Fp8:
    """With a last dimension that has no gaps; rows and experts may have."""
    return type(weight)(*(part if part.stride(-1) == 1 else part.contiguous() for part in weight))


def _op(experts: Experts, folds: Folds | None) -> str:
    if isinstance(experts.gate_up, Fp8):
        return "moe.fp8_block" if by_block(experts.gate_up) else "moe.fp8"
    return "moe.w4a8" if folds else "moe.w4a16"


class _Call:
    """One grouped product: what both products of a layer share is set here, what differs is given to `run`."""

    def __init__(
        self, order: Sorted, launch: Launch, slots_per_row: int, weights: torch.Tensor | None,
        bias: torch.Tensor | None, fold: Fold | None, fmt: object,
    ) -> None:  # fmt: skip
        self.order, self.launch, self.slots_per_row = order, launch, slots_per_row
        self.weights, self.bias, self.fold, self.fmt = weights, bias, fold, fmt

    def run(self, x: torch.Tensor, weight: Mxfp4 | Fp8, y: torch.Tensor) -> torch.Tensor:
        if isinstance(weight, Fp8):
            self._fp8(x, weight, y)
        else:
            self._mxfp4(x, weight, y)
        return y

    def _mxfp4(self, x: torch.Tensor, weight: Mxfp4, y: torch.Tensor) -> None:
        k = x.shape[1]
        q = quantize_fp8(x, "token", self.fmt) if self.fold else None  # type: ignore[arg-type]
        rows = self.fold.row_exponents.contiguous() if self.fold else weight.codes
        bodies.moe_mxfp4_kernel[self._grid(y)](
            q.elements if q else x, q.scales if q else x, weight.codes, weight.scales, rows,
            *self._tail(y), y.shape[1], k, self._slots(x),
            k, *weight.codes.stride()[:2], *weight.scales.stride()[:2], y.stride(0),
            FP8=self.fold is not None, **self._options(k),
        )  # fmt: skip

    def _fp8(self, x: torch.Tensor, weight: Fp8, y: torch.Tensor) -> None:
        k = x.shape[1]
        blocks = by_block(weight)
        q = quantize_fp8(x, "group" if blocks else "token", self.fmt)  # type: ignore[arg-type]
        bodies.moe_fp8_kernel[self._grid(y)](
            q.elements, q.scales, weight.elements, weight.scales, *self._tail(y), y.shape[1], k, self._slots(x),
            k, q.scales.stride(0), *weight.elements.stride()[:2], *weight.scales.stride()[:2], y.stride(0),
            W_SCALES="block" if blocks else "channel", **self._options(k),
        )  # fmt: skip

    def _grid(self, y: torch.Tensor) -> tuple[int, int]:
        return self.order.experts.numel(), triton.cdiv(y.shape[1], self.launch.block_n)

    def _slots(self, x: torch.Tensor) -> int:
        return x.shape[0] * self.slots_per_row

    def _tail(self, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Bias, weights, slots, experts, output; what is not there is any pointer, never read."""
        bias = y if self.bias is None else self.bias.contiguous()
        return bias, y if self.weights is None else self.weights, self.order.slots, self.order.experts, y

    def _options(self, k: int) -> dict[str, object]:
        tile = {n: v for n, v in self.launch.constants().items() if n != "GROUP"}
        flags = {"WEIGHTED": self.weights is not None, "HAS_BIAS": self.bias is not None}
        more = {"SLOTS_PER_ROW": self.slots_per_row, "EVEN_K": k % self.launch.block_k == 0}
        return {**tile, **flags, **more, "num_warps": self.launch.num_warps, "num_stages": self.launch.num_stages}


def _gated(x: torch.Tensor, gating: Gating) -> torch.Tensor:
    y = torch.empty(x.shape[0], x.shape[1] // 2, dtype=x.dtype, device=x.device)
    oai = gating == "swiglu_oai"
    bodies.gated_kernel[(y.shape[0], triton.cdiv(y.shape[1], _WIDTH))](
        x, y, y.shape[1], x.stride(0), y.stride(0), ALPHA=OAI_ALPHA if oai else 1.0, LIMIT=OAI_LIMIT, OAI=oai,
        WIDTH=_WIDTH,
    )  # fmt: skip
    return y


def _combined(x: torch.Tensor, tokens: int, top_k: int) -> torch.Tensor:
    y = torch.empty(tokens, x.shape[1], dtype=x.dtype, device=x.device)
    bodies.combine_kernel[(tokens, triton.cdiv(y.shape[1], _WIDTH))](
        x, y, y.shape[1], x.stride(0), y.stride(0), TOP_K=top_k, WIDTH=_WIDTH
    )  # fmt: skip
    return y
