"""A small interpreter of the Python that vLLM chooses its kernels with: statements, calls, classes and imports.

It runs the selection's own source on a device that is not here (`World`), with what no source tells left unread. A gate
whose answer cannot be told counts as "no", and its expression is noted in `Program.unread`.
"""

from __future__ import annotations

import ast
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from vllm_advisor.vllm.extract_kernels_modules import Namespace, bindings
from vllm_advisor.vllm.extract_kernels_statements import BREAK, CONTINUE, NOTHING, Statements
from vllm_advisor.vllm.extract_kernels_values import (
    Class,
    Function,
    Instance,
    Method,
    Native,
    Raised,
    Scope,
    Super,
    Symbol,
    UnreadableError,
)  # fmt: skip
from vllm_advisor.vllm.extract_kernels_world import ASSUMED


if TYPE_CHECKING:
    from vllm_advisor.vllm.extract_kernels_modules import Binding
    from vllm_advisor.vllm.extract_kernels_world import World
    from vllm_advisor.vllm.source import Module, Package

_DEEP = 120
# A gate and what it returns when its answer cannot be told.
GATES: dict[str, Any] = {
    "is_supported_config": (False, "unread"),
    "is_supported": (False, "unread"),
    "can_implement": (False, "unread"),
    "validate_configuration": ["unread"],
    "is_supported_and_can_implement_kernel": (False, "unread"),
    "_backend_incompatibility_reason": "unread",
}
_BINDINGS: WeakKeyDictionary[Module, dict[str, list[Binding]]] = WeakKeyDictionary()


class Program(Statements):
    """One package run on one device. `unread` collects what its gates could not tell, in order."""

    def __init__(self, package: Package, world: World) -> None:
        super().__init__()
        self.package, self.world = package, world
        self.unread: list[str] = []
        self.hooks: dict[str, Native] = world.hooks()
        self.hooks |= {name: Native(partial(self._assume, name)) for name in ASSUMED}
        self._spaces: dict[str, Namespace | None] = {}
        self._known: dict[Any, tuple[Any, tuple[str, ...]]] = {}
        self._of_config: dict[Any, tuple[Any, tuple[str, ...]]] = {}
        self._looks = 0
        self._depth = 0
        self.steady = False

    def bindings(self, module: Module) -> dict[str, list[Binding]]:
        """What a module binds, found once for all devices."""
        found = _BINDINGS.get(module)
        if found is None:
            found = _BINDINGS[module] = bindings(module.tree)
        return found

    steady: bool
    """Whether the objects that gates are asked with stay what they are: then a gate is asked once."""

    def configuration(self) -> Any:
        """What `get_current_vllm_config()` returns. Results that rest on it are kept apart."""
        self._looks += 1
        return self.world.config

    def _assume(self, name: str, *_: Any) -> bool:
        """Yes to what only another package's data tell, and the question is noted."""
        self.unread.append(f"{name}(…)")
        return True

    def forget(self) -> None:
        """Drops the results that rest on the configuration: it has changed."""
        self._of_config.clear()

    def space(self, dotted: str) -> Namespace | None:
        """A module of the package by its dotted path below it."""
        if dotted not in self._spaces:
            module = self.package.module(dotted)
            self._spaces[dotted] = Namespace(self, module) if module else None
        return self._spaces[dotted]

    def name(self, dotted: str) -> Any:
        """A top-level value by module and name: `platforms.current_platform`. KeyError where there is none."""
        base, _, last = dotted.rpartition(".")
        space = self.space(base)
        if space is None:
            raise KeyError(dotted)
        return space.get(last)

    def imports(self, space: Namespace, body: list[ast.stmt]) -> bool:
        """Whether the imports in a `try` body would succeed."""
        for node in (n for statement in body for n in ast.walk(statement)):
            try:
                if isinstance(node, ast.Import | ast.ImportFrom):
                    for alias in node.names:
                        self.imported(space, node, alias)
            except Raised:
                return False
        return True

    def imported(self, space: Namespace, node: ast.stmt | None, alias: ast.alias) -> Any:
        """The value that an import binds. Raises Raised(ImportError) for a package that is not installed."""
        if isinstance(node, ast.ImportFrom):
            return self._imported_from(self._base(space, node), alias.name)
        if alias.name.partition(".")[0] == "vllm":
            wanted = alias.name.partition(".")[2] if alias.asname else ""
            found = self.space(wanted or "__init__")
            return found if found is not None else Symbol("vllm." + wanted)
        return self._installed(alias.name if alias.asname else alias.name.partition(".")[0])

    def _installed(self, path: str) -> Symbol:
        if not self.world.installed(path):
            raise Raised(ImportError(path))
        return Symbol(path)

    def _base(self, space: Namespace, node: ast.ImportFrom) -> str:
        """`vllm.…` for a module of the package, the dotted name of another's."""
        module = node.module or ""
        if not node.level:
            return module
        parents = space.module.path.split(".")[: -node.level]
        return ".".join(["vllm", *parents, *([module] if module else [])])

    def _imported_from(self, base: str, name: str) -> Any:
        first, _, inner = base.partition(".")
        if first != "vllm":
            self._installed(base)
            return self._of_symbol(Symbol(base), name)
        fixed = self.world.fixed(self, f"{inner}.{name}".lstrip("."))
        if fixed is not None:
            return fixed
        if inner == "envs":
            return self.world.variable(self, name)
        space = self.space(inner or "__init__")
        try:
            return space.get(name) if space else self._submodule(base, name)
        except KeyError:
            return self._submodule(base, name)

    def _submodule(self, base: str, name: str) -> Any:
        """A module that is imported from its package; the wheel's compiled ones are there on CUDA."""
        found = self.space(f"{base}.{name}".partition(".")[2])
        if found is not None:
            return found
        if name.endswith("_C") and self.world.kind == "cuda":
            return Symbol(f"{base}.{name}")
        raise Raised(ImportError(f"{base}.{name}"))

    def call(self, target: Any, given: list[Any], named: dict[str, Any]) -> Any:
        """Calls anything callable."""
        if isinstance(target, Function):
            return self._call(target, given, named)
        if isinstance(target, Method):
            return self.call(target.function, [target.first, *given], named)
        if isinstance(target, Native):
            return target.call(*given, **named)
        if isinstance(target, Class):
            return self.make(target, given, named)
        return self._call_other(target, given, named)

    def _call_other(self, target: Any, given: list[Any], named: dict[str, Any]) -> Any:
        """Calls what is not the program's own: another package's name, or a builtin of Python's."""
        if isinstance(target, Symbol):
            return self.world.called(self, target, given, named)
        if target in (list, tuple) and given:
            return target(self.items(given[0]))
        if target is bool and given:
            return self.truth(given[0])
        if callable(target):
            return self._builtin(target, given, named)
        raise UnreadableError(f"{target!r}(…)")

    def _builtin(self, target: Any, given: list[Any], named: dict[str, Any]) -> Any:
        try:
            return target(*given, **named)
        except (TypeError, AttributeError) as error:
            raise UnreadableError(str(error)) from None
        except (KeyError, ValueError, IndexError, StopIteration) as error:
            raise Raised(error) from None

    def _call(self, function: Function, given: list[Any], named: dict[str, Any]) -> Any:
        """A function's result, remembered where arguments and result are plain values."""
        hook = self.hooks.get(function.name)
        if hook is not None:
            answer = hook.call(given, named)
            if answer is not None:
                return answer
        key = self._key(function, given, named)
        if key is None:
            return self._guarded(function, given, named)
        known = self._known.get(key)
        if known is None and (known := self._of_config.get(key)) is not None:
            self._looks += 1
        if known is not None:
            self.unread += known[1]
            return known[0]
        before, looks = len(self.unread), self._looks
        result = self._guarded(function, given, named)
        if isinstance(result, bool | int | str | float | Symbol | Class | tuple) or result is None:
            stays = self._looks == looks and function.name not in GATES
            store = self._known if stays else self._of_config
            store[key] = result, tuple(self.unread[before:])
        return result

    def _key(self, function: Function, given: list[Any], named: dict[str, Any]) -> Any:
        """What a result depends on; None where it is not only on plain values. A gate's holds while `steady`."""
        gate = function.name in GATES
        if function.scope.outer is not None or (gate and not self.steady):
            return None
        values = [*given, *named.values()]
        objects = [id(v) for v in values if isinstance(v, Instance) and not v.frozen]
        if objects and not gate:
            return None
        try:
            plain = tuple(v for v in values if not isinstance(v, Instance) or v.frozen)
            key = (id(function.node), plain, tuple(objects), tuple(named))
            hash(key)
        except (TypeError, UnreadableError):
            return None
        return key

    def _guarded(self, function: Function, given: list[Any], named: dict[str, Any]) -> Any:
        """A gate that cannot be told says no; another function passes the doubt on."""
        if function.name not in GATES:
            return self._entered(function, given, named)
        try:
            return self._entered(function, given, named)
        except (UnreadableError, Raised) as error:
            if isinstance(error, Raised) and not isinstance(error.error, AttributeError):
                raise
            where = given[0] if given and isinstance(given[0], Class) else function.owner
            self.unread.append(f"{where!r}: {error}" if where else str(error))
            return GATES[function.name]

    def _entered(self, function: Function, given: list[Any], named: dict[str, Any]) -> Any:
        scope = Scope(function.scope.space, function.scope, self._arguments(function, given, named), function)
        if isinstance(function.node, ast.Lambda):
            return self.value(function.node.body, scope)
        self._depth += 1
        try:
            if self._depth > _DEEP:
                raise UnreadableError(f"{function.name}: nested too deeply")
            result = self.block(function.node.body, scope)
        except RecursionError:
            raise UnreadableError(f"{function.name}: nested too deeply") from None
        finally:
            self._depth -= 1
        return None if result in (NOTHING, BREAK, CONTINUE) else result[1]

    def _arguments(self, function: Function, given: list[Any], named: dict[str, Any]) -> dict[str, Any]:
        spec = function.node.args
        names = [a.arg for a in spec.posonlyargs + spec.args]
        found: dict[str, Any] = dict(zip(names, given, strict=False))
        if spec.vararg:
            found[spec.vararg.arg] = tuple(given[len(names) :])
        known = {*names, *(a.arg for a in spec.kwonlyargs)}
        found |= {k: v for k, v in named.items() if k in known}
        if spec.kwarg:
            found[spec.kwarg.arg] = {k: v for k, v in named.items() if k not in known}
        defaults = list(zip(reversed(names), reversed(spec.defaults), strict=False))
        defaults += [(a.arg, d) for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None]
        for name, default in defaults:
            if name not in found:
                found[name] = self.value(default, function.scope)
        return found

    def lookup(self, name: str, scope: Scope) -> Any:
        """A name as Python finds it: locals, enclosing functions, the module, the builtins."""
        here: Scope | None = scope
        while here is not None:
            if name in here.names:
                return here.names[name]
            here = here.outer
        if name == "__name__":
            return f"vllm.{scope.space.dotted}"
        try:
            return scope.space.get(name)
        except KeyError:
            pass
        found = self.builtins.get(name, NOTHING)
        if found is NOTHING:
            raise UnreadableError(name)
        return found

    def super_of(self, scope: Scope) -> Super:
        """`super()` where it is called: the class that defines the method, and the method's first argument."""
        here: Scope | None = scope
        while here is not None and (here.function is None or here.function.owner is None):
            here = here.outer
        if here is None:
            raise UnreadableError("super()")
        return Super(here.function.owner, next(iter(here.names.values())))
