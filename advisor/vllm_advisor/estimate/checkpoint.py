"""From a row's words to the checkpoint: its configuration, and the quantization that the configuration lacks.

Published configurations say how the weights are stored. A report may run another thing: a BF16 model quantized while
loading, or a quantized sibling whose own configuration nobody gave. The first is a flag; the second is derived from the
base model and the method's usual recipe, and said.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.errors import BadInput, UnknownModel, UnsupportedModel
from vllm_advisor.estimate.draft import drafted
from vllm_advisor.memory.weights import ONLINE_BITS
from vllm_advisor.model import config as reader


if TYPE_CHECKING:
    from pathlib import Path

    from vllm_advisor.model.spec import ModelSpec

_LONGEST_CONFIG = 16 << 20  # bytes; the largest published one is 0.4 MB (lists of ignored modules)

# What each method's usual tool writes into quantization_config, by a word of the row or, where that names only a format
# of files, of the model's name.
_RECIPES: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("mxfp4",), {"quant_method": "mxfp4"}),
    (("fp4",), {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}),
    (("awq",), {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}),
    (
        ("gptq", "w4a16", "int4", "4bit", "4-bit"),
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True},
    ),
    (("auto_round", "auto-round"), {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}),
    (("bitsandbytes", "bnb"), {"quant_method": "bitsandbytes", "load_in_4bit": True}),
)
_FILE_FORMATS = ("compressed-tensors", "modelopt", "quark", "torchao", "llmcompressor")
_UNQUANTIZED = ("", "none", "auto", "bf16", "bfloat16", "fp16", "float16", "half", "fp32")


class Checkpoint(NamedTuple):
    """What is loaded: the spec, the `--quantization` that converts it, and what was assumed."""

    spec: ModelSpec
    online: str | None = None
    assumed: tuple[str, ...] = ()


class Shelf:
    """The configurations of one folder, each read once."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: dict[tuple[str, str, str, str], Checkpoint] = {}
        self._specs: dict[tuple[str, str], ModelSpec] = {}
        self._mappings: dict[str, dict[str, Any] | None] = {}

    def checkpoint(self, model: str, file: str | None, quantization: str | None, draft: str) -> Checkpoint:
        """What `model` loads: by its file in the folder, by its name there, else by its name in the catalog.

        One object for equal arguments: caches of memory are by identity.

        Raises UnknownModel where there is no configuration, BadInput for a broken one, UnsupportedModel for one that is
        no decoder language model.
        """
        key = (model, file or "", (quantization or "").strip().lower(), draft)
        if key not in self._known:
            found = self._read(model, file, key[2])
            extended = drafted(found.spec, draft)
            self._known[key] = found._replace(spec=extended.spec, assumed=found.assumed + extended.assumed)
        return self._known[key]

    def _read(self, model: str, file: str | None, quantization: str) -> Checkpoint:
        file, required = file or f"{model.replace('/', '--')}.json", bool(file)
        mapping = self._mapping(file, required=required)
        spec = self._spec(file, model, mapping) if mapping is not None else _from_catalog(model)
        if quantization in _UNQUANTIZED or spec.quantization.method != "none":
            return Checkpoint(spec)  # a configuration that carries a quantization is believed
        word, recipe = _conversion(quantization, model)
        if recipe is not None and mapping is not None:
            return self._derived(file, model, mapping, recipe, quantization)
        if word not in ONLINE_BITS:
            raise UnsupportedModel(f"{model} is stored in 16 bits, and {quantization[:60]!r} is no known recipe")
        return Checkpoint(spec, word, (f"quantization {quantization}: the weights are converted while loading",))

    def _derived(
        self, file: str, model: str, mapping: dict[str, Any], recipe: dict[str, Any], wanted: str
    ) -> Checkpoint:
        spec = self._spec(file, model, {**mapping, "quantization_config": recipe}, recipe["quant_method"])
        said = f"quantization {wanted}: the usual recipe of {recipe['quant_method']}, the configuration names none"
        return Checkpoint(spec, None, (said,))

    def _spec(self, file: str, model: str, mapping: dict[str, Any], method: str = "") -> ModelSpec:
        """A configuration as read once; `method` where a recipe was put into it."""
        key = (file, method)
        if key not in self._specs:
            provenance = "derived-quant" if method else "local"
            self._specs[key] = reader.read(mapping, name=model, source=file, provenance=provenance)
        return self._specs[key]

    def _mapping(self, file: str, *, required: bool) -> dict[str, Any] | None:
        if file not in self._mappings:
            self._mappings[file] = self._load(file)
        found = self._mappings[file]
        if found is None and required:
            raise UnknownModel(f"no configuration {file[:120]!r} in the folder of models")
        return found

    def _load(self, file: str) -> dict[str, Any] | None:
        if self._folder is None or "/" in file or "\\" in file or "\0" in file or file.startswith("."):
            return None
        path = self._folder / file
        try:
            if not path.is_file():
                return None
            if path.stat().st_size > _LONGEST_CONFIG:
                raise BadInput(f"{file} is larger than {_LONGEST_CONFIG >> 20} MiB")
            mapping = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise BadInput(f"{file[:120]} cannot be read: {error}"[:300]) from None
        if not isinstance(mapping, dict):
            raise BadInput(f"{file} is no JSON object")
        return mapping


def _from_catalog(model: str) -> ModelSpec:
    from vllm_advisor.catalog import models  # noqa: PLC0415  a folder of configurations needs no catalog

    found = models.find(model)
    if found is None:
        raise UnknownModel(f"no configuration of {model[:120]!r} in the folder of models or in the catalog")
    return found


def _conversion(wanted: str, model: str) -> tuple[str, dict[str, Any] | None]:
    """What a row's word comes to: an online method, or a recipe. The model's name helps where the word is a format."""
    word = wanted.replace(" ", "_")
    if word in ONLINE_BITS:
        return word, None
    hint = f"{wanted} {model.lower()}" if wanted.startswith(_FILE_FORMATS) else wanted
    recipe = next((recipe for words, recipe in _RECIPES if any(w in hint for w in words)), None)
    eight = recipe is None and ("fp8" in hint or wanted == "modelopt")  # vLLM's name of ModelOpt's FP8; FP4 has another
    return ("fp8" if eight else ""), recipe
