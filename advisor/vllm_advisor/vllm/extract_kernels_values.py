"""What the expressions of vLLM's kernel selection evaluate to, where the value is not one of Python's own.

A `Symbol` is a name of another package (`torch.bfloat16`): it equals itself and nothing else. What such a name returns
when it is called is an `Unknown`: nothing can be told of it, and a condition on it raises `UnreadableError`.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_advisor.vllm.extract_kernels_modules import Namespace


class UnreadableError(Exception):
    """A value that the source alone does not tell; the message is the expression."""


class Raised(Exception):
    """An exception that the program raises: `error` is a builtin exception, or an Instance of the program's class."""

    def __init__(self, error: Any) -> None:
        super().__init__(str(error))
        self.error = error


class Symbol:
    """A dotted name outside of the package. Two are equal when their paths are."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Unknown):
            raise UnreadableError(f"{self.path} == {other.path}")
        return type(other) is Symbol and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __bool__(self) -> bool:
        raise UnreadableError(self.path)

    def __repr__(self) -> str:
        return self.path


class Unknown(Symbol):
    """What a call outside of the package returns: it can be passed on, but neither compared nor tested."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise UnreadableError(self.path)

    __hash__ = Symbol.__hash__


class Function:
    """A function or lambda with the scope that it closes over. `owner`: the class that defines it, if any."""

    __slots__ = ("kind", "name", "node", "owner", "scope")

    def __init__(self, node: ast.FunctionDef | ast.Lambda, scope: Scope, owner: Class | None, kind: str = "") -> None:
        self.node, self.scope, self.owner, self.kind = node, scope, owner, kind
        self.name = "<lambda>" if isinstance(node, ast.Lambda) else node.name


class Method:
    """A function with its first argument."""

    __slots__ = ("first", "function")

    def __init__(self, function: Any, first: Any) -> None:
        self.function, self.first = function, first

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Method) and (self.function, self.first) == (other.function, other.first)

    def __hash__(self) -> int:
        return hash((id(self.function), id(self.first)))


class Native:
    """A function of ours that stands for one of the program: `call(*arguments, **keywords)`."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call


class Super:
    """`super()` in a method of `owner` whose first argument is `first`."""

    __slots__ = ("first", "owner")

    def __init__(self, owner: Class, first: Any) -> None:
        self.owner, self.first = owner, first


class Class:
    """A class of the program. `attributes` fills as they are asked for; what we put there beforehand wins."""

    __slots__ = ("attributes", "bases", "body", "decorators", "members", "name", "node", "order", "scope")

    def __init__(self, node: ast.ClassDef, scope: Scope, bases: list[Any]) -> None:
        self.node, self.scope, self.bases, self.name = node, scope, bases, node.name
        self.attributes: dict[str, Any] = {}
        self.members: dict[str, Member] | None = None
        self.body = _by_name(node)
        self.decorators = " ".join(ast.unparse(d) for d in node.decorator_list)
        self.order: list[Any] = _linear(self)

    def is_a(self, other: object) -> bool:
        """Whether `other`, a Class or a Symbol, is this class or one that it inherits from."""
        return any(other == base for base in self.order)

    @property
    def is_enum(self) -> bool:
        """Whether it enumerates members."""
        return any(isinstance(b, Symbol) and b.path in _ENUMS for b in self.order)

    @property
    def is_tuple(self) -> bool:
        """Whether its instances compare and unpack as tuples."""
        return any(isinstance(b, Symbol) and b.path == "typing.NamedTuple" for b in self.order)

    @property
    def is_frozen(self) -> bool:
        """Whether its instances are compared by value: a tuple or a frozen dataclass."""
        return self.is_tuple or any(isinstance(b, Class) and "frozen=True" in b.decorators for b in self.order)

    def __repr__(self) -> str:
        return self.name


_ENUMS = frozenset(("enum.Enum", "enum.IntEnum", "enum.StrEnum", "enum.Flag", "enum.IntFlag"))


def _by_name(node: ast.ClassDef) -> dict[str, ast.stmt]:
    """The statement that defines each attribute; the last one wins."""
    found: dict[str, ast.stmt] = {}
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            found[statement.name] = statement
        elif isinstance(statement, ast.Assign):
            found |= {t.id: statement for t in statement.targets if isinstance(t, ast.Name)}
        elif isinstance(statement, ast.AnnAssign) and statement.value and isinstance(statement.target, ast.Name):
            found[statement.target.id] = statement
    return found


def _linear(cls: Class) -> list[Any]:
    """Where attributes are looked up: the class, then its bases depth first, a shared one after all that inherit it."""
    order: list[Any] = [cls]
    for base in cls.bases:
        order += base.order if isinstance(base, Class) else [base]
    return [b for i, b in enumerate(order) if b not in order[i + 1 :]]


class Member:
    """A member of an enumeration. A `str` enumeration's equals its text."""

    __slots__ = ("cls", "name", "value")

    def __init__(self, cls: Class, name: str, value: Any) -> None:
        self.cls, self.name, self.value = cls, name, value

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Member):
            return self is other
        return str in self.cls.order and bool(self.value == other)

    def __hash__(self) -> int:
        return hash(self.value) if str in self.cls.order else hash((self.cls.name, self.name))

    def __repr__(self) -> str:
        return f"{self.cls.name}.{self.name}"


class Instance:
    """An object of the program's class, or of another package's class that `cls`, a Symbol, names."""

    __slots__ = ("attributes", "cls", "frozen")

    def __init__(self, cls: Class | Symbol, attributes: dict[str, Any]) -> None:
        self.cls, self.attributes = cls, attributes
        self.frozen = isinstance(cls, Class) and cls.is_frozen

    def values(self) -> tuple[Any, ...]:
        """The fields in order."""
        return tuple(self.attributes.values())

    def __eq__(self, other: object) -> bool:
        if not self.frozen:
            return self is other
        if isinstance(other, Instance):
            return other.frozen and self.values() == other.values()
        return isinstance(other, tuple) and self.values() == other

    def __hash__(self) -> int:
        return hash(self.values()) if self.frozen else id(self)

    def __repr__(self) -> str:
        return f"{self.cls!r}{self.values()}"


class Scope:
    """Local names, the scope around them, and the module that holds the rest."""

    __slots__ = ("function", "names", "outer", "space")

    def __init__(
        self, space: Namespace, outer: Scope | None = None, names: dict[str, Any] | None = None, function: Any = None
    ) -> None:
        self.space, self.outer, self.function = space, outer, function
        self.names: dict[str, Any] = {} if names is None else names
