"""What can be turned: for each value of the load and each limit its stops, its meaning, and where the state has it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor import question
from vllm_advisor.errors import AdvisorError, UsageError
from vllm_advisor.tui import meaning
from vllm_advisor.tui.widgets.field import Field
from vllm_advisor.tui.widgets.kinds import Kind, choices, scale
from vllm_advisor.units import parse_tokens
from vllm_advisor.workload import PRESETS, Objective, Sensitivity, Workload


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from vllm_advisor.tui.state import State

_LENGTHS = tuple(2**n for n in range(6, 18))
_CONTEXTS = tuple(2**n for n in range(11, 21))
_AT_ONCE = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
_RATES = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_FIRST_MS = (50, 100, 200, 300, 500, 750, 1000, 1500, 2000, 3000, 5000, 10000)
_TOKEN_MS = (5, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200)
_RANKS = (1, 2, 4, 8, 16, 32)
_SHARES = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97)
_SEQUENCES = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_BATCHED = tuple(2**n for n in range(10, 17))
_ANY = "any"


class Knob(NamedTuple):
    """`place` is `load` or `limits`; `kept` turns a typed text into what is kept there."""

    label: str
    place: str
    name: str
    kind: Kind
    kept: Callable[[str], Any] = str

    def value(self, state: State) -> str:
        """As typed; "" where it is at its default."""
        value = getattr(getattr(state, self.place), self.name)
        if self.name == "preset":
            return "" if value == "chat" else str(value)
        if self.name == "siblings":
            return "" if value else "yes"
        if isinstance(value, bool):
            return "" if value is _SWITCHED_OFF.get(self.name) else "yes" if value else "no"
        return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)

    def default(self, load: Workload) -> str:
        """What counts where nothing was typed: the preset's value, or no limit."""
        if self.place == "load":
            return _default(self.name, load)
        return "no" if self.name in _SWITCHED_OFF else ""

    def change(self, state: State, text: str, load: Workload) -> dict[str, Any]:
        """The fields of the state to set; the default itself is kept as nothing."""
        value = _NOTHING.get(self.name) if text in ("", self.default(load)) else self.kept(text)
        return {self.place: getattr(state, self.place)._replace(**{self.name: value})}


# Switches of the limits, and the value that stands for no limit.
_SWITCHED_OFF = {"siblings": True, "use_all": False, "allow_plugin": False}
_NOTHING: dict[str, Any] = {"preset": "chat", **_SWITCHED_OFF}


def _default(name: str, load: Workload) -> str:
    """The preset's own value as it would be typed."""
    if name == "preset":
        return "chat"
    preset = PRESETS.get(load.name, load)
    found = getattr(preset, {"shared_prefix": "shared_prefix_tokens"}.get(name, name), None)
    return "" if found is None or (name == "context" and not found) else str(found)


def _whole(text: str) -> float:
    """A whole number from 1. Raises UsageError."""
    cleaned = text.replace(",", "")
    if not cleaned.isdigit() or not 1 <= int(cleaned) <= 10**6:
        raise UsageError(f"{text!r} is no whole number from 1", "write 32")
    return int(cleaned)


def _positive(text: str) -> float:
    """A number above 0. Raises UsageError."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{text!r} is no number above 0", "write 0.5, or 200")
    return value


def _share(text: str) -> float:
    """A part of the memory. Raises UsageError."""
    value = _positive(text)
    if value > 1:
        raise UsageError(f"{text} is more than all of the memory", "write a part of 1, as 0.9")
    return value


def _count(text: str) -> int:
    return int(_whole(text))


def _yes(text: str) -> bool:
    return text == "yes"


def _unlike(text: str) -> bool:
    """`siblings` says the opposite of its label."""
    return text != "yes"


def _optional(*stops: str) -> Kind:
    return choices("", *stops, names={"": _ANY})


def quantizations(names: Iterable[str]) -> Kind:
    """A choice of what weights may be converted to; `none`: the checkpoint as it is."""
    return _optional("none", *names)


LOAD = (
    Knob("Workload", "load", "preset", choices(*PRESETS)),
    Knob("Input", "load", "input_tokens", scale(_LENGTHS, parse_tokens)),
    Knob("Output", "load", "output_tokens", scale(_LENGTHS, parse_tokens)),
    Knob("At once", "load", "concurrency", scale(_AT_ONCE, _whole), _count),
    Knob("Longest", "load", "context", scale(_CONTEXTS, parse_tokens, "model's")),
    Knob("Arrivals", "load", "request_rate", scale(_RATES, _positive, "none", " a s"), _positive),
    Knob("Same prefix", "load", "shared_prefix", scale(_LENGTHS[2:], parse_tokens)),
    Knob("Objective", "load", "objective", choices(*Objective)),
    Knob("Sensitivity", "load", "sensitivity", choices(*Sensitivity)),
    Knob("First token", "load", "ttft_ms", scale(_FIRST_MS, _positive, "no limit", " ms"), _positive),
    Knob("Each token", "load", "tpot_ms", scale(_TOKEN_MS, _positive, "no limit", " ms"), _positive),
)
LIMITS = (
    Knob("Quantization", "limits", "quantization", _optional("none")),
    Knob("KV cache", "limits", "kv_cache_dtype", _optional("auto", "fp8", "bfloat16")),
    Knob("TP", "limits", "tensor_parallel_size", scale(_RANKS, _whole, _ANY), _count),
    Knob("PP", "limits", "pipeline_parallel_size", scale(_RANKS, _whole, _ANY), _count),
    Knob("DP", "limits", "data_parallel_size", scale(_RANKS, _whole, _ANY), _count),
    Knob("EP", "limits", "expert_parallel", _optional("yes", "no"), _yes),
    Knob("Memory share", "limits", "gpu_memory_utilization", scale(_SHARES, _share, _ANY), _share),
    Knob("Sequences", "limits", "max_num_seqs", scale(_SEQUENCES, _whole, _ANY), _count),
    Knob("Step tokens", "limits", "max_num_batched_tokens", scale(_BATCHED, _whole, _ANY), _count),
    Knob("Eager", "limits", "enforce_eager", _optional("yes"), _yes),
    Knob("Only this one", "limits", "siblings", choices("no", "yes"), _unlike),
    Knob("All GPUs", "limits", "use_all", choices("no", "yes"), _yes),
    Knob("Our plugin", "limits", "allow_plugin", choices("no", "yes"), _yes),
)
BY_NAME = {knob.name: knob for knob in (*LOAD, *LIMITS)}

_LIMIT_WORDS = {
    "quantization": "weights quantized while loading",
    "kv_cache_dtype": "how keys and values are stored",
    "tensor_parallel_size": "GPUs that share each layer",
    "pipeline_parallel_size": "stages of layers",
    "data_parallel_size": "whole copies of the model",
    "expert_parallel": "experts lie whole on GPUs",
    "gpu_memory_utilization": "the part that vLLM may take",
    "max_num_seqs": "requests in one batch",
    "max_num_batched_tokens": "tokens in one step",
    "enforce_eager": "no CUDA graphs: smaller, slower",
    "siblings": "propose no other checkpoint",
    "use_all": "only plans on every GPU",
    "allow_plugin": "advisor_mxfp4 may be proposed",
}


_NUMBER_WORDS: dict[str, Callable[[float], str]] = {
    "input_tokens": meaning.tokens,
    "output_tokens": meaning.tokens,
    "concurrency": lambda n: meaning.concurrency(int(n)),
    "context": lambda n: meaning.context(int(n)),
    "request_rate": meaning.rate,
    "ttft_ms": meaning.first_token,
    "tpot_ms": meaning.each_token,
}
_CHOICE_WORDS = {"preset": meaning.PRESETS, "objective": meaning.OBJECTIVES, "sensitivity": meaning.SENSITIVITIES}


def says(name: str, text: str, load: Workload) -> str:
    """What a value means."""
    if name in _LIMIT_WORDS:
        return _LIMIT_WORDS[name]
    if name in _CHOICE_WORDS:
        return _CHOICE_WORDS[name].get(text, "")
    read = BY_NAME[name].kind.read
    size = read(text) if read and text and text != "0" else 0.0
    return meaning.shared(int(size), load.input_tokens) if name == "shared_prefix" else _NUMBER_WORDS[name](size)


def field(name: str, load: Callable[[], Workload]) -> Field:
    """A field for a value; `load` gives the workload that its meaning may rest on."""
    knob = BY_NAME[name]
    return Field(knob.label, knob.kind, lambda text: says(name, text, load()), id=name)


def workload(state: State) -> tuple[Workload, AdvisorError | None]:
    """The load of a state; where its figures contradict each other the preset alone, and what is wrong."""
    try:
        return question.workload(state.load), None
    except AdvisorError as error:
        return PRESETS.get(state.load.preset, PRESETS["chat"]), error


def show(fields: Iterable[Field], state: State) -> None:
    """Every field that is a knob, as the state has it."""
    load, _ = workload(state)
    for shown in fields:
        knob = BY_NAME.get(shown.id or "")
        if knob:
            shown.show(knob.value(state), knob.default(load))


def changed(state: State, change: Field.Changed) -> dict[str, Any]:
    """What a changed field sets in the state; {} for a field that is no knob."""
    knob = BY_NAME.get(change.field.id or "")
    return knob.change(state, change.value, workload(state)[0]) if knob else {}
