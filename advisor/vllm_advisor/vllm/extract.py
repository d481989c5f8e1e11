"""Makes the surface of one vLLM version from its unpacked package, by reading the source and never importing it.

    python -m vllm_advisor.vllm.extract DIR VERSION [SURFACES]

DIR is the folder `vllm` of an unpacked wheel or of an installation. With SURFACES, the folder of the shipped surfaces,
both of its files are written (`SURFACES/VERSION.json`, `SURFACES/more/VERSION.json`), else one document goes to stdout.
A new vLLM release is this one command and a diff.
"""

from __future__ import annotations

import ast
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_advisor.errors import AdvisorError, BadInput
from vllm_advisor.vllm import extract_kernels, extract_observability, extract_quantization
from vllm_advisor.vllm.extract_flags import Flags, kind_of
from vllm_advisor.vllm.source import Package, Reader, Unread
from vllm_advisor.vllm.surface import MORE


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vllm_advisor.vllm.source import Module

# What is a Literal or a list of names, and where it stands: (module, name).
_NAMES = {
    "quantizations": ("model_executor.layers.quantization", "QuantizationMethods"),
    "deprecated_quantizations": ("model_executor.layers.quantization", "DEPRECATED_QUANTIZATION_METHODS"),
    "kv_cache_dtypes": ("config.cache", "CacheDType"),
    "moe_backends": ("config.kernel", "MoEBackend"),
    "linear_backends": ("config.kernel", "LinearBackend"),
    "tokenizer_modes": ("config.model", "TokenizerMode"),
}
# What is a dictionary whose keys are the names.
_KEYS = {
    "online_quantizations": ("config.quantization", "_ONLINE_SHORTHANDS"),
    "reasoning_parsers": ("reasoning", "_REASONING_PARSERS_TO_REGISTER"),
    "tool_parsers": ("tool_parsers", "_TOOL_PARSERS_TO_REGISTER"),
}
_REGISTRY = "model_executor.models.registry"


def extract(package_dir: Path, version: str) -> dict[str, Any]:
    """Everything that `surface.surface_of` reads, as JSON values. `unread` lists what the source did not tell.

    Raises BadInput where `package_dir` is no vLLM package. Files that are missing or no Python are listed, not raised.
    """
    if not (package_dir / "engine" / "arg_utils.py").is_file():
        raise BadInput(f"no vLLM package in {package_dir}", "give the folder that holds engine/arg_utils.py")
    package = Package(package_dir)
    flags = Flags(package)
    readers: dict[str, tuple[Callable[[], Any], Any]] = {
        "flags": (flags.read, {}),
        "env": (lambda: _environment(package), {}),
        **{name: (partial(_literals, package, *where), []) for name, where in _NAMES.items()},
        **{name: (partial(_keys, package, *where), []) for name, where in _KEYS.items()},
        "all2all_backends": (lambda: _choices(flags, "--all2all-backend"), []),
        "attention_backends": (lambda: _members(package, "v1.attention.backends.registry", "AttentionBackendEnum"), []),
        "architectures": (lambda: _architectures(package), {}),
        "removed_architectures": (lambda: _mapping(package, _REGISTRY, "_PREVIOUSLY_SUPPORTED_MODELS"), {}),
    }
    surface: dict[str, Any] = {"version": version, "build": "cpu" if any(package_dir.glob("_C_AVX*")) else "cuda"}
    for name, (read, nothing) in readers.items():
        surface[name] = _readable(read, nothing)
    missing = [f"nothing read of {name}" for name in readers if not surface[name]]
    surface["deprecated_flags"] = flags.deprecated
    surface |= {"unread": sorted({*package.problems, *flags.unread, *missing})}
    return surface | _more(package, known=set(surface["unread"]))


def _more(package: Package, known: set[str]) -> dict[str, Any]:
    """What goes into the second file."""
    unread: list[str] = []
    readers: dict[str, tuple[Callable[[], Any], Any]] = {
        "quantization_methods": (lambda: extract_quantization.read(package, unread), {}),
        "platform_quantizations": (lambda: extract_quantization.platforms(package), {}),
        "batch_defaults": (lambda: extract_quantization.batch_defaults(package, unread), []),
        "log_lines": (lambda: extract_observability.log_lines(package), []),
        "metrics": (lambda: extract_observability.metrics(package), {}),
        "kernels": (lambda: extract_kernels.read(package), {}),
    }
    found = {name: _readable(read, nothing) for name, (read, nothing) in readers.items()}
    missing = [f"nothing read of {name}" for name in readers if not found[name]]
    return found | {"unread_more": sorted({*unread, *missing, *package.problems} - known)}


def _readable(read: Callable[[], Any], nothing: Any) -> Any:
    """What a reader finds; `nothing` where the source is nested too deeply to follow."""
    try:
        return read()
    except RecursionError:
        return nothing


def _choices(flags: Flags, name: str) -> list[Any]:
    row = flags.rows.get(name, [])
    return list(row[4]) if len(row) > 4 else []


def _literals(package: Package, where: str, name: str) -> list[Any]:
    """The names of a `Literal[…]` or of a list."""
    module = package.module(where)
    node = module.names.get(name) if module else None
    if module is None or node is None:
        return []
    reader = Reader(module)
    value = reader.value(node)
    return value if isinstance(value, list) else list(dict.fromkeys(reader.literals(node)))


def _keys(package: Package, where: str, name: str) -> list[str]:
    """The literal keys of a dictionary."""
    module = package.module(where)
    return [key for key, _ in _items(module, name)] if module else []


def _items(module: Module, name: str) -> Iterator[tuple[str, ast.expr]]:
    node = module.names.get(name)
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value


def _members(package: Package, where: str, name: str) -> list[str]:
    """The member names of an enumeration."""
    module = package.module(where)
    node = module.classes.get(name) if module else None
    assigned = [s.targets[0] for s in (node.body if node else []) if isinstance(s, ast.Assign)]
    return [t.id for t in assigned if isinstance(t, ast.Name) and not t.id.startswith("_")]


def _mapping(package: Package, where: str, name: str) -> dict[str, str]:
    """A dictionary of strings."""
    module = package.module(where)
    values = {key: Reader(module).value(node) for key, node in _items(module, name)} if module else {}
    return {key: value for key, value in values.items() if isinstance(value, str)}


def _architectures(package: Package) -> dict[str, list[str]]:
    """The registry's sections (`_TEXT_GENERATION_MODELS` → text_generation) that `_VLLM_MODELS` joins."""
    module = package.module(_REGISTRY)
    joined = module.names.get("_VLLM_MODELS") if module else None
    parts = joined.values if isinstance(joined, ast.Dict) else []
    names = [p.id for p in parts if isinstance(p, ast.Name)]
    sections = {n: [key for key, _ in _items(module, n)] for n in names} if module else {}
    return {n.strip("_").removesuffix("_MODELS").lower(): found for n, found in sections.items()}


def _environment(package: Package) -> dict[str, list[Any]]:
    """The registered variables as [kind, default(, choices)]."""
    module = package.module("envs")
    if module is None:
        return {}
    declared = _declared_types(module)
    rows: dict[str, list[Any]] = {}
    for name, getter in _items(module, "environment_variables"):
        body = getter.body if isinstance(getter, ast.Lambda) else getter
        kind = declared.get(name) or _called_kind(body)
        value = _typed(_fallback(Reader(module), name, body), kind)
        default = {"unread": value.expression} if isinstance(value, Unread) else value
        choices = _env_choices(Reader(module), body)
        rows[name] = [kind, default, *([choices] if choices else [])]
    return rows


def _called_kind(body: ast.expr) -> str:
    """The kind of `bool(…)`, `int(…)`, `float(…)`; text otherwise."""
    called = ast.unparse(body).partition("(")[0]
    return called if called in ("bool", "int", "float") else "str"


def _declared_types(module: Module) -> dict[str, str]:
    """The kinds of the typed names below `if TYPE_CHECKING`. Their values there are not what a getter returns."""
    nodes = [n for block in module.tree.body if isinstance(block, ast.If) for n in block.body]
    typed = [n for n in nodes if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
    return {ast.unparse(n.target): kind_of(Reader(module).hints(n.annotation))[0] for n in typed}


def _fallback(reader: Reader, name: str, body: ast.expr) -> Any:
    """What a getter gives when the variable is not set: the literal in `os.getenv(NAME, literal)`, or Unread."""
    if isinstance(body, ast.IfExp) and "os.environ" in ast.unparse(body.test):
        return reader.value(body.orelse)
    if isinstance(body, ast.BoolOp) and isinstance(body.op, ast.Or) and isinstance(body.values[-1], ast.Constant):
        return body.values[-1].value
    calls = [n for n in ast.walk(body) if isinstance(n, ast.Call) and _reads(reader, name, n)]
    tabled = any(isinstance(n, ast.Dict | ast.Lambda) for n in ast.walk(body))
    if len(calls) != 1 or tabled:
        return Unread("computed")
    value = reader.value(calls[0].args[1]) if len(calls[0].args) > 1 else None
    compared = any(isinstance(n, ast.Compare | ast.BoolOp) for n in ast.walk(body))
    return Unread("computed") if value is None and compared else value


def _reads(reader: Reader, name: str, call: ast.Call) -> bool:
    """Whether a call reads this variable from the environment with its fallback in second place."""
    func = ast.unparse(call.func)
    known = func in ("os.getenv", "os.environ.get", "env_with_choices", "env_list_with_choices")
    return known and bool(call.args) and reader.value(call.args[0]) == name


def _typed(value: Any, kind: str) -> Any:
    """An environment string as the declared type reads it."""
    if not isinstance(value, str):
        return value
    if kind == "bool":
        return value.strip().lower() in ("1", "true")
    try:
        return {"int": int, "float": float}.get(kind, str)(value)
    except ValueError:
        return Unread(value)


def _env_choices(reader: Reader, body: ast.expr) -> list[Any]:
    """The third argument of `env_with_choices(NAME, default, choices)`."""
    if isinstance(body, ast.Call) and ast.unparse(body.func).endswith("with_choices") and len(body.args) > 2:
        value = reader.value(body.args[2])
        return value if isinstance(value, list) else []
    return []


def write(surface: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """Both files of a surface, as they are shipped: `VERSION.json` and `more/VERSION.json`. Raises BadInput."""
    first, second = folder / f"{surface['version']}.json", folder / "more" / f"{surface['version']}.json"
    more = {"version": surface["version"], **{k: v for k, v in surface.items() if k in MORE}}
    try:
        second.parent.mkdir(parents=True, exist_ok=True)
        first.write_text(dumps({k: v for k, v in surface.items() if k not in MORE}), "utf-8")
        second.write_text(dumps(more), "utf-8")
    except OSError as error:
        raise BadInput(f"{folder} cannot be written: {error.strerror}") from None
    return first, second


def dumps(surface: dict[str, Any]) -> str:
    """JSON with one flag, variable or list a line: quick to load, and a diff between versions can be read."""
    lines = []
    for key, value in surface.items():
        if isinstance(value, list) and value and isinstance(value[0], list | dict):
            rows = ",\n".join(f"  {_compact(v)}" for v in value)
            lines.append(f" {json.dumps(key)}: [\n{rows}\n ]")
        elif isinstance(value, dict) and value:
            rows = ",\n".join(f"  {json.dumps(k)}: {_compact(v)}" for k, v in value.items())
            lines.append(f" {json.dumps(key)}: {{\n{rows}\n }}")
        else:
            lines.append(f" {json.dumps(key)}: {_compact(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def main(argv: list[str]) -> int:
    """`python -m vllm_advisor.vllm.extract DIR VERSION [SURFACES]`; 2 and one line on bad input."""
    if len(argv) not in (2, 3):
        sys.stderr.write("usage: python -m vllm_advisor.vllm.extract DIR VERSION [SURFACES]\n")
        return 2
    try:
        surface = extract(Path(argv[0]), argv[1])
        if len(argv) == 2:
            sys.stdout.write(dumps(surface))
        else:
            write(surface, Path(argv[2]))
    except AdvisorError as error:
        sys.stderr.write(f"{error.message}\n{error.hint}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
