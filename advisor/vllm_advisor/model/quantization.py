"""How a checkpoint stores its linear weights: every `quantization_config` that vLLM loads, read into one `Recipe`.

The config stands at the top, inside `text_config` (Kimi-K2.5), or as modelopt's `hf_quant_config`. Its ignore list and
its per-module formats are honoured, layer by layer, because they decide gigabytes. Method names are vLLM's
(model_executor/layers/quantization/__init__.py); `scheme` is our own vocabulary (see `spec.Quantization`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.model.patterns import Patterns
from vllm_advisor.model.spec import Quantization


if TYPE_CHECKING:
    from vllm_advisor.model.fields import Fields
    from vllm_advisor.model.sheet import Tensor


class Format(NamedTuple):
    """One storage format.

    A scale of `scale_bytes` (its zero point included) covers `block` = (rows, columns) elements, 0 meaning all of that
    side; `column_bytes` are stored once an input column, `fixed_bytes` once a matrix.
    """

    scheme: str
    bits: int
    activation_bits: int = 16
    block: tuple[int, int] = (0, 0)
    scale_bytes: float = 0.0
    column_bytes: int = 0
    fixed_bytes: int = 0

    def bytes_of(self, rows: int, cols: int) -> int:
        """Stored bytes of a matrix of rows × cols, scales included."""
        across = -(-rows // self.block[0]) if self.block[0] else 1
        along = -(-cols // self.block[1]) if self.block[1] else 1
        payload = (rows * cols * self.bits + 7) // 8
        return int(payload + across * along * self.scale_bytes) + cols * self.column_bytes + self.fixed_bytes


# Scale layouts, by the loader that reads them (model_executor/layers/quantization/*.py and utils/*_utils.py):
#   per tensor: one fp32 weight scale and one fp32 input scale      channel: one scale a row
#   NVFP4: one e4m3 scale for 16 elements, two fp32 global scales    MX: one e8m0 byte for 32 elements
#   AWQ, GPTQ: one fp16 scale and one packed int4 zero a group; GPTQ also an int32 g_idx a column
FP8_TENSOR = Format("fp8_tensor", 8, 8, (0, 0), 0.0, 0, 8)
FP8_CHANNEL = Format("fp8_channel", 8, 8, (1, 0), 2.0)
FBGEMM = Format("fp8_channel", 8, 8, (1, 0), 4.0)
NVFP4 = Format("nvfp4", 4, 4, (1, 16), 1.0, 0, 8)
NVFP4_W4A16 = Format("nvfp4", 4, 16, (1, 16), 1.0, 0, 4)
MXFP4 = Format("mxfp4", 4, 16, (1, 32), 1.0)
MXFP8 = Format("mxfp8", 8, 8, (1, 32), 1.0)
# nf4 with double quantization: one 8-bit absmax for 64 elements and one fp32 for 256 of those
BNB_NF4 = Format("other", 4, 16, (1, 64), 1.0 + 4 / 256)
BNB_INT8 = Format("int8", 8, 8, (1, 0), 4.0)


def grouped_int(bits: int, group: int, *, zeros: bool, index: int = 0) -> Format:
    """Packed integers with a scale (and a zero point) for each `group` inputs of a row; 0 is the whole row."""
    scheme = "int8" if bits == 8 else "int4" if bits == 4 else "other"
    return Format(scheme, bits, 16, (1, group), 2.0 + (bits / 8 if zeros else 0.0), index)


class Recipe(NamedTuple):
    """What the checkpoint does to each module: `default` for linear layers, `named` where a pattern says otherwise."""

    quantization: Quantization
    default: Format | None
    ignored: Patterns
    named: tuple[tuple[Patterns, Format], ...] = ()
    unknown: str = ""

    def split(self, t: Tensor) -> tuple[tuple[Format | None, tuple[int, ...]], ...]:
        """The tensor's layers by storage format; None is unquantized."""
        if t.stored:
            return ((t.stored, t.layers),)
        plain = self.default is None and not self.named
        if plain or not t.linear or t.role in _TOWERS:
            return ((None, t.layers),)
        if not t.layers or not self._by_layer():
            return ((self.format_of(t, t.layers[0] if t.layers else -1), t.layers),)
        found: dict[Format | None, list[int]] = {}
        seen: dict[tuple[object, ...], Format | None] = {}
        for layer in t.layers:
            key = (self.ignored.at(layer), *(p.at(layer) for p, _ in self.named))
            if key not in seen or self.ignored.numbered:
                seen[key] = self.format_of(t, layer)
            found.setdefault(seen[key], []).append(layer)
        return tuple((stored, tuple(layers)) for stored, layers in found.items())

    def format_of(self, t: Tensor, layer: int) -> Format | None:
        """The format of one tensor in one layer (-1: outside of the stack)."""
        head = "mtp" if t.role == "mtp" else t.role if t.role == "lm_head" else ""
        named = next((f for p, f in self.named if p.match(t.path, layer, head)), None)
        if self.ignored.match(t.path, layer, head):
            return None
        # lm_head is a linear layer that no loader quantizes unless the checkpoint names it.
        return named if named or t.role == "lm_head" else self.default

    def _by_layer(self) -> bool:
        return self.ignored.by_layer or any(p.by_layer for p, _ in self.named)


_TOWERS = frozenset(("vision", "audio", "embedding"))
NONE = Recipe(Quantization(), None, Patterns(()))


def read_recipe(config: Fields, text: Fields) -> Recipe:
    """The recipe of a config, from wherever it stands; `NONE` when the weights are not quantized."""
    for place in (config, text):
        for key in ("quantization_config", "compression_config"):
            found = place.sub(key)
            if found is not None and found.keys():
                return _read(found, text)
    modelopt = config.sub("hf_quant_config")
    inner = modelopt.sub("quantization") if modelopt else None
    return _read(inner or modelopt, text) if modelopt else NONE


def _read(q: Fields, text: Fields) -> Recipe:
    from vllm_advisor.model.quant_methods import read_method  # noqa: PLC0415  only quantized checkpoints need it

    return read_method(q, text)
