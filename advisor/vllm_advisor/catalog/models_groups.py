"""Which checkpoints are the same model in another number format: from their names, then from their shapes.

Decision: a name is a claim and a shape is evidence. Two repositories belong together when their names are equal after
the words for number formats are taken off, *and* architecture, layer count, hidden size and vocabulary agree. A
different date, size, "Instruct" or "Thinking" stays in the name, so those are different models. What names cannot
tell stands in two tables of exceptions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_advisor.model.spec import ModelSpec


# Words that say how weights are stored or who stored them so, never which model it is.
_FORMAT = re.compile(
    r"[-_](?:bf16|fp16|fp8|fp4|nvfp4|mxfp4|mxfp8|int4|int8|w4a16|w4a4|w8a8|w8a16|awq|gptq|bnb|4bit|8bit|g128"
    r"|kv|dynamic|static|block|pertensor|per-tensor|autoround|quantized(?:\.w\da\d+)?|unsloth)$"
)
# A publisher's own name before the model's: meta-llama has each Llama 3.1 under both names.
_PUBLISHER = re.compile(r"^(?:meta|nvidia)-(?=llama|nemotron)")

# Repositories whose name does not say what they are; keys in lower case.
SAME_STEM = {
    # The pretrained Gemma 3 is published as -pt; trackers also write it without.
    "google/gemma-3-4b": "gemma-3-4b-pt",
    "google/gemma-3-12b": "gemma-3-12b-pt",
    "google/gemma-3-27b": "gemma-3-27b-pt",
}
# One model under two class names, because one of its files nests `text_config` or names a reference implementation.
SAME_ARCHITECTURE = {
    "MiniMaxM3SparseForConditionalGeneration": "MiniMaxM3ForCausalLM",
}
# Formats in the order in which a group is listed: unquantized first, then by bits.
SCHEME_ORDER = (
    "bf16",
    "fp8_block",
    "fp8_channel",
    "fp8_tensor",
    "mxfp8",
    "int8",
    "nvfp4_mixed",
    "nvfp4",
    "mxfp4",
    "int4",
    "other",
)
_PROVENANCE_ORDER = ("verbatim", "assembled", "derived-quant")


def stem(name: str) -> str:
    """The model's name without publisher and number format: `nvidia/MiniMax-M3-NVFP4` is `minimax-m3`."""
    folded = name.lower()
    if folded in SAME_STEM:
        return SAME_STEM[folded]
    tail = _PUBLISHER.sub("", folded.rpartition("/")[2].replace("_", "-"))
    while (shorter := _FORMAT.sub("", tail)) != tail:
        tail = shorter
    return tail


def shape(spec: ModelSpec) -> tuple[str, int, int, int]:
    """What two checkpoints of one model share: architecture, layers, hidden size, vocabulary."""
    architecture = SAME_ARCHITECTURE.get(spec.architecture, spec.architecture)
    return architecture, spec.num_layers, spec.hidden_size, spec.vocab_size


def groups(specs: Iterable[ModelSpec]) -> list[list[ModelSpec]]:
    """The checkpoints by base model, each group's base first, groups in the order of their base's name."""
    found: dict[tuple[object, ...], list[ModelSpec]] = {}
    for spec in sorted(specs, key=lambda s: s.name):
        found.setdefault((stem(spec.name), *shape(spec)), []).append(spec)
    ranked = [sorted(group, key=_rank) for group in found.values()]
    return sorted(ranked, key=lambda group: group[0].name)


def siblings(spec: ModelSpec, group: Iterable[ModelSpec]) -> tuple[tuple[str, str], ...]:
    """The others of its group as (repository, scheme), without mirrors: an unquantized copy under a second name."""
    base, *rest = group
    useful = [base, *(s for s in rest if not _mirror(s, base))]
    return tuple(
        (s.name, s.quantization.scheme)
        for s in useful
        if s.name != spec.name and not (s is base and _mirror(spec, base))
    )


def _mirror(spec: ModelSpec, base: ModelSpec) -> bool:
    """Whether `spec` is `base` again: both as the publisher trained it, without a quantization of somebody's."""
    return (
        spec.name != base.name and spec.quantization == base.quantization and _FORMAT.search(spec.name.lower()) is None
    )


def _rank(spec: ModelSpec) -> tuple[object, ...]:
    """The base first: it has no word for a format in its name; then unquantized before quantized, sources by trust."""
    name = spec.name.lower()
    return (
        _FORMAT.search(name) is not None,
        name in SAME_STEM,
        _order(SCHEME_ORDER, spec.quantization.scheme),
        _order(_PROVENANCE_ORDER, spec.provenance),
        spec.name,
    )


def _order(words: tuple[str, ...], word: str) -> int:
    return words.index(word) if word in words else len(words)
