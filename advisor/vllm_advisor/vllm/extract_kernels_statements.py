"""The interpreter's statements: what they run, bind and catch."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from vllm_advisor.vllm.extract_kernels_classes import Classes
from vllm_advisor.vllm.extract_kernels_values import Class, Function, Instance, Raised, Scope, UnreadableError


if TYPE_CHECKING:
    from vllm_advisor.vllm.extract_kernels_modules import Namespace

NOTHING = object()
BREAK, CONTINUE = object(), object()


class Statements(Classes):
    """What statements do. A block gives ("return", value), a loop's signal, or NOTHING."""

    def __init__(self) -> None:
        super().__init__()
        self._running: dict[type, Any] = {}

    def imported(self, space: Namespace, node: ast.stmt | None, alias: ast.alias) -> Any:
        """The value that an import binds."""
        raise NotImplementedError

    def block(self, body: list[ast.stmt], scope: Scope) -> Any:
        """Runs statements; ("return", value), a loop's signal, or nothing."""
        for node in body:
            signal = self.run(node, scope)
            if signal is not NOTHING:
                return signal
        return NOTHING

    def run(self, node: ast.stmt, scope: Scope) -> Any:
        """Runs one statement."""
        kind = type(node)
        if kind not in self._running:
            self._running[kind] = getattr(self, f"_run_{kind.__name__.lower()}", None)
        handler = self._running[kind]
        signal = handler(node, scope) if handler is not None else None
        return NOTHING if signal is None else signal

    def _run_return(self, node: ast.Return, scope: Scope) -> Any:
        return ("return", self.value(node.value, scope) if node.value else None)

    def _run_expr(self, node: ast.Expr, scope: Scope) -> None:
        if not isinstance(node.value, ast.Constant) and not self._is_log(node.value):
            self.value(node.value, scope)

    @staticmethod
    def _is_log(node: ast.expr) -> bool:
        """Whether it is a call that only writes a log line: its text may hold what cannot be told."""
        func = node.func if isinstance(node, ast.Call) else None
        return isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "logger"

    def _run_if(self, node: ast.If, scope: Scope) -> Any:
        return self.block(node.body if self.truth(self.value(node.test, scope)) else node.orelse, scope)

    def _run_for(self, node: ast.For, scope: Scope) -> Any:
        for item in self.items(self.value(node.iter, scope)):
            self.bind(node.target, item, scope)
            signal = self.block(node.body, scope)
            if signal is BREAK:
                return NOTHING
            if signal is not NOTHING and signal is not CONTINUE:
                return signal
        return self.block(node.orelse, scope)

    def _run_break(self, _node: ast.Break, _scope: Scope) -> Any:
        return BREAK

    def _run_continue(self, _node: ast.Continue, _scope: Scope) -> Any:
        return CONTINUE

    def _run_with(self, node: ast.With, scope: Scope) -> Any:
        return self.block(node.body, scope)

    def _run_assign(self, node: ast.Assign | ast.AnnAssign, scope: Scope) -> None:
        self.bind_all(node, scope)

    def _run_annassign(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            self.bind_all(node, scope)

    def bind_all(self, node: ast.Assign | ast.AnnAssign, scope: Scope) -> None:
        """Binds every target of an assignment."""
        value = self.value(node.value, scope) if node.value else None
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self.bind(target, value, scope)

    def bind(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """Binds a name, an attribute, an item, or the parts of a tuple."""
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            for part, item in zip(target.elts, self.items(value), strict=False):
                self.bind(part, item, scope)
        elif isinstance(target, ast.Attribute):
            self.set_attribute(self.value(target.value, scope), target.attr, value)
        elif isinstance(target, ast.Subscript):
            self.value(target.value, scope)[self.value(target.slice, scope)] = value

    def _run_augassign(self, node: ast.AugAssign, scope: Scope) -> None:
        load = ast.BinOp(left=_loaded(node.target), op=node.op, right=node.value)
        self.bind(node.target, self.value(load, scope), scope)

    def _run_functiondef(self, node: ast.FunctionDef, scope: Scope) -> None:
        made: Any = Function(node, scope, None)
        scope.names[node.name] = self.decorated(node, made, scope)

    def _run_classdef(self, node: ast.ClassDef, scope: Scope) -> None:
        scope.names[node.name] = self.defined(node, scope)

    def _run_import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            scope.names[name] = self.imported(scope.space, node, alias)

    _run_importfrom = _run_import

    def _run_assert(self, node: ast.Assert, scope: Scope) -> None:
        try:
            holds = self.truth(self.value(node.test, scope))
        except UnreadableError:
            return
        if not holds:
            raise Raised(AssertionError(ast.unparse(node.test)))

    def _run_raise(self, node: ast.Raise, scope: Scope) -> None:
        if node.exc is None:
            raise UnreadableError("raise")
        error = self.value(node.exc.func if isinstance(node.exc, ast.Call) else node.exc, scope)
        raise Raised(error() if isinstance(error, type) else error)

    def _run_try(self, node: ast.Try, scope: Scope) -> Any:
        try:
            signal = self.block(node.body, scope)
        except Raised as raised:
            handler = next((h for h in node.handlers if self._handles(h, raised.error, scope)), None)
            if handler is None:
                raise
            if handler.name:
                scope.names[handler.name] = raised.error
            signal = self.block(handler.body, scope)
        else:
            signal = self.block(node.orelse, scope) if signal is NOTHING else signal
        self.block(node.finalbody, scope)
        return signal

    def _handles(self, handler: ast.ExceptHandler, error: Any, scope: Scope) -> bool:
        if handler.type is None:
            return True
        wanted = self.value(handler.type, scope)
        return any(self._is_error(error, w) for w in (wanted if isinstance(wanted, tuple) else (wanted,)))

    @staticmethod
    def _is_error(error: Any, wanted: Any) -> bool:
        if isinstance(wanted, type):
            return isinstance(error, wanted)
        cls = error.cls if isinstance(error, Instance) else error
        return isinstance(cls, Class) and cls.is_a(wanted)


def _loaded(target: ast.expr) -> ast.expr:
    """A target as an expression that is read."""
    return ast.parse(ast.unparse(target), mode="eval").body
