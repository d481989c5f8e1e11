"""What a version shows of itself: the log lines that a reader of its start-up needs, and the names of its metrics.

A line is told by a fragment of its text, wherever in the package it is logged or raised; its format string is kept as
the source has it, with `{…}` for what an f-string puts in.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from vllm_advisor.vllm.source import Reader


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vllm_advisor.vllm.source import Module, Package

# Event, and what its text contains. The first that fits counts.
EVENTS = (
    ("graph_profiling", "CUDA graph memory profiling is enabled"),
    ("version", "Initializing a V1 LLM engine"),
    ("weights", "Model loading took"),
    ("weights_read", "Loading weights took"),
    ("kv_memory", "Available KV cache memory"),
    ("kv_size", "KV cache size"),
    ("concurrency", "Maximum concurrency for"),
    ("graph_estimate", "Estimated CUDA graph memory"),
    ("graph_capture", "Graph capturing finished in"),
    ("profile", "Memory profiling takes"),
    ("free_memory", "Free memory on device"),
    ("moe", "MoE backend"),
    ("attention", "attention backend out of potential backends"),
    ("attention", "backend out of potential backends"),
    ("attention_refused", "Found incompatible backend"),
    ("moe_config", "for MoE layer"),
    ("moe_config", "Using default MoE config"),
    ("block_size", "Setting attention block size to"),
    ("state_padding", "Padding mamba page size by"),
    ("auto_length", "Auto-fit max_model_len"),
    ("too_long", "To serve at least one request"),
    ("no_blocks", "No available memory for the cache blocks"),
    ("engine_start", "init engine (profile"),
    ("compile", "torch.compile took"),
    ("compile", "torch.compile takes"),
    ("kv_scale", "KV cache scaling factor 1.0"),
    ("chunked_prefill", "Chunked prefill is enabled"),
    ("unknown_variable", "Unknown vLLM environment variable"),
    ("listening", "Starting vLLM API server"),
    ("listening", "Starting vLLM server on"),
    ("preemption", "is preempted by"),
    ("engine_died", "EngineCore failed to start"),
    ("engine_died", "Engine core initialization failed"),
)
# Where they are looked for, below the package; a whole version is read in seconds.
_FOLDERS = ("v1", "platforms", "compilation", "entrypoints", "engine", "config", "utils", "model_executor/model_loader",
            "model_executor/layers/fused_moe", "model_executor/layers/quantization", "model_executor/layers/attention",
            "distributed/kv_transfer")  # fmt: skip
_METRIC = re.compile(r"vllm:[a-z][a-z0-9_]*\Z")
_CALLED = {"gauge": "gauge", "counter": "counter", "histogram": "histogram"}
_LEVELS = ("debug", "info", "warning", "error", "exception", "critical")


def _files(package: Package, folders: tuple[str, ...], marks: tuple[str, ...]) -> Iterator[Module]:
    """The modules that hold one of `marks`, in the order of their paths."""
    paths = sorted({p for folder in folders for p in package.root.joinpath(folder).rglob("*.py")})
    for path in (*paths, *sorted(package.root.glob("*.py"))):
        if any(mark in _text(path) for mark in marks):
            relative = path.relative_to(package.root).with_suffix("").parts
            module = package.module(".".join(relative).removesuffix(".__init__"))
            if module is not None:
                yield module


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""


def log_lines(package: Package) -> list[list[str]]:
    """[event, path, level, format] of each, by event; level `raise`: an exception's text, `text`: told elsewhere."""
    marks = tuple({fragment[:12] for _, fragment in EVENTS})
    found = {line for module in _files(package, _FOLDERS, marks) for line in _lines(module)}
    order = {event: number for number, (event, _) in enumerate(reversed(EVENTS))}
    return [list(line) for line in sorted(found, key=lambda line: (-order[line[0]], *line))]


def _lines(module: Module) -> Iterator[tuple[str, str, str, str]]:
    path = module.path.replace(".", "/") + ".py"
    for node in ast.walk(module.tree):
        for level, expression in _spoken(node):
            text = _format(expression, module)
            event = next((name for name, fragment in EVENTS if fragment in text), None)
            if event is not None:
                yield event, path, level, text


def _spoken(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What a statement logs or raises; `text` for a text that a name or a function hands to the logger."""
    if isinstance(node, ast.Call) and (level := _level(node)):
        yield from ((level, argument) for argument in node.args[:2])
    if isinstance(node, ast.Assign | ast.Return) and isinstance(node.value, ast.Constant | ast.JoinedStr | ast.BinOp):
        yield "text", node.value


def _level(node: ast.Call) -> str:
    """`info` of `logger.info_once(…)`, `raise` of an exception, "" of any other call."""
    name = ast.unparse(node.func)
    if name.rpartition(".")[2].endswith(("Error", "Exception")):
        return "raise"
    bare = name.rpartition(".")[2].removesuffix("_once")
    return bare if bare in _LEVELS and "logger" in name else ""


def _format(node: ast.expr, module: Module) -> str:
    """The text of a format string, f-strings and sums of strings included; "" where it is none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_format(v, module) if isinstance(v, ast.Constant) else _hole(v) for v in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _format(node.left, module) + _format(node.right, module)
    if isinstance(node, ast.Name):
        value = Reader(module).value(node)
        return value if isinstance(value, str) else ""
    return ""


def _hole(node: ast.expr) -> str:
    return "{" + ast.unparse(node.value) + "}" if isinstance(node, ast.FormattedValue) else ""


def metrics(package: Package) -> dict[str, str]:
    """Every metric's name and its kind (gauge, counter, histogram; "" where the call does not say), sorted.

    As registered: Prometheus shows a counter with `_total` at the end, once.
    """
    found: dict[str, str] = {}
    for module in _files(package, ("v1", "entrypoints", "distributed", "parser", "tool_parsers"), ('"vllm:',)):
        for name, kind in _named(module):
            found[name] = kind or found.get(name, "")
    return dict(sorted(found.items()))


def _named(module: Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _METRIC.match(node.value):
            yield node.value, ""
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).lower()
            kind = next((kind for part, kind in _CALLED.items() if part in called), "")
            given: list[Any] = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "name")]
            for value in given:
                if isinstance(value, ast.Constant) and isinstance(value.value, str) and _METRIC.match(value.value):
                    yield value.value, kind
