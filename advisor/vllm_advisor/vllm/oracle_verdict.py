"""What vLLM said of a command, as values: accepted or refused, stage by stage, and what each kind of layer got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple


if TYPE_CHECKING:
    from collections.abc import Mapping


# Signs of what the stand-in lacks. Anything else is taken for vLLM's own.
_ARTEFACTS = (
    ("No module named 'aiter'", "AMD's AITER is not in this environment"),
    ("'Nothing' object", "AMD's AITER is only feigned here, and vLLM asks it"),
    ("No module named 'quark'", "AMD's quark is not in this environment"),
    ("Found no NVIDIA driver", "vLLM asks the driver, and there is none"),
    ("has no attribute '_cuda", "vLLM asks the driver, and there is none"),
    ("no kernel image is available", "vLLM asks the driver, and there is none"),
    ("built 258 from the tokenizer", "vLLM computes a table from the published tokenizer, which is not read"),
    ("'_OpNamespace'", "the operation is in another build of vLLM (ROCm's) than this one"),
)


class Refusal(NamedTuple):
    """An exception of vLLM's: its class, its text, and the end of its traceback where that was asked for."""

    error: str
    text: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.error}: {' '.join(self.text.split())}"

    @property
    def artefact(self) -> str:
        """Why a real device would not have raised this; "" where it would, and vLLM itself refuses."""
        said = f"{self.error}: {self.text}\n{self.where}"
        return next((why for sign, why in _ARTEFACTS if sign in said), "")


class Chosen(NamedTuple):
    """Layers that got the same. `part`: attention, linear or experts; `tower`: of an encoder, not of the decoder.

    `kind` is full, sliding, mla, state, indexer, … for attention; for matrices the name of vLLM's method.
    `backend` is vLLM's own name, "" where its method has none (16-bit matrices).
    """

    part: str
    kind: str
    backend: str
    layers: int
    detail: str = ""
    tower: bool = False


class Verdict(NamedTuple):
    """vLLM's answer. A stage that was not reached is None in `parser` and `configuration`, and `layers` is ().

    `failed` is the exception with which the model could not be built under the stand-in; it is no refusal of the
    command: often the stand-in lacks a driver or a library.
    """

    parser: Refusal | None = None
    configuration: Refusal | None = None
    layers: tuple[Chosen, ...] = ()
    failed: Refusal | None = None
    effective: tuple[tuple[str, str], ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether parser and configuration take the command and the model is built, the stand-in's lacks aside."""
        refused = self.failed is not None and not self.failed.artefact
        return self.parser is None and self.configuration is None and not refused


def verdict(answer: Mapping[str, Any]) -> Verdict:
    """The child's answer, read. Raises KeyError or TypeError for one that is none."""
    layers = answer.get("layers") or {}
    return Verdict(
        _refusal(answer["parser"]),
        _refusal(answer.get("configuration")),
        (*_attention(layers), *_matrices(layers, "linear"), *_matrices(layers, "experts")),
        _refusal(layers.get("failed")),
        tuple((name, str(value)) for name, value in (answer.get("effective") or {}).items()),
    )


def _refusal(value: Mapping[str, str] | None) -> Refusal | None:
    return Refusal(value["error"], value["text"], value.get("where", "")) if value else None


def _attention(layers: Mapping[str, Any]) -> list[Chosen]:
    return [
        Chosen("attention", row["kind"], row["backend"], row["layers"], row["detail"], row["tower"])
        for row in layers.get("attention", ())
    ]


def _matrices(layers: Mapping[str, Any], part: str) -> list[Chosen]:
    return [
        Chosen(part, row["method"], row["backend"], row["layers"], row["detail"], row["tower"])
        for row in layers.get(part, ())
    ]
