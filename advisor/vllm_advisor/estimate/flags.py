"""The free text beside a reported start-up: which flags and variables it names, as people write them.

`--block-size 128`, `block_size=128`, `--no-enable-prefix-caching`, `VLLM_USE_V1=0`, `V0`: only what changes memory is
read; figures that vLLM itself printed (padding layers, an estimate of graphs) are no configuration and are left alone.
"""

from __future__ import annotations

import re
from functools import lru_cache


_FLAG = re.compile(
    r"(?:--|(?<![A-Za-z0-9_]))(?P<name>block[-_]size|decode[-_]context[-_]parallel[-_]size|dcp|kv[-_]cache[-_]dtype"
    r"|max[-_]num[-_]seqs|max[-_]num[-_]batched[-_]tokens|max[-_]model[-_]len|kv[-_]cache[-_]memory(?:[-_]bytes)?"
    r"|gpu[-_]memory[-_]utilization|quantization|tensor[-_]parallel[-_]size"
    r"|pipeline[-_]parallel[-_]size|data[-_]parallel[-_]size)['\"]?\s*(?:[=:]|\s)\s*['\"]?(?P<value>[A-Za-z0-9_.]+)",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"\b(VLLM_[A-Z0-9_]+)=((?:[^\s;,]|,(?=[0-9]))+)")
_ENGINE = re.compile(r"\bV([01])\b")
# Drafts, by a word of the text; the order matters, a DFlash row may name MTP as its rival.
_DRAFTS = (("dflash", "dflash"), ("eagle", "eagle"), ("mtp", "mtp"), ("draft", "draft model"), ("medusa", "medusa"))
_NAMES = {"dcp": "decode_context_parallel_size", "kv_cache_memory": "kv_cache_memory_bytes"}


@lru_cache(maxsize=4096)
def flags(text: str) -> dict[str, str]:
    """Flag to value, names with underscores as vLLM's fields have them. Not to be changed by a caller."""
    found = {}
    for match in _FLAG.finditer(text):
        name = match["name"].lower().replace("-", "_")
        found[_NAMES.get(name, name)] = match["value"]
    return found | _switches(text.lower())


def _switches(lowered: str) -> dict[str, str]:
    """What is said without a value: expert parallelism, eager mode."""
    switches = {"enable_expert_parallel": ("--enable-expert-parallel",), "enforce_eager": ("--enforce-eager",)}
    return {name: "1" for name, words in switches.items() if any(word in lowered for word in words)}


@lru_cache(maxsize=4096)
def variables(text: str) -> tuple[tuple[str, str], ...]:
    """Environment variables, sorted by name; `V0` and `V1` are how reports say VLLM_USE_V1."""
    found = dict(_VARIABLE.findall(text))
    engine = _ENGINE.search(text)
    if engine:
        found.setdefault("VLLM_USE_V1", engine[1])
    return tuple(sorted(found.items()))


@lru_cache(maxsize=4096)
def draft(text: str) -> str:
    """The kind of draft model that a row names, "" for none."""
    lowered = text.lower()
    return next((kind for word, kind in _DRAFTS if word in lowered), "")


def is_adapted(text: str) -> bool:
    """Whether a row names LoRA or a draft."""
    return bool(draft(text)) or "lora" in text.lower()


def unmodelled(text: str) -> tuple[str, ...]:
    """What a row names that the memory model has no term for, in words."""
    lowered = text.lower()
    known = (
        ("lora", "LoRA adapters are not counted"),
        # Versions differ in what it moves, and with the newer model runner it is taken and has no effect.
        ("offload_gb", "cpu_offload_gb: all weights are counted on the device"),
        ("offload-gb", "cpu_offload_gb: all weights are counted on the device"),
    )
    return tuple(words for mark, words in known if mark in lowered)
