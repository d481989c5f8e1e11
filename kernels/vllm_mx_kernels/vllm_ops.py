"""The products as operators with known output shapes, so that torch.compile and CUDA graphs take them as they are.

Tensors only: what is known about a weight at load time (that it folds) is told by the presence of its exponents, since
asking a tensor during a graph's capture would wait for the device.
"""

from __future__ import annotations

import torch

from vllm_mx_kernels.device import fp8_format_of
from vllm_mx_kernels.moe import Experts, Folds, Routing, moe
from vllm_mx_kernels.mxfp4 import Fold, Mxfp4, matmul_mxfp4


_LIBRARY = torch.library.Library("advisor_mx", "FRAGMENT")
_LIBRARY.define(
    "linear_mxfp4(Tensor x, Tensor codes, Tensor scales, Tensor? bias, Tensor? row_exponents) -> Tensor",
)
_LIBRARY.define(
    "moe_mxfp4(Tensor x, Tensor[] weights, Tensor?[] biases, Tensor choices, Tensor shares, bool oai,"
    " Tensor[] row_exponents) -> Tensor",
)


class KnownFold(Fold):
    """A fold that was found whole when the weight was loaded."""

    __slots__ = ()

    @property
    def whole(self) -> bool:
        """It is."""
        return True


def known_fold(row_exponents: torch.Tensor) -> KnownFold:
    """The fold of a weight whose rows all fold, from what was kept of it."""
    return KnownFold(row_exponents, row_exponents >= 0, fp8_format_of(row_exponents))


def _linear(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    bias: torch.Tensor | None,
    row_exponents: torch.Tensor | None,
) -> torch.Tensor:
    weight = Mxfp4(codes, scales)
    if row_exponents is None:
        return matmul_mxfp4(x, weight, bias)
    return matmul_mxfp4(x, weight, bias, "fp8", fold=known_fold(row_exponents))


def _fake_linear(x: torch.Tensor, codes: torch.Tensor, *_: object) -> torch.Tensor:
    return x.new_empty((x.shape[0], codes.shape[0]))


def _moe(
    x: torch.Tensor,
    weights: list[torch.Tensor],
    biases: list[torch.Tensor | None],
    choices: torch.Tensor,
    shares: torch.Tensor,
    oai: bool,
    row_exponents: list[torch.Tensor],
) -> torch.Tensor:
    experts = Experts(Mxfp4(*weights[:2]), Mxfp4(*weights[2:]), *biases)
    folds = Folds(*map(known_fold, row_exponents)) if row_exponents else None
    return moe(x, experts, Routing(choices, shares), "swiglu_oai" if oai else "swiglu", folds=folds)


def _fake_moe(x: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


_LIBRARY.impl("linear_mxfp4", _linear, "CompositeExplicitAutograd")
_LIBRARY.impl("moe_mxfp4", _moe, "CompositeExplicitAutograd")
torch.library.register_fake("advisor_mx::linear_mxfp4", _fake_linear, lib=_LIBRARY)
torch.library.register_fake("advisor_mx::moe_mxfp4", _fake_moe, lib=_LIBRARY)

linear_mxfp4 = torch.ops.advisor_mx.linear_mxfp4
moe_mxfp4 = torch.ops.advisor_mx.moe_mxfp4
