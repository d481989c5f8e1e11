"""Module patterns of quantization configs: which modules an ignore list or a target list means.

Five dialects are in use: exact module names, names without their prefix (`mlp.gate`), globs (`*self_attn*`), `re:`
regular expressions, and substrings (AWQ, bitsandbytes). Patterns that name a layer number are kept by layer, so that
lists of hundreds of names cost one lookup a layer (vLLM matches them in quantization/utils/quant_utils.py:
is_layer_skipped, modelopt.py:is_layer_excluded and compressed_tensors/utils.py:should_ignore_layer).
"""

from __future__ import annotations

import re
from fnmatch import translate

from vllm_advisor.errors import BadInput


_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,4})(\D.*)?$")
_TOWER = re.compile(r"visual|vision|audio|^mm_|multi_modal|projector|encoder")
_EXPERT = re.compile(r"\.experts\.(\d+)(\..*)?$")
_LAYER_IN_REGEX = re.compile(r"layers\W{1,4}[\d(\[]")
_WORD = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")
MAX_PATTERN = 2048


class Patterns:
    """A compiled list. `match(path, layer, head)` asks about module `path` of a layer."""

    __slots__ = ("_globs", "_layers", "_loose", "_names", "_regexes", "numbered")

    def __init__(self, patterns: tuple[str, ...], *, substring: bool = False) -> None:
        self._names: list[str] = []  # dotted names to find as whole components, in substring mode anywhere
        self._globs: list[re.Pattern[str]] = []
        self._regexes: list[re.Pattern[str]] = []
        self._layers: dict[int, tuple[str, ...]] = {}
        self._loose = substring
        self.numbered = False
        gathered: dict[int, list[str]] = {}
        for pattern in patterns:
            self._add(pattern, gathered)
        self._layers = {n: tuple(sorted(set(rest))) for n, rest in gathered.items()}

    @property
    def by_layer(self) -> bool:
        """Whether the answer may differ between layers."""
        return bool(self._layers) or self.numbered

    def at(self, layer: int) -> tuple[str, ...]:
        """What is said of this layer only: layers with equal answers are alike."""
        return self._layers.get(layer, ())

    def match(self, path: str, layer: int, head: str = "") -> bool:
        """Whether the list means this module. `head`: mtp or lm_head, for modules outside of the stack."""
        full = f"mtp.layers.0.{path}" if head == "mtp" else path if layer < 0 else f"model.layers.{layer}.{path}"
        if any(_covers(rest, path) for rest in self._layers.get(layer, ())):
            return True
        dotted = full if self._loose else f".{full}."
        if any((name in dotted) for name in self._names):
            return True
        return any(g.match(full) for g in self._globs) or any(r.match(full) for r in self._regexes)

    def _add(self, pattern: str, gathered: dict[int, list[str]]) -> None:
        if len(pattern) > MAX_PATTERN:
            raise BadInput(f"a quantization pattern of {len(pattern)} characters", "check quantization_config")
        if pattern.startswith("re:"):
            self.numbered = self.numbered or bool(_LAYER_IN_REGEX.search(pattern))
            self._regexes.append(_compile(pattern[3:]))
        elif " " in pattern:  # prose instead of a module: take the module names that it mentions
            self._names.extend(f".{word}." for word in _WORD.findall(pattern))
        elif found := _LAYER.search(pattern):
            self._add_layer(pattern, found, gathered)
        elif "*" in pattern:
            self._globs.append(_compile(translate(pattern)))
            self._globs.append(_compile(translate(pattern + ".*")))
        elif pattern:
            self._names.append(pattern if self._loose else f".{pattern.strip('.')}.")

    def _add_layer(self, pattern: str, found: re.Match[str], gathered: dict[int, list[str]]) -> None:
        if _TOWER.search(pattern[: found.start() + 1]):
            return
        number, rest = int(found.group(1)), found.group(2) or ""
        if pattern.startswith("mtp"):
            self._names.append(f".{pattern.rstrip('*').rstrip('.')}.")
            return
        expert = _EXPERT.search(rest)
        if expert:  # experts of a layer are stored alike: the first speaks for all of them
            if int(expert.group(1)):
                return
            rest = rest[: expert.start()] + ".experts"
        gathered.setdefault(number, []).append(rest.lstrip("."))


def _covers(rest: str, path: str) -> bool:
    if rest in {"", "*"}:
        return True
    if "*" in rest:
        return bool(_compile(translate(rest)).match(path))
    return path == rest or path.startswith(f"{rest}.")


_cache: dict[str, re.Pattern[str]] = {}


def _compile(expression: str) -> re.Pattern[str]:
    if expression not in _cache:
        if len(_cache) > 4096:
            _cache.clear()
        try:
            _cache[expression] = re.compile(expression)
        except (re.error, OverflowError, RecursionError) as broken:
            raise BadInput(f"a quantization pattern is no regular expression: {expression[:60]}", str(broken)) from None
    return _cache[expression]
