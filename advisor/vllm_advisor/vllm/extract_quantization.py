"""What one version says of each quantization method, and of the defaults that depend on the card: read, never run.

A method is its config class: the least compute capability, the types of activation, and whether its layers include a
mixture of experts. `None` stands where the source does not say it in a form that can be read; the reason is listed.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from vllm_advisor.vllm.source import Reader, Unread, absolute


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.vllm.source import Module, Package

_WHERE = "model_executor.layers.quantization"
_SHORTHANDS = ("config.quantization", "_ONLINE_SHORTHANDS")
_LOADER = "model_executor.model_loader.weight_utils"
_PLATFORMS = ("cuda", "rocm", "xpu", "cpu", "tpu")
# A layer's method, by its class name; "Unquantized…" is what a method leaves alone.
_EXPERTS = re.compile(r"(?<!Unquantized)(?<!UnquantizedFused)(?:MoE|Moe|Experts)\w*Method|FusedMoEMethodCls")
_EXPERT_LAYERS = "RoutedExperts|FusedMoE"
_LINEAR = re.compile(r"Linear\w*Method|LinearMethodCls|\w*[Ll]inear_method")


def read(package: Package, unread: list[str]) -> dict[str, Any]:
    """Of each method: `config` class, `min_capability`, `activations`, `online`, `checkpoint`, `moe`, `linear`.

    `activations` are torch's types. `online`: an unquantized checkpoint can be given, and `online_parts` names what is
    quantized then, where a shorthand says it. `moe`, `linear`: such layers of a quantized checkpoint get its kernels.
    """
    module = package.module(_WHERE)
    function = module.functions.get("get_quantization_config") if module else None
    if module is None or function is None:
        unread.append("quantization methods: no get_quantization_config")
        return {}
    shorthands = _online_parts(package)
    rows = {
        name: _method(_Class(module, function, node), name, shorthands, package, unread)
        for name, node in _mapped(function)
    }
    online = {name: _shorthand(parts, rows.get("online", {})) for name, parts in shorthands.items()}
    return {**rows, **{name: row for name, row in online.items() if name not in rows}}


def _mapped(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Method name and class of the dictionary `method_to_config`."""
    for node in ast.walk(function):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "method_to_config":
            keyed = node.value if isinstance(node.value, ast.Dict) else ast.Dict([], [])
            for key, value in zip(keyed.keys, keyed.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value


def _online_parts(package: Package) -> dict[str, list[str]]:
    """Which parts each online shorthand quantizes: linear, moe."""
    module = package.module(_SHORTHANDS[0])
    node = module.names.get(_SHORTHANDS[1]) if module else None
    keyed = node if isinstance(node, ast.Dict) else ast.Dict([], [])
    return {
        k.value: [w.arg for w in v.keywords if w.arg in ("linear", "moe")]
        for k, v in zip(keyed.keys, keyed.values, strict=True)
        if isinstance(k, ast.Constant) and isinstance(k.value, str) and isinstance(v, ast.Call)
    }


def _shorthand(parts: list[str], base: dict[str, Any]) -> dict[str, Any]:
    own = {"online": True, "checkpoint": False, "moe": "moe" in parts, "linear": "linear" in parts}
    return {**base, **own, "online_parts": parts}


def _method(
    found: _Class, name: str, shorthands: dict[str, list[str]], package: Package, unread: list[str]
) -> dict[str, Any]:
    capability, activations = found.returned("get_min_capability"), found.types("get_supported_act_dtypes")
    if found.node is None or capability is None or activations is None:
        unread.append(f"quantization {name}: capability or activation types of {found.name}")
    layers = found.layers()
    online = name in shorthands or name == "online" or "Online" in layers or (name == "fp8" and _redirects(package))
    moe = _has(_EXPERTS, layers, _EXPERT_LAYERS)
    linear = _has(_LINEAR, layers.replace("UnquantizedLinearMethod", ""), "LinearBase")
    row = {"config": found.name, "min_capability": capability, "activations": activations, "online": online}
    if name == "online":  # --quantization-config says which
        return row | {"checkpoint": False, "moe": None, "linear": None}
    row |= {"checkpoint": True, "moe": moe, "linear": linear}
    unread += [f"quantization {name}: whether {part} layers get it" for part in ("moe", "linear") if row[part] is None]
    return row | ({"online_parts": shorthands[name]} if name in shorthands else {})


def _has(methods: re.Pattern[str], layers: str, kinds: str) -> bool | None:
    """Whether the layers of a kind get a method of this configuration; None where it leaves them to another class."""
    if methods.search(layers):
        return True
    delegated = ".get_quant_method(" in layers or ".get_layer_method(" in layers or "scheme" in layers
    return None if not layers or (delegated and re.search(kinds, layers)) else False


def _redirects(package: Package) -> bool:
    """Whether the loader takes `fp8` on an unquantized checkpoint for an online method."""
    module = package.module(_LOADER)
    function = module.functions.get("get_quant_config") if module else None
    tests = [ast.unparse(n.test) for n in ast.walk(function) if isinstance(n, ast.If)] if function else []
    return any("== 'fp8'" in test for test in tests)


class _Class:
    """A config class by the expression that names it, imports inside the function included."""

    def __init__(self, module: Module, function: ast.FunctionDef, node: ast.expr) -> None:
        self.name = _class_name(function, ast.unparse(node))
        self.module, self.node = module, None
        found = self._found(module, function, self.name)
        if found is not None:
            self.module, self.node = found

    def _found(self, module: Module, function: ast.FunctionDef, name: str) -> tuple[Module, ast.ClassDef] | None:
        for node in ast.walk(function):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return _defined(module, node, alias.name)
        return None

    def lineage(self) -> Iterator[tuple[Module, ast.ClassDef]]:
        """The class and its bases inside the package, nearest first."""
        module, node = self.module, self.node
        for _ in range(6):
            if node is None:
                return
            yield module, node
            base = next((b for b in node.bases if isinstance(b, ast.Name)), None)
            found = module.find(base.id) if base else None
            if found is None or not isinstance(found[1], ast.ClassDef):
                return
            module, node = found[0], found[1]

    def methods(self, name: str) -> Iterator[tuple[Module, ast.FunctionDef]]:
        """The method of that name in the class and in its bases, nearest first."""
        for module, node in self.lineage():
            for statement in node.body:
                if isinstance(statement, ast.FunctionDef) and statement.name == name:
                    yield module, statement

    def method(self, name: str) -> tuple[Module, ast.FunctionDef] | None:
        """A method, the nearest one."""
        return next(self.methods(name), None)

    def returned(self, name: str) -> int | None:
        """The number that a method returns; None where it computes one."""
        found = self.method(name)
        values = [n.value for n in ast.walk(found[1]) if isinstance(n, ast.Return)] if found else []
        value = Reader(found[0]).value(values[0]) if found and len(values) == 1 else None
        return value if isinstance(value, int) else None

    def types(self, name: str) -> list[str] | None:
        """The torch types that a method returns a list of."""
        found = self.method(name)
        returns = [n.value for n in ast.walk(found[1]) if isinstance(n, ast.Return)] if found else []
        listed = returns[0] if len(returns) == 1 else None
        return [ast.unparse(e).removeprefix("torch.") for e in listed.elts] if isinstance(listed, ast.List) else None

    def layers(self) -> str:
        """The names that `get_quant_method`, and the methods that it calls on the class, mention."""
        names, texts = ["get_quant_method"], []
        for name in names:  # grows while it is walked
            for _, function in self.methods(name):
                text = "\n".join(ast.unparse(statement) for statement in function.body)
                texts.append(text)
                names += [c for c in dict.fromkeys(re.findall(r"self\.(\w+)\(", text)) if c not in names]
                if "super()." not in text:
                    break
        return "\n".join(texts)


def _class_name(function: ast.FunctionDef, name: str) -> str:
    """A local variable's class: the first that it is assigned."""
    for node in ast.walk(function):
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        value = getattr(node, "value", None)
        if any(isinstance(t, ast.Name) and t.id == name for t in targets) and isinstance(value, ast.Name):
            return value.id
    return name


def _defined(module: Module, node: ast.ImportFrom, name: str) -> tuple[Module, ast.ClassDef] | None:
    where = module.package.module(absolute(module.path, node))
    found = where.find(name) if where else None
    return (found[0], found[1]) if found and isinstance(found[1], ast.ClassDef) else None


def platforms(package: Package) -> dict[str, list[str]]:
    """The quantization methods that a platform allows, where it has a list; others allow all."""
    lists = {}
    for name in _PLATFORMS:
        module = package.module(f"platforms.{name}")
        for node in module.classes.values() if module else ():
            value = _class_value(module, node, "supported_quantization")
            if isinstance(value, list) and value:
                lists[name] = value
    return lists


def _class_value(module: Module | None, node: ast.ClassDef, name: str) -> Any:
    for statement in node.body:
        target = getattr(statement, "target", None) or next(iter(getattr(statement, "targets", [])), None)
        if module and isinstance(target, ast.Name) and target.id == name:
            return Reader(module).value(getattr(statement, "value", None))
    return None


def batch_defaults(package: Package, unread: list[str]) -> list[dict[str, Any]]:
    """The tiers of max_num_batched_tokens and max_num_seqs in source order: `when`, `memory_gib`, `tokens`, `seqs`.

    `tokens` and `seqs` by use: `llm` (the LLM class), `server`. The first tier whose test holds counts; those of a
    platform (`current_platform.is_cpu()`) come last and win. A value that is computed is its expression, as text.
    """
    module = package.module("engine.arg_utils")
    node = module.classes.get("EngineArgs") if module else None
    methods = [n for n in (node.body if node else []) if isinstance(n, ast.FunctionDef)]
    function = next((n for n in methods if n.name == "get_batch_defaults"), None)
    if module is None or function is None:
        unread.append("defaults by card: no get_batch_defaults")
        return []
    return [tier for n in function.body if isinstance(n, ast.If) for tier in _tiers(module, n, "")]


def _tiers(module: Module, node: ast.If, outer: str) -> Iterator[dict[str, Any]]:
    when = " and ".join(filter(None, (outer, ast.unparse(node.test))))
    yield from _tier(module, node.body, when)
    for inner in node.body:
        if isinstance(inner, ast.If):
            yield from _tiers(module, inner, when)
    if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        yield from _tiers(module, node.orelse[0], outer)
    else:
        yield from _tier(module, node.orelse, outer or "otherwise")


def _tier(module: Module, body: list[ast.stmt], when: str) -> Iterator[dict[str, Any]]:
    assigned = {ast.unparse(n.targets[0]): n.value for n in body if isinstance(n, ast.Assign)}
    values = {
        key: _by_use(module, assigned.get(f"default_max_num_{name}"))
        for key, name in (("tokens", "batched_tokens"), ("seqs", "seqs"))
    }
    if any(values.values()):
        least = re.search(r"device_memory >= (\d+) \* GiB_bytes", when)
        yield {"when": when, "memory_gib": int(least.group(1)) if least else None, **values}


def _by_use(module: Module, node: ast.expr | None) -> dict[str, Any]:
    if not isinstance(node, ast.Dict):
        return {}
    uses = {"UsageContext.LLM_CLASS": "llm", "UsageContext.OPENAI_API_SERVER": "server"}
    pairs = zip(node.keys, node.values, strict=True)
    found = {uses.get(ast.unparse(k), ast.unparse(k)): Reader(module).value(v) for k, v in pairs if k is not None}
    return {key: v.expression if isinstance(v, Unread) else v for key, v in found.items()}
