"""A ModelSpec as small JSON of our own, and back.

Decision: the catalog stores what `vllm_advisor.model.config.read` made of a config, not the config. So `recommend`
reads one small file and builds frozen values, with no parsing of anybody's config dialect on the hot path. Defaults
are left out, layer numbers are run-length coded (`0-35`, `0-58:2`, `0,4-6`), and a schema number stands in front.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from vllm_advisor.errors import BadInput
from vllm_advisor.model.spec import CacheGroup, ModelSpec, Moe, Quantization, WeightGroup


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


SCHEMA = 1
_LAYERS = "layers"
_SHORTEST_RUN = 3


def encode(spec: ModelSpec) -> dict[str, Any]:
    """`spec` as JSON values, `schema` first, fields that hold their default left out.

    Raises ValueError for a negative layer number, which no run can spell.
    """
    return {"schema": SCHEMA, **_plain(spec)}


def decode(mapping: Mapping[str, Any]) -> ModelSpec:
    """The ModelSpec that `encode` wrote; `decode(encode(spec)) == spec`.

    Raises BadInput for another schema, or for a mapping that is not of this form.
    """
    if mapping.get("schema") != SCHEMA:
        raise BadInput(
            f"the catalog entry has schema {mapping.get('schema')!r}, this version reads {SCHEMA}",
            "reinstall vllm-advisor: its data and its code are of different versions",
        )
    try:
        return _model(mapping)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"a catalog entry is damaged: {error}", "reinstall vllm-advisor") from error


def pack_layers(layers: Sequence[int]) -> str:
    """Layer numbers as runs: (0, 1, 2) is `0-2`, (0, 2, 4) is `0-4:2`, order kept, () is the empty string."""
    if any(n < 0 for n in layers):
        raise ValueError(f"layer numbers start at 0: {tuple(layers)}")
    parts: list[str] = []
    start = 0
    while start < len(layers):
        length = _run_length(layers, start)
        parts.append(_run(layers[start], layers[start + length - 1], length))
        start += length
    return ",".join(parts)


@lru_cache(maxsize=256)
def unpack_layers(text: str) -> tuple[int, ...]:
    """The layer numbers of `pack_layers`; groups of one model share layers, so each text is read once."""
    layers: list[int] = []
    for part in text.split(",") if text else ():
        span, _, step = part.partition(":")
        first, dash, last = span.partition("-")
        layers.extend(range(int(first), int(last) + 1, int(step or 1)) if dash else (int(first),))
    return tuple(layers)


def _run_length(layers: Sequence[int], start: int) -> int:
    """How many from `start` on make one run; 1 where a run would be longer to write than its numbers."""
    if start + 1 >= len(layers):
        return 1
    step = layers[start + 1] - layers[start]
    end = start + 1
    while end + 1 < len(layers) and layers[end + 1] - layers[end] == step:
        end += 1
    length = end - start + 1
    return length if step > 0 and length >= _SHORTEST_RUN else 1


def _run(first: int, last: int, length: int) -> str:
    if length == 1:
        return str(first)
    step = (last - first) // (length - 1)
    return f"{first}-{last}" + ("" if step == 1 else f":{step}")


def _plain(value: Any) -> dict[str, Any]:
    """A dataclass as a dict, without the fields that hold their default."""
    named = ((f, getattr(value, f.name)) for f in fields(value))
    return {f.name: _json(f.name, v) for f, v in named if f.default is MISSING or v != f.default}


def _json(name: str, value: Any) -> Any:
    if name == _LAYERS:
        return pack_layers(value)
    if isinstance(value, (CacheGroup, WeightGroup, Moe, Quantization)):
        return _plain(value)
    if isinstance(value, tuple):
        return [_json("", item) for item in value]
    return value


def _model(mapping: Mapping[str, Any]) -> ModelSpec:
    values: dict[str, Any] = {k: _frozen(v) if v.__class__ is list else v for k, v in mapping.items() if k != "schema"}
    values["caches"] = tuple([CacheGroup(**_group(m)) for m in mapping["caches"]])
    values["weights"] = tuple([WeightGroup(**_group(m)) for m in mapping["weights"]])
    if "moe" in values:
        values["moe"] = Moe(**_group(values["moe"]))
    if "quantization" in values:
        values["quantization"] = Quantization(**_group(values["quantization"]))
    return ModelSpec(**values)


def _group(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of one inner dataclass: layers unpacked, lists as tuples."""
    values: dict[str, Any] = {k: _frozen(v) if v.__class__ is list else v for k, v in mapping.items()}
    if _LAYERS in values:
        values[_LAYERS] = unpack_layers(values[_LAYERS])
    return values


def _frozen(items: list[Any]) -> tuple[Any, ...]:
    return tuple([_frozen(item) if item.__class__ is list else item for item in items])
