"""The interpreter's classes, objects, attributes and decorators."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from vllm_advisor.vllm.extract_kernels_expressions import Expressions
from vllm_advisor.vllm.extract_kernels_modules import Namespace
from vllm_advisor.vllm.extract_kernels_values import (
    Class,
    Function,
    Instance,
    Member,
    Method,
    Native,
    Raised,
    Scope,
    Super,
    Symbol,
    Unknown,
    UnreadableError,
)  # fmt: skip


if TYPE_CHECKING:
    from collections.abc import Iterator

_MISSING = object()
_FINDERS = {
    Instance: "_of_instance", Class: "_of_class", Member: "_of_member", Namespace: "_of_module", Super: "_of_super",
    Unknown: "_of_unknown", Symbol: "_of_symbol",
}  # fmt: skip
_PLAIN = frozenset(("cache", "lru_cache", "override", "abstractmethod", "no_type_check", "torch_utils", "final"))


class Classes(Expressions):
    """What is done with classes and their instances."""

    def defined(self, node: ast.ClassDef, scope: Scope) -> Class:
        """The class of a definition. What the module assigns to its attributes later on belongs to it."""
        bases = [self._base_value(b, scope) for b in node.bases]
        made = Class(node, scope, bases)
        for statement in scope.space.module.tree.body:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == node.name:
                made.body[target.attr] = statement
        return made

    def _base_value(self, node: ast.expr, scope: Scope) -> Any:
        try:
            return self.value(node.value if isinstance(node, ast.Subscript) else node, scope)
        except (UnreadableError, Raised):
            return Symbol(ast.unparse(node))

    def decorated(self, node: ast.FunctionDef, made: Any, scope: Scope) -> Any:
        """A function under its decorators; caches and markers change nothing."""
        for decorator in reversed(node.decorator_list):
            text = ast.unparse(decorator).partition("(")[0].rpartition(".")[2]
            if text in _PLAIN or not isinstance(made, Function):
                continue
            if text in ("staticmethod", "classmethod", "property", "cached_property"):
                made.kind = text
                continue
            wrapper = self.value(decorator, scope)
            if not isinstance(wrapper, Symbol):
                kind, owner = made.kind, made.owner
                made = self.call(wrapper, [made], {})
                if isinstance(made, Function):
                    made.kind, made.owner = kind, owner
        return made

    def attribute(self, value: Any, name: str) -> Any:
        """`value.name`. Raises Raised(AttributeError) where the program's object has none."""
        found = self._attribute(value, name)
        if found is _MISSING:
            raise Raised(AttributeError(f"{value!r}.{name}"))
        return found

    def _attribute(self, value: Any, name: str) -> Any:
        kind = type(value)
        finder = _FINDERS.get(kind)
        if finder is not None:
            return getattr(self, finder)(value, name)
        if kind in (Function, Method, Native):
            return getattr(value, "name", "") if name == "__name__" else _MISSING
        return getattr(value, name, _MISSING)

    def _of_super(self, value: Super, name: str) -> Any:
        cls: Any = value.first.cls if isinstance(value.first, Instance) else value.first
        return self._bound(self.class_attribute(cls, name, after=value.owner), value.first, cls)

    def _of_unknown(self, value: Unknown, name: str) -> Unknown:
        return Unknown(f"{value.path}.{name}")

    def _of_symbol(self, value: Symbol, name: str) -> Any:
        """A name of another package: what is known of it, or the name itself."""
        path = f"{value.path}.{name}"
        known = self.world.symbol(path)
        return Symbol(path) if known is None else known

    def _of_module(self, space: Namespace, name: str) -> Any:
        if space.dotted == "envs":
            return self.world.variable(self, name)
        try:
            return space.get(name)
        except KeyError:
            return _MISSING

    def _of_instance(self, value: Instance, name: str) -> Any:
        if name in value.attributes:
            return value.attributes[name]
        if name == "__class__":
            return value.cls
        if isinstance(value.cls, Symbol):
            return _MISSING
        if name == "_asdict":
            return Native(lambda: dict(value.attributes))
        return self._bound(self.class_attribute(value.cls, name), value, value.cls)

    def _of_member(self, value: Member, name: str) -> Any:
        if name in ("value", "name", "_value_"):
            return value.name if name == "name" else value.value
        found = self._bound(self.class_attribute(value.cls, name), value, value.cls)
        return getattr(value.value, name, _MISSING) if found is _MISSING else found

    def _of_class(self, cls: Class, name: str) -> Any:
        if name in ("__name__", "__qualname__"):
            return cls.name
        if name == "__module__":
            return f"vllm.{cls.scope.space.dotted}"
        if cls.is_enum:
            members = self.members(cls)
            if name in members:
                return members[name]
            if name == "__members__":
                return members
        found = self.class_attribute(cls, name)
        return self._bound(found, cls, cls) if isinstance(found, Function) and found.kind == "classmethod" else found

    def _bound(self, found: Any, first: Any, cls: Any) -> Any:
        """An attribute as its instance sees it."""
        if not isinstance(found, Function) or found.kind == "staticmethod":
            return found
        if found.kind in ("property", "cached_property"):
            return self.call(found, [first], {})
        if found.kind == "classmethod":
            return Method(found, cls)
        return found if first is cls else Method(found, first)

    def class_attribute(self, cls: Class, name: str, after: Class | None = None) -> Any:
        """A class's attribute as it is stored, its own or inherited; `after`: only of what stands behind it."""
        order = cls.order[cls.order.index(after) + 1 :] if after is not None and after in cls.order else cls.order
        for base in order:
            if not isinstance(base, Class):
                continue
            if name in base.attributes or name in base.body:
                return self._own(base, name)
        return _MISSING

    def _own(self, cls: Class, name: str) -> Any:
        if name not in cls.attributes:
            cls.attributes[name] = self._evaluated(cls, name)
        return cls.attributes[name]

    def _evaluated(self, cls: Class, name: str) -> Any:
        statement = cls.body[name]
        if isinstance(statement, ast.FunctionDef):
            return self.decorated(statement, Function(statement, cls.scope, cls), Scope(cls.scope.space, cls.scope))
        scope = _ClassScope(self, cls)
        if isinstance(statement, ast.ClassDef):
            return self.defined(statement, scope)
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            return self.value(statement.value, scope)
        return _MISSING

    def set_attribute(self, value: Any, name: str, new: Any) -> None:
        """`value.name = new`."""
        if isinstance(value, Instance | Class):
            value.attributes[name] = new

    def members(self, cls: Class) -> dict[str, Member]:
        """An enumeration's members by name; two names of one value are one member."""
        if cls.members is None:
            cls.members = {}
            for name, statement in cls.body.items():
                if isinstance(statement, ast.Assign) and not name.startswith("_"):
                    value = self._member_value(cls, statement)
                    same = next(
                        (m for m in cls.members.values() if type(m.value) is type(value) and m.value == value), None
                    )
                    cls.members[name] = same or Member(cls, name, value)
        return cls.members

    def _member_value(self, cls: Class, statement: ast.Assign) -> Any:
        text = ast.unparse(statement.value)
        if text.rpartition(".")[2] == "auto()":
            return len(cls.members or ()) + 1
        try:
            return self.value(statement.value, _ClassScope(self, cls))
        except (UnreadableError, Raised):
            return text

    def make(self, cls: Class, given: list[Any], named: dict[str, Any]) -> Any:
        """An instance: by its own `__init__`, or by the fields of a dataclass or a named tuple."""
        hook = self.hooks.get("make")
        if hook is not None:
            hook.call(cls)
        if cls.is_enum:
            return self._member(cls, given[0])
        made = Instance(cls, {})
        start = self.class_attribute(cls, "__init__")
        if isinstance(start, Function):
            self.call(start, [made, *given], named)
            return made
        made.attributes.update(self._fields(cls, given, named))
        after = self.class_attribute(cls, "__post_init__")
        if isinstance(after, Function):
            self.call(after, [made], {})
        return made

    def _member(self, cls: Class, value: Any) -> Member:
        if isinstance(value, Member):
            return value
        for member in self.members(cls).values():
            if member.value == value:
                return member
        raise Raised(ValueError(f"{value!r} is not a {cls.name}"))

    def filled(self, cls: Class, named: dict[str, Any]) -> dict[str, Any]:
        """The fields of an instance: those given, the others at their default."""
        return self._fields(cls, [], named)

    def _fields(self, cls: Class, given: list[Any], named: dict[str, Any]) -> dict[str, Any]:
        defaults = dict(self.fields(cls))
        found = dict(zip(defaults, given, strict=False)) | named
        for name, (owner, node) in defaults.items():
            if name not in found:
                found[name] = self._default(owner, node)
        return {name: found[name] for name in (*defaults, *(n for n in found if n not in defaults))}

    def _default(self, owner: Class, node: ast.expr | None) -> Any:
        if node is None:
            return Unknown("a field without a value")
        scope = _ClassScope(self, owner)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("field", "Field"):
            words = {k.arg: k.value for k in node.keywords}
            if "default_factory" in words:
                return self.call(self.value(words["default_factory"], scope), [], {})
            return self.value(words["default"], scope) if "default" in words else Unknown("a field")
        return self.value(node, scope)

    def fields(self, cls: Class) -> Iterator[tuple[str, tuple[Class, ast.expr | None]]]:
        """The annotated attributes in order, those of the bases first, each with the class that gives its default."""
        found: dict[str, tuple[Class, ast.expr | None]] = {}
        for base in reversed(cls.order):
            body = base.node.body if isinstance(base, Class) else []
            for node in body:
                if not isinstance(node, ast.AnnAssign) or "ClassVar" in ast.unparse(node.annotation):
                    continue
                found[ast.unparse(node.target)] = (base, node.value)
        yield from found.items()


class _ClassScope(Scope):
    """A class body: its own names first, then those around it."""

    __slots__ = ()

    def __init__(self, program: Classes, cls: Class) -> None:
        names = {} if cls.is_enum else _Body(program, cls)
        super().__init__(cls.scope.space, cls.scope, names)


class _Body(dict[str, Any]):
    """The names of a class body, each evaluated when it is asked for."""

    def __init__(self, program: Classes, cls: Class) -> None:
        super().__init__()
        self._program, self._cls = program, cls

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or name in self._cls.body

    def __getitem__(self, name: str) -> Any:
        if dict.__contains__(self, name):
            return dict.__getitem__(self, name)
        return self._program._own(self._cls, name)  # noqa: SLF001 - a part of the interpreter
