"""A module's top-level names, evaluated one by one when they are asked for, as on one device.

A name that is bound in several branches has the value of the last branch that runs there.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.vllm.extract_kernels_values import Raised, Scope, Symbol, UnreadableError


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.vllm.extract_kernels_run import Program
    from vllm_advisor.vllm.source import Module


class Binding(NamedTuple):
    """One statement that binds a name. `guards`: what must hold; a list of statements stands for "they import"."""

    node: ast.stmt | ast.alias
    guards: tuple[tuple[Any, bool], ...]
    source: ast.stmt | None = None


def bindings(tree: ast.Module) -> dict[str, list[Binding]]:
    """Every top-level name's bindings, in source order."""
    found: dict[str, list[Binding]] = {}
    for name, binding in _walk(tree.body, ()):
        found.setdefault(name, []).append(binding)
    return found


def _walk(body: list[ast.stmt], guards: tuple[tuple[Any, bool], ...]) -> Iterator[tuple[str, Binding]]:
    for node in body:
        if isinstance(node, ast.If):
            yield from _walk(node.body, (*guards, (node.test, True)))
            yield from _walk(node.orelse, (*guards, (node.test, False)))
        elif isinstance(node, ast.Try):
            yield from _walk(node.body, (*guards, (node.body, True)))
            for handler in node.handlers:
                yield from _walk(handler.body, (*guards, (node.body, False)))
            yield from _walk(node.orelse + node.finalbody, guards)
        else:
            yield from ((name, Binding(n, guards, node)) for name, n in _names(node))


def _names(node: ast.stmt) -> Iterator[tuple[str, ast.stmt | ast.alias]]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name, node
    elif isinstance(node, ast.Assign):
        targets = [t for target in node.targets for t in ast.walk(target)]
        yield from ((t.id, node) for t in targets if isinstance(t, ast.Name) and isinstance(t.ctx, ast.Store))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
        yield node.target.id, node
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], alias


class Namespace:
    """One module of the program. `get` gives a name's value; KeyError where the module has none of that name."""

    def __init__(self, program: Program, module: Module) -> None:
        self.program, self.module = program, module
        self.dotted = module.path.removesuffix(".__init__")
        self.bound: dict[str, list[Binding]] = program.bindings(module)
        self.values: dict[str, Any] = {}
        self.scope = Scope(self)

    def get(self, name: str) -> Any:
        """The value of a top-level name or of a submodule."""
        if name not in self.values:
            self.values[name] = self._make(name)
        return self.values[name]

    def _make(self, name: str) -> Any:
        fixed = self.program.world.fixed(self.program, f"{self.dotted}.{name}")
        if fixed is not None:
            return fixed
        chosen = self._binding(name)
        if chosen is not None:
            return self._value(name, chosen)
        inner = self.program.space(f"{self.dotted}.{name}")
        if inner is None:
            raise KeyError(name)
        return inner

    def _binding(self, name: str) -> Binding | None:
        """The last binding whose branch runs; the first where no branch can be told."""
        found = self.bound.get(name, [])
        binding: Binding
        for binding in reversed(found):
            if all(self._holds(guard, wanted) for guard, wanted in binding.guards):
                return binding
        first: Binding | None = found[0] if found else None
        return first

    def _holds(self, guard: Any, wanted: bool) -> bool:
        if isinstance(guard, list):
            return self.program.imports(self, guard) is wanted
        try:
            return self.program.truth(self.program.value(guard, self.scope)) is wanted
        except UnreadableError:
            return False

    def _value(self, name: str, binding: Binding) -> Any:
        node = binding.node
        if isinstance(node, ast.alias):
            return self.program.imported(self, binding.source, node)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            return self._assigned(name, node)
        scope = Scope(self)
        self.program.run(node, scope)
        return scope.names[name]

    def _assigned(self, name: str, node: ast.Assign | ast.AnnAssign) -> Any:
        """What an assignment binds; a value that refers to itself meets its own name."""
        scope = Scope(self)
        self.values[name] = Symbol(f"{self.dotted}.{name}")
        try:
            self.program.bind_all(node, scope)
        except (Raised, UnreadableError):
            del self.values[name]
            raise
        return scope.names[name]
