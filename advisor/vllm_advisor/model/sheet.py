"""A model's tensors while it is being read, one row a kind of tensor, and their sum as weight groups.

Shapes come from the config alone. How many bytes a row takes is the checkpoint's storage format (`quantization`),
which may differ by layer: so rows carry their module path, and are split where the format splits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.model.spec import CacheGroup, Moe, WeightGroup


if TYPE_CHECKING:
    from vllm_advisor.model.quantization import Format, Recipe


class Tensor(NamedTuple):
    """`copies` matrices of rows × cols in each of `layers` (in one place outside of the stack when that is empty).

    `path` is the module's path inside a layer, as Hugging Face names it: quantization ignore lists speak of it.
    `width` is the bytes of an element that is not quantized. `linear`: quantization may apply. `stored`: a format of
    its own that no quantization config speaks of.
    """

    role: str
    path: str
    rows: int
    cols: int
    copies: int
    sharding: str
    layers: tuple[int, ...]
    linear: bool
    kv_heads: int
    width: int
    stored: Format | None = None

    @property
    def params(self) -> int:
        return self.rows * self.cols * self.copies * max(1, len(self.layers))


class Sheet:
    """What a family's reader fills: tensors, caches, experts, and what it could not tell."""

    __slots__ = ("_draft", "caches", "hidden", "layers", "moe", "mtp_layers", "tensors", "tower_widths", "unknowns")

    def __init__(self, hidden: int, layers: int) -> None:
        self.hidden = hidden
        self.layers = tuple(range(layers))
        self.tensors: list[Tensor] = []
        self.caches: list[CacheGroup] = []
        self.unknowns: list[str] = []
        self.moe: Moe | None = None
        self.mtp_layers = 0
        self.tower_widths: tuple[int, ...] = ()
        self._draft = False

    def linear(  # noqa: PLR0917  a family reads as a table, one row a layer
        self,
        role: str,
        path: str,
        rows: int,
        cols: int,
        layers: tuple[int, ...],
        sharding: str,
        *,
        count: int = 1,
        bias: bool = False,
        kv_heads: int = 0,
        quantized: bool = True,
        width: int = 2,
    ) -> None:
        """Add a linear layer of `rows` outputs and `cols` inputs, with its bias when it has one."""
        if not rows or not cols or not count or not (layers or role in _OUTSIDE):
            return
        role = "mtp" if self._draft else role
        self.tensors.append(
            Tensor(role, path, rows, cols, count, sharding, layers, quantized, kv_heads, width),
        )
        if bias:
            side = "replicated" if sharding == "row" else sharding
            self.tensors.append(Tensor(role, path, rows, 1, count, side, layers, False, kv_heads, 2))

    def vector(
        self, role: str, size: int, layers: tuple[int, ...], sharding: str = "replicated", *, width: int = 2
    ) -> None:
        """Add `size` elements a layer that are never quantized (norms, sinks, convolution kernels, A and D)."""
        if size and (layers or role in _OUTSIDE):
            role = "mtp" if self._draft else role
            self.tensors.append(Tensor(role, "", size, 1, 1, sharding, layers, False, 0, width))

    def table(self, rows: int, cols: int, layers: tuple[int, ...], stored: Format) -> None:
        """Add a lookup table a layer, split by TP, in a format of its own (DeepSeek V4.1's engrams)."""
        self.tensors.append(Tensor("embedding", "", rows, cols, 1, "column", layers, False, 0, 2, stored))

    def cache(self, group: CacheGroup) -> None:
        """Add a cache group, unless it has no layer or belongs to a draft head (vLLM keeps that one only with MTP)."""
        if group.layers and not self._draft:
            self.caches.append(group)

    def draft(self, layers: int) -> tuple[int, ...]:
        """From here on every tensor belongs to the multi-token-prediction head of `layers` layers; their numbers."""
        self._draft = True
        self.mtp_layers = layers
        return tuple(range(len(self.layers), len(self.layers) + layers))

    def end_draft(self) -> None:
        """Back to the model itself."""
        self._draft = False


_OUTSIDE = frozenset(("embedding", "lm_head", "norm", "vision", "audio", "mtp", "other"))
_NEVER_ONLINE = frozenset(("embedding", "lm_head", "router", "norm", "vision", "audio", "mtp"))


def weigh(sheet: Sheet, recipe: Recipe) -> tuple[WeightGroup, ...]:
    """The sheet's tensors as weight groups, each with its parameters and its stored bytes."""
    totals: dict[tuple[str, str, tuple[int, ...], int, bool, int], list[int]] = {}
    for t in sheet.tensors:
        for stored, layers in recipe.split(t):
            here = () if t.role == "mtp" else layers
            online = t.linear and t.role not in _NEVER_ONLINE
            bits = stored.bits if stored else 8 * t.width
            copies = t.copies * max(1, len(layers))
            size = stored.bytes_of(t.rows, t.cols) if stored else t.rows * t.cols * t.width
            total = totals.setdefault((t.role, t.sharding, here, bits, online, t.kv_heads), [0, 0])
            total[0] += t.rows * t.cols * copies
            total[1] += size * copies
    return tuple(
        WeightGroup(role, params, size, sharding, layers, bits, online, kv_heads)
        for (role, sharding, layers, bits, online, kv_heads), (params, size) in totals.items()
    )
