"""Mixture of experts with MXFP4 or FP8 weights: route, multiply each token by its experts, gate, combine.

Shapes: T tokens of H; E experts; `gate_up` weights [E, 2 I, H], `down` weights [E, H, I]; K experts a token. SwiGLU has
the gates in the first half of `gate_up`; SwiGLU-OAI (gpt-oss) has gate and up rows alternating, limits both and adds
one to up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from vllm_mx_kernels.device import arch_of, fp8_format_of, uses_triton
from vllm_mx_kernels.formats import BLOCK
from vllm_mx_kernels.fp8 import Fp8, Granularity, dequantize_fp8_torch, quantize_fp8_torch, spread_scales
from vllm_mx_kernels.mxfp4 import Fold, Mxfp4, dequantize_mxfp4_torch, fold_mxfp4, matmul_mxfp4


if TYPE_CHECKING:
    from vllm_mx_kernels.formats import Format
    from vllm_mx_kernels.launch import Launch

Gating = Literal["swiglu", "swiglu_oai"]
# gpt-oss: `alpha` and `limit` of openai/gpt-oss's own model code and of vLLM's SwigluOAI (layers/activation.py).
OAI_ALPHA, OAI_LIMIT = 1.702, 7.0


class Routing(NamedTuple):
    """Which experts each token takes: `experts` int [T, K] and their `weights` float32 [T, K]."""

    experts: torch.Tensor
    weights: torch.Tensor


class Experts(NamedTuple):
    """The weights of one MoE layer, both in MXFP4 or both in FP8; biases [E, 2 I] and [E, H], or None.

    FP8 scales: "channel" [E, N, 1] or "block" [E, ceil(N / 128), ceil(K / 128)].
    """

    gate_up: Mxfp4 | Fp8
    down: Mxfp4 | Fp8
    gate_up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None


class Sorted(NamedTuple):
    """Slots by expert, in blocks of one expert each: `slots` int32 [blocks × block], `experts` int32 [blocks].

    −1 is the expert of a block that nobody needs.     A slot is token × K + choice; T × K fills a block up.
    """

    slots: torch.Tensor
    experts: torch.Tensor


def route(logits: torch.Tensor, top_k: int, *, renormalize: bool = True) -> Routing:
    """The `top_k` experts of each token by router logits [T, E], with softmax weights (of the chosen, if renormalized).

    Ties go to the lower index. Raises ValueError for a top_k that does not fit.
    """
    if not 0 < top_k <= logits.shape[1]:
        raise ValueError(f"{top_k} of {logits.shape[1]} experts cannot be chosen")
    shares = logits.float().softmax(-1)
    order = shares.sort(dim=-1, descending=True, stable=True)
    weights = order.values[:, :top_k]
    return Routing(order.indices[:, :top_k], weights / weights.sum(-1, keepdim=True) if renormalize else weights)


def sort_by_expert(experts: torch.Tensor, num_experts: int, block: int) -> Sorted:
    """[T, K] choices → slots in blocks. The number of blocks depends on T, K and E only, as a CUDA graph needs.

    A choice outside 0…E−1 (an expert of another rank) is left out. Nothing here waits for the device.
    """
    slots = experts.numel()
    flat = experts.flatten().long()
    here = (flat >= 0) & (flat < num_experts)
    key = torch.where(here, flat, num_experts)
    order = torch.argsort(key, stable=True)
    counts = torch.zeros(num_experts + 1, dtype=torch.int64, device=key.device)
    counts = counts.scatter_add_(0, key, torch.ones_like(key))[:num_experts]  # bincount would wait for the device
    blocks = -(-counts // block)
    ends = blocks.cumsum(0)
    most = min(slots, num_experts + slots // block) if slots else 0
    index = torch.arange(most, device=experts.device)
    owner = torch.searchsorted(ends, index, right=True)
    filled = torch.full((most * block + 1,), slots, dtype=torch.int32, device=experts.device)  # the last: thrown away
    ranks = torch.arange(slots, device=experts.device)
    sorted_key = key[order]
    kept = sorted_key < num_experts
    first = counts.cumsum(0) - counts
    safe = sorted_key.clamp_max(num_experts - 1)
    place = (ends - blocks)[safe] * block + ranks - first[safe]
    filled.scatter_(0, torch.where(kept, place, most * block), order.int())
    return Sorted(filled[:-1], torch.where(owner < num_experts, owner, -1).int())


def gate_torch(x: torch.Tensor, gating: Gating) -> torch.Tensor:
    """[…, 2 I] → […, I] in float32."""
    wide = x.float()
    if gating == "swiglu":
        gate, up = wide.chunk(2, -1)
        return gate * gate.sigmoid() * up
    gate, up = wide[..., 0::2].clamp(max=OAI_LIMIT), wide[..., 1::2].clamp(-OAI_LIMIT, OAI_LIMIT)
    return gate * (OAI_ALPHA * gate).sigmoid() * (up + 1)


def moe_torch(
    x: torch.Tensor, experts: Experts, routing: Routing, gating: Gating, *, fp8: bool = False
) -> torch.Tensor:
    """The definition: x [T, H] → [T, H] in x's dtype, products in float64, roundings where the kernels have them.

    `fp8`: activations are quantized a token before each product (for FP8 weights they always are).
    """
    total = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for expert in range(shape_of(experts.gate_up)[0]):  # a choice outside is an expert of another rank
        tokens, choices = (routing.experts == expert).nonzero(as_tuple=True)
        wide = _product(x[tokens], experts.gate_up, experts.gate_up_bias, expert, fp8=fp8).to(x.dtype)
        narrow = gate_torch(wide, gating).to(x.dtype)
        out = _product(narrow, experts.down, experts.down_bias, expert, fp8=fp8)
        weighted = (out * routing.weights[tokens, choices].double().unsqueeze(-1)).to(x.dtype)
        total.index_add_(0, tokens, weighted.double())
    return total.to(x.dtype)


def _product(
    x: torch.Tensor, weight: Mxfp4 | Fp8, bias: torch.Tensor | None, expert: int, *, fp8: bool
) -> torch.Tensor:
    if isinstance(weight, Fp8):
        own = Fp8(weight.elements[expert], weight.scales[expert])
        granularity: Granularity = "group" if by_block(own) else "token"
        rounded = dequantize_fp8_torch(quantize_fp8_torch(x, granularity, fp8_format_of(x)), torch.float64)
        matrix = own.elements.double() * spread_scales(own.scales, own.elements.shape).double()
    else:
        matrix = dequantize_mxfp4_torch(Mxfp4(weight.codes[expert], weight.scales[expert]), torch.float64)
        rounded = _fp8_token(x) if fp8 else x.bfloat16().double()
    product = rounded @ matrix.T
    return product if bias is None else product + bias[expert].double()


def _fp8_token(x: torch.Tensor) -> torch.Tensor:
    return dequantize_fp8_torch(quantize_fp8_torch(x, "token", fp8_format_of(x)), torch.float64)


def by_block(weight: Fp8) -> bool:
    """Whether the scales of [..., N, K] follow blocks of 128, and not rows."""
    return weight.scales.shape[-2:] != (weight.elements.shape[-2], 1)


class Folds(NamedTuple):
    """Whether both products of a layer run in FP8 without loss."""

    gate_up: Fold
    down: Fold

    @property
    def whole(self) -> bool:
        """Both do."""
        return self.gate_up.whole and self.down.whole


def fold_experts(experts: Experts, fmt: Format | None = None) -> Folds:
    """The folds of both weights of MXFP4 experts (see `fold_mxfp4`); raises ValueError for FP8 ones."""
    if not (isinstance(experts.gate_up, Mxfp4) and isinstance(experts.down, Mxfp4)):
        raise ValueError("FP8 experts need no folding")  # noqa: TRY004  a layer's kind, not a mistaken argument
    return Folds(fold_mxfp4(experts.gate_up, fmt), fold_mxfp4(experts.down, fmt))


def moe(
    x: torch.Tensor, experts: Experts, routing: Routing, gating: Gating, *, folds: Folds | None = None,
    launch: Launch | None = None,
) -> torch.Tensor:  # fmt: skip
    """X [T, H] → [T, H] in x's dtype, on whatever device x is.

    With `folds` that are whole, MXFP4 experts multiply in FP8, with a scale a token; otherwise in bf16. `launch`
    replaces the tuned or the table's one.
    Raises ValueError for shapes that do not fit, folds that lose, or choices without weights.
    """
    _check(x, experts, routing)
    if folds is not None and not folds.whole:
        share = min(folds.gate_up.share, folds.down.share)
        raise ValueError(
            f"these experts do not fold into FP8 without loss (rows that do: {share:.1%}); leave folds out"
        )
    if not uses_triton(x):
        return _on_cpu(x, experts, routing, gating, fp8=folds is not None)
    from vllm_mx_kernels import _moe_launch

    return _moe_launch.moe(x, experts, routing, gating, folds, arch_of(x), launch)


def _on_cpu(x: torch.Tensor, experts: Experts, routing: Routing, gating: Gating, *, fp8: bool) -> torch.Tensor:
    """MXFP4 experts one after the other through the C++ product; the rest through the twin."""
    gate_up, down = experts.gate_up, experts.down
    if fp8 or x.device.type != "cpu" or not (isinstance(gate_up, Mxfp4) and isinstance(down, Mxfp4)):
        return moe_torch(x, experts, routing, gating, fp8=fp8)
    total = torch.zeros(x.shape, dtype=torch.float32)
    for expert in range(gate_up.codes.shape[0]):
        tokens, choices = (routing.experts == expert).nonzero(as_tuple=True)
        if tokens.numel():
            wide = matmul_mxfp4(x[tokens], _one(gate_up, expert), _row(experts.gate_up_bias, expert))
            out = matmul_mxfp4(
                gate_torch(wide, gating).to(x.dtype), _one(down, expert), _row(experts.down_bias, expert)
            )
            weighted = (out.float() * routing.weights[tokens, choices].float().unsqueeze(-1)).to(x.dtype)
            total.index_add_(0, tokens, weighted.float())
    return total.to(x.dtype)


def _one(weight: Mxfp4, expert: int) -> Mxfp4:
    return Mxfp4(weight.codes[expert], weight.scales[expert])


def _row(bias: torch.Tensor | None, expert: int) -> torch.Tensor | None:
    return None if bias is None else bias[expert]


def _check(x: torch.Tensor, experts: Experts, routing: Routing) -> None:
    wide, narrow = shape_of(experts.gate_up), shape_of(experts.down)
    if x.dim() != 2 or wide != (narrow[0], 2 * narrow[2], x.shape[1]) or narrow[1] != x.shape[1]:
        raise ValueError(f"x {tuple(x.shape)}, gate and up {wide} and down {narrow} do not go together")
    for weight, bias in ((experts.gate_up, experts.gate_up_bias), (experts.down, experts.down_bias)):
        _check_weight(weight, bias)
    if routing.experts.shape != routing.weights.shape or routing.experts.shape[0] != x.shape[0]:
        raise ValueError(f"{tuple(routing.experts.shape)} choices and {tuple(routing.weights.shape)} weights")


def _check_weight(weight: Mxfp4 | Fp8, bias: torch.Tensor | None) -> None:
    e, n, k = shape_of(weight)
    fitting = {(e, n, 1), (e, -(-n // 128), -(-k // 128))} if isinstance(weight, Fp8) else {(e, n, k // BLOCK)}
    if tuple(weight.scales.shape) not in fitting or (isinstance(weight, Mxfp4) and k % BLOCK):
        raise ValueError(f"scales {tuple(weight.scales.shape)} do not fit a weight of {(e, n, k)}")
    if bias is not None and bias.shape != (e, n):
        raise ValueError(f"a bias of {tuple(bias.shape)} for {e} experts of {n} rows")


def shape_of(weight: Mxfp4 | Fp8) -> tuple[int, int, int]:
    """(experts, rows, reduced dimension) of a weight."""
    e, n, k = weight.codes.shape if isinstance(weight, Mxfp4) else weight.elements.shape
    return e, n, k * (2 if isinstance(weight, Mxfp4) else 1)
