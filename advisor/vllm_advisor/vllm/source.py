"""Python source as facts: what names, literals, types and class fields say, read from syntax and never executed.

A name is followed through assignments and `from … import …` inside the package. What syntax alone cannot tell is
`Unread` with the expression, so that a reader sees what was skipped.
"""

from __future__ import annotations

import ast
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_COLLECTIONS: dict[str, list[Any] | dict[str, Any]] = {
    "list": [],
    "set": [],
    "tuple": [],
    "dict": {},
    "Counter": {},
    "List": [],
    "Dict": {},
}
_MAX_BITS = 64


class Unread(NamedTuple):
    """A value that source reading cannot tell, as its expression."""

    expression: str


class Field(NamedTuple):
    """One annotated attribute of a class, with the module that declares it."""

    module: Module
    annotation: ast.expr
    value: ast.expr | None


class Module:
    """One parsed file: its top-level names, classes and imports (those below `if` and `try` included)."""

    def __init__(self, package: Package, path: str, tree: ast.Module) -> None:
        self.package, self.path, self.tree = package, path, tree
        self.names: dict[str, ast.expr] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[str, ast.FunctionDef] = {}
        self.imports: dict[str, tuple[str, str]] = {}
        for node in _statements(tree.body):
            self._add(node)

    def _add(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            self.names.setdefault(node.targets[0].id, node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            self.names.setdefault(node.target.id, node.value)
        elif isinstance(node, ast.ClassDef):
            self.classes[node.name] = node
        elif isinstance(node, ast.FunctionDef):
            self.functions[node.name] = node
        elif isinstance(node, ast.ImportFrom):
            base = absolute(self.path, node)
            self.imports |= {a.asname or a.name: (base, a.name) for a in node.names}

    def find(self, name: str) -> tuple[Module, ast.expr | ast.ClassDef] | None:
        """Where a name is assigned or its class defined, through imports; None where it is not in the package."""
        module: Module | None = self
        for _ in range(8):  # an import of an import of …; a cycle ends here
            if module is None:
                return None
            node = module.classes.get(name) or module.names.get(name)
            if node is not None:
                return module, node
            base, name = module.imports.get(name, ("", ""))
            module = self.package.module(base) if base else None
        return None

    def fields(self, class_name: str, depth: int = 0) -> dict[str, Field]:
        """The annotated attributes of a class, those of its bases first."""
        found = self.find(class_name)
        if found is None or depth > 4:
            return {}
        module, node = found
        if not isinstance(node, ast.ClassDef):
            return {}
        fields: dict[str, Field] = {}
        for base in node.bases:
            fields |= module.fields(base.id, depth + 1) if isinstance(base, ast.Name) else {}
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                fields[statement.target.id] = Field(module, statement.annotation, statement.value)
        return fields


class Package:
    """An unpacked Python package. `problems` collects the files that could not be read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.problems: list[str] = []
        self._modules: dict[str, Module | None] = {}

    def module(self, dotted: str) -> Module | None:
        """A module by its dotted path below the package (`config.cache`), or None where it is missing or not Python."""
        if dotted not in self._modules:
            stem = self.root.joinpath(*dotted.split("."))
            path = next((p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.is_file()), None)
            self._modules[dotted] = self._parse(path, dotted) if path else None
        return self._modules[dotted]

    def _parse(self, path: Path, dotted: str) -> Module | None:
        name = f"{dotted}.__init__" if path.name == "__init__.py" else dotted
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # odd escapes in a foreign file are not ours to report
                return Module(self, name, ast.parse(path.read_text("utf-8", errors="replace")))
        except (SyntaxError, ValueError, RecursionError, MemoryError, OSError) as error:
            self.problems.append(f"{path.relative_to(self.root).as_posix()}: {type(error).__name__}")
            return None


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from _statements(node.body)
            yield from _statements(node.orelse)


def absolute(path: str, node: ast.ImportFrom) -> str:
    """The dotted path below the package of `from x import …`; "" for another package."""
    module = node.module or ""
    if node.level:
        parents = path.split(".")[: -node.level]
        return ".".join([*parents, *([module] if module else [])])
    first, _, rest = module.partition(".")
    return rest if first == "vllm" else ""


class Reader:
    """Values and types of expressions, as one module sees them."""

    def __init__(self, module: Module, depth: int = 0) -> None:
        self.module, self.depth = module, depth

    def value(self, node: ast.expr | None) -> Any:
        """The JSON value of an expression, or Unread."""
        if node is None:
            return Unread("no default")
        if self.depth > 12:
            return Unread(ast.unparse(node))
        handler = getattr(self, f"_{type(node).__name__.lower()}", None)
        return handler(node) if handler else Unread(ast.unparse(node))

    def _constant(self, node: ast.Constant) -> Any:
        ok = isinstance(node.value, str | int | float | bool | None)
        return node.value if ok else Unread(ast.unparse(node))

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        number = isinstance(node.op, ast.USub) and isinstance(value, int | float)
        return -value if number else Unread(ast.unparse(node))

    def _binop(self, node: ast.BinOp) -> Any:
        """Products and powers of numbers, as in `4 * 1024**2`."""
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(left, int) and isinstance(right, int):
            if isinstance(node.op, ast.Mult):
                return left * right
            if isinstance(node.op, ast.Pow) and 0 <= right <= _MAX_BITS and abs(left) <= 1 << 10:
                return left**right
            if isinstance(node.op, ast.LShift) and 0 <= right <= _MAX_BITS:
                return left << right
        return Unread(ast.unparse(node))

    def _list(self, node: ast.List | ast.Tuple | ast.Set) -> Any:
        values = [self.value(e) for e in node.elts]
        return Unread(ast.unparse(node)) if any(isinstance(v, Unread) for v in values) else values

    _tuple = _set = _list

    def _dict(self, node: ast.Dict) -> Any:
        keys = [self.value(k) for k in node.keys]
        values = [self.value(v) for v in node.values]
        readable = all(isinstance(k, str) for k in keys) and not any(isinstance(v, Unread) for v in values)
        return dict(zip(keys, values, strict=True)) if readable else Unread(ast.unparse(node))

    def _name(self, node: ast.Name) -> Any:
        found = self.module.find(node.id)
        if found is None or isinstance(found[1], ast.ClassDef):
            return Unread(node.id)
        return Reader(found[0], self.depth + 1).value(found[1])

    def _attribute(self, node: ast.Attribute) -> Any:
        """`CacheConfig.block_size` is that field's default, `SomeEnum.MEMBER` the member's name."""
        if isinstance(node.value, ast.Name):
            return self.field_default(node.value.id, node.attr)
        return Unread(ast.unparse(node))

    def field_default(self, class_name: str, name: str) -> Any:
        """The default of a class's field."""
        field = self.module.fields(class_name).get(name)
        if field is not None:
            return Reader(field.module, self.depth + 1).value(field.value)
        found = self.module.find(class_name)
        if found and isinstance(found[1], ast.ClassDef) and "Enum" in ast.unparse(found[1]).partition(":")[0]:
            return name
        return Unread(f"{class_name}.{name}")

    def _call(self, node: ast.Call) -> Any:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "get_field" and len(node.args) == 2 and isinstance(node.args[0], ast.Name):
            return self.field_default(node.args[0].id, str(self.value(node.args[1])))
        if name in _COLLECTIONS and not node.args:
            return _COLLECTIONS[name]
        given = {k.arg: k.value for k in node.keywords}
        if name in ("field", "Field"):
            if "default_factory" in given:
                return self._made_by(given["default_factory"])
            return self.value(given.get("default") or next(iter(node.args), None))
        return Unread(ast.unparse(node))

    def _made_by(self, factory: ast.expr) -> Any:
        """What a default factory makes: an empty collection, a lambda's literal, or a config class's own defaults."""
        if isinstance(factory, ast.Lambda):
            return self.value(factory.body)
        if isinstance(factory, ast.Name) and factory.id in _COLLECTIONS:
            return _COLLECTIONS[factory.id]
        if isinstance(factory, ast.Name) and (self.is_config(factory.id) or self.is_mapping(factory.id)):
            return {}
        return Unread(ast.unparse(factory))

    def is_config(self, name: str) -> bool:
        """Whether a name is a dataclass of the package."""
        found = self.module.find(name)
        decorators = found[1].decorator_list if found and isinstance(found[1], ast.ClassDef) else []
        return any("config" in ast.unparse(d) or "dataclass" in ast.unparse(d) for d in decorators)

    def is_mapping(self, name: str) -> bool:
        """Whether a name is a subclass of dict."""
        found = self.module.find(name)
        bases = found[1].bases if found and isinstance(found[1], ast.ClassDef) else []
        return any(ast.unparse(base).partition("[")[0] in ("dict", "UserDict") for base in bases)

    def literals(self, node: ast.expr | None) -> tuple[Any, ...]:
        """The values of the `Literal[…]` in a type, in source order; () where it has none."""
        return tuple(v for kind, v in self.hints(node) if kind == "Literal")

    def hints(self, node: ast.expr | None, depth: int = 0) -> list[tuple[str, Any]]:
        """The parts of a type as (kind, value): `("Literal", "auto")`, `("int", None)`, `("config", "EPLBConfig")`."""
        if depth > 12 or node is None:
            return []
        if isinstance(node, ast.BinOp):
            return self.hints(node.left, depth + 1) + self.hints(node.right, depth + 1)
        if isinstance(node, ast.Subscript):
            return self._subscript_hints(node, depth + 1)
        if isinstance(node, ast.Constant):
            return self._constant_hints(node, depth + 1)
        if isinstance(node, ast.Name):
            return self._name_hints(node.id, depth + 1)
        return [("other", ast.unparse(node))]

    def _subscript_hints(self, node: ast.Subscript, depth: int) -> list[tuple[str, Any]]:
        base = ast.unparse(node.value).rpartition(".")[2]
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if base == "Literal":
            return [hint for part in parts for hint in self._literal_hints(part, depth)]
        if base in ("Optional", "Union", "Annotated", "SkipValidation"):
            kept = parts[:1] if base == "Annotated" else parts
            inner = [hint for p in kept for hint in self.hints(p, depth)]
            return inner + [("None", None)] * (base == "Optional")
        return [(base, node.slice)]

    def _literal_hints(self, node: ast.expr, depth: int) -> list[tuple[str, Any]]:
        """One member of a `Literal[…]`: a value, or the name of another Literal."""
        return [("Literal", node.value)] if isinstance(node, ast.Constant) else self.hints(node, depth)

    def _constant_hints(self, node: ast.Constant, depth: int) -> list[tuple[str, Any]]:
        if node.value is None:
            return [("None", None)]
        try:
            return self.hints(ast.parse(str(node.value), mode="eval").body, depth)
        except (SyntaxError, ValueError):
            return [("other", str(node.value))]

    def _name_hints(self, name: str, depth: int) -> list[tuple[str, Any]]:
        found = self.module.find(name)
        if found is None:
            return [(name, None)]
        if isinstance(found[1], ast.ClassDef):
            kind = "config" if self.is_config(name) else "dict" if self.is_mapping(name) else "other"
            return [(kind, name)]
        return Reader(found[0]).hints(found[1], depth)
