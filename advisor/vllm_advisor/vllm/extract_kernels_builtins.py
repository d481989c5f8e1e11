"""The interpreter's builtins: truth, iteration, `isinstance`, `getattr` and the like, over the program's own values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_advisor.vllm.extract_kernels_values import (
    Class,
    Function,
    Instance,
    Member,
    Method,
    Native,
    Raised,
    Symbol,
    Unknown,
    UnreadableError,
)


if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from vllm_advisor.vllm.extract_kernels_modules import Namespace
    from vllm_advisor.vllm.extract_kernels_values import Scope, Super
    from vllm_advisor.vllm.extract_kernels_world import World

_PYTHON = (
    len, list, tuple, set, frozenset, int, bool, float, str, min, max, sum, sorted, reversed, enumerate, zip, range,
    next, iter, abs, repr, dict, ValueError, TypeError, KeyError, ImportError, AttributeError, RuntimeError, Exception,
    NotImplementedError, AssertionError, ModuleNotFoundError, OSError, IndexError, StopIteration, NameError, round,
)  # fmt: skip


class Interpreter:
    """What the interpreter's parts ask of one another; each part says how for its own."""

    world: World
    hooks: dict[str, Native]

    def attribute(self, value: Any, name: str) -> Any:
        """`value.name`."""
        raise NotImplementedError

    def members(self, cls: Class) -> dict[str, Member]:
        """An enumeration's members."""
        raise NotImplementedError

    def call(self, target: Any, given: list[Any], named: dict[str, Any]) -> Any:
        """Calls anything callable."""
        raise NotImplementedError

    def bind(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """Binds a target to a value."""
        raise NotImplementedError

    def lookup(self, name: str, scope: Scope) -> Any:
        """A name's value."""
        raise NotImplementedError

    def super_of(self, scope: Scope) -> Super:
        """`super()` where it is called."""
        raise NotImplementedError

    def space(self, dotted: str) -> Namespace | None:
        """A module of the package."""
        raise NotImplementedError

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """The value of an expression."""
        raise NotImplementedError


class Builtins(Interpreter):
    """What Python's own names mean."""

    def __init__(self) -> None:
        self.builtins: dict[str, Any] = {f.__name__: f for f in _PYTHON}
        self.builtins |= {
            "any": Native(self.any_of),
            "all": Native(lambda values: not self.any_of(not self.truth(v) for v in self.items_of(values))),
            "isinstance": Native(self.instance_of),
            "issubclass": Native(self.subclass_of),
            "hasattr": Native(self.has),
            "getattr": Native(self.get),
            "callable": Native(lambda value: isinstance(value, Symbol | Function | Method | Native | Class)),
            "type": Native(self.type_of),
            "print": Native(lambda *_: None),
        }

    def truth(self, value: Any) -> bool:
        """Whether a value counts as true."""
        if isinstance(value, Instance):
            return not value.cls.is_tuple or bool(value.attributes) if isinstance(value.cls, Class) else True
        if isinstance(value, Class | Function | Method | Native | Member):
            return True
        return self.world.true(value.path) if type(value) is Symbol else bool(value)

    def items(self, value: Any) -> list[Any]:
        """What iteration gives."""
        if isinstance(value, Class) and value.is_enum:
            return list(dict.fromkeys(self.members(value).values()))
        if isinstance(value, Instance):
            return list(value.values())
        if isinstance(value, Symbol) or not hasattr(value, "__iter__"):
            raise UnreadableError(f"iteration over {value!r}")
        return list(value)

    def items_of(self, values: Any) -> Any:
        """What `all` goes through: a generator as it is, so that it stops early."""
        return values if hasattr(values, "__next__") else self.items(values)

    def any_of(self, values: Any) -> bool:
        """`any`, where one true element decides."""
        doubt: UnreadableError | None = None
        for value in self._lazily(values):
            if isinstance(value, UnreadableError):
                doubt = value
            elif self.truth(value):
                return True
        if doubt is not None:
            raise doubt
        return False

    def _lazily(self, values: Any) -> Iterator[Any]:
        """The elements; a generator ends at the first that cannot be told."""
        try:
            yield from self.items_of(values)
        except UnreadableError as error:
            yield error

    def instance_of(self, value: Any, wanted: Any) -> bool:
        """`isinstance`."""
        if isinstance(wanted, tuple):
            return any(self.instance_of(value, w) for w in wanted)
        if isinstance(value, Unknown):
            raise UnreadableError(f"isinstance({value!r}, …)")
        if isinstance(wanted, type):
            return isinstance(value, wanted)
        cls = value.cls if isinstance(value, Instance | Member) else None
        return cls.is_a(wanted) if isinstance(cls, Class) else cls == wanted if cls is not None else False

    def has(self, value: Any, name: str) -> bool:
        """`hasattr`."""
        try:
            found = self.attribute(value, name)
        except Raised:
            return False
        if isinstance(found, Symbol):
            return self.world.has(found.path)
        return True

    def get(self, value: Any, name: str, *default: Any) -> Any:
        """`getattr`."""
        try:
            return self.attribute(value, name)
        except Raised:
            if default:
                return default[0]
            raise

    def subclass_of(self, cls: Any, wanted: Any) -> bool:
        """`issubclass`."""
        return isinstance(cls, Class) and any(cls.is_a(w) for w in (wanted if isinstance(wanted, tuple) else (wanted,)))

    def type_of(self, value: Any) -> Any:
        """`type`."""
        return value.cls if isinstance(value, Instance | Member) else type(value)
