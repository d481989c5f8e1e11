"""How other projects lay MX tensors out in their checkpoints, and ours from and to each; bytes move, none is rounded.

| project | elements | scales (uint8) |
|---|---|---|
| gpt-oss | `*_blocks` uint8 [..., N, K / 32, 16], low nibble first | `*_scales` [..., N, K / 32] |
| compressed-tensors | `weight_packed` uint8 [N, K / 2], low nibble first | `weight_scale` [N, K / 32] |
| quark, OCP MXFP4 | `weight` uint8 [N, K / 2], low nibble first | `weight_scale` [N / R, K / 32] |
| modelopt and vLLM, MXFP8 | `weight` float8_e4m3fn [..., N, K] | `weight_scale` [..., N, K / 32] |
| gguf, MXFP4 | blocks of 17 bytes: the scale, then elements i (low nibble) and i + 16 (high) | in the block |

Ours (`Mxfp4`, `Mxfp8`) is the second and the fourth, and a scale is the same everywhere: code c stands for 2^(c − 127).
gguf's decoder halves the scale and doubles the values, which is the same product, but it knows no NaN: 0xFF is a number
there, so blocks of NaN are refused. compressed-tensors calls its layout `mxfp4-pack-quantized`.
Sources: vllm/model_executor/models/gpt_oss.py, compressed_tensors/compressors/mxfp4/base.py, vllm's
quark_ocp_mx.py, modelopt/torch/quantization/qtensor/mxfp8_tensor.py, gguf/quants.py (MXFP4).
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from vllm_mx_kernels.formats import BLOCK, E8M0_NAN
from vllm_mx_kernels.mxfp4 import Mxfp4
from vllm_mx_kernels.mxfp8 import Mxfp8
from vllm_mx_kernels.packing import pack_nibbles, unpack_nibbles


_BYTES = BLOCK // 2
GGUF_BLOCK_BYTES = 1 + _BYTES


class Parts(NamedTuple):
    """Elements and scales as a checkpoint names them apart; what the names are is the checkpoint's."""

    elements: torch.Tensor
    scales: torch.Tensor


def from_gpt_oss(blocks: torch.Tensor, scales: torch.Tensor) -> Mxfp4:
    """`*_blocks` [..., N, K / 32, 16] and `*_scales` [..., N, K / 32] → codes [..., N, K / 2].

    Rows stay in their order: gpt-oss alternates gate and up rows, which `moe` calls "swiglu_oai".
    """
    _take_bytes("gpt-oss blocks", blocks)
    _take_bytes("gpt-oss scales", scales)
    if blocks.dim() < 2 or blocks.shape[-1] != _BYTES or blocks.shape[:-1] != scales.shape:
        raise ValueError(
            f"gpt-oss blocks {_shape(blocks)} and scales {_shape(scales)}: [..., N, K / 32, 16] is expected"
        )
    return Mxfp4(blocks.flatten(-2), scales)


def to_gpt_oss(weight: Mxfp4) -> Parts:
    """The reverse: blocks [..., N, K / 32, 16] and scales [..., N, K / 32]."""
    _fitting(weight)
    return Parts(weight.codes.unflatten(-1, (-1, _BYTES)), weight.scales)


def from_compressed_tensors(weight_packed: torch.Tensor, weight_scale: torch.Tensor) -> Mxfp4:
    """`mxfp4-pack-quantized`: weight_packed [N, K / 2], weight_scale uint8 (or float8_e8m0fnu) [N, K / 32]."""
    _take_bytes("weight_packed", weight_packed)
    return _fitting(Mxfp4(weight_packed, _scale_bytes("weight_scale", weight_scale)))


def to_compressed_tensors(weight: Mxfp4) -> Parts:
    """The reverse: (weight_packed, weight_scale)."""
    _fitting(weight)
    return Parts(weight.codes, weight.scales)


def from_quark(weight: torch.Tensor, weight_scale: torch.Tensor) -> Mxfp4:
    """OCP MXFP4: weight [..., N, K / 2]; weight_scale [..., N / R, K / 32], each row of which serves R rows."""
    _take_bytes("weight", weight)
    scales = _scale_bytes("weight_scale", weight_scale)
    if weight.dim() < 2 or weight.dim() != scales.dim() or not scales.shape[-2] or weight.shape[-2] % scales.shape[-2]:
        raise ValueError(f"weight_scale {_shape(scales)} does not fit a weight of {_shape(weight)} bytes")
    return _fitting(Mxfp4(weight, scales.repeat_interleave(weight.shape[-2] // scales.shape[-2], -2)))


def to_quark(weight: Mxfp4) -> Parts:
    """The reverse, a scale row for each row: (weight, weight_scale)."""
    return to_compressed_tensors(weight)


def from_modelopt_mxfp8(weight: torch.Tensor, weight_scale: torch.Tensor) -> Mxfp8:
    """Weight float8_e4m3fn [..., N, K], weight_scale uint8 (or float8_e8m0fnu) [..., N, K / 32], in plain order.

    vLLM shuffles scales for some kernels after loading; checkpoints do not hold them so.
    """
    if weight.dtype != torch.float8_e4m3fn:
        raise ValueError(f"weight is {weight.dtype}; modelopt's MXFP8 holds float8_e4m3fn")
    scales = _scale_bytes("weight_scale", weight_scale)
    if scales.shape != (*weight.shape[:-1], weight.shape[-1] // BLOCK) or weight.shape[-1] % BLOCK:
        raise ValueError(f"weight_scale {_shape(scales)} does not fit a weight of {_shape(weight)}")
    return Mxfp8(weight, scales)


def to_modelopt_mxfp8(weight: Mxfp8) -> Parts:
    """The reverse: (weight, weight_scale). Raises ValueError for elements that are not E4M3FN."""
    return Parts(*from_modelopt_mxfp8(*weight))


def from_gguf(data: torch.Tensor) -> Mxfp4:
    """Raw bytes of a GGUF tensor of type MXFP4, uint8 [..., N, K / 32 × 17] → codes, low nibble first.

    Raises ValueError where a block holds the scale 0xFF, which is a number to gguf and NaN to OCP.
    """
    _take_bytes("gguf data", data)
    if not data.dim() or data.shape[-1] % GGUF_BLOCK_BYTES:
        raise ValueError(f"gguf data {_shape(data)} is not made of blocks of {GGUF_BLOCK_BYTES} bytes")
    blocks = data.unflatten(-1, (-1, GGUF_BLOCK_BYTES))
    scales, halves = blocks[..., 0], blocks[..., 1:]
    _without_nan(scales)
    codes = torch.cat((halves & 0xF, halves >> 4), -1)
    return Mxfp4(pack_nibbles(codes).flatten(-2), scales.contiguous())


def to_gguf(weight: Mxfp4) -> torch.Tensor:
    """The reverse: uint8 [..., N, K / 32 × 17]. Raises ValueError for NaN blocks, which gguf cannot hold."""
    _fitting(weight)
    _without_nan(weight.scales)
    low, high = unpack_nibbles(weight.codes).unflatten(-1, (-1, 2, _BYTES)).unbind(-2)
    return torch.cat((weight.scales.unsqueeze(-1), low | (high << 4)), -1).flatten(-2)


def _take_bytes(name: str, data: torch.Tensor) -> None:
    if data.dtype != torch.uint8:
        raise ValueError(f"{name} is {data.dtype}; uint8 is expected")


def _scale_bytes(name: str, scales: torch.Tensor) -> torch.Tensor:
    if scales.dtype == torch.float8_e8m0fnu:
        return scales.view(torch.uint8)
    _take_bytes(name, scales)
    return scales


def _fitting(weight: Mxfp4) -> Mxfp4:
    k = weight.codes.shape[-1] * 2 if weight.codes.dim() else 0
    if not k or k % BLOCK or weight.scales.shape != (*weight.codes.shape[:-1], k // BLOCK):
        raise ValueError(
            f"scales {_shape(weight.scales)} are not one for each {_BYTES} of {_shape(weight.codes)} bytes"
        )
    return weight


def _without_nan(scales: torch.Tensor) -> None:
    spoiled = int((scales == E8M0_NAN).sum())
    if spoiled:
        raise ValueError(f"{spoiled} blocks have the scale 0xFF, NaN by OCP, for which gguf has no code")


def _shape(data: torch.Tensor) -> tuple[int, ...]:
    return tuple(data.shape)
