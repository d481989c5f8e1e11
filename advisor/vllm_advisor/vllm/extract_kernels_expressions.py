"""The interpreter's expressions. Conditions have three values: `a and b` is false when one is, the other unread."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING, Any

from vllm_advisor.vllm.extract_kernels_builtins import Builtins
from vllm_advisor.vllm.extract_kernels_values import (
    Class,
    Function,
    Instance,
    Native,
    Raised,
    Scope,
    Symbol,
    Unknown,
    UnreadableError,
)  # fmt: skip


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip


class Expressions(Builtins):
    """What expressions evaluate to."""

    def __init__(self) -> None:
        super().__init__()
        self._handlers: dict[type, Callable[[Any, Scope], Any]] = {}

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """The value of an expression."""
        kind = type(node)
        handler = self._handlers.get(kind)
        if handler is None:
            handler = self._handlers[kind] = getattr(self, f"_value_{kind.__name__.lower()}", self._other)
        return handler(node, scope)

    def _other(self, node: ast.expr, _scope: Scope) -> Any:
        raise UnreadableError(ast.unparse(node))

    def _value_constant(self, node: ast.Constant, _scope: Scope) -> Any:
        return node.value

    def _value_name(self, node: ast.Name, scope: Scope) -> Any:
        return self.lookup(node.id, scope)

    def _value_attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        return self.attribute(self.value(node.value, scope), node.attr)

    def _value_tuple(self, node: ast.Tuple, scope: Scope) -> Any:
        return tuple(self._spread(node.elts, scope))

    def _value_list(self, node: ast.List, scope: Scope) -> Any:
        return self._spread(node.elts, scope)

    def _value_set(self, node: ast.Set, scope: Scope) -> Any:
        return set(self._spread(node.elts, scope))

    def _spread(self, nodes: list[ast.expr], scope: Scope) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found += self.items(self.value(node.value, scope))
            else:
                found.append(self.value(node, scope))
        return found

    def _value_dict(self, node: ast.Dict, scope: Scope) -> Any:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                found |= self.value(value, scope)
            else:
                found[self.value(key, scope)] = self.value(value, scope)
        return found

    def _value_joinedstr(self, node: ast.JoinedStr, scope: Scope) -> str:
        parts = []
        for part in node.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            try:
                parts.append(str(self.value(inner, scope)))
            except (UnreadableError, Raised):
                parts.append("?")
        return "".join(parts)

    def _value_ifexp(self, node: ast.IfExp, scope: Scope) -> Any:
        return self.value(node.body if self.truth(self.value(node.test, scope)) else node.orelse, scope)

    def _value_boolop(self, node: ast.BoolOp, scope: Scope) -> Any:
        """One operand that decides is enough, though another cannot be told."""
        deciding = isinstance(node.op, ast.Or)
        doubt: UnreadableError | None = None
        value: Any = None
        for operand in node.values:
            try:
                value = self.value(operand, scope)
                if self.truth(value) is deciding:
                    return value
            except UnreadableError as error:
                doubt = doubt or error
        if doubt is not None:
            raise doubt
        return value

    def _value_unaryop(self, node: ast.UnaryOp, scope: Scope) -> Any:
        value = self.value(node.operand, scope)
        if isinstance(node.op, ast.Not):
            return not self.truth(value)
        return -value if isinstance(node.op, ast.USub) and isinstance(value, int | float) else self._other(node, scope)

    def _value_binop(self, node: ast.BinOp, scope: Scope) -> Any:
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        if isinstance(left, Symbol) or isinstance(right, Symbol):
            return Unknown(ast.unparse(node))
        try:
            return _BINARY[type(node.op)](left, right)
        except (TypeError, KeyError, ZeroDivisionError):
            raise UnreadableError(ast.unparse(node)) from None

    def _value_compare(self, node: ast.Compare, scope: Scope) -> bool:
        left = self.value(node.left, scope)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node, scope)
            if not self._compared(op, left, right, node):
                return False
            left = right
        return True

    def _compared(self, op: ast.cmpop, left: Any, right: Any, node: ast.Compare) -> bool:
        if isinstance(op, ast.Is | ast.IsNot):
            if isinstance(left, Unknown) or isinstance(right, Unknown):
                raise UnreadableError(ast.unparse(node))
            same = left is right or (isinstance(left, Symbol) and left == right)
            return same is isinstance(op, ast.Is)
        if isinstance(op, ast.In | ast.NotIn):
            return self._contains(left, right) is isinstance(op, ast.In)
        try:
            if not isinstance(op, ast.Eq | ast.NotEq):
                left, right = (v.values() if isinstance(v, Instance) else v for v in (left, right))
            return _COMPARE[type(op)](left, right)
        except TypeError:
            raise UnreadableError(ast.unparse(node)) from None

    def _contains(self, left: Any, right: Any) -> bool:
        """`left in right`; an equal element decides before one that cannot be told."""
        if isinstance(right, str):
            return isinstance(left, str) and left in right
        if isinstance(right, dict | set | frozenset) and not isinstance(left, Unknown):
            return left in right
        doubt: UnreadableError | None = None
        for item in self.items(right):
            try:
                if left == item:
                    return True
            except UnreadableError as error:
                doubt = error
        if doubt is not None:
            raise doubt
        return False

    def _value_subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        value = self.value(node.value, scope)
        if isinstance(value, Unknown):
            return Unknown(ast.unparse(node))
        if isinstance(value, Symbol | Class | Native | type):
            return value  # a generic type
        key = self.value(node.slice, scope)
        try:
            return (value.values() if isinstance(value, Instance) else value)[key]
        except (KeyError, IndexError) as error:
            raise Raised(error) from None
        except TypeError:
            raise UnreadableError(ast.unparse(node)) from None

    def _value_slice(self, node: ast.Slice, scope: Scope) -> slice:
        return slice(*(self.value(n, scope) if n else None for n in (node.lower, node.upper, node.step)))

    def _value_namedexpr(self, node: ast.NamedExpr, scope: Scope) -> Any:
        scope.names[node.target.id] = self.value(node.value, scope)
        return scope.names[node.target.id]

    def _value_lambda(self, node: ast.Lambda, scope: Scope) -> Function:
        return Function(node, scope, None)

    def _value_call(self, node: ast.Call, scope: Scope) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            return self.super_of(scope)
        target = self.value(node.func, scope)
        given = self._spread(node.args, scope)
        named: dict[str, Any] = {}
        for word in node.keywords:
            if word.arg is None:
                named |= self.value(word.value, scope)
            else:
                named[word.arg] = self.value(word.value, scope)
        return self.call(target, given, named)

    def _value_listcomp(self, node: ast.ListComp, scope: Scope) -> Any:
        return [self.value(node.elt, inner) for inner in self._loops(node.generators, scope)]

    def _value_setcomp(self, node: ast.SetComp, scope: Scope) -> Any:
        return {self.value(node.elt, inner) for inner in self._loops(node.generators, scope)}

    def _value_generatorexp(self, node: ast.GeneratorExp, scope: Scope) -> Any:
        return (self.value(node.elt, inner) for inner in self._loops(node.generators, scope))

    def _value_dictcomp(self, node: ast.DictComp, scope: Scope) -> Any:
        inner = self._loops(node.generators, scope)
        return {self.value(node.key, s): self.value(node.value, s) for s in inner}

    def _loops(self, loops: list[ast.comprehension], scope: Scope) -> Iterator[Scope]:
        if not loops:
            yield scope
            return
        loop, *rest = loops
        for item in self.items(self.value(loop.iter, scope)):
            inner = Scope(scope.space, scope, {}, scope.function)
            self.bind(loop.target, item, inner)
            if all(self.truth(self.value(test, inner)) for test in loop.ifs):
                yield from self._loops(rest, inner)
