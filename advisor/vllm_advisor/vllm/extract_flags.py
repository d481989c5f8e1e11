"""The options of `vllm serve`, read from the functions that register them.

vLLM builds its options from the fields of its config classes: `group.add_argument("--x", **kwargs["field"])`, where
`kwargs = get_kwargs(SomeConfig)`. The walk below follows those few idioms in source order; any other is listed in
`unread`, with the line.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.vllm.source import Field, Reader, Unread


if TYPE_CHECKING:
    from vllm_advisor.vllm.source import Module, Package

ENGINE = "engine.arg_utils"
_FRONTENDS = ("entrypoints.common.cli_args", "entrypoints.launchers.cli_args", "entrypoints.openai.cli_args")
_DEPRECATED = re.compile(r"deprecat", re.IGNORECASE)
_VERSION = re.compile(r"v(\d+\.\d+(?:\.\d+)?)")
_BUILTIN_KINDS = {"list": "list", "tuple": "list", "set": "list", "List": "list", "int": "int", "float": "float",
                  "dict": "json", "Dict": "json"}  # fmt: skip


class Spec(NamedTuple):
    """What is known of one option before it is written: its type and what overrides it."""

    dest: str = ""
    group: str = ""
    kind: str = "str"
    default: Any = None
    choices: tuple[Any, ...] = ()


class Flags:
    """All options in registration order, as compact rows [field, group, kind, default, choices, aliases]."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.rows: dict[str, list[Any]] = {}
        self.unread: list[str] = []
        self.deprecated: dict[str, str] = {}

    def read(self) -> dict[str, list[Any]]:
        """The options of the server's own arguments, then of the engine's."""
        frontend = next((m for name in _FRONTENDS if (m := self.package.module(name))), None)
        if frontend is None:
            self.unread.append("entrypoints: no cli_args.py, frontend options not read")
        else:
            self._function(frontend, frontend.functions.get("make_arg_parser"), "")
            self._class_fields(frontend, "FrontendArgs")
        engine = self.package.module(ENGINE)
        if engine is not None:
            for name in ("EngineArgs", "AsyncEngineArgs"):
                self._function(engine, _method(engine, name, "add_cli_args"), name)
        return self.rows

    def _class_fields(self, module: Module, class_name: str) -> None:
        """A class whose every field becomes `--field-name`."""
        for name, field in module.fields(class_name).items():
            spec = field_spec(name, field, "Frontend")
            self._add([f"--{name.replace('_', '-')}"], spec, "")

    def _function(self, module: Module, function: ast.FunctionDef | None, owner: str) -> None:
        if function is None:
            self.unread.append(f"{module.path}: {owner or 'make_arg_parser'} registers nothing that is readable")
            return
        walk = _Walk(self, module)
        for statement in function.body:
            walk.statement(statement)

    def _add(self, names: list[str], spec: Spec, help_text: str) -> None:
        full = next((n for n in names if n.startswith("--")), names[0])
        default = {"unread": spec.default.expression} if isinstance(spec.default, Unread) else spec.default
        row = [spec.dest or full[2:].replace("-", "_"), spec.group, spec.kind, default]
        aliases = [n for n in names if n != full]
        row += [list(spec.choices), aliases] if aliases else [list(spec.choices)] * bool(spec.choices)
        self.rows[full] = row
        if _DEPRECATED.search(help_text):
            self.deprecated[full] = next(iter(_VERSION.findall(help_text)), "")

    add = _add


def _method(module: Module, class_name: str, name: str) -> ast.FunctionDef | None:
    node = module.classes.get(class_name)
    methods = [n for n in (node.body if node else []) if isinstance(n, ast.FunctionDef) and n.name == name]
    return methods[0] if methods else None


def field_spec(name: str, field: Field | None, group: str) -> Spec:
    """How vLLM turns a config field into an option (engine/arg_utils.py `_compute_kwargs`)."""
    if field is None:
        return Spec("", group, "str", Unread(f"{group}.{name} is not declared"))
    reader = Reader(field.module)
    hints = reader.hints(field.annotation)
    kind, choices = kind_of(hints)
    if kind == "list":
        elements = (value for name, value in hints if name in ("list", "tuple", "set") and value is not None)
        choices = tuple(c for element in elements for c in reader.literals(element))
    default = reader.value(field.value)
    return Spec("", group, kind, default, choices)


def kind_of(hints: list[tuple[str, Any]]) -> tuple[str, tuple[Any, ...]]:
    """(kind, choices) of a type's parts; a Literal beside `str` allows any value, so it has no choices."""
    kinds = {kind for kind, _ in hints}
    literals = tuple(dict.fromkeys(value for kind, value in hints if kind == "Literal"))
    if "config" in kinds:
        return "json", ()
    if kinds == {"bool", "str", "None"}:
        return "optional-str", ()
    if "bool" in kinds:
        return "bool", ()
    if literals:
        return type(literals[0]).__name__, () if "str" in kinds else literals
    found = next((k for k in _BUILTIN_KINDS if k in kinds), "str")
    # A mapping or a string, as `--hf-overrides` takes, is written as JSON too.
    return _BUILTIN_KINDS.get(found, "str"), ()


class _Walk:
    """One registering function: which variable holds which class's options, and what was changed in them."""

    def __init__(self, flags: Flags, module: Module) -> None:
        self.flags, self.module, self.reader = flags, module, Reader(module)
        self.kwargs: dict[str, str] = {}
        self.specs: dict[str, Spec] = {}
        self.changed: dict[tuple[str, str], dict[str, Any]] = {}
        self.groups: dict[str, str] = {}

    def statement(self, node: ast.stmt) -> None:
        """Assignments are remembered, calls are registrations, conditions are looked into."""
        if isinstance(node, ast.If | ast.Try | ast.With):
            for inner in node.body:
                self.statement(inner)
        elif isinstance(node, ast.Assign):
            self._assign(node.targets[0], node.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._call(node.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        text = ast.unparse(value)
        if isinstance(target, ast.Name):
            if isinstance(value, ast.Call) and "add_argument_group" in text:
                title = next((k.value for k in value.keywords if k.arg == "title"), None)
                self.groups[target.id] = str(self.reader.value(title))
            elif text.startswith("get_kwargs(") and isinstance(value, ast.Call) and value.args:
                self.kwargs[target.id] = ast.unparse(value.args[0])
            elif isinstance(value, ast.Subscript):
                self.specs[target.id] = self._spec(value)
        elif isinstance(target, ast.Subscript):
            self._change(target, value)

    def _change(self, target: ast.Subscript, value: ast.expr) -> None:
        """`kwargs["field"]["type"] = json.loads`: remembered for the option's registration."""
        key, inner = self.reader.value(target.slice), target.value
        if isinstance(inner, ast.Subscript):
            place = (ast.unparse(inner.value), str(self.reader.value(inner.slice)))
            self.changed.setdefault(place, {})[str(key)] = value
        elif isinstance(inner, ast.Name) and inner.id in self.specs:
            self.specs[inner.id] = self._overridden(self.specs[inner.id], {str(key): value}, inner.id)

    def _call(self, node: ast.Call) -> None:
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if method == "remove":
            self._remove(node)
        if method != "add_argument":
            return
        names = [self.reader.value(a) for a in node.args]
        if not names or not all(isinstance(n, str) for n in names):
            self.flags.unread.append(f"{self.module.path}:{node.lineno} registers an option by no literal name")
        elif names[0].startswith("-"):
            self._register(node, names)

    def _remove(self, node: ast.Call) -> None:
        """`kwargs["field"]["choices"].remove(X)`."""
        inner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if isinstance(inner, ast.Subscript) and isinstance(inner.value, ast.Subscript) and node.args:
            place = (ast.unparse(inner.value.value), str(self.reader.value(inner.value.slice)))
            self.changed.setdefault(place, {})["remove"] = node.args[0]

    def _register(self, node: ast.Call, names: list[str]) -> None:
        owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        given = {k.arg: k.value for k in node.keywords if k.arg}
        spread = next((k.value for k in node.keywords if k.arg is None), None)
        if isinstance(spread, ast.Dict):
            keyed = zip(spread.keys, spread.values, strict=True)
            given |= {str(self.reader.value(k)): v for k, v in keyed if k is not None}
            spread = next((v for k, v in zip(spread.keys, spread.values, strict=True) if k is None), None)
        spec = self._spec(spread) if spread is not None else Spec()
        spec = self._overridden(spec._replace(group=self.groups.get(owner, "")), given, names[0])
        self.flags.add(names, spec, self._help(given.get("help"), given.get("action")))

    def _help(self, text: ast.expr | None, action: ast.expr | None) -> str:
        """Only looked at for the word deprecated; vLLM's help texts are not kept."""
        parts = [self.reader.value(text) if text is not None else "", ast.unparse(action) if action else ""]
        return " ".join(p.expression if isinstance(p, Unread) else str(p) for p in parts)

    def _spec(self, node: ast.expr) -> Spec:
        """The option of `kwargs["field"]`, of `get_kwargs(Class)["field"]`, or of a variable that holds one."""
        if isinstance(node, ast.Name) and node.id in self.specs:
            return self.specs[node.id]
        if not isinstance(node, ast.Subscript):
            return Spec(default=Unread(ast.unparse(node)))
        base, name = ast.unparse(node.value), str(self.reader.value(node.slice))
        match = re.fullmatch(r"get_kwargs\((\w+)\)", base)
        class_name = match.group(1) if match else self.kwargs.get(base, "")
        spec = field_spec(name, self.module.fields(class_name).get(name), class_name)
        return self._overridden(spec, self.changed.get((base, name), {}), name)

    def _overridden(self, spec: Spec, given: dict[str, Any], name: str) -> Spec:
        """A spec with the keywords of its registration: default, choices, action, type, dest."""
        if "remove" in given:
            gone = self.reader.value(given["remove"])
            spec = spec._replace(choices=tuple(c for c in spec.choices if c != gone))
        if "default" in given:
            suppressed = ast.unparse(given["default"]) == "argparse.SUPPRESS"
            spec = spec._replace(default=None if suppressed else self.reader.value(given["default"]))
        if "choices" in given:
            spec = spec._replace(choices=self._choices(given["choices"], name))
        if "dest" in given:
            spec = spec._replace(dest=str(self.reader.value(given["dest"])))
        return spec._replace(kind=_kind(spec.kind, given), default=_switch_default(spec, given))

    def _choices(self, node: ast.expr, name: str) -> tuple[Any, ...]:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "get_args" and node.args:
            return self.reader.literals(node.args[0])
        value = self.reader.value(node)
        if isinstance(value, list):
            return tuple(value)
        self.flags.unread.append(f"choices of {name} depend on the device")
        return ()


def _kind(kind: str, given: dict[str, Any]) -> str:
    """The kind after `action=` and `type=`."""
    action = ast.unparse(given["action"]) if "action" in given else ""
    if "store_true" in action or "store_false" in action:
        return "switch"
    if "BooleanOptionalAction" in action:
        return "bool"
    type_text = ast.unparse(given["type"]) if "type" in given else ""
    if "json.loads" in type_text:
        return "json"
    return type_text if type_text in ("int", "float", "str") else kind


def _switch_default(spec: Spec, given: dict[str, Any]) -> Any:
    """What an option gets that is given no default: False for store_true, None otherwise."""
    stores_true = "action" in given and "store_true" in ast.unparse(given["action"])
    return False if stores_true and spec.default is None else spec.default
