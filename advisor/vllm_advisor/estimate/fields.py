"""One row of a batch as a checked value: fields as written in, numbers in range out, or an error that says which.

A field that is null is not known; a field of the wrong kind is an error of that row alone.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.errors import AdvisorError, BadInput
from vllm_advisor.estimate import flags
from vllm_advisor.units import GIB, parse_tokens


if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_TOKENS, _MOST_DEVICES = 1 << 30, 4096
_ASIDE = re.compile(r"\(([A-Za-z0-9_]+)\)")
_WORD = re.compile(r"[A-Za-z0-9_]+")
_DTYPES = ("bfloat16", "float16", "half", "auto", "float32", "float")
_WIDE = ("float32", "float")
_SHORT = {"fp16": "float16", "half": "float16", "bf16": "bfloat16"}


class Request(NamedTuple):
    """What a row asks. `tp` 0: not known. Sizes in bytes; text fields as written, stripped."""

    model: str
    config: str | None
    gpu: str | None
    devices: int
    memory_bytes: int | None
    tp: int
    pp: int
    dp: int
    dcp: int
    expert_parallel: bool
    quantization: str | None
    kv_cache_dtype: str | None
    max_model_len: int | None
    gpu_memory_utilization: float | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    enforce_eager: bool
    block_size: int | None
    kv_cache_memory_bytes: int | None
    vllm_version: str | None
    date: str | None
    other_flags: str
    env: tuple[tuple[str, str], ...]
    wide: bool = False


class _Row:
    """Typed access to a mapping from elsewhere; a value named in the free flags stands in for a missing field."""

    def __init__(self, mapping: Mapping[str, Any], said: Mapping[str, str]) -> None:
        self._mapping, self._said = mapping, said

    def _value(self, key: str, flag: str) -> Any:
        value = self._mapping.get(key)
        return self._said.get(flag or key) if value is None else value

    def text(self, key: str, flag: str = "") -> str | None:
        value = self._value(key, flag)
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        if not isinstance(value, str):
            raise BadInput(f"{key} is {_shown(value)}, not text")
        return value.strip()

    def real(self, key: str, low: float, high: float, flag: str = "") -> float | None:
        value = self._value(key, flag)
        if value is None:
            return None
        number = _number(value)
        if number is None or not low <= number <= high:
            raise BadInput(f"{key} is {_shown(value)}, not a number from {low:g} to {high:g}")
        return number

    def whole(self, key: str, high: int, flag: str = "") -> int | None:
        value = self.real(key, 1, high, flag)
        if value is not None and value != int(value):
            raise BadInput(f"{key} is {_shown(value)}, not a whole number")
        return None if value is None else int(value)

    def length(self, key: str) -> int | None:
        """Tokens, also as people write them: `28k`."""
        value = self._value(key, key)
        if isinstance(value, str) and value[-1:].isalpha():
            try:
                return min(parse_tokens(value), _MOST_TOKENS)
            except AdvisorError as error:
                raise BadInput(f"{key}: {error.message}") from None
        return self.whole(key, _MOST_TOKENS)

    def flag(self, key: str, flag: str = "") -> bool:
        value = self._value(key, flag)
        if value in (None, False, 0, "0", "false", "False", ""):
            return False
        if value in (True, 1, "1", "true", "True") or (key == "ep" and isinstance(value, int)):
            return True
        raise BadInput(f"{key} is {_shown(value)}, not true or false")


def request(mapping: Mapping[str, Any]) -> Request:
    """A row's fields, checked. Raises BadInput that names the field."""
    other = mapping.get("other_flags")
    other = other if isinstance(other, str) else ""
    row = _Row(mapping, flags.flags(other) if other else {})
    model, config = row.text("model"), row.text("config")
    memory = row.real("gpu_mem_gib", 0.1, 1 << 14)
    explicit = row.real("kv_cache_memory_bytes", 1, 1 << 50)
    return Request(
        model=model or (config or "").removesuffix(".json").replace("--", "/", 1),
        config=config,
        gpu=row.text("gpu"),
        devices=row.whole("gpu_count", _MOST_DEVICES) or 0,
        memory_bytes=int(memory * GIB) if memory else None,
        tp=row.whole("tp", _MOST_DEVICES, "tensor_parallel_size") or 0,
        pp=row.whole("pp", _MOST_DEVICES, "pipeline_parallel_size") or 1,
        dp=row.whole("dp", _MOST_DEVICES, "data_parallel_size") or 1,
        dcp=row.whole("decode_context_parallel_size", _MOST_DEVICES) or 1,
        expert_parallel=row.flag("ep", "enable_expert_parallel"),
        quantization=row.text("quantization"),
        kv_cache_dtype=_cache_dtype(row.text("kv_cache_dtype")),
        max_model_len=row.length("max_model_len"),
        gpu_memory_utilization=row.real("gpu_memory_utilization", 0.001, 1.0),
        max_num_seqs=row.whole("max_num_seqs", _MOST_TOKENS),
        max_num_batched_tokens=row.whole("max_num_batched_tokens", _MOST_TOKENS),
        enforce_eager=row.flag("enforce_eager"),
        block_size=row.whole("block_size", 1 << 20),
        kv_cache_memory_bytes=int(explicit) if explicit else None,
        vllm_version=row.text("vllm_version"),
        date=row.text("date"),
        other_flags=other,
        env=flags.variables(other) if other else (),
        wide=_is_wide(row.text("dtype")),
    )


def _is_wide(dtype: str | None) -> bool:
    word = (dtype or "auto").removeprefix("torch.")
    if word not in _DTYPES:
        raise BadInput(f"dtype is {_shown(dtype)}, not one of {', '.join(_DTYPES)}")
    return word in _WIDE


def _cache_dtype(text: str | None) -> str | None:
    """`fp8 (fp8_ds_mla)` is the layout in the parentheses."""
    if text is None:
        return None
    inner = _ASIDE.search(text)
    word = inner[1] if inner else text.lower().removeprefix("torch.")
    if not _WORD.fullmatch(word):
        raise BadInput(f"kv_cache_dtype is {_shown(text)}, not one word")
    return _SHORT.get(word, word)


def _number(value: object) -> float | None:
    """A finite number, also one written as text; never a boolean."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"
