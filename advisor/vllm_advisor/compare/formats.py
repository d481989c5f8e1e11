"""The formats that are set side by side, and from where this model's weights can come in each.

A format is how weights are stored and how the KV cache is. Weights come from a published checkpoint, or are converted
by vLLM while loading; which of them serves best is for the rules and the speed estimate to say, not for this table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import UsageError
from vllm_advisor.rules.views import FP8_SCHEMES
from vllm_advisor.vllm import archs, backends, plugin
from vllm_advisor.vllm.schemes import ONLINE_SCHEMES


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.facts import Facts
    from vllm_advisor.model import ModelSpec

# Word → its name for people, and the schemes that are meant by it.
_WORDS: dict[str, tuple[str, frozenset[str]]] = {
    "bf16": ("BF16", frozenset(("bf16",))),
    "fp8": ("FP8", FP8_SCHEMES),
    "int8": ("INT8", frozenset(("int8",))),
    "mxfp8": ("MXFP8", frozenset(("mxfp8",))),
    "int4": ("INT4", frozenset(("int4",))),
    "nvfp4": ("NVFP4", frozenset(("nvfp4", "nvfp4_mixed"))),
    "mxfp4": ("MXFP4", frozenset(("mxfp4",))),
}
_SAME = {"none": "bf16", "fp16": "bf16", "awq": "int4", "gptq": "int4"}
# What to try where nothing is offered, so that the rules say why not; the deprecated spelling is left out.
_TRIED = ("fp8_per_channel", "mxfp8", "mxfp4", "int8_per_channel_weight_only", "nvfp4_per_token")


class Format(NamedTuple):
    """`weights`: a word above, or a value of `--quantization`. `kv`: a value of `--kv-cache-dtype`, "": 16 bits."""

    weights: str
    kv: str = ""

    @property
    def key(self) -> str:
        """As it is typed: `fp8+fp8`."""
        return f"{self.weights}+{self.kv}" if self.kv else self.weights

    @property
    def label(self) -> str:
        """As people say it: `FP8 + FP8 KV`."""
        name = _WORDS[self.weights][0] if self.weights in _WORDS else self.weights
        return f"{name} + {self.kv.upper() if self.kv == 'fp8' else self.kv} KV" if self.kv else name

    @property
    def schemes(self) -> frozenset[str]:
        """What weights in it may be stored as."""
        known = _WORDS.get(self.weights)
        return known[1] if known else frozenset((ONLINE_SCHEMES[self.weights],))


BASE = Format("bf16")
# What the text that this product began from compared, and the format that it is about.
_USUAL = (BASE, Format("fp8"), Format("fp8", "fp8"), Format("mxfp4"))
_MORE = (
    Format("bf16", "fp8"), Format("int8"), Format("mxfp8"), Format("int4"), Format("int4", "fp8"), Format("nvfp4"),
    Format("nvfp4", "fp8"), Format("mxfp4", "fp8"),
)  # fmt: skip


class Source(NamedTuple):
    """A checkpoint, and the flag that converts it (None: as it was published).

    `offered` is False for a try that is there to be refused with a reason.
    """

    model: ModelSpec
    flag: str | None = None
    offered: bool = True


def parse(text: str) -> tuple[Format, ...]:
    """`bf16,fp8,fp8+fp8` as formats, doubles left out. Raises UsageError for weights that nobody stores."""
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError("no format is named", f"--quantizations {','.join(f.key for f in _USUAL)}")
    return tuple(dict.fromkeys(_format(word) for word in words))


def _format(text: str) -> Format:
    weights, plus, kv = text.partition("+")
    weights = _SAME.get(weights, weights)
    if weights not in _WORDS and weights not in ONLINE_SCHEMES:
        known = ", ".join((*_WORDS, *(name for name in ONLINE_SCHEMES if name not in _WORDS)))
        raise UsageError(f"{text!r} names no format of weights", f"one of {known}; +fp8 behind it for the KV cache")
    if plus and not kv:
        raise UsageError(f"{text!r} names no KV cache dtype behind the +", f"write {weights}+fp8")
    return Format(weights, "" if kv in ("auto", "16") else kv)


def formats(facts: Facts, checkpoints: tuple[ModelSpec, ...], *, every: bool, ours: bool) -> tuple[Format, ...]:
    """The formats worth a look here: the usual four, and NVFP4 where the device has it and a checkpoint exists.

    `every`: all that has a checkpoint or a conversion. `ours`: our plugin's MXFP4 as well.
    """
    more = [f for f in _MORE if (every and _exists(facts, checkpoints, f)) or _is_native(facts, checkpoints, f)]
    return (*_USUAL, *more, *((Format(plugin.NAME),) if ours else ()))


def _exists(facts: Facts, checkpoints: tuple[ModelSpec, ...], wanted: Format) -> bool:
    return next(_offered(facts, checkpoints, wanted), None) is not None


def _is_native(facts: Facts, checkpoints: tuple[ModelSpec, ...], wanted: Format) -> bool:
    published = any(m.quantization.scheme in wanted.schemes for m in checkpoints)
    return wanted == Format("nvfp4") and published and facts.node.gpu.arch in archs.BLACKWELL


def sources(facts: Facts, checkpoints: tuple[ModelSpec, ...], wanted: Format) -> tuple[Source, ...]:
    """Where weights in this format come from; else one try that rules refuse with a reason; () for no way at all."""
    if wanted.weights not in _WORDS:
        return (Source(_plain(checkpoints), wanted.weights),)
    found = tuple(_offered(facts, checkpoints, wanted))
    tried = (flag for flag in _TRIED if ONLINE_SCHEMES[flag] in wanted.schemes)
    return found or tuple(Source(_plain(checkpoints), flag, offered=False) for flag in tried)[:1]


def _offered(facts: Facts, checkpoints: tuple[ModelSpec, ...], wanted: Format) -> Iterator[Source]:
    """Published checkpoints, the asked one first, then what vLLM converts while loading."""
    if wanted.weights not in _WORDS:
        return
    yield from (Source(m) for m in checkpoints if m.quantization.scheme in wanted.schemes)
    plain = _plain(checkpoints)
    for flag, scheme in backends.online_quantizations(facts.vllm, facts.node.gpu.arch, plain):
        if scheme in wanted.schemes:
            yield Source(plain, flag)


def _plain(checkpoints: tuple[ModelSpec, ...]) -> ModelSpec:
    """The checkpoint that was not quantized, the asked one where there is none."""
    return next((m for m in checkpoints if m.quantization.method == "none"), checkpoints[0])
