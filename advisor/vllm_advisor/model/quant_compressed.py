"""compressed-tensors: groups of targets, each with a weight scheme (quantization/compressed_tensors/)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.model.patterns import Patterns
from vllm_advisor.model.quantization import FP8_CHANNEL, FP8_TENSOR, MXFP4, MXFP8, NVFP4, Format, grouped_int


if TYPE_CHECKING:
    from vllm_advisor.model.fields import Fields


def read_groups(q: Fields) -> tuple[Format | None, list[tuple[Patterns, Format]]]:
    """The format of plain linear layers, and those of named targets."""
    groups = q.sub("config_groups")
    default: Format | None = None
    named: list[tuple[Patterns, Format]] = []
    for key in groups.keys() if groups else ():
        group = groups.sub(key) if groups else None
        weights = group.sub("weights") if group else None
        if group is None or weights is None:
            continue
        stored = _scheme_of(weights, group.sub("input_activations"), group.text("format") or q.text("format"))
        targets = group.texts("targets")
        special = tuple(t for t in targets if t not in _LINEAR_CLASSES)
        if len(special) < len(targets) or not targets:
            default = stored
        if special:
            named.append((Patterns(special), stored))
    return default, named


_LINEAR_CLASSES = frozenset(("Linear", "FusedMoE", "FbgemmFp8Linear"))


def _scheme_of(weights: Fields, inputs: Fields | None, layout: str) -> Format:
    """A compressed-tensors weight scheme (compressed_tensors/compressed_tensors.py:_get_scheme_from_parts)."""
    bits, kind = weights.count("num_bits", high=16), weights.text("type", "int")
    strategy, group = weights.text("strategy"), weights.count("group_size", default=0, low=-1)
    acts = inputs.count("num_bits", default=16, high=16) if inputs else 16
    if kind == "float" and bits == 4:
        mx = layout.startswith("mxfp4") or (group == 32 and weights.text("scale_dtype").endswith("uint8"))
        base = MXFP4 if mx else NVFP4
        return base._replace(activation_bits=acts)
    if kind == "float" and bits == 8:
        if group == 32 or layout.startswith("mxfp8"):
            return MXFP8._replace(activation_bits=acts)
        return _float8(weights, strategy, acts)
    zeros = not weights.flag("symmetric", default=True)
    whole = bits == 8 and acts == 8
    return grouped_int(bits, 0 if whole else max(0, group), zeros=zeros)._replace(activation_bits=acts)


def _float8(weights: Fields, strategy: str, acts: int) -> Format:
    block = weights.ints("block_structure", 2, 1, 1 << 16)
    if strategy == "block" or block:
        n, k = block or (128, 128)
        return Format("fp8_block", 8, acts, (n, k), 4.0)
    return (FP8_CHANNEL if strategy == "channel" else FP8_TENSOR)._replace(activation_bits=acts)
