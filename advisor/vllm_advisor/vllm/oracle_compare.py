"""vLLM's picks beside ours, cell by cell: one kind of layer of one model on one device."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.vllm import plugin


if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_advisor.vllm.oracle_verdict import Chosen, Verdict

# Our name of a part (rules/kernels.py) → part and kind of vLLM's layers.
_KINDS = {
    "attention": "full",
    "sliding-window attention": "sliding",
    "chunked attention": "chunked",
    "latent attention": "mla",
    "compressed attention": "compressed",
}
_PARTS = {"linear layers": "linear", "experts": "experts"}
_SIXTEEN_BIT = "Unquantized"
# Methods of our plugin (vllm_mx_kernels/vllm_linear.py, vllm_moe.py): whether a layer folds into FP8 is told by its
# weights, which the stand-in does not load.
_OUR_METHODS = "AdvisorMxfp4"


class Cell(NamedTuple):
    """`ours` is our pick, `theirs` all that vLLM picked there, the most frequent first; () where it has no verdict.

    Where layers of one kind have several formats, `ours` names a kernel for each: `CutlassFP8, HummingNvFp4`.
    """

    part: str
    ours: str
    theirs: tuple[str, ...]

    @property
    def agrees(self) -> bool | None:
        """Whether our pick is the one that most of these layers get, all of them where we name several.

        None: vLLM has no verdict.
        """
        ours = self.ours.split(", ")
        return set(ours) == set(self.theirs[: len(ours)]) if self.theirs else None


def cells(kernels: Iterable[tuple[str, str]], verdict: Verdict) -> tuple[Cell, ...]:
    """A cell for each part of ours: `kernels` as `rules.kernels.kernels` has them, (part, backend and a remark)."""
    return tuple(Cell(part, _ours(text), _theirs(part, verdict.layers)) for part, text in kernels)


def _ours(text: str) -> str:
    names = (one.partition(",")[0] for one in text.split("; "))
    return ", ".join(sorted(plugin.NAME if name.startswith(plugin.NAME) else name for name in names))


def _theirs(part: str, layers: Iterable[Chosen]) -> tuple[str, ...]:
    """Backends of the decoder's layers of that part, the one with most layers first."""
    counts: dict[str, int] = {}
    for layer in layers:
        if not layer.tower and _is(part, layer):
            name = plugin.NAME if layer.kind.startswith(_OUR_METHODS) else layer.backend
            counts[name] = counts.get(name, 0) + layer.layers
    if part == "linear layers" and counts:
        quantized = {name: number for name, number in counts.items() if name}
        counts = quantized or {_SIXTEEN_BIT: 1}
    return tuple(sorted(counts, key=lambda name: (-counts[name], name)))


def _is(part: str, layer: Chosen) -> bool:
    if part in _KINDS:
        return layer.part == "attention" and layer.kind == _KINDS[part]
    return layer.part == _PARTS.get(part)
